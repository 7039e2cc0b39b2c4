#!/usr/bin/env bash
# format.sh [--fix]: holds the C files against .clang-format, or rewrites them.
# Exit 77 (skipped) where clang-format 14 is not installed: other versions would
# decide details differently. Run from the root.
set -uo pipefail
fmt=
for name in clang-format-14 clang-format; do
    if command -v "$name" >/dev/null && "$name" --version | grep -q 'version 14\.'; then
        fmt=$name
        break
    fi
done
if [ -z "$fmt" ]; then
    echo "clang-format 14 is not installed (scripts/setup.sh --dev)"
    exit 77
fi
mapfile -t files < <(git ls-files --cached '*.c' '*.h')
if [ "${1:-}" = --fix ]; then
    "$fmt" -i "${files[@]}"
    exit
fi
bad=0
for file in "${files[@]}"; do
    [ -e "$file" ] || continue
    if ! "$fmt" "$file" | cmp -s - "$file"; then
        echo "$file"
        bad=$((bad + 1))
    fi
done
echo "${#files[@]} files, $bad to be formatted (tests/lint/format.sh --fix)"
[ $bad = 0 ]

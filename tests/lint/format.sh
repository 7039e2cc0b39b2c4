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
    echo "clang-format 14 is not installed (scripts/setup.sh installs it)"
    exit 77
fi
mapfile -t files < <(git ls-files --cached '*.c' '*.h')
if [ "${1:-}" = --fix ]; then
    "$fmt" -i "${files[@]}"
    exit
fi
bad=$("$fmt" --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):.*code should be clang-formatted.*/\1/p' | sort -u)
[ -z "$bad" ] || echo "$bad"
echo "${#files[@]} files, $(printf '%s' "$bad" | grep -c .) to be formatted (tests/lint/format.sh --fix)"
[ -z "$bad" ]

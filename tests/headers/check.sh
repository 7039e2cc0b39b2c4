#!/usr/bin/env bash
# check.sh [compiler]: compiles each header alone as C17, and those of include/
# also as strict C99 and, where g++ is installed, as C++, and the layouts of handler_abi_*.c. Run from the root.
set -uo pipefail
cc=${1:-cc}
warnings=(-Wall -Wextra -Wshadow -Wpointer-arith -Werror -fsyntax-only -I. -Iinclude)
failed=0 checked=0

alone() { # what, header, compiler and flags
    local what=$1 header=$2
    shift 2
    checked=$((checked + 1))
    if ! printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
        "${1}" "${warnings[@]}" "${@:2}" - 2>/tmp/continuo-headers.$$; then
        failed=$((failed + 1))
        echo "$header does not compile alone as $what:"
        cat /tmp/continuo-headers.$$
    fi
}
trap 'rm -f /tmp/continuo-headers.$$' EXIT

# Lua's, libyaml's ... headers may lie where only pkg-config knows. It is asked for each by itself, because it says nothing
# at all if it does not know one of them; Debian 13 has no msgpack.
outside=()
for library in lua5.4 msgpack libarchive jansson; do
    read -ra flags <<<"$(pkg-config --cflags "$library" 2>/dev/null)"
    outside+=(${flags[@]+"${flags[@]}"})
done
# Python's headers are wanted only for the worker of Python models.
if pkg-config --exists python3; then
    read -ra python <<<"$(pkg-config --cflags python3)"
    outside+=("${python[@]}")
    with_python=1
fi
for header in */*.h */*/*.h; do
    case $header in build/* | tests/* | include/* | examples/* | */testdata/*) continue ;; esac
    case $header in handlers/python/py_api.h | handlers/python/py_priv.h)
        [ -n "${with_python-}" ] || continue ;; esac
    alone C17 "$header" "$cc" -x c -std=gnu17 -D_GNU_SOURCE -Wstrict-prototypes \
        -Wno-unused-function ${outside[@]+"${outside[@]}"}
done
for header in include/*/*.h; do
    [ -e "$header" ] || continue
    alone C99 "${header#include/}" "$cc" -x c -std=c99 -pedantic -Wstrict-prototypes
    alone C17 "${header#include/}" "$cc" -x c -std=c17 -pedantic -Wstrict-prototypes
    if command -v g++ >/dev/null; then
        # In C++ a function that shares its name with a struct counts as shadowing it.
        alone C++ "${header#include/}" g++ -x c++ -std=c++11 -pedantic -Wno-shadow
    fi
done
# What was compiled against an earlier minor version of the handlers' ABI still fits.
for layout in tests/headers/handler_abi_*.c; do
    alone C17 "$layout" "$cc" -x c -std=c17
done
echo "$checked compilations of headers, $failed failed"
[ $failed = 0 ] && [ $checked != 0 ]

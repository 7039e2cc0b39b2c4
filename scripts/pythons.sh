#!/usr/bin/env bash
# Prints interpreters for the tests of Python handlers (CONTINUO_PYTHONS), with colons between them: the
# one given as the argument, and the oldest and the newest version that are tested, where this machine
# has them. They are searched in PATH and among pyenv's. No package registry that the set-up uses has
# them: Debian 12 has 3.11 only. Versions that are not found are named on standard error.
#   scripts/pythons.sh .venv/bin/python
set -uo pipefail

found=$(realpath -s "$(command -v "$1")")
for version in 3.9 3.13; do
    path=
    for candidate in "$(command -v "python$version")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/"python$version"; do
        if [ -x "$candidate" ] && "$candidate" -c 'import sys, ctypes, asyncio' 2>/dev/null; then
            path=$candidate
            break
        fi
    done
    if [ -n "$path" ]; then
        found+=:$path
    else
        echo "Python $version: not on this machine" >&2
    fi
done
echo "$found"

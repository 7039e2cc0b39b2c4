#!/usr/bin/env bash
# Shows where the time of a step goes: samples a server under load with perf, and draws a flame graph as SVG.
#   scripts/profile.sh                     the counter in Lua over HTTP, 64 connections: build/profile/http-lua-64.svg
#   scripts/profile.sh --row v2-binary     another model and load; --help lists them
#   scripts/profile.sh --counts http-lua   counts instructions by function with callgrind instead
# It needs a build (scripts/build.sh), and perf (Debian's linux-perf) or valgrind. It loads nothing from the network.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${CONTINUO_PYTHON:-.venv/bin/python}
if [ ! -x "$python" ]; then
    echo "scripts/profile.sh: there is no $python; scripts/setup.sh makes it" >&2
    exit 1
fi
exec "$python" bench/suite/profile.py "$@"

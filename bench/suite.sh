#!/usr/bin/env bash
# Compares Continuo with ceilings (bare echoes) and with TorchServe and Triton, and writes docs/benchmarks.md with its
# plots. It builds Continuo, and installs the other servers and matplotlib once into ~/.cache/continuo/peers
# (CONTINUO_PEERS names another folder). TorchServe needs Java 17, and one table is by the load tool wrk; both are
# installed where apt-get may. What cannot be had is a row that says so.
#   bench/suite.sh             a quarter of an hour once all is built and installed; writes docs/benchmarks.md
#   bench/suite.sh --quick     one short round; writes build/suite/benchmarks.md
#   bench/suite.sh --help      lists all options
# CONTINUO_BUILD names another build folder than build/release.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${CONTINUO_PYTHON:-.venv/bin/python}
if [ ! -x "$python" ]; then
    scripts/setup.sh
fi
if [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; then
    exec "$python" bench/suite/main.py --help
fi
if [ -z "${CONTINUO_BUILD:-}" ] && [[ " $* " != *" --draw "* ]]; then # the page names the commit, so build what it has
    cmake --preset release >/dev/null
    cmake --build --preset release --target programs
fi
if ! command -v java >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null ||
        echo "bench/suite.sh: Java 17 cannot be installed, so TorchServe is left out" >&2
fi
if ! command -v wrk >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get install -y -qq --no-install-recommends wrk >/dev/null ||
        echo "bench/suite.sh: wrk cannot be installed, so its table is left out" >&2
fi
exec "$python" bench/suite/main.py "$@"

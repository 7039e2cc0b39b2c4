#!/usr/bin/env bash
# Compares Continuo with ceilings (bare echoes) and with TorchServe and Triton, and writes docs/benchmarks.md with its
# plots. It builds Continuo, and installs the other servers and matplotlib once into ~/.cache/continuo/peers
# (CONTINUO_PEERS names another folder). TorchServe needs Java 17, which is installed where apt-get may; what cannot be
# had is a row that says so.
#   bench/suite.sh             about 20 minutes; writes docs/benchmarks.md
#   bench/suite.sh --quick     about two minutes once everything is installed; writes build/suite/benchmarks.md
#   bench/suite.sh --help      lists all options
# CONTINUO_BUILD names another build folder than build/release.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${CONTINUO_PYTHON:-.venv/bin/python}
if [ ! -x "$python" ]; then
    scripts/setup.sh
fi
if [ ! -x "${CONTINUO_BUILD:-build/release}/bin/grpc-bench" ]; then
    cmake --preset release
    cmake --build --preset release --target programs
fi
if ! command -v java >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null ||
        echo "bench/suite.sh: Java 17 cannot be installed, so TorchServe is left out" >&2
fi
exec "$python" bench/suite/main.py "$@"

#!/usr/bin/env bash
# Chaos against a build (CONTINUO_BUILD, default build/release): see docs/reliability.md.
#   tests/chaos/run.sh [--seconds N] [--sequences N] [--seed S] [--clients ask|keys|numbers] [--loops N] [--grpc SHARE] [--no-mount]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
exec "${CONTINUO_PYTHON:-$python}" tests/chaos/chaos.py "$@"

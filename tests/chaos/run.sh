#!/usr/bin/env bash
# Chaos against a build (CONTINUO_BUILD, default build/release): see docs/reliability.md.
#   tests/chaos/run.sh [--seconds N] [--sequences N] [--seed S] [--idempotency] [--no-mount]
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${CONTINUO_PYTHON:-python3}" tests/chaos/chaos.py "$@"

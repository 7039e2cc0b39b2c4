#!/usr/bin/env bash
# Lets Prometheus' own tool check the rules of packaging/grafana, and run them on made-up series
# (promtool_tests.yml). Exit 77 (skipped) where promtool is missing; Debian's package prometheus has
# it. Run from the root.
set -euo pipefail
promtool=${PROMTOOL:-$(command -v promtool || true)}
if [ -z "$promtool" ]; then
    echo "promtool is not installed (Debian's package prometheus has it)"
    exit 77
fi
cd packaging/grafana
"$promtool" check rules rules.yml alerts.yml
cd ../..
"$promtool" test rules tests/lint/promtool_tests.yml

#!/usr/bin/env bash
# model_page.sh PROGRAM [--fix]: docs/model-config.md is what the tables say, or is written anew.
# Run from the root.
set -euo pipefail
page=docs/model-config.md
if [ "${2:-}" = --fix ]; then
    "$1" --print-model-page >"$page"
    exit
fi
"$1" --print-model-page | diff -u "$page" - ||
    { echo "$page is stale: tests/lint/model_page.sh $1 --fix"; exit 1; }

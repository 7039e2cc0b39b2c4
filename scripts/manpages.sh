#!/usr/bin/env bash
# Writes the manual pages from the option tables, by the programs themselves:
#   scripts/manpages.sh [folder of the binaries] [target folder]
# Defaults: build/release/bin and build/man. View one: man -l build/man/continuo.1
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-build/release/bin}
out=${2:-build/man}
mkdir -p "$out"
begun=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$begun"' EXIT

page() { # file, program, flag
    "$bin/$2" "$3" >"$begun/$1"
    mv "$begun/$1" "$out/$1" # whoever reads the page meanwhile reads a whole one
    echo "$out/$1"
}

page continuo.1 continuo --print-man
page continuo.yaml.5 continuo --print-yaml-man
page continuo-archiver.1 continuo-archiver --print-man
page continuo-ctl.1 continuo-ctl --print-man
page continuo-dev.1 continuo-dev --print-man
page torchserve.1 torchserve --print-man
echo ".so man1/continuo-archiver.1" >"$out/torch-model-archiver.1" # the same program
echo "$out/torch-model-archiver.1"

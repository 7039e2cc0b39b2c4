#!/usr/bin/env bash
# Writes the completions for shells from the option tables, by the programs themselves:
#   scripts/completions.sh [folder of the binaries] [target folder]
# Defaults: build/release/bin and build/completions. The folders below the target are those that
# the shells look into: bash-completion/completions, zsh/vendor-completions, fish/vendor_completions.d
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-build/release/bin}
out=${2:-build/completions}
mkdir -p "$out/bash-completion/completions" "$out/zsh/vendor-completions" "$out/fish/vendor_completions.d"
begun=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$begun"' EXIT

put() { # program, shell, file: whoever reads the file meanwhile reads a whole one
    "$bin/$1" --print-completions "$2" >"$begun/file"
    mv "$begun/file" "$out/$3"
}

for program in continuo continuo-ctl; do
    put "$program" bash "bash-completion/completions/$program"
    put "$program" zsh "zsh/vendor-completions/_$program"
    put "$program" fish "fish/vendor_completions.d/$program.fish"
done

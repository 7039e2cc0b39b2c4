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
for program in continuo continuo-ctl; do
    "$bin/$program" --print-completions bash >"$out/bash-completion/completions/$program"
    "$bin/$program" --print-completions zsh >"$out/zsh/vendor-completions/_$program"
    "$bin/$program" --print-completions fish >"$out/fish/vendor_completions.d/$program.fish"
done

#!/usr/bin/env bash
# Installs what the build needs, configures the build and builds the programs: scripts/build.sh [PRESET]
# PRESET is release (the default), debug, asan, tsan, coverage or fuzz. The programs are in build/PRESET/bin.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
case $preset in
-h | --help) sed -n '2,3s/^# \{0,1\}//p' "$0"; exit 0 ;;
release | debug | asan | tsan | coverage) scripts/setup.sh --build ;;
fuzz) scripts/setup.sh --build --dev ;;
*) echo "scripts/build.sh: no preset $preset (release debug asan tsan coverage fuzz)" >&2; exit 2 ;;
esac
echo "build: cmake --preset $preset"
cmake --preset "$preset" >/dev/null
# Tests run in the other builds, so the release build is without their programs.
target=all
[ "$preset" != release ] || target=programs
echo "build: cmake --build --preset $preset --target $target"
cmake --build --preset "$preset" --target "$target"
echo "build: the binaries are in build/$preset/bin"

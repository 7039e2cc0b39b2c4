#!/usr/bin/env bash
# Builds the library for TorchScript models for more versions of PyTorch than that of .venv, each against its own headers:
#   scripts/torch_versions.sh [VERSION...]    2.12.1 and 2.14.1 if none is named
# They are build/release/bin/libcontinuo_torch-2.12.so and so on, and scripts/package.sh wheels puts all of them into the
# wheel continuo-torch. A worker opens the one that fits the PyTorch that it finds (docs/torch.md). PyTorch's wheels come
# from pip's registry, half a gigabyte each. What is needed of them, without the libraries for GPUs, stays in
# build/torch/VERSION; the wheel itself is removed.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
-h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
-*) echo "scripts/torch_versions.sh: unknown argument $1 (--help says what it takes)" >&2; exit 2 ;;
esac
[ $# -gt 0 ] || set -- 2.12.1 2.14.1
[ -x .venv/bin/python ] || { echo "scripts/torch_versions.sh: there is no .venv (scripts/setup.sh)" >&2; exit 1; }
[ -f build/release/CMakeCache.txt ] || { echo "scripts/torch_versions.sh: no release build (scripts/build.sh)" >&2; exit 1; }
work=
trap 'rm -rf "$work"' EXIT

# The headers and the libraries that ours names, of one version of PyTorch.
fetch() { # version
    mkdir -p build/torch
    work=$(mktemp -d build/torch/new-XXXXXX)
    echo "torch: pip download torch==$1"
    .venv/bin/python -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "torch==$1"
    (cd "$work" && python3 -m zipfile -e torch-*.whl . && rm torch-*.whl)
    mkdir "$work/kept" "$work/kept/lib"
    mv "$work/torch/include" "$work/torch/version.py" "$work/kept/"
    mv "$work"/torch/lib/{libtorch,libtorch_cpu,libc10}.so "$work/kept/lib/"
    mv "$work/kept" "build/torch/$1"
    rm -rf "$work"
}

folders=
for version in "$@"; do
    [ -e "build/torch/$version" ] || fetch "$version"
    folders+=";$PWD/build/torch/$version"
done
cmake --preset release "-DCN_TORCH_MORE_DIRS=${folders#;}" >/dev/null
cmake --build --preset release --target programs
ls build/release/bin/libcontinuo_torch*.so

#!/usr/bin/env bash
# Checks TorchScript models on a GPU, on any x86-64 machine that has one.
#
#   tests/gpu/run.sh pack [FOLDER]   in a checkout: makes one folder (default build/gpu-bundle) with the
#                                    programs, the libraries that they need, and these checks
#   ./run.sh [--device cpu|gpu] [--python PYTHON] [--only NAME ...]
#                                    in that folder, on the machine with the GPU: compiles the TorchScript
#                                    library against the PyTorch of PYTHON (default: python3), runs the
#                                    checks and prints a table; takes less than eight minutes
#
# The machine needs Linux with glibc 2.36 or newer (Debian 12, Ubuntu 24.04), PyTorch with CUDA, cmake and
# a C++ compiler. It needs no network, and nothing is installed or run as root. `--device cpu` runs all
# that can be run without a GPU. Exit status: 0 when every check holds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

say() { echo "gpu: $*"; }
fail() { echo "tests/gpu/run.sh: $*" >&2; exit 1; }

# The C library and the C++ library stay those of the machine: its PyTorch needs them.
is_the_machines() {
    case $1 in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | ld-linux* | \
        libstdc++.so.* | libgcc_s.so.*) return 0 ;;
    esac
    return 1
}

copy_libraries() { # into the folder, for these programs
    local into=$1 name path
    shift
    ldd "$@" | awk '$2 == "=>" && $3 ~ "^/" {print $1, $3}' | sort -u | while read -r name path; do
        is_the_machines "$name" || install -m 755 "$path" "$into/$name"
    done
}

pack() {
    local root bundle build=build/gpu programs model
    root=$(cd "$here/../.." && pwd)
    cd "$root"
    bundle=${1:-build/gpu-bundle}
    programs=(continuo continuo-worker continuo-archiver continuo-bench)
    say "building into $build: programs that look for their libraries in ../lib"
    # DT_RPATH, unlike DT_RUNPATH, holds for the libraries of libraries, too.
    cmake --preset release -B "$build" -DCN_TORCH_DIR=/none \
        '-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath,\$ORIGIN/../lib' \
        '-DCMAKE_MODULE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath,\$ORIGIN/../../../lib' >/dev/null
    cmake --build "$build" --target "${programs[@]}" continuo-python | tail -n 1
    rm -rf "$bundle"
    mkdir -p "$bundle"/{bin,lib,src,models}
    for program in "${programs[@]}"; do
        strip -o "$bundle/bin/$program" "$build/bin/$program"
    done
    copy_libraries "$bundle/lib" "${programs[@]/#/$build/bin/}"
    cp -r "$build/bin/python" "$bundle/bin/python" # for handlers in Python
    strip "$bundle/bin/python/continuo/_worker.abi3.so"
    copy_libraries "$bundle/lib" "$build/bin/python/continuo/_worker.abi3.so"
    tar -c handlers core include | tar -x -C "$bundle/src" --wildcards '*.h' '*.cpp' '*.map'
    cp tests/gpu/plugin.cmake "$bundle/src/CMakeLists.txt"
    cp tests/gpu/{run.sh,check.py,models.py,server.py} "$bundle/"
    cp examples/vad/model-config.yaml "$bundle/models/vad.yaml"
    model=$(find -L .venv -path '*/silero_vad/data/silero_vad.jit' 2>/dev/null | head -n 1)
    if [ -n "$model" ]; then
        cp "$model" "$bundle/models/vad.pt"
    else
        say "silero-vad is not in .venv (scripts/setup.sh --torch): the bundle goes without it"
    fi
    git rev-parse HEAD 2>/dev/null >"$bundle/commit" || true
    say "$bundle: $(du -sm "$bundle" | cut -f1) MB; copy it to the machine and run run.sh there"
    [ "$(du -sm "$bundle" | cut -f1)" -lt 60 ] || fail "the bundle is larger than 60 MB"
}

compile() { # python
    local torch
    torch=$("$1" -c 'import os, torch; print(os.path.dirname(torch.__file__))') ||
        fail "$1 has no PyTorch; name another interpreter with --python"
    say "compiling the TorchScript library against $torch"
    cmake -S src -B build -DCMAKE_BUILD_TYPE=Release -DCN_TORCH_DIR="$torch" >build.log 2>&1 &&
        cmake --build build >>build.log 2>&1 || { tail -n 30 build.log; fail "it does not compile, see above"; }
}

run() {
    local python=python3 args=() glibc
    while [ $# -gt 0 ]; do
        case $1 in
        --python) python=$2; shift ;;
        -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) args+=("$1") ;;
        esac
        shift
    done
    cd "$here"
    [ -x bin/continuo ] || fail "this is not a bundle; make one with: tests/gpu/run.sh pack"
    glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || glibc="another C library"
    [ "$(printf 'glibc 2.36\n%s\n' "$glibc" | sort -V | head -n 1)" = "glibc 2.36" ] ||
        fail "the programs of this bundle need glibc 2.36 or newer, as Debian 12 and Ubuntu 24.04 have it, and" \
            "this machine has $glibc"
    compile "$python"
    exec "$python" check.py ${args[@]+"${args[@]}"}
}

case ${1:-} in
pack) shift; pack "$@" ;;
*) run "$@" ;;
esac

#!/usr/bin/env bash
# linked.sh FOLDER: no program here is C++ or needs libtorch, whatever is installed: a TorchScript
# model brings both, in a worker. FOLDER holds the binaries. (Debian's libarchive brings ICU, which is
# C++, so that the server is asked only for what it names itself.)
set -euo pipefail
bad=0
for program in continuo torchserve continuo-archiver continuo-ctl continuo-dev continuo-worker; do
    if needs=$(readelf -d "$1/$program" | grep -E 'libstdc\+\+|libc\+\+|libtorch|libc10') ||
        needs=$(ldd "$1/$program" | grep -E 'libtorch|libc10'); then
        echo "$program needs:" $needs
        bad=1
    fi
done
if needs=$(ldd "$1/continuo-worker" | grep -E 'libstdc\+\+|libc\+\+'); then
    echo "continuo-worker needs:" $needs
    bad=1
fi
for library in "$1"/libcontinuo_torch*.so; do
    [ -e "$library" ] || continue
    symbols=$(nm -D --defined-only "$library" | awk '{print $3}' | xargs)
    [ "$symbols" = continuo_torch ] || { echo "${library##*/} exports: $symbols"; bad=1; }
done
exit $bad

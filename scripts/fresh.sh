#!/usr/bin/env bash
# Checks that README's two commands work on a machine where nothing was installed by hand. The script makes
# an empty Debian 12 root with mmdebstrap and puts a clean clone of HEAD into it. There it runs
# scripts/demo.sh, the same with --cluster, and scripts/test.sh. Then it removes the root.
#   scripts/fresh.sh           both as README has them, over an hour on 2 cores
#   scripts/fresh.sh --cache   the empty root of this week and the compiler cache of this machine
#                              are used again
#   scripts/fresh.sh --quick   the same with test.sh --sample, a few minutes
#   scripts/fresh.sh --debian-13  instead, on Debian 13 with its newer compiler and libraries: the debug
#                              build, its unit tests and an end-to-end test of each file
#   scripts/fresh.sh --keep    the root stays where it is, to look into; beside the others
# The script needs root's rights and Debian's and Python's package registries, as apt and pip of this
# machine are configured for (sources, proxies, certificates). The exit status is 0 if both commands worked,
# and 1 if one did not: its output is above the last line, and its logs are in build/fresh-logs. It is 77 if
# they could not be tried; the last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/empty-root.sh

quick= cached= keep= release=
for arg in "$@"; do
    case $arg in
    --quick) quick=1 cached=1 ;;
    --cache) cached=1 ;;
    --debian-13) release=trixie cached=1 ;;
    --keep) keep=1 ;;
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "scripts/fresh.sh: unknown argument $arg (--help lists the options)" >&2; exit 2 ;;
    esac
done
source=$PWD # the clone has the same path in the root, so that the compiler cache knows its files
cache=${XDG_CACHE_HOME:-$HOME/.cache}/continuo

say() { echo "fresh: $*"; }

skip() {
    echo "fresh root: not tried: $*"
    exit 77
}

trap cleanup EXIT
trap 'exit 130' INT TERM HUP

clone_into() { # folder; by way of a bundle, since git lets root clone no repository of another user
    git -c safe.directory='*' bundle create -q "$work/clone.bundle" HEAD
    mkdir -p "$(dirname "$1")"
    git clone -q "$work/clone.bundle" "$1"
    rm "$work/clone.bundle"
    [ -z "$(git -c safe.directory='*' status --porcelain)" ] || say "changes that are not committed are left out"
}

keep_logs() {
    rm -rf build/fresh-logs
    [ ! -d "$root$source/build/test-logs" ] ||
        { mkdir -p build && cp -r "$root$source/build/test-logs" build/fresh-logs; }
}

# Packages are made on Debian 12, so what needs them, or names its libraries, is left out.
try_debian_13() {
    in_root scripts/setup.sh && in_root scripts/build.sh debug &&
        in_root ctest --preset debug -E '^lint[.]' && in_root env CONTINUO_BUILD=build/debug CONTINUO_TEST_FACTOR=4 \
        PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 .venv/bin/python -m pytest -q -rfE -p xdist -n "$(nproc)" -p no:cacheprovider \
        --rootdir . -p tests.support.failures -m "not load" --one-of-each-file tests/e2e --ignore tests/e2e/test_wheel.py
}

began=$SECONDS
find_tools
make_work_folder fresh
make_empty_root
ccache_dir=
[ -z "$cached" ] || ! command -v ccache >/dev/null || ccache_dir=$(ccache --get-config cache_dir)
[ -z "$ccache_dir" ] || mkdir -p "$ccache_dir"
configure_root
clone_into "$root$source"
say "the root is ready after $((SECONDS - began)) s"
if [ -n "$release" ]; then
    try_debian_13 || { echo "fresh root: something fails on Debian 13; its output is above"; exit 1; }
    echo "fresh root: the build and the tests pass on Debian 13"
    exit 0
fi
failed=
in_root scripts/demo.sh || failed=1
in_root scripts/demo.sh --cluster || failed=1
in_root scripts/test.sh ${quick:+--sample} || failed=1
keep_logs
printf 'fresh: %s\n' "${times[@]}"
if [ -n "$failed" ]; then
    echo "fresh root: README's commands do not hold on an empty Debian 12 (logs: build/fresh-logs)"
    exit 1
fi
echo "fresh root: README's commands hold on an empty Debian 12"

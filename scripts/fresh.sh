#!/usr/bin/env bash
# Whether README's two commands hold on a machine where nothing was installed by hand. Makes an
# empty Debian 12 root with mmdebstrap, puts a clean clone of HEAD into it, runs scripts/demo.sh,
# the same with --cluster and scripts/test.sh there, and removes the root.
#   scripts/fresh.sh           both as README has them, over an hour on 2 cores
#   scripts/fresh.sh --cache   the empty root of this week and the compiler cache of this machine
#                              are used again
#   scripts/fresh.sh --quick   the same with test.sh --sample, a few minutes
#   scripts/fresh.sh --keep    the root stays where it is, to look into; beside the others
# Needs root's rights and Debian's and Python's package registries, as apt and pip of this machine
# are configured for (sources, proxies, certificates). Exit 0: both commands held. 1: one did not;
# its output is above the last line, its logs are in build/fresh-logs. 77: they could not be tried,
# and the last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian-root.sh

quick= cached= keep=
for arg in "$@"; do
    case $arg in
    --quick) quick=1 cached=1 ;;
    --cache) cached=1 ;;
    --keep) keep=1 ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
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

# What runs in the root is one process tree with mounts of its own: when its first process is killed, all
# others are, and the mounts are gone with them. So nothing is ever unmounted here, and what is removed
# has no mount in it.
work= child=
stop_child() {
    [ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
    [ -z "$child" ] || wait "$child" 2>/dev/null || true
    child=
}
cleanup() {
    stop_child
    if [ -z "$work" ] || grep -q " $work/" /proc/self/mountinfo; then
        return
    elif [ -n "$keep" ]; then
        say "the root is $work/root"
    else
        rm -rf --one-file-system "$work"
    fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

apart() { # command...: in a process tree and with mounts of its own; no terminal to ask
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child -- "$@" </dev/null &
    child=$!
    local rc=0
    wait "$child" || rc=$?
    child=
    return $rc
}

find_tools() {
    local tool
    [ "$(id -u)" = 0 ] || skip "needs root's rights, for the mounts of a new root (sudo scripts/fresh.sh)"
    for tool in apt-get unshare setpriv git; do
        command -v "$tool" >/dev/null || skip "there is no $tool here"
    done
    unshare --mount --pid --fork --kill-child true 2>/dev/null ||
        skip "this system lets nobody make process trees and mounts of their own (unshare)"
    if ! command -v mmdebstrap >/dev/null; then
        say "apt-get install mmdebstrap"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends mmdebstrap >/dev/null ||
            skip "mmdebstrap is missing, and apt-get cannot install it"
    fi
    certificates=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
}

make_empty_root() {
    local key tar
    debian_sources >"$work/sources.list"
    [ -s "$work/sources.list" ] || skip "apt of this machine has no Debian 12 (bookworm) among its sources"
    write_apt_configuration "$certificates" "$certificates" >"$work/apt.conf"
    key=$(cat "$work/sources.list" "$work/apt.conf" | sha256sum | cut -c 1-16)
    tar=$cache/debian-12-$key.tar
    if [ -z "$cached" ] || [ -z "$(find "$tar" -mtime -7 2>/dev/null)" ]; then
        say "mmdebstrap makes an empty Debian 12"
        tar=$work/new.tar
        mkdir "$work/tmp"
        apart env TMPDIR="$work/tmp" mmdebstrap --quiet --mode=root --variant=minbase --format=tar \
            --aptopt="$work/apt.conf" --customize-hook='rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"' \
            bookworm "$tar" "$work/sources.list" ||
            skip "mmdebstrap could make no root from the package registry that apt is configured with"
        if [ -n "$cached" ]; then
            mkdir -p "$cache"
            rm -f "$cache"/debian-12-*.tar
            mv "$tar" "$cache/debian-12-$key.tar"
            tar=$cache/debian-12-$key.tar
        fi
    fi
    mkdir "$work/root"
    tar -xpf "$tar" -C "$work/root"
    rm -f "$work/new.tar"
    root=$work/root
}

# What a machine has from its network: names, registries, proxies' certificates.
configure_root() {
    local file
    cat /etc/resolv.conf >"$root/etc/resolv.conf"
    cat /etc/hosts >"$root/etc/hosts"
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io" # the root need not survive a power cut
    cp "$work/sources.list" "$root/etc/apt/sources.list"
    write_apt_configuration "$certificates" /etc/ssl/machine.crt >"$root/etc/apt/apt.conf.d/01machine"
    [ ! -f "$certificates" ] || install -D -m 644 "$certificates" "$root/etc/ssl/machine.crt"
    mkdir -p "$root/usr/local/share/ca-certificates"
    for file in /usr/local/share/ca-certificates/*.crt; do
        [ ! -f "$file" ] || cp "$file" "$root/usr/local/share/ca-certificates/"
    done
    sed -n 's/.*signed-by=\([^]]*\).*/\1/p' "$work/sources.list" | sort -u | while read -r file; do
        [ -e "$root$file" ] || install -D -m 644 "$file" "$root$file"
    done
    for file in /etc/apt/auth.conf /etc/apt/auth.conf.d/*.conf; do
        [ ! -f "$file" ] || cp -p "$file" "$root$file"
    done
    for file in /etc/pip.conf "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf"; do
        [ ! -f "$file" ] || install -D -m 600 "$file" "$root${file/#$HOME//root}"
    done
    [ -z "${PIP_CONFIG_FILE:-}" ] || install -D -m 600 "$PIP_CONFIG_FILE" "$root/etc/machine-pip.conf"
    clone_into "$root$source"
}

clone_into() { # folder; by way of a bundle, since git lets root clone no repository of another user
    git -c safe.directory='*' bundle create -q "$work/clone.bundle" HEAD
    mkdir -p "$(dirname "$1")"
    git clone -q "$work/clone.bundle" "$1"
    rm "$work/clone.bundle"
    [ -z "$(git -c safe.directory='*' status --porcelain)" ] || say "changes that are not committed are left out"
}

# Folders of this machine that its pip is told to look into, beside the registry. The files of an index
# may lie beside its folder simple/.
pip_folders() {
    { cat /etc/pip.conf "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf" "${PIP_CONFIG_FILE:-/dev/null}" || true
        env | grep '^PIP_' || true; } 2>/dev/null | tr ' =\t' '\n\n\n' |
        sed -n 's#^\(file://\)\{0,1\}\(/..*\)#\2#p' | sed 's#/simple/*$##' | sort -u |
        while read -r path; do [ ! -d "$path" ] || echo "$path"; done
}

environment() {
    local name
    printf '%s\n' HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb
    for name in {http,https,ftp,no,all}_proxy {HTTP,HTTPS,FTP,NO,ALL}_PROXY \
        PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT; do
        [ -z "${!name:-}" ] || printf '%s\n' "$name=${!name}"
    done
    [ -z "${PIP_CONFIG_FILE:-}" ] || echo PIP_CONFIG_FILE=/etc/machine-pip.conf
    [ ! -f "$certificates" ] || echo PIP_CERT=/etc/ssl/machine.crt
    if [ -n "$ccache_dir" ]; then
        printf '%s\n' CCACHE_DIR=/var/cache/ccache "CCACHE_BASEDIR=$(ccache --get-config base_dir)" \
            "CCACHE_$([ "$(ccache --get-config hash_dir)" = true ] || echo NO)HASHDIR=1"
    fi
}

# Runs as the first process of the tree. Arguments: the root, the folder to begin in, the compiler cache
# or "", the number of folders for pip, these, the command. bash runs it from its text.
inside() {
    set -euo pipefail
    local root=$1 begin=$2 ccache_dir=$3 count=$4 each
    shift 4
    show() { mkdir -p "$root$2" && mount --bind "$1" "$root$2"; }
    for ((; count > 0; count--)); do
        show "$1" "$1"
        shift
    done
    [ -z "$ccache_dir" ] || show "$ccache_dir" /var/cache/ccache
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    for each in null zero full random urandom tty; do
        touch "$root/dev/$each"
        mount --bind "/dev/$each" "$root/dev/$each"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    for each in 0:stdin 1:stdout 2:stderr; do
        ln -s "/proc/self/fd/${each%:*}" "$root/dev/${each#*:}"
    done
    exec env -i "${environment[@]}" chroot "$root" /bin/sh -c 'cd "$0" && "$@"' "$begin" "$@"
}

times=()
in_root() { # command...: as a person would type it
    local began=$SECONDS folders env_text rc=0
    mapfile -t folders < <(pip_folders)
    mapfile -t env_text < <(environment)
    say "$*"
    apart bash -c "$(declare -p env_text | sed 's/env_text/environment/'); $(declare -f inside)
        inside \"\$@\"" inside "$root" "$source" "$ccache_dir" ${#folders[@]} ${folders[@]+"${folders[@]}"} "$@" ||
        rc=$?
    times+=("$* ended with $rc after $((SECONDS - began)) s")
    return $rc
}

keep_logs() {
    rm -rf build/fresh-logs
    [ ! -d "$root$source/build/test-logs" ] ||
        { mkdir -p build && cp -r "$root$source/build/test-logs" build/fresh-logs; }
}

began=$SECONDS
find_tools
work=$(mktemp -d "${TMPDIR:-/tmp}/continuo-fresh-XXXXXX")
work=$(realpath "$work")
make_empty_root
ccache_dir=
[ -z "$cached" ] || ! command -v ccache >/dev/null || ccache_dir=$(ccache --get-config cache_dir)
[ -z "$ccache_dir" ] || mkdir -p "$ccache_dir"
configure_root
say "the root is ready after $((SECONDS - began)) s"
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

# Functions of scripts/fresh.sh, try_packages.sh and try_service.sh, which run commands in an empty Debian 12: a tree of
# its base system, in which they are the only processes. A script that sources them defines say() and
# skip(), which ends the script because something is missing here, and sets:
#   source       the folder in the tree in which a command begins
#   cached       not empty: the tree of this week is used again
#   keep         not empty: cleanup leaves the tree where it is
#   cache        where trees are kept
#   ccache_dir   a compiler cache that commands see, or empty
#   offline      not empty: commands have no network
#   release      the name of another Debian than 12, such as trixie
# The functions set work, root, certificates and times.
. scripts/debian-root.sh
work= child= times=() offline=

# What runs in the root is one process tree with mounts of its own: when its first process is killed, all
# others are, and the mounts are gone with them. So nothing is ever unmounted here, and what is removed
# has no mount in it.
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
# Runs a command in a process tree and with mounts of its own; there is no terminal to ask. If `offline` is set, it
# has a network of its own as well, with nothing in it but the loopback interface.
apart() { # command...
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child ${offline:+--net} -- "$@" </dev/null &
    child=$!
    local rc=0
    wait "$child" || rc=$?
    child=
    return $rc
}

find_tools() {
    local tool
    [ "$(id -u)" = 0 ] || skip "needs root's rights, for the mounts of a new root (sudo $0)"
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

make_work_folder() { # name
    work=$(mktemp -d "${TMPDIR:-/tmp}/continuo-$1-XXXXXX")
    work=$(realpath "$work")
}

make_empty_root() {
    local key tar
    debian_sources | sed "s/ bookworm/ ${release:-bookworm}/" >"$work/sources.list"
    [ -s "$work/sources.list" ] || skip "apt of this machine has no Debian 12 (bookworm) among its sources"
    write_apt_configuration "$certificates" "$certificates" >"$work/apt.conf"
    key=$(cat "$work/sources.list" "$work/apt.conf" | sha256sum | cut -c 1-16)
    tar=$cache/${release:-debian-12}-$key.tar
    if [ -z "$cached" ] || [ -z "$(find "$tar" -mtime -7 2>/dev/null)" ]; then
        say "mmdebstrap makes an empty ${release:-Debian 12}"
        tar=$work/new.tar
        mkdir "$work/tmp"
        apart env TMPDIR="$work/tmp" mmdebstrap --quiet --mode=root --variant=minbase --format=tar \
            --aptopt="$work/apt.conf" --customize-hook='rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"' \
            "${release:-bookworm}" "$tar" "$work/sources.list" ||
            skip "mmdebstrap could make no root from the package registry that apt is configured with"
        if [ -n "$cached" ]; then
            mkdir -p "$cache"
            rm -f "$cache/${release:-debian-12}"-*.tar
            mv "$tar" "$cache/${release:-debian-12}-$key.tar"
            tar=$cache/${release:-debian-12}-$key.tar
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
    [ -z "${offline:-}" ] || switch_loopback_on
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

in_root() { # command...: as a person would type it
    local began=$SECONDS folders env_text rc=0
    mapfile -t folders < <(pip_folders)
    mapfile -t env_text < <(environment)
    say "$*"
    apart bash -c "offline=$offline; $(declare -p env_text | sed 's/env_text/environment/'); $(declare -f inside switch_loopback_on)
        inside \"\$@\"" inside "$root" "$source" "$ccache_dir" ${#folders[@]} ${folders[@]+"${folders[@]}"} "$@" ||
        rc=$?
    times+=("$* ended with $rc after $((SECONDS - began)) s")
    return $rc
}

quietly() { # command... in the tree; what it says is shown if it fails
    in_root "$@" >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
}

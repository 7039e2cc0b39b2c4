#!/usr/bin/env bash
# Tries what scripts/package.sh has made, in an empty Debian 12 for each, and prints how long each part took:
#   scripts/try_packages.sh wheel [TORCH]      the wheels, where only Python is: as a user without rights and network; with
#                                              this version of PyTorch (2.12.1), or that of .venv
#   scripts/try_packages.sh deb                the Debian package, installed by apt
#   scripts/try_packages.sh upgrade [OLD.deb]  an older package with a running server and 200 live sequences, in Lua and in
#                                              Python, upgraded, then purged. Without OLD.deb: this package with a lower
#                                              version; scripts/old_package.sh makes one of an older commit
# A server in the tree serves a counter and an LSTM of PyTorch, is killed with kill -9 and starts again, and all answers
# must be right (scripts/try_serving.sh). PyTorch itself is fetched before; that is not counted. The script needs root's
# rights, .venv with PyTorch, and the package registries that apt and pip are configured with. --keep as the last word keeps
# the tree. scripts/try_image.sh tries a container image. The exit status is 77 if nothing could be tried; the last line
# says why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/empty-root.sh
what=${1:-} keep= cached=1 ccache_dir= source=/mnt cache=${XDG_CACHE_HOME:-$HOME/.cache}/continuo
[ "${!#}" != --keep ] || { keep=1; set -- "${@:1:$#-1}"; }

say() { echo "try: $*"; }
skip() {
    echo "try: not tried: $*"
    exit 77
}
newest() { ls -t "$@" 2>/dev/null | head -n 1; }

# The tree with the files of the trial, in /mnt. Everybody may read them.
prepare() {
    find_tools
    make_work_folder try
    trap cleanup EXIT
    trap 'exit 130' INT TERM HUP
    make_empty_root
    configure_root
    cp scripts/try_serving.sh examples/counter/handler.lua "$root/mnt/"
    cp examples/counter/model-config.yaml "$root/mnt/counter.yaml"
}

# PyTorch's wheel and what it requires, for the Python of Debian 12, in $root/mnt/wheels; and an LSTM in /mnt.
add_torch() { # version, or "" for that of .venv
    local version wheels
    version=$(.venv/bin/python -c 'import torch; print(torch.__version__)' 2>/dev/null) ||
        skip "there is no PyTorch in .venv (scripts/setup.sh --torch)"
    version=${1:-$version}
    wheels=build/torch-wheels/$version
    if ! compgen -G "$wheels/torch-*.whl" >/dev/null; then
        say "pip download torch==$version"
        .venv/bin/python -m pip download --quiet --dest "$wheels" --python-version 3.11 --only-binary :all: \
            "torch==$version" || skip "pip cannot download torch==$version"
    fi
    mkdir -p "$root/mnt/wheels"
    cp "$wheels"/*.whl "$root/mnt/wheels/"
    echo "$version" >"$root/mnt/torch-version" # pip of the tree may know of a folder with another one
    .venv/bin/python scripts/try_lstm.py make "$work"
    cp "$work"/{lstm.pt,lstm.yaml,days} "$root/mnt/"
}


as_nobody() { # command... in the tree, without rights, in a folder of its own
    rm -rf "$root/home/try"
    install -d -o 65534 -g 65534 "$root/home/try"
    offline=1 in_root setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/home/try "$@"
}

try_wheel() { # version of PyTorch, or ""
    local wheel
    wheel=$(newest build/continuo-*manylinux*.whl)
    [ -n "$wheel" ] || skip "there is no wheel in build/ (scripts/package.sh wheels)"
    prepare
    add_torch "$1"
    cp "$wheel" "$(newest build/continuo_torch-*.whl)" "$root/mnt/wheels/"
    quietly apt-get -qq update
    quietly env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends python3-venv
    mkdir "$root/mnt/models" && mv "$root/mnt/lstm.pt" "$root/mnt/models/"
    cat >"$root/mnt/wheel.sh" <<'INSIDE'
set -euo pipefail
now() { date +%s%3N; }
said() { echo "try: $1: $(($(now) - began)) ms"; began=$(now); }
began=$(now) first=$(now)
cd /home/try
python3 -m venv env
said "python3 -m venv"
env/bin/pip --disable-pip-version-check install --quiet --no-index --no-cache-dir /mnt/wheels/continuo-*.whl
said "pip install of the wheel"
PATH=/home/try/env/bin:$PATH
bash /mnt/try_serving.sh /home/try/counter
echo "try: from the empty machine to the last answer of the counter: $(($(now) - first)) ms"
began=$(now)
env/bin/pip --disable-pip-version-check install --quiet --no-index --no-cache-dir --find-links /mnt/wheels continuo-torch \
    "torch==$(cat /mnt/torch-version)"
said "pip install of continuo-torch and PyTorch"
INSIDE
    as_nobody bash /mnt/wheel.sh
    mv "$root/mnt/models/lstm.pt" "$root/mnt/"
    offline=1 in_root setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/home/try \
        PATH=/home/try/env/bin:/usr/bin:/bin bash /mnt/try_serving.sh /home/try/lstm
    say "the worker has told: $(grep -om 1 'libtorch [0-9][^"]*' "$root/home/try/lstm/log" || true)"
    .venv/bin/python scripts/try_lstm.py check "$work" "$root/home/try/lstm/answers"
}

install_deb() { # package
    cp "$1" "$root/mnt/continuo.deb"
    quietly env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends /mnt/continuo.deb
}

try_deb() {
    local deb began
    deb=$(newest build/continuo_*.deb)
    [ -n "$deb" ] || skip "there is no package in build/ (scripts/package.sh)"
    prepare
    quietly apt-get -qq update
    began=$SECONDS
    install_deb "$deb"
    say "apt-get install: $((SECONDS - began)) s"
    as_nobody bash /mnt/try_serving.sh /home/try/counter
    add_torch ""
    cp "$(newest build/continuo-*manylinux*.whl)" "$(newest build/continuo_torch-*.whl)" "$root/mnt/wheels/"
    quietly env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends python3-venv
    offline=1 quietly sh -c 'python3 -m venv /opt/torch && /opt/torch/bin/pip --disable-pip-version-check install --quiet \
        --no-index --no-cache-dir --find-links /mnt/wheels continuo-torch "torch==$(cat /mnt/torch-version)"'
    as_nobody CONTINUO_TORCH_LIBRARY=/opt/torch/libexec/continuo/libcontinuo_torch.so \
        bash /mnt/try_serving.sh /home/try/lstm
    .venv/bin/python scripts/try_lstm.py check "$work" "$root/home/try/lstm/answers"
}

# The service's own settings are used, and the user that systemd would make up. There is no systemd in the tree. Steps are
# sent by a program of ours, because the continuo-ctl of an older package may be unable to.
try_upgrade() { # older package, or ""
    local new old=$1
    new=$(newest build/continuo_*.deb)
    [ -n "$new" ] || skip "there is no package in build/ (scripts/package.sh)"
    [ -z "$old" ] || [ -f "$old" ] || { echo "scripts/try_packages.sh: there is no package $old" >&2; exit 2; }
    prepare
    if [ -z "$old" ]; then
        old=$work/old.deb
        dpkg-deb -R "$new" "$work/tree"
        sed -i 's/^Version: .*/&~before/' "$work/tree/DEBIAN/control"
        dpkg-deb --root-owner-group -b "$work/tree" "$old" >/dev/null
    fi
    say "from $(dpkg-deb -f "$old" Version) to $(dpkg-deb -f "$new" Version)"
    cp "$old" "$root/mnt/old.deb"
    cp "$new" "$root/mnt/new.deb"
    cp scripts/try_sequences.py "$root/mnt/"
    cp examples/python/counter/handler.py "$root/mnt/handler.py"
    quietly apt-get -qq update
    quietly env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends python3
    quietly sh -c 'find / -xdev ! -path "/mnt/*" ! -path "/tmp/*" ! -path "/var/lib/dpkg/*" ! -path "/var/lib/apt/*" \
        ! -path "/var/cache/*" ! -path "/var/log/*" | sort >/mnt/before'
    cat >"$root/mnt/upgrade.sh" <<'INSIDE'
set -euo pipefail
wrong() { echo "try: $*"; exit 1; }
apt() { apt-get -qq -o Dpkg::Use-Pty=0 -y --no-install-recommends "$@" >/tmp/said 2>&1 || { cat /tmp/said; wrong "apt-get $*"; }; }
up() {
  setpriv --reuid 61184 --regid 61184 --clear-groups continuo --config /etc/continuo/continuo.yaml >/tmp/log 2>&1 &
  server=$!
  for ((i = 0; i < 600; i++)); do
    kill -0 $server 2>/dev/null || { cat /tmp/log; wrong "the server has ended"; }
    ! continuo-ctl status >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  wrong "the server is not ready after 60 s"
}
steps() { # the first, the last
  python3 -B /mnt/try_sequences.py "$1" "$2" counter pycounter || { tail -n 20 /tmp/log; wrong "an answer is not right"; }
}
export DEBIAN_FRONTEND=noninteractive
apt install /mnt/old.deb
install -d -o 61184 -g 61184 /var/lib/continuo /var/lib/continuo/models
continuo-archiver --model-name counter --version 1.0 --handler /mnt/handler.lua --config-file /mnt/counter.yaml \
  --export-path /var/lib/continuo/models >/dev/null
continuo-archiver --model-name pycounter --version 1.0 --handler /mnt/handler.py --config-file /mnt/counter.yaml \
  --export-path /var/lib/continuo/models >/dev/null
echo "models: all" >>/etc/continuo/continuo.yaml
up
steps 1 4
apt install /mnt/new.deb
echo "try: upgraded while the server runs"
grep -q "^models: all" /etc/continuo/continuo.yaml || wrong "the settings were replaced"
steps 5 5
echo "try: the old server goes on until it is restarted"
kill $server
wait $server || { tail -n 20 /tmp/log; wrong "the old server did not end well"; }
up
steps 6 7
{ kill -9 $server; wait $server || true; } 2>/dev/null
up
steps 8 9
echo "try: the new server goes on with all sequences, after a drain and after kill -9"
kill $server
wait $server
apt remove continuo
[ -d /var/lib/continuo/state ] && [ -f /etc/continuo/continuo.yaml ] || wrong "states or settings went with remove"
apt install /mnt/new.deb
up
steps 10 10
kill $server
wait $server
echo "try: removed and installed again, it goes on"
apt purge --autoremove continuo
INSIDE
    in_root bash /mnt/upgrade.sh
    quietly sh -c 'find / -xdev ! -path "/mnt/*" ! -path "/tmp/*" ! -path "/var/lib/dpkg/*" ! -path "/var/lib/apt/*" \
        ! -path "/var/cache/*" ! -path "/var/log/*" | sort >/mnt/after'
    left=$(comm -13 "$root/mnt/before" "$root/mnt/after")
    [ -z "$left" ] || { echo "try: purge has left: $left"; exit 1; }
    say "purge has left nothing"
}

case $what in
wheel) try_wheel "${2:-}" ;;
deb) try_deb ;;
upgrade) try_upgrade "${2:-}" ;;
-h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
*) echo "scripts/try_packages.sh: what is to be tried: wheel, deb or upgrade? (--help)" >&2; exit 2 ;;
esac
say "all answers are right"

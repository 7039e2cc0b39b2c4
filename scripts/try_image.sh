#!/usr/bin/env bash
# Runs an image of scripts/image.sh without a container engine: scripts/try_image.sh IMAGE.tar
# Its tree is unpacked into a temporary folder and is the root of a process tree with mounts and a network of its own. There
# it is read-only, and the server runs as the image's user. It gets steps, is killed with kill -9, and starts again; the
# health check of the image must say what is true. An image with PyTorch also serves an LSTM, whose answers are compared with
# those of the PyTorch in .venv. Prints how long each part took. Needs root's rights.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "scripts/try_image.sh: $*" >&2
  exit 1
}

case ${1:-} in
-h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
'' | -*) fail "which image? (for example build/continuo-0.1.0-slim.tar)" ;;
esac
[ "$(id -u)" = 0 ] || fail "this needs root's rights, for the mounts of the tree"
work=$(mktemp -d "${TMPDIR:-/tmp}/continuo-image-XXXXXX")
trap 'grep -q " $work/" /proc/self/mountinfo || rm -rf --one-file-system "$work"' EXIT
mkdir "$work/root" "$work/in"
chmod 755 "$work"

# Unpacks the layers, and writes what the image says of its user, variables, health check and program.
python3 - "$1" "$work" <<'PYTHON'
import json
import shlex
import subprocess
import sys
import tarfile

with tarfile.open(sys.argv[1]) as image:
    listed, = json.load(image.extractfile("manifest.json"))
    for layer in listed["Layers"]:
        subprocess.run(["tar", "-xzpC", sys.argv[2] + "/root"], input=image.extractfile(layer).read(), check=True)
    config = json.load(image.extractfile(listed["Config"]))["config"]
with open(sys.argv[2] + "/in/settings.sh", "w", encoding="utf-8") as out:
    for each in config["Env"]:
        name, _, value = each.partition("=")
        out.write(f"export {name}={shlex.quote(value)}\n")
    out.write(f"user={shlex.quote(config['User'])}\nprogram={shlex.quote(config['Entrypoint'][0])}\n")
    out.write(f"check() {{ {shlex.join(config['Healthcheck']['Test'][1:])}; }}\n")
PYTHON

cat >"$work/in/inside.sh" <<'INSIDE'
set -euo pipefail
. /mnt/settings.sh
now() { date +%s%3N; }
said() { echo "try: $1: $(($(now) - began)) ms"; began=$(now); }
wrong() { echo "try: $*"; exit 1; }
up() {
  $program --models all >/state/log 2>&1 &
  server=$!
  for ((i = 0; i < 600; i++)); do
    kill -0 $server 2>/dev/null || { cat /state/log; wrong "the server has ended"; }
    ! { check && continuo-ctl status; } >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  cat /state/log
  wrong "the server is not healthy after 60 s"
}
step() { # number, the answer
  local answer
  answer=$(continuo-ctl predict counter "$1" --sequence a)
  [ "$answer" = "$2" ] || wrong "the answer to $1 is $answer, and not $2"
}
days() { # the first, the last: steps of the LSTM, if the image has PyTorch
  local day
  [ -e /mnt/lstm.pt ] || return 0
  for ((day = $1; day <= $2; day++)); do
    continuo-ctl predict lstm "$(sed -n "${day}p" /mnt/days)" --content-type application/json --sequence a
    echo
  done >>/state/answers
}

began=$(now)
[ "$(id -u)" != 0 ] || wrong "the server would run as root"
! touch /etc/x 2>/dev/null || wrong "the tree can be written"
continuo demo >/state/demo 2>&1 || { cat /state/demo; wrong "continuo demo has failed"; }
said "continuo demo, whose worker is killed"
if [ -e /mnt/lstm.pt ]; then # what a handler in Python needs
  python3 -c 'import torch' || wrong "Python of the image cannot import torch"
  said "import torch"
fi
! check 2>/dev/null || wrong "the health check finds a server before there is one"
began=$(now)
up
said "the server is up and healthy"
step 4 4
step 8 12
days 1 2
said "two steps"
{ kill -9 $server; wait $server || true; } 2>/dev/null
up
said "up again after kill -9"
step 30 42
days 3 4
said "one more step, whose answer has all three numbers"
kill $server
wait $server
said "drained and ended"
[ ! -e /state/answers ] || cat /state/answers >/mnt/answers
INSIDE

# An image with Python serves the counter in Python. The demo serves one in Lua in any case.
example=counter/handler.lua
[ ! -e "$work/root/usr/bin/python3" ] || example=python/counter/handler.py
cp "examples/$example" "examples/${example%/*}/model-config.yaml" "$work/in/"
handler=${example##*/}
if compgen -G "$work/root/usr/lib/continuo/libcontinuo_torch*.so" >/dev/null; then
  .venv/bin/python scripts/try_lstm.py make "$work/in"
  install -m 666 /dev/null "$work/in/answers" # the image's user writes it
fi
mkdir -p "$work/root/models"
unshare --mount --pid --net --fork --kill-child bash -euo pipefail -c '
  root=$0/root
  . "$0/in/settings.sh"
  python3 -c "import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack(\"16sH14s\", b\"lo\", 65, b\"\"))" # the loopback interface is switched on
  mount --bind "$root" "$root"
  mount -o remount,bind,ro "$root"
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=755 dev "$root/dev"
  for each in null zero random urandom; do
    touch "$root/dev/$each"
    mount --bind "/dev/$each" "$root/dev/$each"
  done
  ln -s /proc/self/fd "$root/dev/fd"
  mount --bind "$0/in" "$root/mnt"
  mount -t tmpfs -o mode=1777 tmp "$root/tmp"
  mount -t tmpfs models "$root/models"
  mount -t tmpfs -o "mode=700,uid=$(chroot "$root" id -u "$user"),gid=$(chroot "$root" id -g "$user")" state "$root/state"
  chroot "$root" continuo-archiver --model-name counter --version 1.0 --handler "/mnt/$1" \
    --config-file /mnt/model-config.yaml --export-path /models >/dev/null
  [ ! -e "$0/in/lstm.pt" ] || chroot "$root" continuo-archiver --model-name lstm --version 1.0 \
    --serialized-file /mnt/lstm.pt --config-file /mnt/lstm.yaml --export-path /models >/dev/null
  cd "$root/state"
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/state chroot --userspec="$user" "$root" bash /mnt/inside.sh' "$work" "$handler"
[ ! -e "$work/in/lstm.pt" ] || .venv/bin/python scripts/try_lstm.py check "$work/in" "$work/in/answers"

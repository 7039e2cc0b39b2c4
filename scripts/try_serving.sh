#!/usr/bin/env bash
# Runs inside a tree in which Continuo is installed, for scripts/try_packages.sh: continuo demo, then a server with a
# counter and, if /mnt has one, an LSTM. It gets steps, is killed with kill -9, and starts again.
#   try_serving.sh FOLDER    the server may write into FOLDER
# Prints how long each part took. The answers of the LSTM are in FOLDER/answers, for scripts/try_lstm.py.
set -euo pipefail
folder=$1

now() { date +%s%3N; }
said() { echo "try: $1: $(($(now) - began)) ms"; began=$(now); }
wrong() { echo "try: $*"; exit 1; }
run() { "$@" >"$folder/said" 2>&1 || { cat "$folder/said"; wrong "$1 has failed"; }; }

# Starts the server, and waits until the models can be used.
up() {
  continuo --model-store "$folder/store" --state-dir "$folder/states" --models all >"$folder/log" 2>&1 &
  server=$!
  for ((i = 0; i < 600; i++)); do
    kill -0 $server 2>/dev/null || { cat "$folder/log"; wrong "the server has ended"; }
    ! continuo-ctl status >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  cat "$folder/log"
  wrong "the server is not healthy after 60 s"
}

step() { # number, the answer
  local answer
  answer=$(continuo-ctl predict counter "$1" --sequence a)
  [ "$answer" = "$2" ] || wrong "the answer to $1 is $answer, and not $2"
}

days() { # the first, the last: steps of the LSTM
  local day
  [ -e /mnt/lstm.pt ] || return 0
  for ((day = $1; day <= $2; day++)); do
    continuo-ctl predict lstm "$(sed -n "${day}p" /mnt/days)" --content-type application/json --sequence a
    echo
  done >>"$folder/answers"
}

pack() {
  run continuo-archiver --model-name counter --version 1.0 --handler /mnt/handler.lua --config-file /mnt/counter.yaml \
    --export-path "$folder/store"
  [ ! -e /mnt/lstm.pt ] || run continuo-archiver --model-name lstm --version 1.0 --serialized-file /mnt/lstm.pt \
    --config-file /mnt/lstm.yaml --export-path "$folder/store"
}

mkdir -p "$folder/store"
began=$(now)
[ "$(id -u)" != 0 ] || wrong "the server would run as root"
run continuo demo
said "continuo demo, whose worker is killed"
! continuo-ctl status >/dev/null 2>&1 || wrong "there is a server already"
pack
began=$(now)
up
said "the server is up and healthy"
step 4 4
step 8 12
days 1 2
said "two steps of each model"
{ kill -9 $server; wait $server || true; } 2>/dev/null
up
said "up again after kill -9"
step 30 42
days 3 4
said "more steps, whose answers need all steps before"
kill $server
wait $server
said "drained and ended"

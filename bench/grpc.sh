#!/usr/bin/env bash
# Compares the gRPC services with a ceiling, an echo on the bare gRPC C core with the same messages. The two run
# in turn on the same machine. The script prints medians, the CPU time of each server for a call, and the ratio.
#   bench/grpc.sh [--rounds N] [--seconds S] [--calls N] [--min-ratio R] [--peers] [--large]
# --peers: also beside an asynchronous echo in C++ (built here, needs libgrpc++-dev) and one of Python's
# grpcio. --large: 1 MB and 10 MB in and out, 4 calls in flight, instead of small messages.
# "Ours" is the counter example (Lua) with a sequence for each call in flight; every answer is checked.
# The script needs a release build (scripts/build.sh); CONTINUO_BUILD names another build folder.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${CONTINUO_BUILD:-build/release}
processes=2 # of the load tool; it refuses to be slower than the server
rounds=5 seconds=3 calls=64 min_ratio= peers= large=
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --calls) calls=$2; shift ;;
    --min-ratio) min_ratio=$2; shift ;;
    --peers) peers=1 ;;
    --large) large=1 ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bench/grpc.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
    esac
    shift
done

work=$(mktemp -d)
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

mkdir "$work/store"
"$build/bin/continuo-archiver" --model-name counter --version 1.0 --handler examples/counter/handler.lua \
    --config-file examples/counter/model-config.yaml --export-path "$work/store" >"$work/archiver.out"
printf 'return { api = 1, step = function(_, req) return { body = req.body } end }\n' >"$work/echo.lua"
printf 'minWorkers: 1\nmaxWorkers: 1\nbatchSize: 4\n' >"$work/echo.yaml"
"$build/bin/continuo-archiver" --model-name echo --version 1.0 --handler "$work/echo.lua" \
    --config-file "$work/echo.yaml" --export-path "$work/store" >"$work/archiver.out"
"$build/bin/continuo" --model-store "$work/store" --models counter=counter.mar,echo=echo.mar --state-dir "$work/state" \
    --max-request-size 20000000 \
    --inference-address http://127.0.0.1:0 --management-address http://127.0.0.1:0 \
    --metrics-address http://127.0.0.1:0 --grpc-inference-address http://127.0.0.1:0 \
    --grpc-management-address none >"$work/server.out" 2>"$work/server.err" &
ours_pid=$!
pids+=("$ours_pid")
# Starts a server that answers with what it got and prints "port N".
begin_echo() { # name, command ...
    local name=$1
    shift
    "$@" >"$work/$name.out" &
    pid_of[$name]=$!
    pids+=($!)
    for _ in $(seq 100); do
        grep -q '^port' "$work/$name.out" && break
        sleep 0.1
    done
    target_of[$name]=127.0.0.1:$(sed -n 's/^port //p' "$work/$name.out")
}

declare -A pid_of=([ours]=$ours_pid) target_of=()
others=(echo)
begin_echo echo "$build/bin/grpc-bench" echo
if [ -n "$peers" ]; then
    c++ -O2 -std=c++17 bench/grpc-echo.cc $(pkg-config --cflags --libs grpc++) -o "$work/grpc-echo"
    begin_echo cpp "$work/grpc-echo"
    begin_echo python "${PYTHON:-.venv/bin/python}" bench/grpc_echo.py
    others+=(cpp python)
fi
for _ in $(seq 100); do
    grep -q '^Model server' "$work/server.out" && break
    sleep 0.1
done
target_of[ours]=$(sed -n 's/^Model server.* grpc=\([^ ]*\).*/\1/p' "$work/server.out")

ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

# A run; appends "rate cpu_us" to the file.
measure() { # kind, server, model, in flight, bytes, file
    local before after line done_
    before=$(ticks "${pid_of[$2]}")
    line=$("$build/bin/grpc-bench" "$1" "${target_of[$2]}" "$3" --calls "$4" --seconds "$seconds" --data "$5" \
        --processes "$processes")
    after=$(ticks "${pid_of[$2]}")
    done_=$(sed 's/.*"steps": \([0-9]*\).*/\1/' <<<"$line")
    echo "$(sed 's/.*"steps_per_s": \([0-9]*\).*/\1/' <<<"$line") $(((after - before) * 10000 / done_))" >>"$6"
}
column() { cut -d' ' -f"$2" "$1" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

# Alternated rounds of one kind of load over all servers, then a line a server.
compare() { # kind, our model, in flight, bytes, words
    local file=$work/$1-$4 name rate ceiling ratio
    "$build/bin/grpc-bench" "$1" "${target_of[ours]}" "$2" --calls "$3" --seconds 0.5 --data "$4" >"$work/warm"
    for _ in $(seq "$rounds"); do
        for name in "${others[@]}"; do measure "$1" "$name" echo "$3" "$4" "$file-$name"; done
        measure "$1" ours "$2" "$3" "$4" "$file-ours"
    done
    rate=$(column "$file-ours" 1) ceiling=$(column "$file-echo" 1)
    ratio=$(awk -v a="$rate" -v b="$ceiling" 'BEGIN {printf "%.2f", a / b}')
    echo "$5: ours $rate/s ($(column "$file-ours" 2) us of the server's CPU each)," \
        "echo $ceiling/s ($(column "$file-echo" 2) us), ratio $ratio"
    for name in "${others[@]:1}"; do
        echo "$5: $name $(column "$file-$name" 1)/s ($(column "$file-$name" 2) us)"
    done
    if [ -n "$min_ratio" ] && awk -v a="$ratio" -v b="$min_ratio" 'BEGIN {exit !(a < b)}'; then
        echo "bench/grpc.sh: $1 is below $min_ratio" >&2
        wrong=1
    fi
}

wrong=0
for kind in unary bidi; do
    if [ -n "$large" ]; then
        for bytes in 1000000 10000000; do compare "$kind" echo 4 "$bytes" "$kind 4 in flight, $bytes bytes"; done
    else
        compare "$kind" counter "$calls" 1 "$kind $calls in flight"
    fi
done
exit "$wrong"

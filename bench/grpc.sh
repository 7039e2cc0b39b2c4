#!/usr/bin/env bash
# Measures the gRPC services against the ceiling: a bare gRPC C core echo with the same messages, in
# alternated runs on the same machine. Prints medians, CPU per call of each server, and the ratio.
#   bench/grpc.sh [--rounds N] [--seconds S] [--calls N] [--min-ratio R]
# Ours: the counter example (Lua), a sequence for each call in flight, every answer checked.
# Needs a release build (scripts/build.sh); CONTINUO_BUILD names another build folder.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${CONTINUO_BUILD:-build/release}
rounds=5 seconds=3 calls=64 min_ratio=
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --calls) calls=$2; shift ;;
    --min-ratio) min_ratio=$2; shift ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bench/grpc.sh: what is $1? (--help lists the options)" >&2; exit 2 ;;
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
"$build/bin/continuo" --model-store "$work/store" --models counter=counter.mar --state-dir "$work/state" \
    --inference-address http://127.0.0.1:0 --management-address http://127.0.0.1:0 \
    --metrics-address http://127.0.0.1:0 --grpc-inference-address http://127.0.0.1:0 \
    --grpc-management-address none >"$work/server.out" 2>"$work/server.err" &
ours_pid=$!
pids+=("$ours_pid")
"$build/bin/grpc-bench" echo >"$work/echo.out" &
echo_pid=$!
pids+=("$echo_pid")
for _ in $(seq 100); do
    grep -q '^Model server' "$work/server.out" && grep -q '^port' "$work/echo.out" && break
    sleep 0.1
done
ours=$(sed -n 's/^Model server.* grpc=\([^ ]*\).*/\1/p' "$work/server.out")
echo_target=127.0.0.1:$(sed -n 's/^port //p' "$work/echo.out")

ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

# A run; appends "rate cpu_us" to the file.
measure() { # kind, target, model, server's pid, file
    local before after line done_
    before=$(ticks "$4")
    line=$("$build/bin/grpc-bench" "$1" "$2" "$3" --calls "$calls" --seconds "$seconds")
    after=$(ticks "$4")
    done_=$(sed 's/.*"done":\([0-9]*\).*/\1/' <<<"$line")
    echo "$(sed 's/.*"per_second":\([0-9]*\).*/\1/' <<<"$line") $(((after - before) * 10000 / done_))" >>"$5"
}
median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

wrong=0
for kind in unary bidi; do
    "$build/bin/grpc-bench" "$kind" "$ours" counter --calls "$calls" --seconds 0.5 >/dev/null
    for _ in $(seq "$rounds"); do
        measure "$kind" "$echo_target" echo "$echo_pid" "$work/$kind-echo"
        measure "$kind" "$ours" counter "$ours_pid" "$work/$kind-ours"
    done
    rate=$(cut -d' ' -f1 "$work/$kind-ours" | median) ceiling=$(cut -d' ' -f1 "$work/$kind-echo" | median)
    ratio=$(awk -v a="$rate" -v b="$ceiling" 'BEGIN {printf "%.2f", a / b}')
    echo "$kind $calls in flight: ours $rate/s ($(cut -d' ' -f2 "$work/$kind-ours" | median) us of the server's CPU each)," \
        "echo $ceiling/s ($(cut -d' ' -f2 "$work/$kind-echo" | median) us), ratio $ratio"
    if [ -n "$min_ratio" ] && awk -v a="$ratio" -v b="$min_ratio" 'BEGIN {exit !(a < b)}'; then
        echo "bench/grpc.sh: $kind is below $min_ratio" >&2
        wrong=1
    fi
done
exit "$wrong"

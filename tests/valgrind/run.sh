#!/usr/bin/env bash
# The server under valgrind: gRPC and HTTP under load, a storm of cancelled calls, then a stop in the middle
# of load. Fails when a byte is definitely lost, or memory is used wrongly. A minute or two.
#   tests/valgrind/run.sh [--seconds S]
# Needs a release build; CONTINUO_BUILD names another (none with sanitizers).
set -euo pipefail
cd "$(dirname "$0")/../.."

build=$(realpath "${CONTINUO_BUILD:-build/release}")
seconds=5
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2; shift ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "tests/valgrind/run.sh: unknown argument $1" >&2; exit 2 ;;
    esac
    shift
done

work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

cc -shared -fPIC -O1 -o "$work/pidfd.so" tests/valgrind/pidfd.c -lpthread
mkdir "$work/store"
"$build/bin/continuo-archiver" --model-name counter --version 1.0 --handler examples/counter/handler.lua \
    --config-file examples/counter/model-config.yaml --export-path "$work/store" >"$work/archiver"
LD_PRELOAD="$work/pidfd.so" valgrind --leak-check=full --show-leak-kinds=definite,indirect \
    --errors-for-leak-kinds=definite,indirect --error-exitcode=9 --soname-synonyms=somalloc=*jemalloc* \
    --log-file="$work/valgrind" \
    "$build/bin/continuo" --model-store "$work/store" --models counter=counter.mar --state-dir "$work/state" \
    --inference-address http://127.0.0.1:0 --management-address http://127.0.0.1:0 \
    --metrics-address http://127.0.0.1:0 --grpc-inference-address http://127.0.0.1:0 \
    --grpc-management-address http://127.0.0.1:0 --loops 2 --compress-above 1000 >"$work/out" 2>&1 &
server=$!
for _ in $(seq 600); do
    grep -q '^Model server' "$work/out" && break
    sleep 0.1
done
http=$(sed -n 's/^Model server.* inference=\([^ ]*\).*/\1/p' "$work/out")
grpc=$(sed -n 's/^Model server.* grpc=\([^ ]*\).*/\1/p' "$work/out")

load() { "$build/bin/grpc-bench" "$@"; }
load unary "$grpc" counter --calls 1 --seconds 0.1 >"$work/warm" # the library is loaded
load unary "$grpc" counter --calls 32 --seconds "$seconds"
load bidi "$grpc" counter --calls 32 --seconds "$seconds"
load unary "$grpc" counter --calls 4 --seconds 1 --data 200000 || true # no decimal integers: refused
for i in $(seq 20); do
    curl -sf -H "ts_request_sequence_id: h$i" -d 1 "$http/predictions/counter" >"$work/answer"
done
for _ in $(seq 5); do # clients that are killed, with calls in flight
    "$build/bin/grpc-bench" bidi "$grpc" counter --calls 200 --seconds 60 >"$work/killed" 2>&1 &
    killed=$!
    sleep 1
    kill -9 "$killed"
    wait "$killed" 2>"$work/killed" || true
done
load bidi "$grpc" counter --calls 64 --seconds 60 >"$work/last" 2>&1 & # the stop cuts it off
last=$!
sleep 2
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
wait "$last" || true
sed -n '/LEAK SUMMARY/,$p; /HEAP SUMMARY/,/total heap/p' "$work/valgrind" | grep -v -- '-- '
if [ "$code" != 0 ]; then
    echo "tests/valgrind/run.sh: the server ended with $code" >&2
    cat "$work/valgrind" >&2
    tail -n 20 "$work/out" >&2
    exit 1
fi

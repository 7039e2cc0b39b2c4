#!/usr/bin/env bash
# Measures the small figures that Continuo promises, and prints PASS or FAIL for each: the memory of an
# idle server and of a Lua worker, the time until the server is ready, the time until the first answer of
# a new model, and the memory of an idle sequence. It needs a build (scripts/build.sh).
#   scripts/facts.sh          a few seconds
#   scripts/facts.sh --http   also opens a million sequences over HTTP (a minute)
# CONTINUO_BUILD names another build folder than build/release.
set -euo pipefail
cd "$(dirname "$0")/.."

http=
case ${1:-} in
--http) http=1 ;;
-h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
'') ;;
*) echo "scripts/facts.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
esac

bin=$(cd "${CONTINUO_BUILD:-build/release}" && pwd)/bin
work=$(mktemp -d)
server_pid=
cleanup() {
    [ -z "$server_pid" ] || { kill "$server_pid" && wait "$server_pid"; } 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

wrong=0
fact() { # what, value, unit, limit
    if [ "$2" -lt "$4" ]; then
        printf 'PASS  %-66s %8d %-5s (limit %d)\n' "$1" "$2" "$3" "$4"
    else
        printf 'FAIL  %-66s %8d %-5s (limit %d)\n' "$1" "$2" "$3" "$4"
        wrong=1
    fi
}

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
rss_kb() { awk '/^VmRSS:/ {print $2}' "/proc/$1/status"; }

# Starts a server; sets server_pid, inference, management, and the ms from exec to its ready line.
start_server() {
    local line began
    rm -f "$work/ready" && mkfifo "$work/ready"
    began=$(now_ms)
    "$bin/continuo" --model-store "$work/store" --state-dir "$work/state" \
        --inference-address http://127.0.0.1:0 --management-address http://127.0.0.1:0 \
        --metrics-address http://127.0.0.1:0 --grpc-inference-address http://127.0.0.1:0 \
        --grpc-management-address http://127.0.0.1:0 "$@" >"$work/ready" 2>"$work/server.err" &
    server_pid=$!
    exec 3<"$work/ready"
    if ! read -r -t 10 line <&3; then
        echo "scripts/facts.sh: the server is not ready within 10 s:" >&2
        cat "$work/server.err" >&2
        exit 1
    fi
    ready_ms=$(($(now_ms) - began))
    inference=$(sed 's/.*inference=\([^ ]*\).*/\1/' <<<"$line")
    management=$(sed 's/.*management=\([^ ]*\).*/\1/' <<<"$line")
}

stop_server() {
    kill "$server_pid"
    wait "$server_pid" || true
    exec 3<&-
    server_pid=
}

mkdir "$work/store"
printf 'sequenceBatching: true\nbatchSize: 64\nminWorkers: 1\n' >"$work/model-config.yaml"
"$bin/continuo-archiver" --model-name counter --version 1.0 --handler examples/counter/handler.lua \
    --config-file "$work/model-config.yaml" --export-path "$work/store"

# Ready: the best of five, since the machine is shared and the promise is about the program.
best=
for _ in 1 2 3 4 5; do
    start_server
    [ -n "$best" ] && [ "$best" -le "$ready_ms" ] || best=$ready_ms
    stop_server
done
fact "server ready after exec, no model (best of 5)" "$best" ms 100
start_server --models counter=counter.mar
fact "server ready after exec, with the counter loaded" "$ready_ms" ms 200
fact "server, idle with one model" "$(rss_kb "$server_pid")" kB 17408
worker_pid=$(curl -s "$management/models/counter" | sed -n 's/.*"pid": \([0-9]*\).*/\1/p' | head -n 1)
fact "Lua worker, idle" "$(rss_kb "$worker_pid")" kB 8192

best=
for i in 1 2 3 4 5; do
    cp "$work/store/counter.mar" "$work/store/new$i.mar"
    began=$(now_ms)
    curl -s -X POST "$management/models?url=new$i.mar&model_name=new$i" >"$work/registered"
    answer=$(curl -s -d 5 "$inference/predictions/new$i")
    took=$(($(now_ms) - began))
    [ "$answer" = 5 ] || { echo "FAIL  first answer of new$i: $answer; $(cat "$work/registered")"; wrong=1; }
    [ -n "$best" ] && [ "$best" -le "$took" ] || best=$took
done
fact "from registering a Lua model to its first answer (best of 5)" "$best" ms 200

if [ -x "$bin/sequence_memory" ]; then
    "$bin/sequence_memory" >"$work/slope"
    bytes=$(sed 's/.*"resident_bytes_per_sequence":\([0-9]*\).*/\1/' "$work/slope")
    fact "one idle sequence, RSS of the scheduler alone, 10,000 to a million" "$bytes" bytes 300
fi

if [ -n "$http" ]; then
    "$bin/continuo-bench" --url "$inference" --connections 64 --open-only 10000 --prefix few >/dev/null
    before=$(rss_kb "$server_pid")
    "$bin/continuo-bench" --url "$inference" --connections 64 --open-only 990000 --prefix many | tee "$work/many"
    after=$(rss_kb "$server_pid")
    fact "one idle sequence, RSS of the server, 10,000 to a million by HTTP" $(((after - before) * 1024 / 990000)) bytes 300
fi
stop_server
exit "$wrong"

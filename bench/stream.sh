#!/usr/bin/env bash
# Measures whether a sequence that streams delays the steps of others in the same batch. The steps of N
# sequences, with one connection each, are measured in rounds without and with a stream beside them, in turn,
# on one server with one worker. The script prints medians, and the ratio of the p99.
#   bench/stream.sh                 about two minutes
#   --rounds N --seconds S --others N --loops N
#   --every MS                      how long the stream rests between two pieces of 64 bytes (5)
#   --max-ratio R                   exit 1 where p99 with/without is above R
# Each answer is checked. The script needs a release build (scripts/build.sh); CONTINUO_BUILD names another folder.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${CONTINUO_BUILD:-build/release}
rounds=11 seconds=4 warmup=0.5 others=15 every=5 max_ratio=
cores=$(nproc)
loops=$(((cores + 1) / 2)); [ "$loops" -le 4 ] || loops=4

while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --others) others=$2; shift ;;
    --every) every=$2; shift ;;
    --loops) loops=$2; shift ;;
    --max-ratio) max_ratio=$2; shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bench/stream.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
    esac
    shift
done

work=$(mktemp -d)
server_pid= curl_pid=
cleanup() {
    [ -z "$curl_pid" ] || kill "$curl_pid" 2>/dev/null || true
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

mkdir "$work/store"
cat >"$work/handler.lua" <<'LUA'
local M = { api = 1 }
local piece = ("x"):rep(63) .. "\n"
function M.init() return { sum = 0 } end
function M.step(state, req)
    local number = math.tointeger(tonumber(req.text))
    if number then
        state.sum = state.sum + number
        return { text = state.sum }
    end
    local seconds = tonumber(req.text:match("^stream ([%d.]+)$"))
    repeat until not coroutine.yield(piece, seconds)
    return ""
end
return M
LUA
printf 'minWorkers: 1\nbatchSize: %d\nsequenceBatching: true\n' $((others + 1)) >"$work/model.yaml"
"$build/bin/continuo-archiver" --model-name sums --version 1.0 --handler "$work/handler.lua" \
    --config-file "$work/model.yaml" --export-path "$work/store" >"$work/archiver.out"
"$build/bin/continuo" --model-store "$work/store" --models sums=sums.mar --state-dir "$work/state" \
    --loops "$loops" --inference-address http://127.0.0.1:0 --management-address http://127.0.0.1:0 \
    --metrics-address http://127.0.0.1:0 >"$work/server.out" 2>"$work/server.err" &
server_pid=$!
for _ in $(seq 100); do
    url=$(sed -n 's/^Model server started.*inference=\([^ ]*\).*/\1/p' "$work/server.out")
    [ -z "$url" ] || break
    sleep 0.1
done
[ -n "$url" ] || { cat "$work/server.out" "$work/server.err" >&2; exit 1; }

wrong=0 stream_bytes=0
run() { # without or with
    local line
    if [ "$1" = with ]; then
        : >"$work/stream"
        curl -sN -H "ts-request-sequence-id: streamer" "$url/predictions/sums" \
            -d "stream $(awk "BEGIN { print $every / 1000 }")" >"$work/stream" 2>/dev/null &
        curl_pid=$!
        for _ in $(seq 100); do [ -s "$work/stream" ] && break; sleep 0.05; done
    fi
    line=$("$build/bin/continuo-bench" --url "$url" --model sums --connections "$others" \
        --duration "$seconds" --warmup "$warmup" 2>>"$work/bench.err") || wrong=1
    if [ "$1" = with ]; then
        kill -0 "$curl_pid" 2>/dev/null || { echo "the stream ended by itself" >&2; wrong=1; }
        kill "$curl_pid" 2>/dev/null || true
        wait "$curl_pid" 2>/dev/null || true
        curl_pid=
        stream_bytes=$(($(wc -c <"$work/stream") + stream_bytes))
    fi
    printf '%s %s\n' "$1" "$line" >>"$work/runs"
}

echo "machine: $cores cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r)"
echo "$others connections beside a stream with a piece each $every ms; $loops loop(s), 1 worker;" \
    "$rounds rounds of $seconds s, alternated; medians"
for round in $(seq "$rounds"); do
    if [ $((round % 2)) = 1 ]; then run without; run with; else run with; run without; fi
done

awk -v max_ratio="$max_ratio" -v pieces=$((stream_bytes / 64)) -v rounds="$rounds" '
function field(name) { return substr($0, index($0, "\"" name "\": ") + length(name) + 4) + 0 }
{
    n = ++runs[$1]
    rate[$1, n] = field("steps_per_s"); p50[$1, n] = field("p50_ms"); p99[$1, n] = field("p99_ms")
    bad += field("errors") + field("stalled")
}
function median(values, key,   n, i, j, t, v) {
    n = runs[key]
    for (i = 1; i <= n; i++) v[i] = values[key, i]
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
function row(who) {
    printf "| %s | %.0f | %.2f | %.2f |\n", who, median(rate, who), median(p50, who), median(p99, who)
}
END {
    print ""
    print "| stream | steps/s of the others | p50 ms | p99 ms |"
    print "|---|---|---|---|"
    row("without"); row("with")
    ratio = median(p99, "with") / median(p99, "without")
    printf "\np99 with/without: %.2f; %d pieces streamed a round; %d errors or stalls\n", ratio,
        pieces / rounds, bad
    if (bad > 0 || (max_ratio != "" && ratio > max_ratio)) exit 1
}' "$work/runs"
exit "$wrong"

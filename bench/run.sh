#!/usr/bin/env bash
# Compares Continuo with a ceiling, a bare libmicrohttpd echo that is arranged in the same way. The two run in
# turn on the same machine. The script prints medians and their ratio.
#   bench/run.sh                 about three minutes
#   bench/run.sh --quick         about half a minute, for a first look
#   --rounds N --seconds S --loops N --connections "1 16 64"  --durability LEVEL
#   --processes N                of the load tool; it refuses to be slower than a server (default 2)
#   --min-ratio R                exit 1 where ours/echo is below R at 16 or more connections
#   --json FILE                  also keep each run's JSON line
# "Ours" is the counter example (Lua) with one sequence for each connection; every answer is checked.
# The script needs a release build (scripts/build.sh); CONTINUO_BUILD names another build folder.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${CONTINUO_BUILD:-build/release}
rounds=5 seconds=3 warmup=1 connections="1 16 64 128 256" durability=process processes=2 min_ratio= json=/dev/null
cores=$(nproc)
loops=$(((cores + 1) / 2)); [ "$loops" -le 4 ] || loops=4

while [ $# -gt 0 ]; do
    case $1 in
    --quick) rounds=3 seconds=1 warmup=0.3 ;;
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --loops) loops=$2; shift ;;
    --connections) connections=$2; shift ;;
    --processes) processes=$2; shift ;;
    --durability) durability=$2; shift ;;
    --min-ratio) min_ratio=$2; shift ;;
    --json) json=$2; : >"$json"; shift ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bench/run.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
    esac
    shift
done

work=$(mktemp -d)
server_pid= echo_pid=
cleanup() {
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null || true
    [ -z "$echo_pid" ] || kill "$echo_pid" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# Waits until a file holds a line that begins with $2; prints the line.
wait_for_line() {
    for _ in $(seq 100); do
        grep -m1 "^$2" "$1" && return
        sleep 0.1
    done
    echo "bench/run.sh: no ready line within 10 s:" >&2
    cat "$1" "$work/server.err" >&2
    return 1
}

mkdir "$work/store"
"$build/bin/continuo-archiver" --model-name counter --version 1.0 \
    --handler examples/counter/handler.lua --config-file examples/counter/model-config.yaml \
    --export-path "$work/store" >"$work/archiver.out"
"$build/bin/continuo" --model-store "$work/store" --models counter=counter.mar \
    --state-dir "$work/state" --loops "$loops" --durability "$durability" \
    --inference-address http://127.0.0.1:0 --management-address http://127.0.0.1:0 \
    --metrics-address http://127.0.0.1:0 --grpc-inference-address http://127.0.0.1:0 \
    --grpc-management-address http://127.0.0.1:0 >"$work/server.out" 2>"$work/server.err" &
server_pid=$!
"$build/bin/echo-mhd" --loops "$loops" >"$work/echo.out" &
echo_pid=$!
ours=$(wait_for_line "$work/server.out" "Model server started" | sed 's/.*inference=\([^ ]*\).*/\1/')
echo_url=http://127.0.0.1:$(wait_for_line "$work/echo.out" "echo-mhd ready" | sed 's/.*port=\([0-9]*\).*/\1/')

wrong=0
one_run() { # who, connections, url, further arguments
    local who=$1 conns=$2 url=$3 n=$processes line
    [ "$conns" -ge "$n" ] || n=$conns
    shift 3
    if ! line=$("$build/bin/continuo-bench" --url "$url" --connections "$conns" --processes "$n" \
        --duration "$seconds" --warmup "$warmup" "$@" 2>>"$work/bench.err"); then
        wrong=1
        echo "$who at $conns connections: errors, stalls or a load tool that was too slow: $line" >&2
        tail -n 3 "$work/bench.err" >&2
    fi
    [[ $line == *'"refused"'* ]] || printf '%s %s %s\n' "$who" "$conns" "$line" >>"$work/runs"
    printf '{"who": "%s", "run": %s}\n' "$who" "$line" >>"$json"
}

echo "machine: $cores cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r)"
echo "both with $loops loop(s); $rounds rounds of $seconds s, alternated; durability $durability; medians"
: >"$work/runs"
for round in $(seq "$rounds"); do
    for conns in $connections; do
        # Even rounds turn the order around, so that neither always follows the other.
        if [ $((round % 2)) = 1 ]; then
            one_run echo "$conns" "$echo_url" --echo
            one_run ours "$conns" "$ours"
        else
            one_run ours "$conns" "$ours"
            one_run echo "$conns" "$echo_url" --echo
        fi
    done
done

awk -v order="$connections" -v min_ratio="$min_ratio" '
function field(name,   rest) {
    rest = substr($0, index($0, "\"" name "\": ") + length(name) + 4)
    return rest + 0
}
{
    key = $1 " " $2
    n = ++runs[key]
    rate[key, n] = field("steps_per_s"); p50[key, n] = field("p50_ms"); p99[key, n] = field("p99_ms")
    p999[key, n] = field("p999_ms")
    bad[$2] += field("errors"); stalls[$2] += field("stalled")
}
function median(values, key,   n, i, j, t, v) {
    n = runs[key]
    for (i = 1; i <= n; i++) v[i] = values[key, i]
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
END {
    print ""
    print "| connections | echo steps/s | ours steps/s | ours/echo | echo p50/p99/p99.9 ms | ours p50/p99/p99.9 ms | errors | stalls |"
    print "|---|---|---|---|---|---|---|---|"
    count = split(order, list, " ")
    for (i = 1; i <= count; i++) {
        c = list[i]; e = "echo " c; o = "ours " c
        ratio = median(rate, e) > 0 ? median(rate, o) / median(rate, e) : 0
        printf "| %d | %.0f | %.0f | %.2f | %.2f / %.2f / %.2f | %.2f / %.2f / %.2f | %d | %d |\n", c,
            median(rate, e), median(rate, o), ratio, median(p50, e), median(p99, e), median(p999, e),
            median(p50, o), median(p99, o), median(p999, o), bad[c], stalls[c]
        if (min_ratio != "" && c >= 16 && ratio < min_ratio) low = low " " c
    }
    if (low != "") { printf "below %s at connections:%s\n", min_ratio, low; exit 1 }
}' "$work/runs"
exit "$wrong"

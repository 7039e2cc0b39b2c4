#!/usr/bin/env bash
# Compares inference by the v2 protocol with two ceilings, the bare libmicrohttpd echo and the echo on the bare
# gRPC C core, which get the same bytes. All run in turn on the same machine. The script prints medians, the CPU
# time of each server for a request, and the ratio.
#   bench/v2.sh [--rounds N] [--seconds S] [--connections N] [--large-connections N] [--loops N] [--check]
# --check: exit 1 where a ratio is below its goal (0.5 JSON, 0.55 binary, 0.6 gRPC, 0.5 at 1 MB).
# "Ours" is examples/v2/identity (C) with FP32 tensors of 16 elements and of 1 MB; each answer must end with the
# tensor. The script needs a release build (scripts/build.sh); CONTINUO_BUILD names another build folder.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${CONTINUO_BUILD:-build/release}
rounds=5 seconds=2 connections=64 large=4 check=
cores=$(nproc)
processes=2 # of the load tool; it refuses to be slower than the server
loops=$(((cores + 1) / 2)); [ "$loops" -le 4 ] || loops=4
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --connections) connections=$2; shift ;;
    --large-connections) large=$2; shift ;;
    --loops) loops=$2; shift ;;
    --check) check=1 ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bench/v2.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
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
wait_for_line() { # file, beginning
    for _ in $(seq 100); do
        grep -m1 "^$2" "$1" && return
        sleep 0.1
    done
    echo "bench/v2.sh: no ready line within 10 s" >&2
    cat "$1" "$work/server.err" >&2
    return 1
}

# --- the servers
mkdir "$work/store"
"$build/bin/continuo-archiver" --model-name identity --version 1.0 --handler "$build/examples/identity.so" \
    --config-file examples/v2/identity/model-config.yaml --export-path "$work/store" >"$work/archiver.out"
"$build/bin/continuo" --model-store "$work/store" --models identity=identity.mar --state-dir "$work/state" \
    --loops "$loops" --inference-address http://127.0.0.1:0 --management-address http://127.0.0.1:0 \
    --metrics-address http://127.0.0.1:0 --grpc-inference-address http://127.0.0.1:0 \
    --grpc-management-address none >"$work/server.out" 2>"$work/server.err" &
pids+=($!)
"$build/bin/echo-mhd" --loops "$loops" >"$work/mhd.out" &
pids+=($!)
"$build/bin/grpc-bench" echo >"$work/grpc.out" &
pids+=($!)
ready=$(wait_for_line "$work/server.out" "Model server started")
declare -A pid_of=([ours]=${pids[0]} [mhd]=${pids[1]} [grpc]=${pids[2]})
declare -A target_of=(
    [http-ours]=$(sed 's|.*inference=http://\([^ ]*\).*|\1|' <<<"$ready")
    [http-mhd]=127.0.0.1:$(wait_for_line "$work/mhd.out" "echo-mhd ready" | sed 's/.*port=\([0-9]*\).*/\1/')
    [grpc-ours]=$(sed 's/.* grpc=\([^ ]*\).*/\1/' <<<"$ready")
    [grpc-grpc]=127.0.0.1:$(wait_for_line "$work/grpc.out" "port" | sed 's/^port //'))

# --- the requests: the tensor stands last in request and answer
head=
json_body() { # file
    printf '{"inputs":[{"name":"FP32","datatype":"FP32","shape":[16],"data":[' >"$1"
    printf '0.5,1.5,-2.25,3.0,0.125,5.5,6.5,-7.75,8.5,9.25,10.5,11.0,-12.5,13.5,14.75,15.5]}]}' >>"$1"
    printf '0.5,1.5,-2.25,3.0,0.125,5.5,6.5,-7.75,8.5,9.25,10.5,11.0,-12.5,13.5,14.75,15.5]}]}' >"$1.end"
}
binary_body() { # file, bytes
    printf '{"inputs":[{"name":"FP32","datatype":"FP32","shape":[%d],"parameters":{"binary_data_size":%d}}],' \
        $(($2 / 4)) "$2" >"$1"
    printf '"outputs":[{"name":"FP32","parameters":{"binary_data":true}}]}' >>"$1"
    head="Inference-Header-Content-Length: $(stat -c %s "$1")"
    head -c "$2" /dev/zero | tr '\0' '?' >"$1.end"
    cat "$1.end" >>"$1"
}
json_body "$work/json"
binary_body "$work/small" 64
small_head=$head
binary_body "$work/large" 1000000
large_head=$head

# --- the runs
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
load() { # what, server, seconds
    local p=(--processes "$processes") http=${target_of[http-$2]:-} grpc=${target_of[grpc-$2]:-} path=/v2/models/identity/infer
    case $1 in
    json) "$build/bin/post-bench" "$http" $path "$work/json" --end "$work/json.end" --connections "$connections" --seconds "$3" "${p[@]}" ;;
    binary) "$build/bin/post-bench" "$http" $path "$work/small" --end "$work/small.end" --header "$small_head" \
        --connections "$connections" --seconds "$3" "${p[@]}" ;;
    large) "$build/bin/post-bench" "$http" $path "$work/large" --end "$work/large.end" --header "$large_head" \
        --connections "$large" --seconds "$3" "${p[@]}" ;;
    infer) "$build/bin/grpc-bench" infer "$grpc" identity --calls "$connections" --data 64 --seconds "$3" "${p[@]}" ;;
    infer-large) "$build/bin/grpc-bench" infer "$grpc" identity --calls "$large" --data 1000000 --seconds "$3" "${p[@]}" ;;
    esac
}
measure() { # what, server
    local before line done_
    before=$(ticks "${pid_of[$2]}")
    line=$(load "$1" "$2" "$seconds")
    done_=$(sed 's/.*"steps": \([0-9]*\).*/\1/' <<<"$line")
    echo "$(sed 's/.*"steps_per_s": \([0-9]*\).*/\1/' <<<"$line")" \
        $((($(ticks "${pid_of[$2]}") - before) * 10000 / done_)) >>"$work/$1-$2"
}
column() { cut -d' ' -f"$2" "$1" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

wrong=0
compare() { # what, echo, goal, words
    local ratio
    load "$1" ours 0.5 >"$work/warm"
    for round in $(seq "$rounds"); do
        # Even rounds turn the order around, so that neither always follows the other.
        if [ $((round % 2)) = 1 ]; then measure "$1" "$2"; measure "$1" ours; else measure "$1" ours; measure "$1" "$2"; fi
    done
    ratio=$(awk -v a="$(column "$work/$1-ours" 1)" -v b="$(column "$work/$1-$2" 1)" 'BEGIN {printf "%.2f", a / b}')
    echo "| $4 | $(column "$work/$1-ours" 1) | $(column "$work/$1-$2" 1) | $ratio | $3 |" \
        "$(column "$work/$1-ours" 2) / $(column "$work/$1-$2" 2) |"
    if [ -n "$check" ] && awk -v a="$ratio" -v b="$3" 'BEGIN {exit !(a < b)}'; then
        echo "bench/v2.sh: $4 is below $3" >&2
        wrong=1
    fi
}
echo "machine: $cores cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1); $loops loop(s)," \
    "$rounds rounds of $seconds s, alternated; medians"
echo "| | ours, requests/s | echo | ratio | goal | us of the server's CPU, ours / echo |"
echo "|---|---|---|---|---|---|"
compare json mhd 0.50 "HTTP JSON, 16 FP32, $connections connections"
compare binary mhd 0.55 "HTTP binary, 16 FP32, $connections connections"
compare infer grpc 0.60 "gRPC ModelInfer, 16 FP32, $connections in flight"
compare large mhd 0.50 "HTTP binary, 1 MB, $large connections"
compare infer-large grpc 0.50 "gRPC ModelInfer, 1 MB, $large in flight"
exit "$wrong"

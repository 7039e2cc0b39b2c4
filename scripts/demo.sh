#!/usr/bin/env bash
# Shows Continuo as a tutorial: each command is printed before its output. The script installs the Debian
# packages that are missing (it names them first) and builds the programs. Then it packs two examples,
# starts a server, streams real sequences with curl, kills a worker in the middle, goes on, shows the
# description of a model, and stops. It asks for nothing and leaves nothing running. The exit status is
# not 0 if a value is wrong.
#   scripts/demo.sh [--inference-port N] [--management-port N]     (default: free ports)
#   scripts/demo.sh --cluster    three nodes that share a store, behind a proxy, instead of one server
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --cluster ]; then
    exec scripts/demo-cluster.sh "${@:2}"
fi

inference_port=0 management_port=0
while [ $# -gt 0 ]; do
    case $1 in
    --inference-port) inference_port=$2; shift ;;
    --management-port) management_port=$2; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "scripts/demo.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
    esac
    shift
done

bin=build/release/bin
demo=$(mktemp -d)
server_pid=
cleanup() {
    [ -z "$server_pid" ] || { kill "$server_pid" && wait "$server_pid"; } 2>/dev/null || true
    rm -rf "$demo"
}
trap cleanup EXIT

. scripts/demo-lib.sh

title "Install what is missing, and build"
scripts/setup.sh --build --missing
printf '$ scripts/build.sh\n'
if ! scripts/build.sh >"$demo/build.log" 2>&1; then
    tail -n 40 "$demo/build.log"
    exit 1
fi
tail -n 3 "$demo/build.log"
ls -sh "$bin/continuo" "$bin/continuo-worker" "$bin/continuo-archiver"

title "Pack two models: a running sum, and anomaly scores for a measured series"
run mkdir "$demo/models"
for model in counter anomaly; do
    run "$bin/continuo-archiver" --model-name "$model" --version 1.0 \
        --handler "examples/$model/handler.lua" --config-file "examples/$model/model-config.yaml" \
        --export-path "$demo/models"
done
run ls -s "$demo/models"

title "Start the server"
start=("$bin/continuo" --model-store "$demo/models" --models counter=counter.mar anomaly=anomaly.mar
    --state-dir "$demo/state" --inference-address "http://127.0.0.1:$inference_port"
    --management-address "http://127.0.0.1:$management_port" --metrics-address http://127.0.0.1:0
    --grpc-inference-address http://127.0.0.1:0 --grpc-management-address http://127.0.0.1:0)
printf '$ %s &\n' "${start[*]//$demo/\$demo}"
"${start[@]}" >"$demo/ready" 2>"$demo/server.log" &
server_pid=$!
for _ in $(seq 100); do
    grep -q "Model server started" "$demo/ready" && break
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.1
done
if ! ready=$(grep "Model server started" "$demo/ready"); then
    echo "the server did not start:" >&2
    cat "$demo/server.log" >&2
    exit 1
fi
echo "$ready"
inference=$(sed 's/.*inference=\([^ ]*\).*/\1/' <<<"$ready")
management=$(sed 's/.*management=\([^ ]*\).*/\1/' <<<"$ready")
run curl -s "$inference/ping"

title "Two counters, step by step: state advances for each on its own"
step() { # sequence, number, expected
    run curl -s -H "ts-request-sequence-id: $1" "$inference/predictions/counter" -d "$2"
    is "$3"
}
step seq_0 5 5
step seq_0 7 12
step seq_1 100 100
step seq_0 9 21
step seq_1 1 101

worker_of() { # model
    curl -s "$management/models/$1" | sed -n 's/.*"pid": \([0-9]*\).*/\1/p' | head -n 1
}

title "Kill the counter's worker, in the middle of its sequences"
pid=$(worker_of counter)
run kill -9 "$pid"

title "And go on: the next step knows all steps before it"
step seq_0 4 25
step seq_1 1 102
new_pid=$(worker_of counter)
if [ "$new_pid" = "$pid" ] || [ -z "$new_pid" ]; then
    echo "WRONG: the worker is $new_pid, it was $pid" >&2
    exit 1
fi

title "Real data: four years of Seattle's weather, three series at once, and a kill in the middle"
steps_of() { # model
    curl -s "$management/models/$1" | sed -n 's/.*"steps": \([0-9]*\).*/\1/p'
}
printf '$ examples/anomaly/stream.sh %s >$demo/unusual-days &\n' "$inference"
examples/anomaly/stream.sh "$inference" >"$demo/unusual-days" &
stream_pid=$!
for _ in $(seq 400); do
    [ "$(steps_of anomaly)" -lt 1500 ] || break
    sleep 0.01
done
run kill -9 "$(worker_of anomaly)"
printf '$ wait\n'
wait "$stream_pid"
run grep -c anomaly "$demo/unusual-days"
run tail -n 3 "$demo/unusual-days"
run curl -s -H "ts-request-sequence-id: seattle-wind" "$inference/predictions/anomaly" -d 12.5
case $output in
*'"count":1462,'*) echo "(1461 days and this value: no step was lost, none was done twice)" ;;
*) printf '\nWRONG: expected "count":1462\n' >&2; exit 1 ;;
esac

title "The file upload of TorchServe's documentation; 0 ends the sequence"
printf '0' >"$demo/zero"
run curl -s -H "ts-request-sequence-id: seq_0" "$inference/predictions/counter" -T "$demo/zero"
is 25

title "What the server says about the counter: one restart and why, one live sequence left"
run curl -s "$management/models/counter"
grep -q '"restarts": 1' <<<"$output" || { echo "WRONG: no restart is shown" >&2; exit 1; }

title "Stop"
run kill "$server_pid"
if wait "$server_pid"; then code=0; else code=$?; fi
server_pid=
echo "the server ended with $code"
[ "$code" = 0 ] || { cat "$demo/server.log" >&2; exit 1; }
if kill -0 "$new_pid" 2>/dev/null; then
    echo "WRONG: worker $new_pid still runs" >&2
    exit 1
fi

printf '\nAll values were right. Next: write your own handler, in five minutes: see README.md.\n'

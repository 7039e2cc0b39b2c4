#!/usr/bin/env python3
"""Runs wrk, a load tool that is not ours, and prints one line of JSON like continuo-bench's.

    wrk.py ADDRESS:PORT [--model NAME | --echo] [--connections N] [--seconds S] [--threads N]

wrk counts the answers and looks at their status. It does not look at their bodies, so with --model each sequence is
asked for its sum afterwards: the sums must add up to the answers that wrk has counted, and may have up to one more for
each connection, whose last step wrk did not wait for. `steps` has the questions, too; `steps_per_s` has not. Exit 1: an
error or a wrong sum. Exit 3, and `refused`: wrk's threads ran for more than 90 % of the time, on the average, so it may
have measured itself."""

import argparse
import http.client
import json
import os
import pathlib
import subprocess
import sys

LUA = pathlib.Path(__file__).with_suffix(".lua")
BUSY = 0.9  # as in bench/load/tally.h


def sum_of(connection, path, sequence):
    connection.request("POST", path, "0", {"ts-request-sequence-id": sequence})
    answer = connection.getresponse()
    text = answer.read()
    return int(text) if answer.status == 200 else 0


def sums(address, path, names):
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        return sum(sum_of(connection, path, name) for name in names)
    finally:
        connection.close()


def load(args):
    """Runs wrk once. Returns what it says, and its own CPU time in seconds."""
    path = "/echo" if args.echo else f"/predictions/{args.model}"
    run, each = f"wrk{os.getpid()}", max(1, 2 * args.connections // args.threads)
    words = ["wrk", "--latency", "-t", args.threads, "-c", args.connections, "-d", f"{max(1, round(args.seconds))}s",
             "-s", LUA, f"http://{args.address}", "--", path, run, each]
    before = os.times()
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    after = os.times()
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines or not lines[-1].startswith("{"):
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr or done.stdout}")
    result = json.loads(lines[-1])
    names = [] if args.echo else [f"{run}-{t}-{i + 1}" for t in range(args.threads) for i in range(each)]
    total = sums(args.address, path, names) if names else result["steps"]
    result["mismatches"] = int(not result["steps"] <= total <= result["steps"] + args.connections)
    result["errors"] = result.pop("status_errors") + result.pop("socket_errors") + result["mismatches"]
    result["steps_per_s"] = result["steps"] / result["seconds"]
    result["steps"] += len(names)
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    result["client_busiest_share"] = busy / result["seconds"] / args.threads
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--model", default="counter")
    parser.add_argument("--echo", action="store_true", help="the server knows no sequences, so there are no sums")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1, help="whole seconds, because wrk takes no others")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if not 1 <= args.threads <= args.connections:
        parser.error("--threads must be at least 1, and at most --connections")
    result = load(args)
    if result["client_busiest_share"] > BUSY:
        for name in ("steps_per_s", "p50_ms", "p99_ms", "p999_ms"):
            del result[name]
        result["refused"] = f"wrk ran for {result['client_busiest_share']:.0%} of the time"
    print(json.dumps(result))
    return 1 if result["errors"] else 3 if "refused" in result else 0


if __name__ == "__main__":
    sys.exit(main())

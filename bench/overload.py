#!/usr/bin/env python3
"""Goodput under overload: the answers in time at one, two and four times what a model can do.

    bench/overload.py [--build build/release] [--seconds 20] [--step-ms 5] [--target-ms N]

Starts a server with a stateless model whose handler takes --step-ms for each request. Measures its peak with clients that
always have a request waiting, then sends requests evenly, without waiting for answers, and gives those that were answered
within --patience seconds as a ratio to the peak of the same run. The default settings are measured unless --target-ms
sets queueTargetMSec. It talks to this machine only, and ends after about (1 + 3) x --seconds."""

import argparse
import asyncio
import pathlib
import re
import subprocess
import tempfile
import time

HANDLER = """
local M = {{ api = 1 }}
function M.handle(req)
    local t = os.clock() + {seconds}
    while os.clock() < t do end
    return {{ body = "ok" }}
end
return M
"""


def start(args, folder):
    work = folder / "busy"
    work.mkdir()
    (work / "handler.lua").write_text(HANDLER.format(seconds=args.step_ms / 1000))
    target = "" if args.target_ms is None else f"queueTargetMSec: {args.target_ms}\n"
    (work / "model-config.yaml").write_text(f"minWorkers: 1\nmaxWorkers: 1\n{target}")
    store = folder / "store"
    store.mkdir()
    bin_ = pathlib.Path(args.build) / "bin"
    subprocess.run([bin_ / "continuo-archiver", "--model-name", "busy", "--version", "1.0", "--handler",
                    work / "handler.lua", "--config-file", work / "model-config.yaml", "--export-path", store], check=True)
    server = subprocess.Popen([bin_ / "continuo", "--state-dir", folder / "state", "--model-store", store,
                               "--models", "busy=busy.mar", "--inference-address", "http://127.0.0.1:0",
                               "--management-address", "http://127.0.0.1:0", "--metrics-address", "http://127.0.0.1:0",
                               "--grpc-inference-address", "none", "--grpc-management-address", "none"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in server.stdout:
        if found := re.search(r"inference=http://127\.0\.0\.1:(\d+)", line):
            return server, int(found[1])
    raise SystemExit("bench/overload.py: the server did not start")


async def ask(port):
    """Sends one request on a connection of its own; returns the status, or 0 if there is no answer."""
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /predictions/busy HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx")
        line = await reader.readline()
        return int(line.split()[1]) if line else 0
    except (OSError, IndexError, ValueError):
        return 0
    finally:
        if writer:
            writer.close()


async def peak(port, seconds):
    """Answers per second with four clients that wait for each answer."""
    good, until = 0, time.monotonic() + seconds

    async def client():
        nonlocal good
        while time.monotonic() < until:
            is_good = await ask(port) == 200  # before `good` is read, because another client may change it
            good += is_good
    begun = time.monotonic()
    await asyncio.gather(*(client() for _ in range(4)))
    return good / (time.monotonic() - begun)


async def offered(port, rate, seconds, patience):
    """Sends `rate` requests a second; returns good answers per second, refusals, and the 99th percentile of waits."""
    good, refused, waits, tasks = 0, 0, [], set()

    async def one():
        nonlocal good, refused
        begun = time.monotonic()
        try:
            status = await asyncio.wait_for(ask(port), patience)
        except asyncio.TimeoutError:
            return
        if status == 200:
            good += 1
            waits.append(time.monotonic() - begun)
        elif status in (429, 503):
            refused += 1
    begun, sent = time.monotonic(), 0
    while (now := time.monotonic() - begun) < seconds:
        while sent < rate * now:
            task = asyncio.create_task(one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            sent += 1
        await asyncio.sleep(0.005)
    answered = good
    await asyncio.gather(*tasks)
    waits.sort()
    return answered / seconds, refused, waits[int(len(waits) * 0.99)] if waits else 0


async def measure(args, port):
    best = await peak(port, args.seconds)
    print(f"peak {best:.0f}/s")
    for times in (1, 2, 4):
        good, refused, p99 = await offered(port, best * times, args.seconds, args.patience)
        print(f"{times} times: good {good:.0f}/s, ratio to the peak {good / best:.2f}, refused {refused}, "
              f"p99 of answers {p99 * 1000:.0f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--step-ms", type=float, default=5)
    parser.add_argument("--patience", type=float, default=5)
    parser.add_argument("--target-ms", type=int)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server, port = start(args, pathlib.Path(folder))
        try:
            asyncio.run(measure(args, port))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()

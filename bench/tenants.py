#!/usr/bin/env python3
"""Does a noisy tenant slow another one down? Two tenants have a key and a model of their own, each with one worker.

    bench/tenants.py [--build build/release] [--rounds 8] [--seconds 2] [--rate 50] [--noise 8]

The quiet tenant sends --rate steps a second, evenly, on one connection. In every second part the noisy one has --noise
connections that send without a pause. Both kinds of parts alternate, so that what else the machine does falls on both.
Prints the 50th and 99th percentile of the quiet tenant's waits in each kind, and their ratio. It needs free processors
for both workers and the server: on fewer, it measures how the kernel shares them."""

import argparse
import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ECHO = 'return { step = function(state, req) return { text = "ok" } end, init = function() return {} end }'
YAML = "minWorkers: 1\nmaxWorkers: 1\nsequenceBatching: true\n"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    for name, value in (("rounds", 8), ("seconds", 2), ("rate", 50), ("noise", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


async def connect(address, model, key, sequence):
    """Returns a function that makes one step, and checks that it is answered."""
    reader, writer = await asyncio.open_connection(*address)
    request = (f"POST /predictions/{model} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
               f"Continuo-Sequence: {sequence}\r\nContent-Length: 1\r\n\r\nx").encode()

    async def step():
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        body = await reader.readexactly(size)
        assert head.startswith(b"HTTP/1.1 200"), (head, body)
    return step


async def quiet(step, rate, seconds):
    """Returns the waits of evenly sent steps, in ms; a step that begins late counts from when it should have begun."""
    waits, begun = [], time.monotonic()
    for n in range(rate * seconds):
        due = begun + n / rate
        await asyncio.sleep(max(0, due - time.monotonic()))
        await step()
        waits.append(1000 * (time.monotonic() - due))
    return waits


async def measure(args, address, keys, noisy_tenant):
    step = await connect(address, "quiet", keys["quiet"], "a")
    waits = {False: [], True: []}
    for part in range(2 * args.rounds):
        noisy = part % 2 == 1
        noise = noisy_tenant(address, keys["noisy"], args) if noisy else None
        await asyncio.sleep(0.3)
        waits[noisy] += await quiet(step, args.rate, args.seconds)
        if noise:
            assert noise.poll() is None, "the noisy tenant has ended before its time"
            noise.kill()
            noise.wait()
    return waits


def noisy_tenant(address, key, args):
    """Starts a process of its own, so that the clients do not wait for each other."""
    return subprocess.Popen([sys.executable, __file__, "noise", *map(str, address), key, str(args.noise)], stderr=subprocess.DEVNULL)


async def make_noise(address, key, connections):
    async def one(n):
        step = await connect(address, "noisy", key, f"n{n}")
        while True:
            await step()
    await asyncio.gather(*(one(n) for n in range(connections)))


def percentile(waits, share):
    return sorted(waits)[int(share * (len(waits) - 1))]


def main():
    if sys.argv[1:2] == ["noise"]:
        asyncio.run(make_noise((sys.argv[2], int(sys.argv[3])), sys.argv[4], int(sys.argv[5])))
        return
    args = arguments()
    os.environ["CONTINUO_BUILD"] = args.build
    from served import BIN, Served, machine  # noqa: PLC0415 - it reads CONTINUO_BUILD
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "keys.json"
        keys = {name: subprocess.run([BIN / "continuo-ctl", "keys", "add", name, "--models", name, "--keys", file],
                                     check=True, capture_output=True, text=True).stdout.strip()
                for name in ("quiet", "noisy")}
        admin = subprocess.run([BIN / "continuo-ctl", "keys", "add", "ops", "--scopes", "manage", "--keys", file],
                               check=True, capture_output=True, text=True).stdout.strip()
        os.environ["CONTINUO_TOKEN"] = admin
        with Served({name: (ECHO, YAML) for name in keys}, ["--keys", file]) as served:
            waits = asyncio.run(measure(args, served.address, keys, noisy_tenant))
    for share in (0.5, 0.99):
        alone, beside = percentile(waits[False], share), percentile(waits[True], share)
        print(f"p{share * 100:.0f} of {len(waits[True])} steps: alone {alone:.2f} ms, beside the noisy tenant "
              f"{beside:.2f} ms, ratio {beside / alone:.2f}")


if __name__ == "__main__":
    main()

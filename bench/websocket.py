#!/usr/bin/env python3
"""Compares what a step costs the server over a WebSocket and over HTTP: its CPU time and its system calls.

One server with the counter model serves clients of every kind in turn, so that other load on the machine meets all kinds
alike. The clients are those of the load tool continuo-bench: each has one connection and sends its next step when the
last one is answered, or at fixed times (--rate). The CPU time is that of all threads of the server, as the kernel counts
it, without the workers. Each answer is checked.

    bench/websocket.py --rounds 20 --clients 1 8 64
    bench/websocket.py --rate 2000      2,000 steps a second, so that the server sleeps in between
    bench/websocket.py --calls          the system calls of one step, by strace
    bench/websocket.py --idle 10000     the memory of the server for a stream that has made one step and is silent
"""

import argparse
import base64
import collections
import concurrent.futures
import itertools
import os
import pathlib
import re
import selectors
import socket
import statistics
import subprocess
import tempfile
import time

from served import ROOT, Served, machine

CONFIG = "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 64\nsequenceBatching: true\n"
JSON_STEP = b'{"type":"step","data":1}'


class Client:
    """A counter that counts its own steps."""

    def __init__(self, server):
        self.socket = socket.create_connection(server.address, 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.steps = 0

    def check(self, good, got):
        if not good:
            raise SystemExit(f"{type(self).__name__}, step {self.steps}: {got!r}")


class Http(Client):
    number = 0

    def __init__(self, server):
        super().__init__(server)
        Http.number += 1
        self.request = (f"POST /predictions/counter HTTP/1.1\r\nHost: {server.address[0]}\r\n"
                        f"ts-request-sequence-id: http-{self.number}\r\nContent-Length: 1\r\n\r\n1").encode()

    def send(self):
        self.socket.sendall(self.request)
        self.steps += 1

    def receive(self):
        got = self.socket.recv(4096)
        self.check(got.startswith(b"HTTP/1.1 200") and got.endswith(b"\r\n\r\n%d" % self.steps), got)


class Plain(Client):
    protocol, numbers = "continuo.v1.plain", itertools.count(1)
    message = b"\x81\x81\0\0\0\0" + b"1"  # masked with zeros

    def __init__(self, server):
        super().__init__(server)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET /v1/streams/counter/{self.protocol}-{next(Plain.numbers)} HTTP/1.1\r\n"
                             f"Host: {server.address[0]}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                             f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                             f"Sec-WebSocket-Protocol: {self.protocol}\r\n\r\n").encode())
        got = self.socket.recv(4096)
        self.check(got.startswith(b"HTTP/1.1 101"), got)
        self.greet(got)

    def greet(self, got):
        pass

    def send(self):
        self.socket.sendall(self.message)
        self.steps += 1

    def receive(self):
        got, answer = self.socket.recv(4096), b"%d" % self.steps
        self.check(got == bytes([0x81, len(answer)]) + answer, got)


class Json(Plain):
    protocol = "continuo.v1.json"
    message = bytes([0x81, 0x80 | len(JSON_STEP)]) + b"\0\0\0\0" + JSON_STEP

    def greet(self, got):
        while b'"hello"' not in got:
            more = self.socket.recv(4096)
            self.check(more, got)
            got += more

    def receive(self):
        got = self.socket.recv(4096)
        self.check(got.startswith(b'{"type":"answer","step":%d,' % self.steps, 2) and
                   got.endswith(b':"%d"}' % self.steps) and got[1] == len(got) - 2, got)


PYTHON_CLIENTS = (Http, Plain, Json)
KINDS = {"HTTP/1.1": (), "continuo.v1.plain": ("--stream", "plain"), "continuo.v1.json": ("--stream", "json")}


def cpu_ns(pid):
    """Returns the time that the threads of a process have run."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total


def drive(clients, steps):
    """Each client makes its share of the steps."""
    left = {client: steps // len(clients) for client in clients}
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        while left:
            for key, _ in selector.select():
                client = key.data
                client.receive()
                left[client] -= 1
                if left[client]:
                    client.send()
                else:
                    del left[client]
                    selector.unregister(client.socket)


def cost(server, n_clients, flags, args):
    """Returns the CPU time of a step in microseconds, and the steps a second."""
    before = cpu_ns(server.process.pid)
    result = server.bench("counter", "--connections", n_clients, "--duration", args.seconds, "--warmup", 0,
                          "--rate", args.rate, "--stall-seconds", 30, *flags)
    if result["errors"]:
        raise SystemExit(f"{result['errors']} steps failed or had a wrong sum")
    return (cpu_ns(server.process.pid) - before) / 1000 / result["steps"], result["steps_per_s"]


def measure(server, n_clients, args):
    """Returns {kind: [(microseconds a step, steps a second) of each round]}."""
    costs = {kind: [] for kind in KINDS}
    for n in range(-1, args.rounds):
        for kind in list(KINDS) if n % 2 else reversed(KINDS):
            one = cost(server, n_clients, KINDS[kind], args)
            if n >= 0:  # the first round warms up
                costs[kind].append(one)
    return costs


def best(values):
    """Returns the median of the best quarter: other load on the machine only ever adds CPU time (bench/cpu.py)."""
    values = sorted(values)
    return statistics.median(values[:max(1, len(values) // 4)])


def show_costs(server, args):
    print("| clients | kind | steps/s | CPU of the server for a step, us | share of HTTP | median of the rounds' shares |"
          "\n|---|---|---|---|---|---|")
    for n_clients in args.clients:
        costs = measure(server, n_clients, args)
        http = best(us for us, _ in costs["HTTP/1.1"])
        for kind, rounds in costs.items():
            us = best(us for us, _ in rounds)
            shares = statistics.median(ours / theirs for (ours, _), (theirs, _) in zip(rounds, costs["HTTP/1.1"], strict=True))
            print(f"| {n_clients} | {kind} | {statistics.median(rate for _, rate in rounds):,.0f} | {us:.1f} | {us / http:.2f} "
                  f"| {shares:.2f} |", flush=True)


def calls(server, client, steps):
    """Returns a Counter of the server's system calls while a client makes its steps."""
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as out:
        tracer = subprocess.Popen(["strace", "-f", "-q", "-o", out.name, "-p", str(server.process.pid)],
                                  stderr=subprocess.PIPE, text=True)
        while not out.read():  # until it has seen the first call
            drive([client], 10)
        drive([client], 10)
        out.seek(0, os.SEEK_END)
        drive([client], steps)
        tracer.terminate()
        tracer.wait()
        names = re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)(?:\(.*= |.*<unfinished)", out.read(), re.M)
    return collections.Counter(names)


def show_calls(server, steps=500):
    for kind in PYTHON_CLIENTS:
        found = calls(server, kind(server), steps)
        print(f"{kind.__name__:6}", ", ".join(f"{name} {n / steps:.2f}" for name, n in found.most_common(12)))


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def step_all(clients):
    """Few at a time: the server would refuse some steps of thousands of clients as overload."""
    for at in range(0, len(clients), 100):
        few = clients[at:at + 100]
        drive(few, len(few))


def show_idle(server, n):
    """The first streams pay for what all share, so they are opened before."""
    opened = []

    def open_some(count):
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            opened.extend(pool.map(lambda _: Json(server), range(count)))
        step_all(opened[-count:])
        # An idle stream gives buffers back after half of the shortest time limit. jemalloc returns free pages to the
        # kernel bit by bit, while the server works.
        for _ in range(30):
            drive(opened[:1], 50)
            time.sleep(0.5)
        return resident_bytes(server.process.pid)

    before = open_some(100)
    after = open_some(n)
    step_all(opened)  # none has been cut
    print(f"{n} idle streams: {(after - before) / n / 1000:.1f} kB each")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.6, help="of a run; a round has one of each kind")
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--rate", type=int, default=0, help="steps a second, at fixed times; 0: as soon as they are answered")
    parser.add_argument("--busy-wait", type=int, default=0, help="microseconds")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--idle", type=int, help="streams")
    args = parser.parse_args()
    print(machine())
    flags = ["--loops", 1, "--busy-wait", args.busy_wait]
    if args.idle:  # one address gets nine tenths of all connections
        flags += ["--max-connections", args.idle * 10 // 9 + 200, "--stream-ping", 0, "--body-timeout", 10000]
    with Served({"counter": (ROOT / "examples/counter/handler.lua", CONFIG)}, flags) as server:
        if args.calls:
            show_calls(server)
        elif args.idle:
            show_idle(server, args.idle)
        else:
            show_costs(server, args)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How long a kill -9 of the only worker is felt: N live sequences, one connection each, every answer
checked. Two kinds of death, alternated:
  idle       the worker dies, then every sequence sends a step
  in flight  every sequence has sent a step, a quarter was answered; the worker dies; those that were
             answered send the next one
Prints the time from the death until the last of all sequences was answered. Exit 1 where a median is
above --max-ms or an answer is wrong.
"""

import argparse
import os
import select
import signal
import socket
import statistics
import sys
import time

from served import ROOT, Served, machine

CONFIG = "minWorkers: 1\nbatchSize: 64\nsequenceBatching: true\n"


class Load:
    """The clients of all sequences, each with at most one step in flight. They need little CPU time, because they share
    two cores with the server."""

    def __init__(self, address, count):
        self.totals = [0] * count
        self._poll = select.epoll()
        self._sockets = []
        self._by_fd = {}
        self._answers = []
        self._requests = [f"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts-request-sequence-id: s{i}\r\n"
                          "Content-Length: 1\r\n\r\n1".encode() for i in range(count)]
        for i in range(count):
            connection = socket.create_connection(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll.register(connection, select.EPOLLIN)
            self._sockets.append(connection)
            self._by_fd[connection.fileno()] = i

    def send(self, which):
        for i in which:
            self._sockets[i].send(self._requests[i])

    def receive(self, waiting, leave=0):
        """Reads answers of the sequences in the set `waiting` until at most `leave` of them are left. check() looks at
        the answers later, when no time is measured."""
        end = time.monotonic() + 30
        while len(waiting) > leave:
            for fd, _ in self._poll.poll(max(0, end - time.monotonic())):
                i = self._by_fd[fd]
                self._answers.append((i, self._sockets[i].recv(4096)))
                waiting.remove(i)
            if time.monotonic() > end:
                raise SystemExit(f"{len(waiting)} sequences were not answered within 30 s")

    def check(self):
        for i, answer in self._answers:
            head, _, body = answer.partition(b"\r\n\r\n")
            self.totals[i] += 1
            if not head.startswith(b"HTTP/1.1 200 ") or body != str(self.totals[i]).encode():
                raise SystemExit(f"sequence s{i}, step {self.totals[i]}: {answer[:500]!r}")
        self._answers.clear()


def ready_worker(server, but_not):
    while (pid := server.worker_pid("counter")) in (None, but_not):
        time.sleep(0.01)
    return pid


def one_death(server, load, everyone, in_flight, last_pid):
    """Returns ms from the death to the last answer, and the pid that died."""
    pid = ready_worker(server, last_pid)
    waiting = set()
    if in_flight:
        waiting.update(everyone)
        load.send(everyone)
        load.receive(waiting, leave=len(everyone) * 3 // 4)
    answered = [i for i in everyone if i not in waiting]
    died = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    load.send(answered)
    waiting.update(answered)
    load.receive(waiting)
    took = (time.monotonic() - died) * 1000
    load.check()
    return took, pid


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--deaths", type=int, default=20, help="of each kind (20)")
    parser.add_argument("--max-ms", type=float, default=100, help="the median of each kind at most (100)")
    args = parser.parse_args()
    everyone = list(range(args.sequences))
    took = {"idle": [], "in flight": []}
    undisturbed = []
    print(machine())
    with Served({"counter": (ROOT / "examples/counter/handler.lua", CONFIG)}) as server:
        load = Load(server.address, args.sequences)
        pid = None
        for _ in range(args.deaths):
            for kind, times in took.items():
                began = time.monotonic()
                load.send(everyone)
                load.receive(set(everyone))
                undisturbed.append((time.monotonic() - began) * 1000)
                load.check()
                ms, pid = one_death(server, load, everyone, kind == "in flight", pid)
                times.append(ms)
        redispatched = server.describe("counter")["redispatched"]
    print(f"{args.sequences} live sequences, {args.deaths} deaths of each kind, alternated; ms until all were "
          f"answered\n\n| worker | median | worst |\n|---|---|---|")
    for kind, times in ({"lives on": undisturbed} | took).items():
        print(f"| {kind if kind == 'lives on' else 'dies, ' + kind} | {statistics.median(times):.0f} "
              f"| {max(times):.0f} |")
    met = max(statistics.median(times) for times in took.values()) <= args.max_ms
    print(f"\n{redispatched} steps were sent again, every answer was right; the bound of {args.max_ms:g} ms: "
          f"{'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

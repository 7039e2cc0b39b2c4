"""SIGTERM while clients are anywhere between their first byte and the last byte of an answer, and half of them have
gone. The server ends by itself, with status 0, and leaves nothing behind.

CONTINUO_STOPS is the number of stops for each transport, and CONTINUO_STOP_SEED repeats a run that failed."""

import contextlib
import os
import random
import signal
import socket
import struct
import time

import pytest

from client import RawClient
from models import Model
from server import SLOW_BUILD, address_of
from test_tls import Identity, secure

STOPS = int(os.environ.get("CONTINUO_STOPS", "2" if SLOW_BUILD else "5"))
CLIENTS = 40
DRAIN_MS = 1000
LONGEST_S = DRAIN_MS / 1000 + 4  # the server gives clients that don't read 2 s

# A step, a stream with rests, and one that its client doesn't read.
LUA = """
local M = { api = 1 }

function M.init()
    return { steps = 0 }
end

function M.step(state, req)
    state.steps = state.steps + 1
    if req.text == "talk" then
        for i = 1, 1000 do
            if not coroutine.yield({ text = i .. " " }, 0.01) then
                return "told to end"
            end
        end
    elseif req.text == "rest" then
        coroutine.yield({ text = "then nothing for ten minutes" }, 600)
    elseif req.text == "much" then
        return { text = ("x"):rep(8 << 20) }
    end
    return { text = tostring(state.steps) }
end

return M
"""


def request(body, sequence, version="1.1"):
    return (f"POST /predictions/m HTTP/{version}\r\nHost: t\r\nts_request_sequence_id: {sequence}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def silent(chance, sequence):
    return b"", 0


def part(chance, sequence):
    """Returns a request that is cut at some byte: in its first line, its headers, or its body."""
    whole = request("step " * chance.choice((1, 1000)), sequence)
    return whole[:chance.randrange(1, len(whole))], 0


def idle(chance, sequence):
    return request("step", sequence), 1


def parked(chance, sequence):
    return request("step", sequence), 0


def pipelined(chance, sequence):
    return request("step", sequence) + request("talk", sequence) + request("step", sequence)[:chance.randrange(90)], 0


def streaming(chance, sequence):
    return request(chance.choice(("talk", "rest")), sequence, chance.choice(("1.1", "1.0"))), 1


def unread(chance, sequence):
    return request("much", sequence), chance.choice((0, 1))


def refused(chance, sequence):
    """Sends a body that the server refuses without waiting for it."""
    return b"POST /predictions/m HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999\r\n\r\nxxxx", 0


STATES = (silent, part, idle, parked, pipelined, streaming, unread, refused)


class Caller:
    def __init__(self, s, chance, state, name):
        self._raw = RawClient(address_of(s.inference), s.transcript, f"{name}-{state.__name__}",
                              receive_buffer=4096 if state is unread else None)
        self._raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if s.tls:
            self._raw.socket = s.tls.wrap_socket(self._raw.socket, server_hostname="127.0.0.1")
        sent, heard = state(chance, name)
        if sent:
            self._raw.send(sent)
        if heard:
            self._raw.socket.recv(64)

    def go(self, how):
        if how == "reset":
            self._raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half":
            with contextlib.suppress(OSError):  # the server may have closed it
                socket.socket.shutdown(self._raw.socket, socket.SHUT_WR)  # also below TLS
        else:
            self._raw.close()


def storm(s, chance):
    """Workers stop, clients go and workers die, and in the middle of this comes SIGTERM."""
    states = chance.sample(STATES, 3)  # a few alone may be forgotten where many wake each other
    callers = [Caller(s, chance, chance.choice(states), f"c{i}") for i in range(CLIENTS)]
    pids = s.expect_ready("m", 2)
    send(s, signal.SIGSTOP, [pid for pid in pids if chance.random() < 0.5])
    going = chance.sample(callers, CLIENTS // 2)
    early = chance.randrange(len(going))
    leave(going[:early], chance)
    pause(chance)
    send(s, signal.SIGKILL, [pid for pid in pids if chance.random() < 0.5])
    pause(chance)
    send(s, signal.SIGTERM, [s.process.pid])
    leave(going[early:], chance)
    return callers


def send(s, which, pids):
    for pid in pids:
        s.transcript.log("test", f"{which.name} {pid}")
        os.kill(pid, which)


def leave(callers, chance):
    for caller in callers:
        caller.go(chance.choice(("reset", "close", "half")))


def pause(chance):
    """Sleeps to reach a random moment, and not to wait for something."""
    time.sleep(chance.choice((0, 0.002, 0.01, 0.05)))


@pytest.mark.parametrize("transport", ["plain", "tls"])
def test_every_stop_ends_with_status_0(server, folder, transport):
    seed = int(os.environ.get("CONTINUO_STOP_SEED", random.SystemRandom().randrange(1 << 31)))
    chance = random.Random(seed)
    model = Model("m", LUA, {"minWorkers": 2, "maxWorkers": 2, "batchSize": 16})
    flags = ["--drain-timeout", DRAIN_MS]
    if transport == "tls":
        s = secure(server, Identity(folder, "stops"), model, flags=flags)
    else:
        s = server(model, flags=flags)
    s.models = ["m=m-1.0.mar"]  # is packed already
    s.transcript.log("test", f"CONTINUO_STOP_SEED={seed}")
    for i in range(STOPS):
        callers = storm(s, chance)
        began = time.monotonic()
        s.stop(timeout=LONGEST_S)
        s.transcript.log("test", f"stop {i}: {time.monotonic() - began:.3f} s")
        for caller in callers:
            caller.go("close")
        if i + 1 < STOPS:
            s.restart()

#!/usr/bin/env python3
"""Clients that do everything wrong on WebSocket streams, while ordinary streams make steps whose answers are known.

Each attacker opens connections one after the other, with right and wrong handshakes (trace headers, parameters,
subprotocols), and sends frames of random kinds, messages whose members are random, tensors that do not fit, and sound
with odd bytes and impossible rates. Many connections carry the same few sequences at the same time and resume at random
steps. Some clients never read, some break off with a reset, and some just fall silent.

    tests/campaign/websocket_frames.py --minutes 10 [--loops 1] [--tls] [--kills] [--seed S] [--attackers 20] [--build build/asan]

With --kills, workers are also killed with -9 meanwhile.

Promises: the server never ends, and no worker ends that was not killed; every step of the ordinary streams is answered once, in order and with
the right sum; one step of one generation never has two different answers; when all attackers have gone, no stream, no
step, no descriptor and not much memory is left, and the server is idle. Prints one line of JSON; the exit status is 1 if
a promise was broken. --seed repeats what each attacker sends, but not the order among them."""

import argparse
import asyncio
import base64
import collections
import contextlib
import json
import os
import pathlib
import random
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("CONTINUO_BUILD", "build/release")
if "--build" in sys.argv:
    os.environ["CONTINUO_BUILD"] = sys.argv[sys.argv.index("--build") + 1]
os.environ.setdefault("CONTINUO_TEST_FACTOR", "6")
sys.path[:0] = [str(HERE.parent / "support"), str(HERE)]

from attacking import cpu_share, resident_mb  # noqa: E402
from models import Model, counter, stateless  # noqa: E402
from server import Server, address_of  # noqa: E402
from waiting import expect  # noqa: E402
from websocket_streams import Campaign as Ordinary  # noqa: E402
from websocketing import DATATYPES, HEAD, SUMS_LUA, TENSOR, binary_step  # noqa: E402

BIG_LUA = """
return { api = 1, step = function(_, req) return { body = string.rep("x", tonumber(req.body) or 1) } end }
"""
PIECES_LUA = """
local M = { api = 1 }
function M.init() return { n = 0 } end
function M.step(state, req)
    state.n = state.n + 1
    for i = 1, 20 do coroutine.yield({ text = string.rep("y", 5000) }) end
    return { text = tostring(state.n) }
end
return M
"""
EAR_LUA = """
local M = { api = 1 }
function M.init() return { n = 0 } end
function M.step(state, req) state.n = state.n + 1 return { json = { n = state.n } } end
return M
"""
SUMS_YAML = ("minWorkers: 1\nmaxWorkers: 1\nbatchSize: 4\nsequenceBatching: true\n"
             "inputs: [{name: x, datatype: FP32, shape: [1]}]\noutputs: [{name: sum, datatype: FP32, shape: [1]}]\n")
MODELS = ["counter", "counter", "counter", "echo", "big", "pieces", "ear", "ear", "sums", "counter/1.0", "nobody",
          "counter/9.9", ""]
NUMBERS = ["0", "1", "2", "3", "7", "-1", "x", "", "1e3", "64", "4294967296", "9223372036854775806",
           "9223372036854775807", "18446744073709551615", "1" * 50, "%00"]
CONTEXTS = ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "garbage", "", "00-0-0-01", "00-" + "f" * 4000,
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\x7f\xe9"]
SOUNDS = [f"audio/x-pcm; {words}" for words in (
    "rate=0", "rate=-1", "rate=1e9", "rate=999", "rate=1000", "rate=384000", "rate=44100; channels=0",
    "rate=8000; channels=9", "channels=7", "encoding=mulaw", "encoding=pcm_f32le", "encoding=opus", "rate=", "rate=;;;",
    "rate=8000; rate=0", "encoding=pcm_f32le; channels=8; rate=11025")] + ["audio/wav", "audio/ogg", "audio/basic", "text/plain"]
JUNK = [None, True, False, 0, -1, 7, 1e308, "", "4", "\u0000", "\ud800", [], {}, [[]], 2**63, -2**63, 2**64, "9" * 400, {"a": {}}]


def some_bytes(chance, most=70000):
    return chance.randbytes(chance.choice([0, 1, 2, 3, 5, 125, 126, 127, 1000, 4096, min(65535, most), most]))


def frame(first, payload=b"", mask=b"\0\0\0\0", length=None):
    n = len(payload) if length is None else length
    size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n)
    if mask is None:
        return bytes([first]) + size + payload
    if mask != b"\0\0\0\0":
        payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload[:5000]))
    return bytes([first, size[0] | 0x80]) + size[1:] + mask + payload


def random_frame(chance):
    """A frame that may be wrong in each of its fields."""
    what = chance.randrange(8)
    payload = some_bytes(chance)
    if what == 0:
        return chance.randbytes(chance.choice([1, 2, 14, 500]))
    if what == 1:
        return frame(chance.randrange(256), payload, mask=chance.choice([b"\0\0\0\0", b"\x01\x02\x03\x04", None]))
    if what == 2:  # a length that is not the payload's
        return frame(chance.choice([0x81, 0x82, 0x01, 0x89]), payload, length=chance.choice(
            [0, 1, 125, 126, 65535, 65536, 1 << 20, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]))
    if what == 3:
        return frame(0x88, chance.choice([b"", b"\x03", struct.pack(">H", chance.choice([0, 999, 1000, 1005, 1015, 4001, 65535])),
                                          b"\x03\xe8\xff\xfe", b"\x03\xe8" + b"a" * 123]))
    if what == 4:
        return frame(chance.choice([0x89, 0x8a, 0x09]), payload[:125])
    if what == 5:  # one message in many pieces, or one that does not end
        kind = chance.choice([1, 2])
        return frame(kind, b"1") + b"".join(frame(0, b"") for _ in range(chance.choice([1, 100, 3000]))) + \
            frame(chance.choice([0x80, 0x80, 0x00]), b"2")
    if what == 6:  # compressed, whether that was agreed on or not
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        small = (packer.compress(bytes(chance.choice([1, 1000, 5 << 20]))) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
        return frame(0xc2, small if chance.random() < 0.5 else payload[:1000])
    return frame(0x81, chance.choice([b"\xc3\x28", b"\xed\xa0\x80", b"\xf5", b"\xff" * 200, "\u20ac".encode()[:2]]))


def json_message(chance):
    """A message as the JSON form has it, in which some members are of the wrong kind."""
    members = {"type": chance.choice(["step"] * 8 + ["start", "end", "credit", "ping", "hello", "answer", "", 7, None])}
    member = chance.choice(["data", "data", "data", "text", "base64"])
    members[member] = {"data": chance.choice([1, 2, 3, "4"]), "text": "5", "base64": base64.b64encode(b"6").decode()}[member]
    if chance.random() < 0.2:
        members["base64"] = base64.b64encode(some_bytes(chance, 9001)).decode()[chance.choice([0, 0, 1]):]
        members.pop("data", None)
        members["content_type"] = chance.choice(SOUNDS)
    for name in "step", "start", "end", "credit", "traceparent", "tracestate", "content_type", "data", "text", "base64", "x":
        if chance.random() < 0.06:
            members[name] = chance.choice([*JUNK, *CONTEXTS, chance.randrange(30)])
    text = json.dumps(members)
    if chance.random() < 0.1:
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(["", "{", "]", "\"", "\\u12", "[" * 3000, "\x00", text]) + text[at + chance.randrange(3):]
    return frame(0x81, text.encode("utf-8", "surrogatepass"))


def binary_message(chance):
    """A message as the binary form has it: tensors, bytes, or a head that does not fit what follows."""
    tensors = [(chance.choice(["x", "y", "", "n" * 300]), chance.choice(list(DATATYPES)),
                [chance.choice([0, 1, 1, 2, 1 << 40, (1 << 64) - 1]) for _ in range(chance.choice([0, 1, 1, 2, 16, 17]))],
                some_bytes(chance, 9001)) for _ in range(chance.choice([1, 1, 2, 50]))]
    good = [("x", "FP32", [1], struct.pack("<f", chance.choice([1, 2, float("nan")])))]
    message = chance.choice([binary_step(b"1"), binary_step(tensors=good), binary_step(tensors=tensors),
                             binary_step(some_bytes(chance, 9001), step=chance.choice([0, 1, 2, (1 << 64) - 1]),
                                         start=chance.random() < 0.1, end=chance.random() < 0.1)])
    if chance.random() < 0.3:
        whole = bytearray(message)
        for _ in range(chance.choice([1, 3])):
            whole[chance.randrange(min(len(whole), HEAD.size + TENSOR.size + 24))] = chance.randrange(256)
        message = bytes(whole[:chance.choice([len(whole), chance.randrange(len(whole) + 1)])])
    return frame(0x82, message)


class Attacker:
    """One connection after the other, until the attack is over."""

    def __init__(self, attack, number):
        self.attack, self.chance = attack, random.Random(f"{attack.args.seed}-{number}")

    def path(self):
        chance = self.chance
        self.model = chance.choice(MODELS)
        self.sequence = chance.choice([f"shared{chance.randrange(6)}"] * 6 + ["%01", "", "a%2Fb", "x" * 257, "%ff", "%C3%A9"])
        query = [f"{name}={chance.choice(NUMBERS)}" for name in ("last", "generation", "credit", "ticket")
                 if chance.random() < 0.15]
        return f"/v1/streams/{self.model}/{self.sequence}" + ("?" + "&".join(query) if query else "")

    def handshake(self):
        """Returns a head that is mostly right."""
        chance = self.chance
        self.form = chance.choice(["json", "json", "json", "binary", "plain", "none"])
        lines = [f"GET {self.path()} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        if self.form != "none":
            lines.append(f"Sec-WebSocket-Protocol: continuo.v1.{self.form}")
        if chance.random() < 0.3:
            lines.append("Sec-WebSocket-Extensions: " + chance.choice(
                ["permessage-deflate", "permessage-deflate; client_max_window_bits=99", "x-nothing", ";,;="]))
        for name in "traceparent", "tracestate":
            if chance.random() < 0.3:
                lines.append(f"{name}: {chance.choice(CONTEXTS)}")
        if chance.random() < 0.3:
            lines.append("Content-Type: " + chance.choice(SOUNDS))
        if chance.random() < 0.1:
            lines[chance.randrange(len(lines))] = chance.choice(["", "X", "Sec-WebSocket-Version: 8", "Origin: http://evil.example"])
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head[:chance.randrange(len(head))] if chance.random() < 0.03 else head

    def message(self):
        chance = self.chance
        if chance.random() < 0.08:
            return random_frame(chance)
        if self.model == "ear" and chance.random() < 0.5:
            return frame(0x82, some_bytes(chance, 9001))
        if self.model == "big":
            return frame(0x81, b"200000") if self.form != "json" else frame(0x81, b'{"type":"step","data":200000}')
        if self.form == "json":
            return json_message(chance)
        if self.form == "binary":
            return binary_message(chance)
        return frame(chance.choice([0x81, 0x81, 0x82]), chance.choice([b"1", b"2", b"3", b"x", b"", b" 4 "]))

    def listen(self, live, seconds):
        """Reads what has come, and notes the answers."""
        live.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while got := live.recv(1 << 16):
                self.heard += got
                live.settimeout(0.001)
            if not got:
                raise ConnectionResetError
        if self.form != "json":
            self.heard = b""
            return
        while len(self.heard) >= 2:
            size, at = self.heard[1], 2
            if size >= 126:
                at = 4 if size == 126 else 10
                size = int.from_bytes(self.heard[2:at], "big")
            if len(self.heard) < at + size:
                return
            first, payload, self.heard = self.heard[0], self.heard[at:at + size], self.heard[at + size:]
            if first == 0x81:
                self.note(json.loads(payload))

    def note(self, message):
        """What the stream says about its sequence must be the same as what it said to others."""
        self.generation = message.get("generation", self.generation)
        self.attack.count(f"got {message['type']}")
        if message["type"] == "error":
            self.attack.count("error " + message["error"])
        if message["type"] == "answer" and message["final"] and self.model.startswith("counter") and self.generation:
            self.attack.answered((self.sequence, self.generation, message["step"]), message["text"])

    def connection(self):
        chance = self.chance
        self.heard, self.generation = b"", 0
        with contextlib.closing(self.attack.connect()) as live:
            habit = chance.choice(["talks"] * 6 + ["deaf", "silent"])
            if habit == "deaf":
                live.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            live.sendall(self.handshake() + (self.message() if chance.random() < 0.3 else b""))
            live.settimeout(2)
            while b"\r\n\r\n" not in self.heard:
                got = live.recv(4096)
                if not got:
                    return
                self.heard += got
            head, _, self.heard = self.heard.partition(b"\r\n\r\n")
            self.attack.count("status " + head[9:12].decode("latin-1"))
            if not head.startswith(b"HTTP/1.1 101"):
                return
            if b"continuo.v1." not in head:  # the line that asked for it was replaced
                self.form = "none"
            if habit == "silent":
                self.attack.over.wait(chance.uniform(0, 4))
                return
            for _ in range(chance.choice([1, 10, 100, 300])):
                bytes_ = self.message()
                live.settimeout(0.3)
                if chance.random() < 0.1 and bytes_:  # in two parts
                    cut = chance.randrange(len(bytes_))
                    live.sendall(bytes_[:cut])
                    bytes_ = bytes_[cut:]
                live.sendall(bytes_)
                self.attack.count("messages")
                if habit == "talks" and chance.random() < 0.7:
                    self.listen(live, chance.choice([0.001, 0.02, 0.2]))
                if self.attack.over.is_set():
                    break
            if chance.random() < 0.4:
                live.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset

    def run(self):
        while not self.attack.over.is_set():
            try:
                self.connection()
            except OSError:  # the server has closed, or takes nothing more
                self.attack.count("broken off")
            except Exception as wrong:
                self.attack.wrong.append(f"{type(wrong).__name__} {wrong}: {self.heard[:300]!r}")
            self.attack.count("connections")


class Attack:
    def __init__(self, args, target):
        self.args, self.target, self.over = args, target, threading.Event()
        self.tls = no_check() if args.tls else None
        self.counts, self.answers, self.wrong = collections.Counter(), {}, []
        self._lock = threading.Lock()

    def connect(self):
        made = socket.create_connection(self.target, timeout=10)
        return self.tls.wrap_socket(made) if self.tls else made

    def count(self, what):
        with self._lock:
            self.counts[what] += 1

    def answered(self, step, text):
        with self._lock:
            if self.answers.setdefault(step, text) != text:
                self.wrong.append(f"{step} was answered with {self.answers[step]} and with {text}")


def no_check():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def identity(folder):
    key, certificate = (pathlib.Path(folder) / name for name in ("key.pem", "cert.pem"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "9", "-keyout", key, "-out", certificate, "-subj", "/CN=frames"], check=True, capture_output=True)
    return ["--certificate-file", certificate, "--private-key-file", key, "--inference-address", "https://127.0.0.1:0"]


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def watch(args, server, attack, ordinary):
    """Waits until the time is over or a promise is broken. Returns the memory after a third of the time, in MB."""
    until, warm, early = time.monotonic() + args.minutes * 60, time.monotonic() + args.minutes * 20, None
    while time.monotonic() < until and server.process.poll() is None and not attack.wrong and not ordinary.count.wrong:
        time.sleep(0.5)
        if early is None and time.monotonic() > warm:
            early = resident_mb(server)
    return early


def look_afterwards(args, server, before):
    """Returns what has not come back to what it was, as texts."""
    left = []
    for what, condition in (("streams", lambda: server.metric("continuo_streams_open") == 0),
                            ("steps", lambda: not any(server.outstanding(name) for name in ("counter", "big", "pieces", "ear", "sums"))),
                            ("descriptors", lambda: descriptors(server.process.pid) <= before + 8)):
        try:
            expect(condition, what, 10)
        except AssertionError as wrong:
            left.append(f"{what} are left: {wrong}; {descriptors(server.process.pid)} descriptors, {before} before")
    busy = min(cpu_share(server) for _ in range(5))
    if busy > 0.1:
        left.append(f"the server uses {busy:.2f} of a core with nothing to do")
    if not args.kills:
        left += [line for line in server.lines if "event=worker_" in line and " warn " in line or " error " in line][:5]
    return left


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--loops", type=int, default=1)
    parser.add_argument("--seed", default=str(random.randrange(1 << 32)))
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--attackers", type=int, default=20)
    parser.add_argument("--streams", type=int, default=10, help="ordinary streams")
    parser.add_argument("--credit", type=int, default=8)
    parser.add_argument("--spare-mb", type=float, default=100, help="the memory may grow so much in the last two thirds")
    parser.add_argument("--build", help="folder of the build; default: CONTINUO_BUILD, or build/release")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)

    class Silent:
        def log(self, *_):
            pass

    with tempfile.TemporaryDirectory(prefix="continuo-frames-") as folder:
        server = Server(folder, Silent(), [
            "--loops", args.loops, "--stream-credit", args.credit, "--stream-ping", 1000, "--write-timeout", 3000,
            "--body-timeout", 3000, "--max-request-size", 1 << 20, "--compress-above", 1000,
            "--otlp-endpoint", "http://127.0.0.1:9", "--trace-queue", 64, *(identity(folder) if args.tls else [])])
        server.models = [counter(batchSize=16), stateless(), Model("big", BIG_LUA, stateful=False),
                         Model("pieces", PIECES_LUA, {"continuousBatching": True}),
                         Model("ear", EAR_LUA, {"stream": {"input": "audio", "window": 512, "rate": 16000}}),
                         Model("sums", SUMS_LUA, SUMS_YAML)]
        server.start()
        before = descriptors(server.process.pid)
        attack, ordinary = Attack(args, address_of(server.inference)), Ordinary(args, server)
        ordinary.tls = attack.tls
        kill = threading.Thread(target=ordinary.kill, args=(("counter", "pieces", "ear", "sums"), 0), daemon=True)
        talk = threading.Thread(target=lambda: asyncio.run(ordinary.talk_only()), daemon=True)
        threads = [threading.Thread(target=Attacker(attack, i).run, daemon=True) for i in range(args.attackers)]
        all_ = (talk, *threads, *([kill] if args.kills else []))
        for each in all_:
            each.start()
        early = watch(args, server, attack, ordinary)
        attack.over.set()
        ordinary.over = True
        for each in all_:
            each.join()
        wrong, left_mb = attack.wrong + ordinary.count.wrong, None
        try:
            if server.process.poll() is None:
                wrong += look_afterwards(args, server, before)
                left_mb = resident_mb(server)
                server.stop()
        except AssertionError as failed:
            wrong.append(str(failed))
        finally:
            server.destroy()
        wrong += server.sanitizer_reports()
    if server.process.returncode != 0:
        wrong.append(f"the server ended with {server.process.returncode}: {server.lines[-5:]}")
    if early is not None and left_mb is not None and left_mb > early + args.spare_mb:
        wrong.append(f"the memory grew from {early:.0f} to {left_mb:.0f} MB")
    print(json.dumps({"seed": args.seed, "loops": args.loops, "tls": args.tls, "kills": args.kills,
                      "minutes": args.minutes, **dict(sorted(attack.counts.items())),
                      "answers compared": len(attack.answers), "ordinary": ordinary.summary(),
                      "early_mb": early and round(early), "left_mb": left_mb and round(left_mb), "wrong": wrong[:10]}))
    return 1 if wrong or not ordinary.count.steps else 0


if __name__ == "__main__":
    sys.exit(main())

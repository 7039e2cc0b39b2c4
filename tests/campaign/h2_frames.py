#!/usr/bin/env python3
"""Random HTTP/2 frames against the gRPC ports of a running server, while an ordinary client makes steps.

Each connection begins properly and then sends frames of random kinds: whole calls, pieces of calls, wrong lengths, wrong
streams, header blocks that do not decode, windows that grow and shrink, pings, resets and random bytes. The
server must never end, and the steps of the ordinary client must all be right. Its memory at the end, when all
connections are closed, may not have grown by more than --spare-mb since the first minute's end.

    tests/campaign/h2_frames.py --minutes 60 [--seed S] [--tls] [--connections 20] [--build build/asan]

Prints one line of JSON at the end; the exit status is 1 if a promise was broken. --seed repeats what was sent on each
connection, but not the order among connections."""

import argparse
import contextlib
import json
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("CONTINUO_BUILD", "build/release")
if "--build" in sys.argv:
    os.environ["CONTINUO_BUILD"] = sys.argv[sys.argv.index("--build") + 1]
sys.path.insert(0, str(HERE.parent / "support"))

from h2 import DATA, GOAWAY, H2, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, message, tls_context  # noqa: E402
from models import counter  # noqa: E402
from server import Server  # noqa: E402
from transcript import Transcript  # noqa: E402
from waiting import expect  # noqa: E402

METHODS = ["/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions",
           "/org.pytorch.serve.grpc.inference.InferenceAPIsService/StreamPredictions2",
           "/inference.GRPCInferenceService/ModelInfer", "/inference.GRPCInferenceService/ModelStreamInfer",
           "/inference.GRPCInferenceService/ServerLive", "/grpc.health.v1.Health/Watch",
           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/nobody/Nothing", "/", ""]
CONTINUATION, PRIORITY, PUSH_PROMISE = 9, 2, 5


def some_bytes(chance):
    return chance.randbytes(chance.choice([0, 1, 5, 9, 100, 4000]))


def next_bytes(chance, live):
    """A frame, several frames, or other bytes."""
    what = chance.randrange(16)
    body = message("counter", str(chance.randrange(100)), f"frames-{chance.randrange(50)}")
    if what <= 3:
        return live.call(body)
    if what == 4:
        return live.cancelled(body)
    if what == 5:  # the head only, or a message that does not end
        head, stream = live.head()
        return head + frame(DATA, 0, stream, b"\0" + struct.pack(">I", chance.choice([1, 1 << 20, (1 << 32) - 1]))
                            + some_bytes(chance))
    stream = chance.choice([0, 1, live.stream, live.stream + 2, 2, (1 << 31) - 1])
    if what == 6:
        return frame(DATA, chance.choice([0, 1, 8, 9]), stream, some_bytes(chance))
    if what == 7:
        return frame(HEADERS, chance.choice([0, 1, 4, 5, 36, 44]), stream, some_bytes(chance))
    if what == 8:
        return frame(SETTINGS, chance.choice([0, 0, 1]), 0, b"".join(
            struct.pack(">HI", chance.randrange(8), chance.choice([0, 1, 100, 65535, 1 << 31])) for _ in range(3)))
    if what == 9:
        return frame(WINDOW_UPDATE, 0, chance.choice([0, stream]),
                     struct.pack(">I", chance.choice([0, 1, 1000, (1 << 31) - 1])))
    if what == 10:
        return frame(PING, chance.choice([0, 1]), 0, chance.randbytes(chance.choice([8, 8, 8, 7])))
    if what == 11:
        return frame(RST_STREAM, 0, stream, struct.pack(">I", chance.randrange(20)))
    if what == 12:
        return frame(chance.choice([PRIORITY, PUSH_PROMISE, GOAWAY, CONTINUATION, 10, 200, 255]), chance.randrange(256),
                     stream, some_bytes(chance))
    if what == 13:  # a length that is not the payload's
        return struct.pack(">I", chance.choice([0, 20, 16385, (1 << 24) - 1]))[1:] + bytes([chance.randrange(10), 0]) \
            + struct.pack(">I", stream) + some_bytes(chance)
    if what == 14:
        return some_bytes(chance)
    whole = live.call(body)
    return whole[:chance.randrange(len(whole))]


class Attack:
    def __init__(self, args, targets):
        self.args, self.targets = args, targets
        self.connections = self.frames = self.refused = 0
        self.lock = threading.Lock()
        self.over = threading.Event()

    def run(self, number):
        chance = random.Random(f"{self.args.seed}-{number}")
        context = tls_context() if self.args.tls else None
        while not self.over.is_set():
            sent, refused = 0, 0
            with contextlib.suppress(OSError, struct.error):
                refused = 1
                live = H2(chance.choice(self.targets), window=chance.choice([0, 1, 65535, 1 << 20]),
                          path=chance.choice(METHODS), tls=context)
                refused = 0
                with contextlib.closing(live):
                    live.socket.settimeout(0.2)
                    for _ in range(chance.choice([1, 10, 100, 1000])):
                        live.socket.sendall(next_bytes(chance, live))
                        sent += 1
                        if chance.random() < 0.1:
                            with contextlib.suppress(TimeoutError):
                                if not live.socket.recv(chance.choice([1, 1 << 16])):
                                    break
                        if self.over.is_set():
                            break
                    if chance.random() < 0.3:
                        with contextlib.suppress(OSError):
                            live.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with self.lock:
                self.connections += 1
                self.frames += sent
                self.refused += refused


def resident_mb(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def identity(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "9", "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-subj", "/CN=frames"],
                   check=True, capture_output=True)
    return ["--certificate-file", folder / "cert.pem", "--private-key-file", folder / "key.pem"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", default=str(random.randrange(1 << 32)))
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--spare-mb", type=float, default=100)
    parser.add_argument("--build", help="folder of the build; default: CONTINUO_BUILD, or build/release")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="continuo-frames-") as name:
        folder = pathlib.Path(name)
        scheme = "https" if args.tls else "http"
        flags = [part for port in ("inference", "management")
                 for part in (f"--grpc-{port}-address", f"{scheme}://127.0.0.1:0")]
        server = Server(folder, Transcript(), [*flags, *(identity(folder) if args.tls else [])])
        server.models = [f"counter={server.pack(counter()).name}"]
        server.start()
        attack = Attack(args, [server.grpc, server.grpc_admin])
        threads = [threading.Thread(target=attack.run, args=(i,), daemon=True) for i in range(args.connections)]
        for each in threads:
            each.start()
        until, took, wrong, early_mb, peak_mb = time.monotonic() + args.minutes * 60, [], [], None, 0.0
        client, steps = server.client(), 0
        warm = time.monotonic() + min(60, args.minutes * 60 / 3)
        while time.monotonic() < until and server.process.poll() is None and not wrong:
            began = time.monotonic()
            answer = client.step("counter", "ordinary", "1")
            took.append((time.monotonic() - began) * 1000)
            steps += 1
            if answer.text != str(steps):
                wrong.append(str(answer))
            peak_mb = max(peak_mb, resident_mb(server.process.pid))
            if early_mb is None and time.monotonic() > warm:
                early_mb = peak_mb
            time.sleep(0.01)
        attack.over.set()
        for each in threads:
            each.join()
        status = server.process.poll()
        left_mb = None
        if status is None:
            expect(lambda: server.metric("continuo_grpc_calls_open") == 0, "no call is left", 120)
            left_mb = resident_mb(server.process.pid)
            cut = server.metric("continuo_grpc_connections_cut_total")
            server.stop()
            status = server.process.poll()
        result = {"seed": args.seed, "tls": args.tls, "minutes": args.minutes, "connections": attack.connections,
                  "not_connected": attack.refused, "frames": attack.frames, "cut": cut if left_mb else None,
                  "steps": steps, "wrong": wrong, "p99_ms": round(sorted(took)[len(took) * 99 // 100], 1),
                  "slowest_ms": round(max(took), 1), "early_mb": round(early_mb or 0), "peak_mb": round(peak_mb),
                  "left_mb": left_mb and round(left_mb), "exit": status}
        print(json.dumps(result))
        grew = early_mb is not None and left_mb is not None and left_mb > early_mb + args.spare_mb
        return 1 if wrong or grew or status != 0 else 0


if __name__ == "__main__":
    sys.exit(main())

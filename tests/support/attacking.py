"""What an attack may cost: memory and CPU time of the server, and the time that a bystander waits."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time

from models import BUILD
from server import address_of
from waiting import FACTOR, limit

# AddressSanitizer keeps freed memory for a while, and takes more for each block and longer for each access.
SLOW = BUILD.name in ("asan", "tsan")
BYSTANDER_P99_MS = 20 * FACTOR * (5 if SLOW else 1)
SPARE_MB = 1500 if SLOW else 60

# A program of its own, so that it does not wait for the attacker's Python. It makes a step about every 5 ms until its
# input ends, and prints how long each took and the answers that were wrong.
STEPS = """
import http.client, json, select, sys, time
host, port, name, least = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port), timeout=60)
took, wrong = [], []
while not wrong and (len(took) < int(least) or not select.select([sys.stdin], [], [], 0.005)[0]):
    began = time.monotonic()
    try:
        connection.request("POST", "/predictions/counter", "1", {"Continuo-Sequence": name})
        answer = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        answer = repr(error)
    took.append((time.monotonic() - began) * 1000)
    if answer != str(len(took)):
        wrong.append(answer)
print(json.dumps([took, wrong]))
"""


def resident_mb(s):
    with open(f"/proc/{s.process.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_s(s):
    with open(f"/proc/{s.process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_share(s, seconds=1.0):
    """The part of one core that the server uses. This measures a time, so it has to wait for it."""
    before, began = cpu_s(s), time.monotonic()
    time.sleep(seconds)
    return (cpu_s(s) - before) / (time.monotonic() - began)


class Steps:
    """The steps of a client, and the most memory that the server had meanwhile."""

    def __init__(self, s, name, least):
        self._server = s
        self._process = subprocess.Popen([sys.executable, "-c", STEPS, *map(str, address_of(s.inference)), name,
                                          str(least)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._over = threading.Event()
        self.peak_mb = resident_mb(s)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _watch(self):
        while not self._over.wait(0.02):
            with contextlib.suppress(OSError):
                self.peak_mb = max(self.peak_mb, resident_mb(self._server))

    def end(self):
        said = self._process.communicate(timeout=limit(120))[0]
        self._over.set()
        self._watcher.join()
        took_ms, wrong = json.loads(said)
        assert not wrong, wrong
        self.n = len(took_ms)
        self.p99_ms = sorted(took_ms)[len(took_ms) * 99 // 100]


@contextlib.contextmanager
def bystander(s, least=200, times=1):
    """A client makes steps during the block. Each must be right, and 99 of 100 must be quick. Where the machine is
    busy, they may take three times as long as without an attack, or `times` as long as that if the attack makes the server
    do costly work, such as handshakes."""
    before = Steps(s, "before", least)
    before.end()
    during = Steps(s, "during", least)
    try:
        yield during
    finally:
        during.end()
    bound_ms = times * max(BYSTANDER_P99_MS, 3 * before.p99_ms)
    print(f"bystander: {during.n} steps, p99 {during.p99_ms:.1f} ms (before {before.p99_ms:.1f} ms, bound "
          f"{bound_ms:.0f} ms); peak {during.peak_mb:.0f} MB")
    assert during.p99_ms < bound_ms

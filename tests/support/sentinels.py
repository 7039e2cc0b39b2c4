"""A primary with two replicas and three Sentinels, all real, on free ports of the loopback."""

import contextlib
import shutil
import subprocess

import pytest

from shared_store import SharedStore, free_port
from waiting import expect, limit

NAME = "mymaster"


class Sentinel:
    def __init__(self, folder, transcript, primary_port, down_after_ms):
        self.folder = folder
        self.transcript = transcript
        self.port = free_port()
        self.process = None
        folder.mkdir()
        (folder / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {NAME} 127.0.0.1 {primary_port} 2\n"
            f"sentinel down-after-milliseconds {NAME} {down_after_ms}\n"
            f"sentinel failover-timeout {NAME} 3000\n", encoding="ascii")

    def start(self):
        self.transcript.log("sentinel", f"starts on port {self.port}")
        self.process = subprocess.Popen(["redis-server", str(self.folder / "sentinel.conf"), "--sentinel"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def say(self, *words):
        done = subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True,
                              timeout=limit(10), check=False)
        return done.stdout.strip()

    def primary_port(self):
        lines = self.say("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME).split()
        return int(lines[1]) if len(lines) == 2 else 0

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=limit(10))


class ReplicatedStore:
    """`stores` are the servers; one of them is the primary."""

    def __init__(self, folder, transcript, down_after_ms=1000):
        folder.mkdir()
        self.stores = [SharedStore(folder / f"store{i}", transcript, "--repl-diskless-sync-delay", "0")
                       for i in range(3)]
        self.sentinels = [Sentinel(folder / f"sentinel{i}", transcript, self.stores[0].port, down_after_ms)
                          for i in range(3)]

    @property
    def url(self):
        return "valkey+sentinel://" + ",".join(f"127.0.0.1:{s.port}" for s in self.sentinels) + f"/{NAME}/test"

    def start(self):
        for store in self.stores:
            store.start()
        for store in self.stores[1:]:
            store.say("REPLICAOF", "127.0.0.1", str(self.stores[0].port))
        expect(lambda: self.stores[0].say("INFO", "replication").count("state=online") == 2, "two replicas", 30)
        for each in self.sentinels:
            each.start()
        expect(lambda: all("status=ok,address" in each.say("INFO", "sentinel")
                           and "slaves=2,sentinels=3" in each.say("INFO", "sentinel") for each in self.sentinels),
               "the Sentinels to know each other and the replicas", 60)
        return self

    def primary(self):
        """The server that most Sentinels take for the primary; None if they do not agree."""
        ports = [each.primary_port() for each in self.sentinels if each.process.poll() is None]
        port = max(set(ports), key=ports.count)
        return next((s for s in self.stores if s.port == port and ports.count(port) >= 2), None)

    def expect_another_primary(self, old):
        return expect(lambda: self.primary() not in (None, old) and self.primary(), "a failover", 60)

    def destroy(self):
        for each in self.sentinels:
            each.kill()
        for store in self.stores:
            store.destroy()


@contextlib.contextmanager
def replicated_store_in(folder, transcript, **options):
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server (scripts/setup.sh installs it)")
    made = ReplicatedStore(folder / "replicated-store", transcript, **options)
    try:
        yield made.start()
    finally:
        made.destroy()

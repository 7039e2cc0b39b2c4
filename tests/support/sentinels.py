"""A primary with two replicas and three Sentinels, all real, on free ports of the loopback."""

import contextlib
import shutil
import subprocess

import pytest

from ports import free_port
from shared_store import SharedStore
from store_tls import NAME as CERTIFICATE_NAME
from store_tls import Authority, TlsStore, certificate_settings
from waiting import expect, limit

NAME = "mymaster"
TLS = ("--tls-replication", "yes", "--tls-auth-clients", "no")


class Sentinel:
    def __init__(self, folder, transcript, primary_port, down_after_ms, *settings):
        self.folder = folder
        self.transcript = transcript
        self.watched = (primary_port, down_after_ms)
        self.tls = settings
        self.port = self.tls_port = 0
        self.process = None
        folder.mkdir()

    def start(self):
        """The first start chooses the ports, and others if another program took one of them in the meantime."""
        kept = self.port != 0
        for _ in range(5):
            if not kept:
                self._choose_ports()
            self._start()
            expect(lambda: self.process.poll() is not None or self.say("PING") == "PONG", "a Sentinel to answer", 30)
            if self.process.poll() is None:
                return
        raise AssertionError(f"a Sentinel ends at once; its folder is {self.folder}")

    def _choose_ports(self):
        primary_port, down_after_ms = self.watched
        self.port = free_port()
        self.tls_port = free_port() if self.tls else 0
        (self.folder / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"sentinel monitor {NAME} 127.0.0.1 {primary_port} 2\n"
            f"sentinel down-after-milliseconds {NAME} {down_after_ms}\n"
            f"sentinel failover-timeout {NAME} 3000\n", encoding="ascii")

    def _start(self):
        settings = ("--tls-port", str(self.tls_port), *self.tls) if self.tls else ()
        self.transcript.log("sentinel", f"starts on port {self.port}")
        self.process = subprocess.Popen(["redis-server", str(self.folder / "sentinel.conf"), "--sentinel", *settings],
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
    """`stores` are the servers; one of them is the primary. With tls, all connections are encrypted, except those of
    the test itself."""

    def __init__(self, folder, transcript, down_after_ms=1000, tls=False):
        folder.mkdir()
        self.authority = Authority(folder / "certificates") if tls else None
        self.stores = [self._store(folder / f"store{i}", transcript) for i in range(3)]
        self.ports = [each.tls_port if tls else each.port for each in self.stores]
        settings = (*TLS, *certificate_settings(self.authority)) if tls else ()
        self.sentinels = [Sentinel(folder / f"sentinel{i}", transcript, self.ports[0], down_after_ms, *settings)
                          for i in range(3)]

    def _store(self, folder, transcript):
        settings = ("--repl-diskless-sync-delay", "0")
        if not self.authority:
            return SharedStore(folder, transcript, *settings)
        store = TlsStore(folder, transcript, authority=self.authority)
        store.settings += (*settings, *TLS)
        return store

    @property
    def url(self):
        if self.authority:
            return ("rediss+sentinel://" + ",".join(f"127.0.0.1:{s.tls_port}" for s in self.sentinels)
                    + f"/{NAME}/test?ca={self.authority.file}&name={CERTIFICATE_NAME}")
        return "valkey+sentinel://" + ",".join(f"127.0.0.1:{s.port}" for s in self.sentinels) + f"/{NAME}/test"

    def start(self):
        for store in self.stores:
            store.start()
        for store in self.stores[1:]:
            store.say("REPLICAOF", "127.0.0.1", str(self.ports[0]))
        expect(lambda: self.stores[0].counts("state=online", "INFO", "replication") == 2, "two replicas", 30)
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
        return next((s for s, at in zip(self.stores, self.ports, strict=True)
                     if at == port and ports.count(port) >= 2), None)

    def down_after(self, milliseconds):
        for each in self.sentinels:
            each.say("SENTINEL", "SET", NAME, "down-after-milliseconds", str(milliseconds))

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

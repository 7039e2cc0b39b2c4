"""A Redis cluster of a test's own: three primaries and their replicas, all real, on free ports of the loopback."""

import contextlib
import shutil
import time

import pytest

from ports import free_port
from shared_store import SharedStore
from waiting import expect

RANGES = [(0, 5460), (5461, 10922), (10923, 16383)]


class Member(SharedStore):
    def __init__(self, folder, transcript, password=None):
        super().__init__(folder, transcript)
        self.bus = free_port()
        self.password = password
        self.settings = ("--cluster-enabled", "yes", "--cluster-port", str(self.bus), "--cluster-node-timeout", "1000",
                         "--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
                         "--repl-diskless-sync-delay", "0")
        if password:
            self.settings += ("--requirepass", password, "--masterauth", password)

    def id(self):
        return self.say("CLUSTER", "MYID")

    def says(self, text, *question):
        return self.counts(text, *question) > 0

    def fail_over(self):
        """A planned failover. The server gives one up after five seconds, as on a machine that is busy with other
        tests, and an operator asks for it again."""
        asked = 0

        def is_primary():
            nonlocal asked
            if self.says("role:master", "INFO", "replication"):
                return True
            if time.monotonic() > asked + 6:
                asked = time.monotonic()
                self.say("CLUSTER", "FAILOVER")
            return False

        expect(is_primary, "the failover", 60)


class StoreCluster:
    """`members` are the servers: the primaries first, then the replicas of each of them."""

    def __init__(self, folder, transcript, replicas=1, password=None):
        folder.mkdir()
        self.members = [Member(folder / f"member{i}", transcript, password) for i in range(3 * (1 + replicas))]
        self.primaries, self.replicas = self.members[:3], self.members[3:]
        self.password = password

    @property
    def url(self):
        return self.url_with(f":{self.password}@" if self.password else "")

    def url_with(self, login):
        """The URL names two members only; they know the others."""
        return f"valkey+cluster://{login}" + ",".join(f"127.0.0.1:{each.port}" for each in self.members[:2]) + "/test"

    def start(self):
        for i, each in enumerate(self.members):
            each.start()
            each.say("CLUSTER", "SET-CONFIG-EPOCH", str(i + 1))
            if i < 3:
                each.say("CLUSTER", "ADDSLOTSRANGE", *map(str, RANGES[i]))
            if i > 0:
                each.say("CLUSTER", "MEET", "127.0.0.1", str(self.members[0].port), str(self.members[0].bus))
        facts = (f"cluster_known_nodes:{len(self.members)}", "cluster_slots_ok:16384", "cluster_state:ok")
        expect(lambda: all(each.says(fact, "CLUSTER", "INFO") for each in self.members for fact in facts),
               "the members to know each other", 60)
        for i, each in enumerate(self.replicas):
            each.say("CLUSTER", "REPLICATE", self.primaries[i % 3].id())
        expect(lambda: all(each.says("master_link_status:up", "INFO", "replication") for each in self.replicas),
               "the replicas to follow", 60)
        return self

    def slot(self, key):
        return int(self.members[-1].say("CLUSTER", "KEYSLOT", key))

    def owner(self, slot):
        return next(each for each, (first, last) in zip(self.primaries, RANGES, strict=True) if first <= slot <= last)

    def move_slot(self, slot, source, target):
        """Moves it as a reshard does: each key is at one of the two servers at any time."""
        target.say("CLUSTER", "SETSLOT", str(slot), "IMPORTING", source.id())
        source.say("CLUSTER", "SETSLOT", str(slot), "MIGRATING", target.id())
        while keys := source.say("CLUSTER", "GETKEYSINSLOT", str(slot), "10").split():
            for key in keys:
                source.say("MIGRATE", "127.0.0.1", str(target.port), key, "0", "5000")
        for each in (target, source):
            each.say("CLUSTER", "SETSLOT", str(slot), "NODE", target.id())

    def destroy(self):
        for each in self.members:
            each.destroy()


@contextlib.contextmanager
def store_cluster_in(folder, transcript, **options):
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server (scripts/setup.sh installs it)")
    made = StoreCluster(folder / "store-cluster", transcript, **options)
    try:
        yield made.start()
    finally:
        made.destroy()

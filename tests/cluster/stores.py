"""The shared store of the cluster: a primary, two replicas, and three Sentinels that choose a new primary."""

import signal
import subprocess
import time

from network import Machine
from waiting import expect, limit

COUNT = 3
FIRST = 11  # the number of the first store's machine
PORT, SENTINEL_PORT = 6379, 26379
NAME = "continuo"
SAY_S = 3

# A store that merely waits for the processor must not be taken for down: docs/reliability.md says what that can cost.
DOWN_AFTER_MS = int(limit(1) * 1000)

SENTINEL = """port {port}
bind {bind}
protected-mode no
dir {folder}
sentinel monitor continuo {primary} 6379 2
sentinel down-after-milliseconds continuo {down_after_ms}
sentinel failover-timeout continuo {failover_timeout_ms}
sentinel parallel-syncs continuo 2
"""


class Store:
    """One machine with a redis-server and a Sentinel."""

    def __init__(self, index, folder, transcript):
        self.name = f"store{index + 1}"
        self.machine = Machine(self.name, FIRST + index, ("back", "control"))
        self.address = self.machine.address("back")
        self.folder = folder / self.name
        self.folder.mkdir()
        self.paused = False
        self._transcript = transcript
        self._bind = f"{self.address} {self.machine.address('control')}"
        self.process = self._sentinel = None

    def _run(self, *command):
        with open(self.folder / "output", "ab") as output:
            return subprocess.Popen([*self.machine.enter, *command], stdout=output, stderr=output,
                                    stdin=subprocess.DEVNULL)

    def start(self, primary=None):
        """Without a primary it comes back as one, as after a crash, until a Sentinel says otherwise."""
        self.note("starts" + (f" as a replica of {primary}" if primary else ""))
        command = ["redis-server", "--port", str(PORT), "--bind", *self._bind.split(), "--protected-mode", "no",
                   "--dir", str(self.folder), "--save", "", "--appendonly", "yes", "--appendfsync", "no",
                   "--repl-diskless-sync-delay", "0",
                   "--repl-ping-replica-period", "1", "--repl-timeout", "5", "--repl-backlog-size", "16mb"]
        if primary and primary != self.address:
            command += ["--replicaof", primary, str(PORT)]
        self.process = self._run(*command)
        expect(lambda: self.say("PING") == "PONG", f"{self.name} answers", 20)

    def start_sentinel(self, primary):
        path = self.folder / "sentinel.conf"
        path.write_text(SENTINEL.format(port=SENTINEL_PORT, bind=self._bind, folder=self.folder, primary=primary,
                                        down_after_ms=DOWN_AFTER_MS, failover_timeout_ms=6 * DOWN_AFTER_MS))
        self._sentinel = self._run("redis-server", str(path), "--sentinel")

    def note(self, text):
        self._transcript.log(self.name, text)

    def say(self, *words, port=PORT):
        """Returns the reply, or "" if there is none."""
        try:
            done = subprocess.run(["redis-cli", "-h", self.machine.address("control"), "-p", str(port), *words],
                                  capture_output=True, text=True, timeout=SAY_S, check=False)
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout.strip()

    def replication(self):
        pairs = (line.partition(":") for line in self.say("INFO", "replication").splitlines())
        return {key: value.strip() for key, _, value in pairs}

    def chosen(self):
        """Returns the address of the primary as this machine's Sentinel knows it."""
        return self.say("SENTINEL", "get-master-addr-by-name", NAME, port=SENTINEL_PORT).partition("\n")[0]

    def kill(self):
        self.note("is killed")
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.note("is paused")
        self.paused = True
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        if self.paused:
            self.note("goes on")
            self.paused = False
            self.process.send_signal(signal.SIGCONT)


class Stores:
    def __init__(self, folder, transcript):
        self.all = [Store(i, folder, transcript) for i in range(COUNT)]
        self._primary = self.all[0]
        self.failovers = 0
        self._failing_over = False
        self._failed_over_at = 0.0  # the end of the last failover
        for each in self.all:
            each.start(self._primary.address)
        for each in self.all:
            each.start_sentinel(self._primary.address)
        self.settle()
        expect(lambda: all(self._others(each) == COUNT - 1 for each in self.all), "the Sentinels know each other", 30)

    @staticmethod
    def _others(store):
        lines = store.say("SENTINEL", "master", NAME, port=SENTINEL_PORT).splitlines()
        found = dict(zip(lines[::2], lines[1::2]))
        return int(found.get("num-other-sentinels", 0)) if found.get("num-slaves") == str(COUNT - 1) else 0

    def url(self, found_by):
        """The nodes find the primary by asking the Sentinels, or by asking each store."""
        if found_by == "sentinels":
            return "valkey+sentinel://" + ",".join(each.address for each in self.all) + f"/{NAME}/cluster"
        return "valkey://" + ",".join(each.address for each in self.all) + "/cluster"

    def primary(self):
        return self._primary

    def lost_since(self, when):
        """May a failover have lost something that was confirmed before this time?"""
        return self._failing_over or self._failed_over_at >= when

    def replicas(self):
        return [each for each in self.all if each is not self._primary]

    def _agreed(self):
        """Returns the store that most Sentinels call the primary, or None."""
        votes = [each.chosen() for each in self.all]
        for each in self.all:
            if votes.count(each.address) > COUNT // 2:
                return each
        return None

    def expect_other_primary(self):
        """Waits until a Sentinel has made another store the primary."""
        before = self._primary
        self._failing_over = True

        def changed():
            found = self._agreed()
            return found if found not in (None, before) and found.replication().get("role") == "master" else None

        self._take(expect(changed, "a failover", 60))

    def _take(self, primary):
        primary.note("is the primary now")
        self._primary = primary
        self.failovers += 1

    def _is_whole(self):
        """Is there one primary with two replicas that have all it has?"""
        found = self._agreed()
        if found is None or found.replication().get("role") != "master":
            return False
        if found is not self._primary:  # a failover that no fault has waited for
            self._failing_over = True
            self._take(found)
        said = found.replication()
        links = [each.replication().get("master_link_status") for each in self.all if each is not found]
        return said.get("connected_slaves") == str(COUNT - 1) and links == ["up"] * (COUNT - 1)

    def settle(self):
        expect(self._is_whole, "the store has a primary and two replicas", 90)
        if self._failing_over:
            self._failing_over, self._failed_over_at = False, time.monotonic()

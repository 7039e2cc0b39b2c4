"""Causes the faults: one thread takes them from a shuffled deck, one after the other. Timers continue stopped workers,
so that other faults happen while workers are stopped."""

import contextlib
import os
import signal
import threading
import time
from collections import Counter

from waiting import expect

FILL_BYTES = 500_000  # size of a sequence that fills the store
FILL_SEQUENCES = 400  # more than any store of this test can hold

# A deck has each fault as often as this table says. When all are used, a new deck is shuffled.
DECK = {"kill_worker": 5, "kill_all_workers": 1, "kill_server": 2, "restart_server": 1, "stop_worker": 4,
        "drop_clients": 4, "scale": 3, "swap": 3, "versions": 2, "fill_store": 1}


class Faults:
    def __init__(self, run, server, chance, disk, kills=0):
        self._run = run
        self._server = server
        self._chance = chance
        self._disk = disk  # the mounted file system with the state, or None
        self._plan = self._kills_in_order(kills) if kills else self._decks()
        self._timers = []
        self._stopped = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="faults")
        self._fills = 0
        self.counts = Counter()
        self.clients_dropped = 0
        self.redispatched = 0  # steps that were in a worker that kill_busy_worker killed, and that went to another one
        self.down_ms = []  # from kill -9 of the server until it was ready again

    def start(self):
        self._thread.start()

    def finish(self):
        """Ends the faults and repairs what is still broken. May be called again."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        for timer in self._timers:
            timer.cancel()
        for pid in list(self._stopped):
            self._continue(pid)

    def wait(self):
        """Returns when the plan has no more faults; only the one of --kills ends."""
        self._thread.join()

    def _decks(self):
        while True:
            deck = [name for name, times in DECK.items() for _ in range(times)]
            self._chance.shuffle(deck)
            while deck:
                yield deck.pop()

    def _kills_in_order(self, kills):
        """Yields this many kills of workers, and one of the server in their middle. A kill may come between two
        batches; if all have, more follow."""
        for number in range(20 * kills):
            if number >= kills and self.redispatched:
                return
            if number == kills // 2:
                yield "kill_server"
            yield "kill_busy_worker"

    def _work(self):
        while not self._stop.wait(self._chance.uniform(0.05, 0.6)):
            if (name := next(self._plan, None)) is None:
                return
            self.deal(name)

    def deal(self, name):
        self._run.note(name)
        try:
            getattr(self, "_" + name)()
            self.counts[name] += 1
        except Exception as e:  # a server that cannot be managed is reported, and the clients go on
            self._run.accuse("operation", f"{name}: {type(e).__name__}: {e}")
            self._run.tally.operations += 1
            self._mend()

    def _mend(self):
        """Makes the server run again after a fault that failed, whatever state the server is in."""
        if self._server.process.poll() is not None:
            self._server.destroy()
            with contextlib.suppress(AssertionError):
                self._server.restart()

    def _admin(self, method, path, statuses):
        client = self._server.admin()
        try:
            answer = client.request(method, path)
        finally:
            client.close()
        if answer.status not in statuses:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.text}")
        return answer

    def _worker_pids(self):
        """Returns the workers, including those that are starting, in an order that does not depend on when they were
        ready."""
        answer = self._admin("GET", "/models/sum/all", (200,))
        return sorted(worker["pid"] for version in answer.json for worker in version["workers"] if worker["pid"] > 0)

    def _pick(self):
        share = self._chance.random()
        pids = self._worker_pids()
        return [pids[int(share * len(pids))]] if pids else []

    def _signal(self, pid, which):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, which)

    # --- workers

    def _kill_worker(self):
        for pid in self._pick():
            self._signal(pid, signal.SIGKILL)

    def _kill_all_workers(self):
        for pid in self._worker_pids():
            self._signal(pid, signal.SIGKILL)

    def _kill_busy_worker(self):
        """Kills a ready worker of the version that gets the steps. The clients must then move on, so that the next kill
        meets their steps, too."""
        before = self._server.describe("sum")["redispatched"]
        pid = expect(self._kill_ready, "a worker to kill", 60)
        self._run.note(f"kill -9 worker {pid}")
        seen = self._run.tally.done()
        expect(lambda: self._run.tally.done() > seen + 50, "the clients move on", 60)
        self.redispatched += self._server.describe("sum")["redispatched"] - before

    def _kill_ready(self):
        pids = self._server.ready_pids("sum")
        try:
            pid = self._chance.choice(pids) if pids else None
            if pid:
                os.kill(pid, signal.SIGKILL)
            return pid
        except ProcessLookupError:  # it has just ended, and the server has not noticed yet
            return None

    def _stop_worker(self):
        seconds = self._chance.uniform(0.05, 1.5)
        for pid in self._pick():
            self._signal(pid, signal.SIGSTOP)
            self._stopped.add(pid)
            timer = threading.Timer(seconds, self._continue, (pid,))
            self._timers.append(timer)
            timer.start()

    def _continue(self, pid):
        self._stopped.discard(pid)
        # Another process may have got this number, so only a process of the server is continued.
        if pid in self._server.session_members():
            self._signal(pid, signal.SIGCONT)

    def _scale(self):
        count, version = self._chance.randint(1, 4), self._chance.choice(("1.0", "2.0"))
        self._admin("PUT", f"/models/sum/{version}?min_worker={count}&max_worker={count}", (200, 202))

    # --- the server

    def _kill_server(self):
        began = time.monotonic()
        self._server.kill()
        self._server.restart()
        self.down_ms.append((time.monotonic() - began) * 1000)

    def _restart_server(self):
        self._server.stop()
        self._server.restart()

    # --- clients

    def _drop_clients(self):
        """Some clients go away in the middle of their next request, or before its answer."""
        count = max(1, len(self._run.sequences) // 8)
        for sequence in self._chance.sample(self._run.sequences, count):
            sequence.drop_next = self._chance.choice(("part", "whole"))
            self.clients_dropped += 1

    # --- versions

    def _default(self):
        return self._admin("GET", "/models/sum", (200,)).json[0]["modelVersion"]

    def _swap(self):
        """Makes the other version the default: every sequence moves there with its next step. The method does not wait
        for that, so other faults happen in the middle."""
        to = "2.0" if self._default() == "1.0" else "1.0"
        self._admin("PUT", f"/models/sum/{to}/set-default", (200,))

    def _versions(self):
        """Registers a third version, which is the default for a while. Sequences of other versions stay where they are.
        When those that began in it have moved, it is unregistered."""
        before = self._default()
        registered = self._server.register(self._run.model("3.0", "pin"), initial_workers=1, synchronous="true")
        assert registered.status == 200, f"register 3.0: {registered}"
        self._admin("PUT", "/models/sum/3.0/set-default", (200,))
        client = self._server.client("probe")
        try:
            probe = f"probe-{self.counts['versions']}-{self._chance.randrange(1 << 30)}"
            for body, told in (("+5", "5 1 5"), ("+6", "11 2 161")):
                answer = client.step("sum", probe, body)
                assert (answer.status, answer.text) == (200, told), f"default 3.0, {body}: {answer}"
            answer = client.step("sum", probe, "?", headers={"ts_request_sequence_end": "true"})
            assert answer.status == 200, f"end on 3.0: {answer}"
        finally:
            client.close()
        self._admin("DELETE", "/models/sum/3.0", (403,))  # the default version cannot be removed while others exist
        self._admin("PUT", f"/models/sum/{before}/set-default", (200,))
        expect(lambda: self._left("3.0") == 0, "the sequences of 3.0 move", 60)
        self._admin("DELETE", "/models/sum/3.0", (200,))

    def _left(self, version):
        return self._admin("GET", f"/models/sum/{version}", (200,)).json[0]["swap"]["sequencesLeft"]

    # --- the store

    def _fill_store(self):
        """Fills the store until a step is refused for lack of room. It stays full for a moment, in which a worker or
        the server may be killed and restarted."""
        self._fills += 1
        names = [f"fill-{self._fills}-{i}" for i in range(FILL_SEQUENCES)]
        hold_s, kill = self._chance.uniform(0.2, 1.0), self._chance.choice((None, "worker", "server"))
        ballast = self._disk / "ballast" if self._disk else None
        client = self._server.client("filler")
        opened = []
        try:
            if ballast:
                self._write_ballast(ballast)
            for name in names:
                opened.append(name)
                answer = client.step("sum", name, f"={FILL_BYTES}")
                if answer.status != 200:
                    break
            assert answer.error == "state_store", f"a full store must refuse with state_store: {answer}"
            if kill == "worker":
                self._kill_worker()
            elif kill == "server":
                client.close()
                self._kill_server()
                client = self._server.client("filler")
            self._stop.wait(hold_s)
        finally:
            if ballast:
                ballast.unlink(missing_ok=True)
            for name in opened:
                expect(lambda: self._end(client, name), f"{name} ends and gives its room back", 30)
            client.close()

    def _write_ballast(self, path):
        """Leaves a little room, which sequences then fill."""
        disk = os.statvfs(self._disk)
        room = disk.f_bavail * disk.f_frsize - 3 * FILL_BYTES
        with open(path, "wb") as file:
            for _ in range(max(0, room) >> 16):
                file.write(b"\0" * 65536)

    @staticmethod
    def _end(client, name):
        answer = client.step("sum", name, "?", headers={"ts_request_sequence_end": "true"})
        return answer.status in (200, 410)

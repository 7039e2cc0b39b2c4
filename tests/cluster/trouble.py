"""Causes the faults. One thread troubles nodes and the proxy, another one the store, each from a shuffled deck. What
lasts a while is ended by a timer, so that other faults happen meanwhile. The store has one fault at a time, and each
waits until the store is whole again, because two at once may lose what it has confirmed."""

import contextlib
import os
import signal
import threading
from collections import Counter

import network
from waiting import expect

LASTS_S = (0.5, 5)  # how long something is paused or cut off


class Dealer:
    DECK = {}
    PAUSE_S = (0, 0)

    def __init__(self, run, chance):
        self._run = run
        self._chance = chance
        self.DECK = {name: times for name, times in self.DECK.items() if name not in run.args.without}
        self._deck = []
        self._undo = {}  # timer -> what it does
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._idle = threading.Event()
        # The thread never ends: Envoy asks the kernel to end it with the thread that has started it.
        self._thread = threading.Thread(target=self._live, daemon=True)
        self.counts = Counter()

    def start(self):
        self._thread.start()

    def finish(self):
        """Ends the faults and repairs what is still broken. May be called again."""
        self._stop.set()
        if self._thread.ident:
            self._idle.wait()
        for timer in list(self._undo):
            timer.cancel()
            self._now(timer)

    def _live(self):
        self._work()
        self._idle.set()
        threading.Event().wait()

    def _work(self):
        while not self._stop.wait(self._chance.uniform(*self.PAUSE_S)):
            if not self._deck:
                self._deck = [name for name, times in self.DECK.items() for _ in range(times)]
                self._chance.shuffle(self._deck)
            self.deal(self._deck.pop())

    def deal(self, name):
        self._run.note(name)
        try:
            if getattr(self, "_" + name)() is not False:
                self.counts[name] += 1
        except Exception as e:  # it is reported, and the clients go on
            self._run.accuse("operation", f"{name}: {type(e).__name__}: {e}")
            self._run.tally.operations += 1

    def _for_a_while(self, undo, lasts_s=LASTS_S):
        timer = threading.Timer(self._chance.uniform(*lasts_s), lambda: self._now(timer))
        self._undo[timer] = undo
        timer.start()

    def _now(self, timer):
        with self._lock:
            undo = self._undo.pop(timer, None)
        if undo:
            try:
                undo()
            except Exception as e:
                self._run.accuse("operation", f"repair: {type(e).__name__}: {e}")
                self._run.tally.operations += 1


class NodeTrouble(Dealer):
    DECK = {"kill_worker": 4, "pause_worker": 3, "scale": 2, "kill_node": 3, "drain_node": 2, "pause_node": 2,
            "cut_from_store": 2, "cut_from_proxy": 2, "cut_from_both": 1, "kill_proxy": 1, "pause_proxy": 1,
            "join_or_leave": 2, "swap": 2, "drop_clients": 4}
    PAUSE_S = (0.1, 1.0)

    def __init__(self, run, chance):
        super().__init__(run, chance)
        self._proxy_busy = False

    def _pick(self):
        """Returns a node that nothing is being done to, or None if too few would be left."""
        free = [node for node in self._run.nodes if node.up and not node.busy]
        return self._chance.choice(free) if len(free) > 1 else None

    def _admin(self, node, method, path, statuses):
        client = node.admin()
        try:
            answer = client.request(method, path)
        finally:
            client.close()
        if answer.status not in statuses:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.text}")
        return answer

    # --- workers

    def _worker(self):
        node = self._pick()
        if node is None:
            return None
        answer = self._admin(node, "GET", "/models/sum/all", (200,))
        pids = sorted(each["pid"] for version in answer.json for each in version["workers"] if each["pid"] > 0)
        return self._chance.choice(pids) if pids else None

    def _kill_worker(self):
        if (pid := self._worker()) is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _pause_worker(self):
        if (pid := self._worker()) is None:
            return False

        def go_on():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)  # a pid is not given again so soon

        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self._for_a_while(go_on, (0.05, 1.5))

    def _scale(self):
        if (node := self._pick()) is None:
            return False
        count, version = self._chance.randint(1, 3), self._chance.choice(("1.0", "2.0"))
        self._admin(node, "PUT", f"/models/sum/{version}?min_worker={count}&max_worker={count}", (200, 202))

    # --- nodes

    def _kill_node(self):
        if (node := self._pick()) is None:
            return False
        node.kill()
        node.restart()

    def _drain_node(self):
        if (node := self._pick()) is None:
            return False
        node.stop()
        node.restart()

    def _join_or_leave(self):
        """A node that is down joins; if all are up, one leaves."""
        down = [node for node in self._run.nodes if not node.up]
        if down:
            down[0].restart()
        elif (node := self._pick()) is not None:
            node.stop()
        else:
            return False

    def _pause_node(self):
        if (node := self._pick()) is None:
            return False
        node.busy = True
        node.pause()

        def undo():
            node.go_on()
            node.busy = False

        self._for_a_while(undo)

    def _cut(self, *nets):
        if (node := self._pick()) is None:
            return False
        node.busy = True
        for net in nets:
            node.machine.cut(net)

        def undo():
            for net in nets:
                node.machine.heal(net)
            node.busy = False

        self._for_a_while(undo)

    def _cut_from_store(self):
        return self._cut("back")

    def _cut_from_proxy(self):
        return self._cut("front")

    def _cut_from_both(self):
        return self._cut("back", "front")

    # --- the proxy and the clients

    def _kill_proxy(self):
        if self._proxy_busy:
            return False
        self._run.proxy.kill()
        self._run.proxy.start()

    def _pause_proxy(self):
        if self._proxy_busy:
            return False
        self._proxy_busy = True
        self._run.proxy.pause()

        def undo():
            self._run.proxy.go_on()
            self._proxy_busy = False

        self._for_a_while(undo, (0.2, 2))

    def _drop_clients(self):
        """Some clients go away in the middle of their next request, or before its answer."""
        count = max(1, len(self._run.sequences) // 8)
        for sequence in self._chance.sample(self._run.sequences, count):
            sequence.drop_next = self._chance.choice(("part", "whole"))

    # --- versions

    def _swap(self):
        """Makes the other version the default on each node that can be told, one after the other, as an operator does.
        So for a while the nodes disagree. A node that starts has version 2.0 as its default."""
        to = self._chance.choice(("1.0", "2.0"))
        for node in self._run.nodes:
            if node.up and not node.busy:
                self._admin(node, "PUT", f"/models/sum/{to}/set-default", (200,))


class StoreTrouble(Dealer):
    DECK = {"kill_primary": 3, "pause_primary": 2, "cut_primary": 2, "cut_replicas": 2, "kill_replica": 1,
            "pause_briefly": 3, "slow_link": 2, "forget_script": 2}
    PAUSE_S = (0.5, 6)

    @property
    def _stores(self):
        return self._run.stores

    def _kill_primary(self):
        """It comes back at once or after a failover, and believes itself the primary until a Sentinel tells it."""
        killed = self._stores.primary()
        killed.kill()
        if self._chance.random() < 0.75:
            self._stores.expect_other_primary()
        killed.start()
        self._stores.settle()

    def _pause_primary(self):
        """The pause lasts until another store is the primary, and then a little longer."""
        paused = self._stores.primary()
        paused.pause()
        self._stores.expect_other_primary()
        self._stop.wait(self._chance.uniform(0, 2))
        paused.go_on()
        self._stores.settle()

    def _cut_primary(self):
        """The primary is cut off from the nodes, the replicas and the other Sentinels."""
        cut = self._stores.primary()
        cut.machine.cut("back")
        self._stores.expect_other_primary()
        self._stop.wait(self._chance.uniform(0, 2))
        cut.machine.heal("back")
        self._stores.settle()

    def _cut_replicas(self):
        """The primary and the nodes are on one side, both replicas and their Sentinels on the other. The nodes can
        reach the old and the new primary for a while; the old one has nobody who confirms what it writes."""
        cut = self._stores.primary()
        others = [each.machine for each in self._stores.replicas()]
        network.cut_apart(cut.machine, others, "back")
        self._stores.expect_other_primary()
        self._stop.wait(self._chance.uniform(0, 2))
        network.join(cut.machine, others, "back")
        self._stores.settle()

    def _kill_replica(self):
        killed = self._chance.choice(self._stores.replicas())
        killed.kill()
        self._stop.wait(self._chance.uniform(0, 2))
        killed.start(self._stores.primary().address)
        self._stores.settle()

    def _pause_briefly(self):
        """The pause is too short for a failover, but every step waits."""
        paused = self._stores.primary()
        paused.pause()
        self._stop.wait(self._chance.uniform(0.05, 0.7))
        paused.go_on()
        self._stores.settle()

    def _slow_link(self):
        slowed = self._stores.primary()
        slowed.machine.slow("back")
        self._stop.wait(self._chance.uniform(0.5, 3))
        slowed.machine.fast("back")
        self._stores.settle()

    def _forget_script(self):
        expect(lambda: self._stores.primary().say("SCRIPT", "FLUSH") == "OK", "SCRIPT FLUSH")

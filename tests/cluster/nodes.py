"""A node of the cluster: a server on a machine of its own, whose states are in the shared store."""

import contextlib
import os
import signal
import time

from network import Machine
from server import Server
from waiting import limit

START_S = 60  # for all attempts together: a node does not start while the store has no primary


class Node(Server):
    def __init__(self, number, folder, transcript, flags, env):
        folder.mkdir()
        self.machine = Machine(f"node{number}", number, ("front", "back", "control"))
        front, control = self.machine.address("front"), self.machine.address("control")
        super().__init__(folder, transcript, [
            "--inference-address", f"http://{front}:8080", "--grpc-inference-address", f"http://{front}:7070",
            "--management-address", f"http://{control}:8081", "--metrics-address", f"http://{control}:8082",
            "--insecure-management", "--grpc-management-address", "none", "--node-name", f"node{number}", *flags], env, name=f"node{number}")
        self.busy = False  # something is being done to it
        self.starts_refused = 0
        self._paused = []

    def command(self):
        return [*self.machine.enter, *super().command()]

    @property
    def up(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        """Starts it as a supervisor would: again and again."""
        deadline = time.monotonic() + limit(START_S)
        while True:
            try:
                return super().start()
            except AssertionError:
                self.destroy()
                self.starts_refused += 1
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def pause(self):
        self.transcript.log(self.name, "is paused with its workers")
        self._paused = self.session_members()
        for pid in self._paused:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def go_on(self):
        self.transcript.log(self.name, "goes on")
        for pid in set(self._paused) & set(self.session_members()):
            os.kill(pid, signal.SIGCONT)
        self._paused = []

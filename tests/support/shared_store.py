"""A redis-server of a test's own: the shared state store of the servers in that test."""

import contextlib
import shutil
import signal
import subprocess

import pytest

from ports import free_port
from waiting import expect, limit


class SharedStore:
    def __init__(self, folder, transcript, *settings):
        self.folder = folder
        self.transcript = transcript
        self.settings = settings
        self.port = free_port()
        self.password = None
        self.process = None
        folder.mkdir()

    @property
    def url(self):
        login = f":{self.password}@" if self.password else ""
        return f"valkey://{login}127.0.0.1:{self.port}/test"

    def start(self):
        """With an append-only file, so that a store that is killed comes back with all it has confirmed. With
        appendfsync everysec it would answer up to two seconds before it writes while the disk is busy."""
        self.transcript.log("store", f"starts on port {self.port}")
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
             "--save", "", "--appendonly", "yes", "--appendfsync", "no", "--logfile", "log.txt", *self.settings],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        expect(self.answers, "redis-server to answer")
        return self

    def answers(self):
        login = ["-a", self.password] if self.password else []
        done = subprocess.run(["redis-cli", "-p", str(self.port), *login, "PING"], capture_output=True,
                              timeout=limit(10), check=False)
        return b"PONG" in done.stdout

    def say(self, *words, check=True):
        self.transcript.log("store", " ".join(words))
        login = ["-a", self.password] if self.password else []
        done = subprocess.run(["redis-cli", "-p", str(self.port), *login, *words], capture_output=True,
                              timeout=limit(10), check=check, text=True)
        return done.stdout.strip()

    def counts(self, text, *question):
        """How often the text is in the answer: 0 times while the server starts, and when it becomes a replica and
        closes the connections of its clients."""
        return self.say(*question, check=False).count(text)

    def kill(self):
        self.transcript.log("store", "is killed")
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=limit(10))

    def pause(self):
        self.transcript.log("store", "is paused")
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.transcript.log("store", "goes on")
        self.process.send_signal(signal.SIGCONT)

    def destroy(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=limit(10))


@contextlib.contextmanager
def shared_store_in(folder, transcript, *settings):
    """A store that runs, in a folder below `folder`; skips the test where there is no redis-server."""
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server (scripts/setup.sh installs it)")
    made = SharedStore(folder / "shared-store", transcript, *settings)
    try:
        yield made.start()
    finally:
        made.destroy()

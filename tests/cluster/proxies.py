"""The proxy of the cluster: Envoy, HAProxy or nginx with its file of examples/cluster, unchanged."""

import os
import pathlib
import shutil
import signal
import subprocess

from models import ROOT
from network import Machine
from waiting import expect

NAMES = ("envoy", "haproxy", "nginx")
FILES = {"envoy": "envoy.yaml", "haproxy": "haproxy.cfg", "nginx": "nginx.conf"}
NUMBER = 100  # of its machine
HTTP_PORT, GRPC_PORT = 80, 7070
# How a step is sent to a random node instead of the one that has its sequence in its cache.
RANDOM = {"envoy": [("lb_policy: RING_HASH", "lb_policy: RANDOM")],
          "haproxy": [("balance hash var(txn.sequence)", "balance random"), ("    hash-type consistent\n", "")],
          "nginx": [("hash $sequence consistent;", "random;")]}


def program(name):
    """Returns the path of the proxy, or None where it is not installed (scripts/proxies.sh installs all three)."""
    packaged = [str(path.parent) for path in ROOT.glob(".venv/lib/python3*/site-packages/envoy/_bin/envoy")]
    own = os.environ.get("CONTINUO_ENVOY") if name == "envoy" else None
    return own or shutil.which(name, path=os.pathsep.join([*packaged, os.environ.get("PATH", ""), "/usr/sbin"]))


class Proxy:
    def __init__(self, name, folder, transcript, router):
        self.name = name
        self.machine = Machine("proxy", NUMBER, ("front", "control"))
        self.address = self.machine.address("front")
        self._folder = pathlib.Path(folder) / "proxy"
        self._folder.mkdir()
        self._transcript = transcript
        self._command = [*self.machine.enter, *getattr(self, f"_{name}")(program(name), self._configure(router))]
        self._process = None

    def _configure(self, router):
        text = (ROOT / "examples/cluster" / FILES[self.name]).read_text()
        for old, new in RANDOM[self.name] if router == "random" else []:
            assert old in text, old
            text = text.replace(old, new)
        if self.name == "nginx":  # where it may write: this is not what the file is about
            places = "".join(f"{kind}_temp_path {self._folder}/{kind};" for kind in
                             ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            text = text.replace("http {\n", f"http {{\n    access_log off; {places}\n", 1)
        path = self._folder / FILES[self.name]
        path.write_text(text)
        return path

    @staticmethod
    def _envoy(path, file):
        return [path, "-c", file, "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning"]

    @staticmethod
    def _haproxy(path, file):
        return [path, "-db", "-f", file]

    def _nginx(self, path, file):
        return [path, "-p", self._folder, "-e", "stderr", "-c", file,
                "-g", f"user root; daemon off; pid {self._folder}/pid; error_log stderr;"]

    def start(self):
        self._transcript.log("proxy", "starts")
        with open(self._folder / "output", "ab") as output:
            self._process = subprocess.Popen(list(map(str, self._command)), stdout=output, stderr=output,
                                             stdin=subprocess.DEVNULL, start_new_session=True)

    def expect_up(self, ping):
        def answers():
            assert self._process.poll() is None, (self._folder / "output").read_text()[-2000:]
            return ping()
        expect(answers, f"{self.name} passes /ping", 60)

    def _signal(self, which):
        os.killpg(self._process.pid, which)  # nginx has workers

    def kill(self):
        self._transcript.log("proxy", "is killed")
        self._signal(signal.SIGKILL)
        self._process.wait()

    def pause(self):
        self._transcript.log("proxy", "is paused")
        self._signal(signal.SIGSTOP)

    def go_on(self):
        self._transcript.log("proxy", "goes on")
        self._signal(signal.SIGCONT)

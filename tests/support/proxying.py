"""The proxies of docs/behind-a-proxy.md, for tests. The configuration stays as it is, but for its addresses.

The tests of a proxy that is not installed are skipped. scripts/proxies.sh installs all three, and CONTINUO_ENVOY names
an Envoy in another place."""

import contextlib
import os
import pathlib
import shutil
import subprocess

import pytest

from client import Client
from models import ROOT
from ports import free_ports
from server import address_of
from waiting import expect

SPELLINGS = ["Continuo-Sequence", "Continuo-Sequence-Id", "ts-request-sequence-id", "ts_request_sequence_id"]


def program(name):
    packaged = [str(path.parent) for path in ROOT.glob(".venv/lib/python3*/site-packages/envoy/_bin/envoy")]
    own = os.environ.get("CONTINUO_ENVOY") if name == "envoy" else None
    found = own or shutil.which(name, path=os.pathsep.join([*packaged, os.environ.get("PATH", ""), "/usr/sbin"]))
    if not found:
        pytest.skip(f"{name} is not installed (scripts/proxies.sh)")
    return found


def replaced(text, pairs):
    """Replaces each address of the page. Each must be there, so that none is forgotten."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    assert "10.0.0." not in text
    return text


class Proxy:
    """One of the three proxies, in front of two servers. `source` returns a configuration by its name, with the
    addresses 10.0.0.1 and 10.0.0.2."""

    def __init__(self, name, folder, transcript, servers, source, change=("", "")):
        self.name = name
        self._source = source
        self._change = change  # of the page's words
        self.http, self.grpc = free_ports(2)
        self._folder = pathlib.Path(folder)
        self._transcript = transcript
        self._command = getattr(self, f"_{name}")(program(name), servers)
        transcript.log(name, "$ " + " ".join(map(str, self._command)))
        with open(self._folder / "output", "wb") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def _write(self, name, text):
        path = self._folder / name
        assert self._change[0] in text
        path.write_text(text.replace(*self._change) if self._change[0] else text)
        return str(path)

    def _upstreams(self, servers):
        pairs = []
        for i, s in enumerate(servers, 1):
            pairs.append((f"10.0.0.{i}:8080", ":".join(map(str, address_of(s.inference)))))
            pairs.append((f"10.0.0.{i}:7070", s.grpc))
        return pairs

    def _nginx(self, path, servers):
        text = replaced(self._source("nginx.conf"), [
            *self._upstreams(servers), ("listen 80;", f"listen 127.0.0.1:{self.http};"),
            ("listen 7070 http2;", f"listen 127.0.0.1:{self.grpc} http2;")])
        # Where it may write in a test: these files are not what the page is about.
        places = "".join(f"{kind}_temp_path {self._folder}/{kind};" for kind in
                         ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = text.replace("http {\n", f"http {{\n    access_log off; {places}\n", 1)
        user = "user root; " if os.getuid() == 0 else ""
        return [path, "-p", str(self._folder), "-e", "stderr", "-c", self._write("nginx.conf", text),
                "-g", f"{user}daemon off; pid {self._folder}/pid; error_log stderr;"]

    def _haproxy(self, path, servers):
        text = replaced(self._source("haproxy.cfg"), [
            *self._upstreams(servers), ("bind :80\n", f"bind 127.0.0.1:{self.http}\n"),
            ("bind :7070 ", f"bind 127.0.0.1:{self.grpc} ")])
        return [path, "-db", "-f", self._write("haproxy.cfg", text)]

    def _envoy(self, path, servers):
        pairs = [("address: 0.0.0.0, port_value: 80}", f"address: 127.0.0.1, port_value: {self.http}}}"),
                 ("address: 0.0.0.0, port_value: 7070}", f"address: 127.0.0.1, port_value: {self.grpc}}}")]
        for old, new in self._upstreams(servers):
            pairs.append(("address: {}, port_value: {}}}".format(*old.split(":")),
                          "address: {}, port_value: {}}}".format(*new.split(":"))))
        return [path, "-c", self._write("envoy.yaml", replaced(self._source("envoy.yaml"), pairs)), "--concurrency", "1",
                "--use-dynamic-base-id", "--log-level", "warning"]

    def expect_up(self):
        def answers():
            assert self._process.poll() is None, (self._folder / "output").read_text()
            try:
                with contextlib.closing(self.client()) as client:
                    return client.get("/ping").status == 200
            except OSError:
                return False
        expect(answers, f"{self.name} passes /ping", 60)

    def client(self, **more):
        return Client(("127.0.0.1", self.http), self._transcript, self.name, **more)

    def stop(self):
        self._process.terminate()
        self._process.wait()
        self._transcript.log(self.name, (self._folder / "output").read_text(errors="replace"))

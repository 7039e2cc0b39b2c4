"""Tests of continuo-ctl backup and restore."""

import contextlib
import http.server
import io
import json
import subprocess
import tarfile
import threading
import types

import pytest
import requests

from models import BIN, counter, stateless
from waiting import expect, limit

ODD_IDS = ["a/b", "..", "ä ö", "100%", "x" * 200, "q?k=v&x#y", "-"]


@pytest.fixture
def ctl(transcript, folder):
    """ctl(server, word, ...) runs continuo-ctl in the test's folder."""
    def run(s, *words, code=0, stdin=None):
        done = subprocess.run([BIN / "continuo-ctl", "--server", s.management, *map(str, words)], cwd=folder,
                              capture_output=True, timeout=limit(120), check=False, input=stdin)
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode()
        transcript.log("ctl", f"{' '.join(map(str, words))} -> {done.returncode}\n{err}")
        assert done.returncode == code, out + err
        done.text, done.errors = out, err
        return done
    return run


def in_header(text):
    """UTF-8, as http.client takes it."""
    return text.encode().decode("latin-1")


def names_in(path):
    """The names of the archive's entries."""
    with tarfile.open(path) as tar:
        return sorted(tar.getnames())


def test_every_sequence_goes_on_from_a_backup_that_was_made_under_load(server, ctl, folder):
    a = server(counter(), counter("other"), stateless("plain"), name="a")
    stop = threading.Event()
    done = [0] * 8

    def work(which):
        client = a.client(f"c{which}")
        while not stop.is_set():
            for i in range(which, 200, 8):
                assert client.step("counter", f"s{i}", 1).status == 200
            done[which] += 1
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for each in threads:
        each.start()
    try:
        expect(lambda: min(done) >= 2, "all sequences have steps", 60)
        a.client().step("other", "o", 5)
        said = json.loads(ctl(a, "backup", "all.tar", "--json").text)
        at_backup = min(done)
        expect(lambda: min(done) > at_backup, "steps go on", 60)
    finally:
        stop.set()
        for each in threads:
            each.join()
    assert said["sequences"] == 201 and said["leftOut"] == 0
    assert (folder / "all.tar").stat().st_mode & 0o777 == 0o600
    b = server(counter(), counter("other"), name="b")
    assert "201 sequences restored" in ctl(b, "restore", "all.tar").text
    client = b.client()
    for i in range(200):
        step = b.admin().get(f"/models/counter/sequences/s{i}").json["step"]
        assert 2 <= step <= max(done) + 1
        assert client.step("counter", f"s{i}", 1).text == str(step + 1), "each step added 1"
    assert client.step("other", "o", 1).text == "6"


def test_ids_of_any_form_come_back(server, ctl):
    a, b = (server(counter(), name=name) for name in "ab")
    with contextlib.closing(a.client()) as client:
        for i, each in enumerate(ODD_IDS):
            assert client.step("counter", in_header(each), i + 1).status == 200
    saved = ctl(a, "backup", "-").stdout
    ctl(b, "restore", "-", stdin=saved)
    with contextlib.closing(b.client()) as client:
        sums = [client.step("counter", in_header(each), 0).text for each in ODD_IDS]
    assert sums == [str(i + 1) for i in range(len(ODD_IDS))]


def test_a_restarted_server_has_all_its_sequences_in_a_backup(server, ctl, folder):
    """They are only on disk then, so they are open and not live."""
    s = server(counter())
    for i in range(30):
        s.client().step("counter", f"s{i}", 1)
    s.client().step("counter", "ended", 1, headers={"ts_request_sequence_end": "true"})
    s.stop()
    s.restart()
    ctl(s, "backup", "all.tar")
    assert names_in(folder / "all.tar") == sorted(f"counter/1.0/s{i}.cnseq" for i in range(30))


def test_only_one_model(server, ctl, folder):
    s = server(counter(), counter("other"), counter("count"))
    for model in ("counter", "other", "count"):
        s.client().step(model, "s", 1)
    ctl(s, "backup", "one.tar", "--model", "count")
    assert names_in(folder / "one.tar") == ["count/1.0/s.cnseq"]
    ctl(s, "backup", "one.tar", "--model", "other/1.0")
    assert names_in(folder / "one.tar") == ["other/1.0/s.cnseq"]
    for unknown in ("nosuch", "other/2.0"):
        assert f"no model {unknown}" in ctl(s, "backup", "one.tar", "--model", unknown, code=1).errors
    assert names_in(folder / "one.tar") == ["other/1.0/s.cnseq"], "a backup that fails leaves the one before"
    assert not list(folder.glob("*.part*"))


def test_open_sequences_are_kept_unless_they_are_to_be_replaced(server, ctl):
    s = server(counter())
    for name in "ab":
        s.client().step("counter", name, 1)
    ctl(s, "backup", "all.tar")
    for name in "abc":
        s.client().step("counter", name, 10)
    kept = ctl(s, "restore", "all.tar")
    assert kept.text.startswith("0 sequences") and "2 sequences are open" in kept.errors and "--replace" in kept.errors
    assert s.client().step("counter", "a", 0).text == "11"
    assert ctl(s, "restore", "all.tar", "--replace").text.startswith("2 sequences restored")
    assert [s.client().step("counter", name, 0).text for name in "abc"] == ["1", "1", "10"]


@contextlib.contextmanager
def failing_at(s, path):
    """The management API of the server, in front of which something answers a path with 500."""
    class Relay(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            answer = requests.get(s.management + self.path, timeout=limit(20))
            fails = self.path.startswith(path)
            self.send_response(500 if fails else answer.status_code)
            self.send_header("Content-Length", str(0 if fails else len(answer.content)))
            self.end_headers()
            self.wfile.write(b"" if fails else answer.content)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay) as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        yield types.SimpleNamespace(management=f"http://127.0.0.1:{relay.server_port}")
        relay.shutdown()


@pytest.mark.parametrize("n", [1, 3, 40])
def test_the_output_of_a_backup_that_fails_is_not_taken_for_a_whole_one(server, ctl, n):
    """A program that reads the pipe may not see the exit status."""
    a, b = server(counter(), name="a"), server(counter(), name="b")
    for i in range(n + 1):
        assert a.client().step("counter", f"s{i:02}", 1).status == 200
    with failing_at(a, f"/models/counter/1.0/sequences/s{n:02}?export") as relay:
        broken = ctl(relay, "backup", "-", code=1).stdout
    assert "is it a file of continuo-ctl backup?" in ctl(b, "restore", "-", stdin=broken, code=1).errors


def test_a_model_that_is_not_registered_is_named(server, ctl):
    a, b = server(counter(), name="a"), server(counter("other"), name="b")
    a.client().step("counter", "s", 1)
    ctl(a, "backup", "all.tar")
    refused = ctl(b, "restore", "all.tar", code=1)
    assert "counter" in refused.errors and "404" in refused.errors and "0 sequences were restored" in refused.errors


def hostile(name, content=b"x", **attributes):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        for key, value in attributes.items():
            setattr(info, key, value)
        tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize("content,words", [
    (b"no archive at all, but some text\n" * 30, "is it a file of continuo-ctl backup?"),
    (hostile("/etc/passwd"), "is not MODEL/VERSION/ID.cnseq"),
    (hostile("counter/1.0/a/b.cnseq"), "is not MODEL/VERSION/ID.cnseq"),
    (hostile("counter/1.0/a?replace=true.cnseq"), "is not MODEL/VERSION/ID.cnseq"),
    (hostile("counter/1.0/.cnseq"), "is not MODEL/VERSION/ID.cnseq"),
    (hostile("counter/1.0/a.txt"), "is not MODEL/VERSION/ID.cnseq"),
    (hostile("counter/1.0/a.cnseq", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is not a file"),
    (hostile("counter/1.0/a.cnseq", b"no exported sequence"), "400"),
    (hostile("counter/1.0/a.cnseq", b"x" * 40000)[:9000], "is it a file of continuo-ctl backup?"),
], ids=["text", "absolute", "deep", "query", "no-id", "suffix", "link", "content", "cut"])
def test_files_that_are_no_backup_are_refused(server, ctl, folder, content, words):
    s = server(counter())
    (folder / "bad.tar").write_bytes(content)
    refused = ctl(s, "restore", "bad.tar", code=1)
    assert words in refused.errors, refused.errors
    assert s.admin().get("/models/counter/sequences?state=all").json["sequences"] == []


def test_wrong_words(server, ctl):
    s = server(counter())
    assert "usage: continuo-ctl backup FILE|-" in ctl(s, "backup", code=2).errors
    assert "--replace" in ctl(s, "backup", "x.tar", "--replace", code=2).errors
    assert "cannot read nosuch.tar" in ctl(s, "restore", "nosuch.tar", code=1).errors
    assert "cannot write nosuch/x.tar" in ctl(s, "backup", "nosuch/x.tar", code=1).errors

"""Tests of continuo-ctl seq against running servers."""

import json
import os
import subprocess
import threading

import pytest

from models import BIN, counter
from waiting import limit


@pytest.fixture
def seq(transcript, folder):
    """seq(server, word, ...) runs continuo-ctl seq in the test's folder; the server may be an address."""
    def run(s, *words, code=0, stdin=None):
        address = s if isinstance(s, str) else s.management
        done = subprocess.run([BIN / "continuo-ctl", "--server", address, "seq", *map(str, words)], cwd=folder,
                              capture_output=True, timeout=limit(30), check=False, input=stdin)
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode()
        transcript.log("ctl", f"seq {' '.join(map(str, words))} -> {done.returncode}\n{out}{err}")
        assert done.returncode == code, out + err
        done.text, done.errors = out, err
        return done
    return run


def test_ls(server, seq):
    """The list is a table or JSON, with filters, more than one page, and advice when it is empty."""
    s = server(counter(sequenceMaxIdleMSec=600000))
    client = s.client()
    nothing = seq(s, "ls", "counter")
    assert "--state open" in nothing.errors and nothing.text.startswith("SEQUENCE")
    for i in range(12):
        client.step("counter", f"a{i:02}", 1)
    client.step("counter", "b", 1, headers={"ts_request_sequence_end": "true"})
    lines = seq(s, "ls", "counter").text.splitlines()
    assert lines[0].split() == ["SEQUENCE", "STATE", "STEP", "SIZE", "IDLE", "BACKLOG", "WORKER", "EXPIRES", "REASON"]
    assert len(lines) == 13 and lines[1].split()[:3] == ["a00", "live", "1"]
    few = seq(s, "ls", "counter/1.0", "--limit", "5", "--prefix", "a")
    assert len(few.text.splitlines()) == 6 and "first 5" in few.errors
    closed = seq(s, "ls", "counter", "--state=closed").text.splitlines()
    assert closed[1].split()[:2] == ["b", "closed"] and closed[1].split()[-1] == "ended"
    assert seq(s, "ls", "counter", "--idle", "3600", "--json").text.strip() == "[]"
    facts = json.loads(seq(s, "ls", "counter", "--state", "all", "--json").text)
    assert [f["sequence"] for f in facts] == [f"a{i:02}" for i in range(12)] + ["b"]
    assert facts[0]["state"] == "live" and facts[12]["reason"] == "ended"


def test_a_list_of_more_than_a_page(server, seq):
    """All sequences are listed, however few the server returns at once."""
    s = server(counter(batchSize=64), flags=["--max-page-size", "50"])
    clients = [s.client(f"c{i}") for i in range(8)]

    def open_some(number):
        for i in range(number, 160, 8):
            clients[number].step("counter", f"s{i:03}", 1)
    threads = [threading.Thread(target=open_some, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = json.loads(seq(s, "ls", "counter", "--limit", "100000", "--json").text)
    assert [f["sequence"] for f in found] == [f"s{i:03}" for i in range(160)]
    assert len(json.loads(seq(s, "ls", "counter", "--limit", "77", "--json").text)) == 77


def test_show(server, seq):
    """Each fact is on a line of its own. For a closed sequence the reason is shown."""
    s = server(counter(sequenceMaxIdleMSec=600000))
    s.client().step("counter", "s/ 1", 5)
    shown = dict(line.split(None, 1) for line in seq(s, "show", "counter", "s/ 1").text.splitlines()
                 if not line.startswith(("last step", "idle left", "total left", "state size")))
    assert shown["sequence"] == "s/ 1" and shown["state"] == "live" and shown["step"] == "1" and shown["worker"] == "1"
    assert json.loads(seq(s, "show", "counter", "s/ 1", "--json").text)["step"] == 1
    s.client().step("counter", "s/ 1", 5, headers={"ts_request_sequence_end": "true"})
    assert "reason       ended: its client or its handler ended it" in seq(s, "show", "counter", "s/ 1").text
    unknown = seq(s, "show", "counter", "nosuch", code=1)
    assert "no sequence nosuch" in unknown.errors and "seq ls" in unknown.errors
    assert "no sequence nosuch" in json.loads(seq(s, "show", "counter", "nosuch", "--json", code=1).text)["error"]


def test_export_import_fork_rm(server, seq, folder):
    """A file moves a sequence from one server to another, where it continues."""
    here, there = server(counter()), server(counter(), counter("tally"), name="other")
    here.client().step("counter", "s/1", 5)
    saved = seq(here, "export", "counter", "s/1")
    assert "s_1.cnseq" in saved.text and (folder / "s_1.cnseq").exists()
    assert seq(here, "export", "counter", "s/1", "named").text.startswith("saved to named")
    facts = json.loads(seq(here, "export", "counter", "s/1", "other", "--json").text)
    assert facts == {"file": "other", "bytes": (folder / "other").stat().st_size}
    assert seq(there, "import", "counter/1.0", "moved", "s_1.cnseq").text == "imported, at step 1\n"
    assert there.client().step("counter", "moved", 1).text == "6"
    piped = seq(here, "export", "counter", "s/1", "-").stdout
    assert seq(there, "import", "counter", "piped", "-", stdin=piped).returncode == 0

    refused = seq(there, "import", "counter", "moved", "named", code=1)
    assert "moved is open (step 2)" in refused.errors and "--replace" in refused.errors
    assert seq(there, "import", "counter", "moved", "named", "--replace").text == "imported, at step 1\n"
    refused = seq(there, "import", "tally", "s", "named", code=1)
    assert "exported from model counter" in refused.errors and "--any-model" in refused.errors
    assert json.loads(seq(there, "import", "tally", "s", "named", "--any-model", "--json").text)["step"] == 1

    assert seq(there, "fork", "counter", "moved", "copy").text == "copied, at step 1\n"
    assert there.client().step("counter", "copy", 1).text == "6"
    assert "another id" in seq(there, "fork", "counter", "moved", "copy", code=1).errors
    assert seq(there, "rm", "counter", "copy").text == "deleted\n"
    assert there.client().step("counter", "copy", 1).error == "sequence_ended"
    assert "not live" in seq(there, "rm", "counter", "copy").text
    gone = seq(there, "export", "counter", "copy", "x", code=1)
    assert "deleted" in gone.errors and not (folder / "x").exists()


def test_an_export_that_is_not_whole_is_no_success(server, seq, folder):
    """An incomplete file must be an error, because the user may delete the sequence after the export."""
    s = server(counter())
    s.client().step("counter", "a", 5)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BIN / "continuo-ctl", "--server", s.management, "seq", "export", "counter", "a", "-"],
                              stdout=full, stderr=subprocess.PIPE, timeout=limit(30), check=False)
    assert done.returncode == 1 and b"not be written completely" in done.stderr
    (folder / "full").symlink_to("/dev/full")
    assert "No space left" in seq(s, "export", "counter", "a", "full", code=1).errors


def test_an_export_replaces_files_only(server, seq, folder):
    """An export writes to a pipe, a device or a link and does not replace it: as root, "seq export M ID /dev/stdout"
    must leave it in place."""
    s = server(counter())
    s.client().step("counter", "a", 5)
    plain = seq(s, "export", "counter", "a", "-").stdout
    os.mkfifo(folder / "pipe")
    with subprocess.Popen(["cat", folder / "pipe"], stdout=subprocess.PIPE) as reader:
        seq(s, "export", "counter", "a", "pipe")
        assert len(reader.communicate(timeout=limit(30))[0]) == len(plain)
    (folder / "link").symlink_to("target")
    seq(s, "export", "counter", "a", "link")
    assert (folder / "link").is_symlink() and (folder / "target").stat().st_size == len(plain)
    assert sorted(path.name for path in folder.iterdir() if ".part" in path.name) == []


def test_files_that_are_none(server, seq, folder):
    """The messages: the server's own for each kind of damage, and those for a file that does not exist or cannot be
    written."""
    s = server(counter())
    s.client().step("counter", "s", 5)
    seq(s, "export", "counter", "s", "good")
    good = (folder / "good").read_bytes()
    for words, data in (("truncated", good[:-1]), ("changed after the export", good[:30] + b"?" + good[31:]),
                        ("newer Continuo", good[:8] + b"\7" + good[9:]), ("not an exported sequence", b"")):
        (folder / "bad").write_bytes(data)
        assert words in seq(s, "import", "counter", "t", "bad", code=1).errors
    assert "No such file" in seq(s, "import", "counter", "t", "nowhere", code=1).errors
    assert "cannot write" in seq(s, "export", "counter", "s", "nowhere/x", code=1).errors
    assert seq(s, "show", "counter", "t", code=1).returncode == 1


@pytest.mark.parametrize("words, said", [
    (["ls"], "usage: continuo-ctl seq ls MODEL"),
    (["show", "counter"], "usage: continuo-ctl seq show MODEL ID"),
    (["import", "counter", "s"], "MODEL ID FILE"),
    (["list", "counter"], 'unknown command "seq list"'),
    ([], "seq --help"),
    (["rm", "counter", "s", "--replace"], "seq rm does not take --replace"),
    (["show", "counter", "s", "--prefix", "a"], "does not take --prefix"),
    (["ls", "counter", "--state", "dead"], "live, open, closed or all"),
    (["ls", "counter", "--limit", "0"], "1 to 1000000"),
    (["ls", "/counter"], "does not name a model"),
    (["rm", "counter", "s", "t", "u", "v"], "unexpected argument u: give one command at a time"),
])
def test_usage(seq, words, said):
    """A wrong command line exits with 2, and the message shows the right form."""
    assert said in seq("http://127.0.0.1:1", *words, code=2).errors


def test_help_and_silence(seq):
    """The help fits on a screen, the manual has the commands, and a missing server is reported."""
    shown = seq("http://127.0.0.1:1", "--help").text.splitlines()
    assert len(shown) <= 24 and max(map(len, shown)) <= 100
    man = subprocess.run([BIN / "continuo-ctl", "--print-man"], capture_output=True, text=True, check=True).stdout
    assert "seq export MODEL ID" in man
    silent = seq("http://127.0.0.1:1", "ls", "counter", code=1)
    assert "no answer from" in silent.errors and "Is the server running" in silent.errors

"""What the READMEs tell people to type works as it stands there."""

import os
import re
import subprocess

import pytest

from client import curl
from models import BUILD, ROOT, Model
from waiting import limit

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(path, language):
    return [text for name, text in FENCE.findall(path.read_text()) if name == language]


def test_the_readmes_own_handler_works(server, transcript):
    """Five minutes are short: the first thing that a new user types must not fail."""
    readme = ROOT / "README.md"
    s = server(Model("average", blocks(readme, "lua")[0], blocks(readme, "yaml")[0]))
    url = s.inference + "/predictions/average"
    _, first = curl(transcript, "-H", "ts_request_sequence_id: seq_0", url, "-d", "4")
    headers, second = curl(transcript, "-H", "ts_request_sequence_id: seq_0", url, "-d", "8")
    assert headers.startswith("HTTP/1.1 200"), headers
    assert re.search(r'"mean": ?4\b', first) and re.search(r'"mean": ?6\b', second), second
    refused = s.client().step("average", "seq_0", b"many")
    assert (refused.status, refused.message) == (400, "send a number")


def commands(block):
    """The commands of a block, each on one line, with the comment behind it."""
    for line in block.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            command, _, comment = line.partition("   # ")
            yield " ".join(command.split()), comment.split(",")[0].strip()


class Reader:
    """Types what a README says, against a server on free ports, from the repository's root."""

    def __init__(self, s):
        self.s = s

    def adapt(self, command):
        for old, new in (("build/release", BUILD), ("model-store", self.s.store),
                         ("http://localhost:8080", self.s.inference), ("http://localhost:8081", self.s.management)):
            if new:
                command = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", str(new), command)
        return command

    def type(self, command):
        command = self.adapt(command)
        run = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True,
                             timeout=limit(90), check=False, env={**os.environ, "CONTINUO_URL": str(self.s.inference)})
        self.s.transcript.log("reader", f"$ {command}\n{run.stdout}{run.stderr}")
        assert run.returncode == 0, f"{command}: {run.stdout}{run.stderr}"
        return run.stdout.strip()

    def set_up(self, block):
        """The first block packs the model and starts the server; the latter is the fixture's part."""
        for command, _ in commands(block):
            words = command.split()
            if words[0] == "build/release/bin/continuo":
                self.s.models = [word for word in words if word.endswith(".mar")]
                return self.s.start()
            self.type(command)
        raise AssertionError("the README starts no server")


def read_example(server, name):
    path = ROOT / "examples" / name / "README.md"
    first, *rest = blocks(path, "sh")
    reader = Reader(server(start=False))
    reader.set_up(first)
    return reader, rest


def test_counter_as_its_readme_says(server):
    """The values behind the commands are what comes back."""
    reader, (second,) = read_example(server, "counter")
    shown = [(reader.type(command), expected) for command, expected in commands(second)]
    assert [answer for answer, _ in shown] == [expected for _, expected in shown] == ["5", "12", "100", "12"]


def test_anomaly_as_its_readme_says(server):
    """One value by hand, then years of real weather; unusual days are few, and there are some."""
    reader, (by_hand, stream) = read_example(server, "anomaly")
    ((command, _),) = commands(by_hand)
    assert reader.type(command) == blocks(ROOT / "examples" / "anomaly" / "README.md", "json")[0].strip()
    ((command, _),) = commands(stream)
    shown = reader.type(f"{command} http://localhost:8080")
    unusual = shown.count('"anomaly":true') + shown.count('"anomaly": true')
    assert 10 < unusual < 300, shown
    assert shown.count("1461 days") == 3, shown
    assert reader.s.describe("anomaly")["liveSequences"] == 4


def test_speech_as_its_readme_says(server):
    """Recorded voices have speech in them, and pauses."""
    readme = ROOT / "examples" / "speech" / "README.md"
    if not readme.exists():
        pytest.skip("examples/speech has no README")
    reader, rest = read_example(server, "speech")
    shown = "\n".join(reader.type(command) for block in rest for command, _ in commands(block))
    assert "speech" in shown, shown

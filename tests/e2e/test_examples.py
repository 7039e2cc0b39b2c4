"""The commands of the examples' READMEs work as they are written."""

import json
import os
import re
import subprocess
import sys

import pytest
import requests

from client import curl
from models import BUILD, ROOT, Model
from waiting import limit

PYTHON_LIBRARY = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(path, language):
    return [text for name, text in FENCE.findall(path.read_text()) if name == language]


@pytest.mark.parametrize("language, suffix", [("lua", "lua"), ("python", "py")])
def test_the_readmes_own_handler_works(server, transcript, language, suffix):
    """The first commands that a new user types must not fail."""
    if language == "python" and not PYTHON_LIBRARY.exists():
        pytest.skip("this build has no Python (python3-dev)")
    readme = ROOT / "README.md"
    s = server(Model("average", blocks(readme, language)[0], blocks(readme, "yaml")[0],
                     handler_name=f"handler.{suffix}"))
    url = s.inference + "/predictions/average"
    _, first = curl(transcript, "-H", "ts_request_sequence_id: seq_0", url, "-d", "4")
    headers, second = curl(transcript, "-H", "ts_request_sequence_id: seq_0", url, "-d", "8")
    assert headers.startswith("HTTP/1.1 200"), headers
    assert re.search(r'"mean": ?4\b', first) and re.search(r'"mean": ?6\b', second), second
    program = blocks(readme, "python")[1].replace("http://localhost:8080", s.inference)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=limit(60),
                          env={**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python")})
    assert done.stdout.splitlines() == ["{'count': 1, 'mean': 4.0}", "{'count': 2, 'mean': 6.0}"]
    refused = s.client().step("average", "seq_0", b"many")
    assert (refused.status, refused.message) == (400, "send a number")


def commands(block):
    """Returns the commands of a block, each on one line, with the comment behind it."""
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
                         ("speech.so", self.s.work / "speech.so"),
                         ("http://localhost:8080", self.s.inference), ("http://localhost:8081", self.s.management)):
            if new:
                command = re.sub(rf"(?<![\w/-]){re.escape(old)}(?![\w-])", str(new), command)
        return command

    def type(self, command):
        command = self.adapt(command)
        run = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True,
                             timeout=limit(90), check=False, env={**os.environ, "CONTINUO_URL": str(self.s.inference)})
        self.s.transcript.log("reader", f"$ {command}\n{run.stdout}{run.stderr}")
        assert run.returncode == 0, f"{command}: {run.stdout}{run.stderr}"
        return run.stdout.strip()

    def read(self, readme):
        """Types all blocks. Returns the answers after the server's start, and those that the comments promise."""
        shown = []
        for command, expected in (line for block in blocks(readme, "sh") for line in commands(block)):
            words = command.split()
            if words[0] == "build/release/bin/continuo" and words[1].startswith("--"):
                self.s.models = [word for word in words if word.endswith(".mar")]
                self.s.start()
            elif words[0] != "sudo":  # scripts/setup.sh has installed it
                if words[0].startswith("examples/"):  # streams to port 8080 unless told otherwise
                    command += " http://localhost:8080"
                output = self.type(command)
                if self.s.process:
                    shown.append((output, expected))
        assert self.s.process, f"{readme} starts no server"
        return shown


@pytest.fixture
def read_example(server):
    def read(name):
        reader = Reader(server(start=False))
        return reader.s, reader.read(ROOT / "examples" / name / "README.md")
    return read


def test_counter_as_its_readme_says(read_example):
    """The answers are the values in the comments behind the commands."""
    _, shown = read_example("counter")
    assert [answer for answer, _ in shown] == [expected for _, expected in shown] == ["5", "12", "100", "12"]


@pytest.mark.skipif(not PYTHON_LIBRARY.exists(), reason="this build has no Python (python3-dev)")
def test_the_counter_in_python_as_its_readme_says(read_example):
    """The same commands give the same values."""
    _, shown = read_example("python/counter")
    assert [answer for answer, _ in shown] == [expected for _, expected in shown] == ["5", "12", "100", "12"]


@pytest.mark.skipif(not PYTHON_LIBRARY.exists(), reason="this build has no Python (python3-dev)")
def test_the_conversation_in_asyncio_as_its_readme_says(read_example):
    """Each expert's line is sent when it is ready, the fastest first, and the sequence knows its earlier lines."""
    _, shown = read_example("python/asyncio")
    assert shown[-1][0] == blocks(ROOT / "examples/python/asyncio/README.md", "text")[0].strip()


@pytest.mark.skipif(not PYTHON_LIBRARY.exists(), reason="this build has no Python (python3-dev)")
def test_anomaly_in_python_as_its_readme_says(read_example):
    """The same scores as the handler in Lua, on the same years of weather."""
    s, ((by_hand, _), (stream, _)) = read_example("python/anomaly")
    assert json.loads(by_hand) == json.loads(blocks(ROOT / "examples/python/anomaly/README.md", "json")[0])
    assert 10 < stream.count('"anomaly":true') < 300 and stream.count("1461 days") == 3, stream
    assert s.describe("anomaly")["liveSequences"] == 4


@pytest.mark.skipif(not PYTHON_LIBRARY.exists(), reason="this build has no Python (python3-dev)")
@pytest.mark.parametrize("name", ["recommender", "agent"])
def test_recipes_of_the_cookbook_as_their_readmes_say(read_example, name):
    """continuo test says that all answers are right, and the last answer is the one that stands on the page."""
    _, shown = read_example(f"python/{name}")
    assert json.loads(shown[-1][0]) == json.loads(blocks(ROOT / "examples/python" / name / "README.md", "json")[0])
    if name == "agent":
        assert shown[0] == shown[1], "the step with the same key was done once"


@pytest.mark.skipif(not PYTHON_LIBRARY.exists(), reason="this build has no Python (python3-dev)")
def test_the_lstm_in_python_forecasts_as_in_one_run(server):
    """The LSTM runs step by step, in batches with other sequences and through the death of a worker, and gives what
    PyTorch gives in one run."""
    torch = pytest.importorskip("torch", reason="the tests' own Python has no PyTorch")
    home = ROOT / "examples" / "python" / "lstm"
    s = server(Model("forecast", (home / "handler.py").read_text(),
                     (home / "model-config.yaml").read_text() + f"python: {sys.executable}\n",
                     handler_name="handler.py"))
    torch.manual_seed(1)
    cell, head = torch.nn.LSTMCell(1, 32), torch.nn.Linear(32, 1)
    h = c = torch.zeros(1, 32)
    client = s.client()
    for number in range(8):
        h, c = cell(torch.tensor([[number / 7]]), (h, c))
        answer = client.step("forecast", "oven", str(number / 7))
        assert abs(answer.json["forecast"] - head(h).item()) < 1e-5, answer
        assert client.step("forecast", "oven", "hot").message == "send a number"
        if number == 3:
            s.kill_worker("forecast")


def test_anomaly_as_its_readme_says(read_example):
    """One value is checked by hand. Then come years of real weather with few unusual days, but more than none."""
    s, ((by_hand, _), (stream, _)) = read_example("anomaly")
    assert by_hand == blocks(ROOT / "examples" / "anomaly" / "README.md", "json")[0].strip()
    assert 10 < stream.count('"anomaly":true') < 300 and stream.count("1461 days") == 3, stream
    assert s.describe("anomaly")["liveSequences"] == 4


def test_speech_as_its_readme_says(read_example):
    """A recorded voice contains speech, and steady noise does not."""
    _, ((voice, _), (noise, _)) = read_example("speech")
    assert "speech start" in voice and "speech end" in voice, voice
    assert " 0 with speech, 0 segments" in noise, noise


def events(text, field):
    return [json.loads(line.removeprefix("data: "))[field] for line in text.splitlines() if line]


def test_repeat_as_its_readme_says(read_example):
    """There is a response for each element, with its index."""
    _, ((shown, expected),) = read_example("v2/repeat")
    assert " ".join(map(str, events(shown, "OUT"))) == expected and events(shown, "IDX") == [0, 1, 2]


def test_decoupled_square_as_its_readme_says(read_example):
    """n gives n responses. The same handler can give none or thousands."""
    s, ((shown, _),) = read_example("v2/decoupled_square")
    assert events(shown, "OUT") == [3, 3, 3]
    for n in (0, 5000):
        text = requests.post(f"{s.inference}/v2/models/decoupled_square/generate_stream", json={"IN": n}, timeout=60).text
        assert events(text, "OUT") == [n] * n


def test_generate_as_its_readme_says(read_example):
    """The answer comes whole and word by word. A text that leads nowhere gives no words, and an empty one is refused.
    """
    s, ((whole, text), (streamed, words)) = read_example("v2/generate")
    assert json.loads(whole)["text_output"] == text
    assert " ".join(events(streamed, "text_output")) == words
    url = f"{s.inference}/v2/models/generate/generate"
    assert requests.post(url, json={"text_input": "alone"}, timeout=20).json()["text_output"] == ""
    answer = requests.post(url, json={"text_input": " "}, timeout=20)
    assert answer.status_code == 400 and "nothing to go on with" in answer.json()["error"]


def example(name, folder):
    folder = ROOT / "examples" / folder
    return Model(name, (folder / "handler.lua").read_text(), (folder / "model-config.yaml").read_text(), stateful=False)


def test_examples_refuse_what_they_cannot_do(server):
    """A client's mistake gets 400 with the reason. It is not a failure of the handler, and the request ends."""
    s = server(example("anomaly", "anomaly"), example("repeat", "v2/repeat"), example("generate", "v2/generate"))
    for value in ("1e200", "nan", "-1e400"):
        answer = requests.post(s.inference + "/predictions/anomaly", data=value, timeout=20,
                               headers={"ts_request_sequence_id": "s"})
        assert (answer.status_code, "send a number below 1e100" in answer.text) == (400, True), answer.text
    for model, document, words in (
            ("repeat", {"IN": [1, 2], "DELAY": [0, 4000000000]}, "a delay of 4000000000 ms; a day is the most"),
            ("generate", {"text_input": "a b a", "seconds": -1.0}, "seconds is -1.0; it must be from 0 to 86400")):
        answer = requests.post(f"{s.inference}/v2/models/{model}/generate_stream", data=json.dumps(document), timeout=20)
        assert (answer.status_code, words in answer.text) == (400, True), answer.text

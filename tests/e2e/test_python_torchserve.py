"""Archives of the pip package torch-model-archiver with handlers in Python, served by our `torchserve`.

tests/differential/torchserve_handlers.py compares what handlers get and return with TorchServe. This file tests what
TorchServe cannot do, and what an operator does."""

import concurrent.futures
import json
import os
import signal
import sys

import pytest

from client import Stream
from models import BUILD, ROOT, python
from server import address_of
from torchserve import TorchServe
from waiting import expect, limit

WORKER = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="this build has no Python (python3-dev)")
EXAMPLE = ROOT / "examples" / "torchserve-stateful"
REMEMBERS = """
class Handler:
    def initialize(self, context):
        self.sums = {}

    def handle(self, data, context):
        for i, row in enumerate(data):
            id = context.get_sequence_id(i)
            self.sums[id] = self.sums.get(id, 0) + int(bytes(row["body"]).decode())
        return [self.sums[context.get_sequence_id(i)] for i, _ in enumerate(data)]
"""


@pytest.fixture
def served(folder, transcript):
    """A bare model store with these archives, served with --models all."""
    made = TorchServe(folder, transcript)

    def start(*models, settings=""):
        for name, handler, config in models:
            made.pack_with_theirs(name, handler, "--config-file", config)
        config = made.properties(f"continuo.python={sys.executable}\n" + settings)
        made.start("--model-store", made.store, "--ts-config", config, "--models", "all", "--ncs")
        return made

    yield start
    reports = made.sanitizer_reports()
    made.destroy()
    assert not reports, "\n".join(reports)


def step(ts, model, sequence, number):
    return ts.client().request("POST", f"/predictions/{model}", str(number).encode(),
                               {"ts-request-sequence-id": sequence})


def kill_worker(ts, model):
    before = ts.describe(model)["workers"][0]["pid"]
    os.kill(before, signal.SIGKILL)
    expect(lambda: [each["pid"] != before and each["status"] == "READY"
                    for each in ts.describe(model)["workers"]] == [True], "another worker", 30)


def test_the_running_sum_outlives_worker_and_server(served):
    ts = served(("sum", EXAMPLE / "running_sum.py", EXAMPLE / "running_sum.yaml"))
    assert step(ts, "sum", "a", 3).text == "3"
    kill_worker(ts, "sum")
    assert step(ts, "sum", "a", 4).text == "7"
    ts.stop()
    ts.start("--model-store", ts.store, "--ts-config", ts.folder / "config.properties", "--models", "all", "--ncs")
    assert step(ts, "sum", "a", 5).text == "12"


def test_sixteen_clients_at_once(served):
    ts = served(("sum", EXAMPLE / "running_sum.py", EXAMPLE / "running_sum.yaml"))

    def count(client):
        return [step(ts, "sum", f"s{client}", number).text for number in range(1, 11)]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        sums = [str(n * (n + 1) // 2) for n in range(1, 11)]
        assert list(pool.map(count, range(16))) == [sums] * 16


def test_a_countdown_streams_and_0_ends_its_sequence(served):
    ts = served(("down", EXAMPLE / "countdown.py", EXAMPLE / "countdown.yaml"))
    assert step(ts, "down", "a", 4).text == "4\n"
    assert step(ts, "down", "a", 1).text == "5\n4\n3\n2\n1\n"
    assert step(ts, "down", "a", 0).text == "5\n"
    assert step(ts, "down", "a", 2).text == "2\n"


SHOWS_PARTS = """
def handle(data, context):
    if data is None:
        return
    for index, row in enumerate(data):
        context.set_response_header(index, "X-Types", " ".join(type(each).__name__ for each in row.values()))
        context.set_response_header(index, "X-Count", len(row))
        context.set_response_content_type(index, "text/x-parts")
        context.set_response_status(202, idx=index)
    return [repr(row) for row in data]
"""


def part(name, data, kind=""):
    """A part of a form. Only a file has a type."""
    kind = f'; filename="{name}"\r\nContent-Type: {kind}' if kind else ""
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{kind}\r\n\r\n{data}\r\n'


@pytest.mark.parametrize("parts, types, shown", [
    ([("a", "1"), ("b", ""), ("a", "2")], "bytearray bytearray", "{'a': bytearray(b'2'), 'b': bytearray(b'')}"),
    ([("a", "1"), ("b", "[2]", "application/json"), ("c", "x", "text/plain")], "bytearray list str",
     "{'a': bytearray(b'1'), 'b': [2], 'c': 'x'}")])
def test_the_parts_of_a_form_and_all_that_an_answer_has(served, folder, parts, types, shown):
    """A part is what its type says, the last one of a name counts, and the headers' values become texts."""
    (folder / "shows.py").write_text(SHOWS_PARTS)
    (folder / "shows.yaml").write_text("minWorkers: 1\n")
    ts = served(("shows", folder / "shows.py", folder / "shows.yaml"))
    body = "".join(part(*each) for each in parts) + "--b--\r\n"
    answer = ts.client().request("POST", "/predictions/shows", body.encode(),
                                 {"Content-Type": "multipart/form-data; boundary=b"})
    assert (answer.status, answer.text, answer.headers["X-Types"], answer.headers["X-Count"],
            answer.headers["Content-Type"]) == (202, shown, types, str(shown.count(": ")), "text/x-parts")


GIVES = """
import json

VALUES = [5, -7, 2 ** 70, True, "text", b"bytes", bytearray(b"array"), {"a": [1]}, 1.5, None, "\\u00fc", "", "\\ud800"]


def handle(data, context):
    if data is None:
        return
    asked = json.loads(data[0]["body"])
    for key, value in asked.get("headers", {}).items():
        context.set_response_header(0, key, value)
    assert context.get_response_headers(0) == asked.get("headers", {})
    if "status" in asked:
        context.set_response_status(asked["status"])
    return [VALUES[asked["value"]]]
"""


def test_what_a_handler_returns_is_the_answer(served, folder):
    """Each kind of value has its text, with and without headers and a status of its own."""
    (folder / "gives.py").write_text(GIVES)
    (folder / "gives.yaml").write_text("minWorkers: 1\n")
    ts = served(("gives", folder / "gives.py", folder / "gives.yaml"))
    client = ts.client()
    texts = ["5", "-7", str(2 ** 70), "true", "text", "bytes", "array", '{\n  "a": [\n    1\n  ]\n}', "1.5", "null", "\u00fc", ""]

    def give(value, **more):
        return client.request("POST", "/predictions/gives", json.dumps({"value": value, **more}).encode())

    for i, text in enumerate(texts):
        plain = give(i)
        assert (plain.status, plain.text, plain.headers.get("Content-Type")) == (200, text, None), i
        full = give(i, status=201, headers={"X-Mine": "yes", "content-TYPE": "text/x-own"})
        assert (full.status, full.text, full.headers["X-Mine"], full.headers["Content-Type"]) == \
            (201, text, "yes", "text/x-own"), i
        other = give(i, headers={"X-Number": 3, "ts_stream_next": "true"})
        assert (other.status, other.text, other.headers["X-Number"], other.headers["ts_stream_next"]) == \
            (200, text, "3", "false"), i
        assert (give(i, status=404).status, give(i, status=404).text) == (404, text), i
    assert give(12).status >= 500  # it has no UTF-8
    assert give(0, headers={"X-Bad": "two\nlines"}).status == 503
    assert give(0, status=42).status == 503 and give(0).text == "5"


SPEAKS_EARLY = """
import os
import time

from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return
    send_intermediate_predict_response(["first "] * len(data), context.request_ids,
                                       "Intermediate Prediction success", 200, context)
    while not os.path.exists(bytes(data[0]["body"]).decode()):
        time.sleep(0.01)
    return ["last"] * len(data)
"""


def test_an_intermediate_answer_leaves_while_the_handler_runs(served, folder):
    """A client sees the first words of a long answer before the handler returns."""
    (folder / "speaks.py").write_text(SPEAKS_EARLY)
    (folder / "speaks.yaml").write_text("minWorkers: 1\n")
    ts = served(("early", folder / "speaks.py", folder / "speaks.yaml"))
    gate = folder / "gate"
    stream = Stream(address_of(ts.ready.group(1)), ts.transcript, "/predictions/early", gate)
    assert stream.piece() == b"first "
    gate.touch()
    assert stream.rest() == b"last"
    stream.close()


def test_a_sequence_whose_handler_remembers_it_is_closed_with_its_worker(served, folder):
    (folder / "remembers.py").write_text(REMEMBERS)
    ts = served(("own", folder / "remembers.py", EXAMPLE / "running_sum.yaml"),
                settings="continuo.torchserve-errors=false\n")
    assert [step(ts, "own", "a", n).text for n in (3, 4)] == ["3", "7"]
    kill_worker(ts, "own")
    lost = step(ts, "own", "a", 5)
    assert (lost.status, "(worker_lost)" in lost.message) == (410, True)
    assert step(ts, "own", "b", 5).text == "5"
    page = ts.admin().get("/metrics").text
    assert 'reason="worker_lost"' in page or "worker_lost" in ts.text


def test_what_an_async_start_makes_works_in_the_loop_of_the_requests(server):
    """A task that initialize() has begun serves requests that overlap (asyncCommunication)."""
    s = server(python("m", """
import asyncio


class Handler:
    async def initialize(self, context):
        self.asked = asyncio.Queue()
        self.task = asyncio.create_task(self.answer())

    async def answer(self):
        while True:
            number, answer = await self.asked.get()
            answer.set_result(number + 1)

    async def handle(self, data, context):
        answer = asyncio.get_running_loop().create_future()
        await self.asked.put((int(data[0]["body"]), answer))
        return [await asyncio.wait_for(answer, 5)]
""", stateful=False, asyncCommunication=True))
    assert s.client().post("/predictions/m", "4").text == "5"


def test_requests_that_overlap_have_their_sequences_states(server):
    """SequenceState with asyncCommunication: each request finds the state of its own sequence, and no other."""
    s = server(python("m", """
import asyncio
from continuo import SequenceState


class Handler:
    def initialize(self, context):
        self.sums = SequenceState()

    async def handle(self, data, context):
        id = context.get_sequence_id(0)
        before = self.sums.get(id, 0)
        await asyncio.sleep(0.02)
        self.sums[id] = before + int(data[0]["body"])
        return [f"{self.sums[id]} {list(self.sums)}"]
""", batchSize=8, asyncCommunication=True))

    def count(sequence):
        client = s.client(sequence)
        return [client.step("m", sequence, number).text for number in (1, 2, 3)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ids = [f"s{n}" for n in range(8)]
        assert list(pool.map(count, ids)) == [[f"{sum} ['{id}']" for sum in (1, 3, 6)] for id in ids]
    s.kill_worker("m")
    assert s.client().step("m", "s0", 4).text == "10 ['s0']"


def test_a_handlers_threads_may_measure(server):
    """As in TorchServe, where each thread writes its numbers to the log."""
    s = server(python("m", """
import concurrent.futures


class Handler:
    def initialize(self, context):
        self.context, self.pool = context, concurrent.futures.ThreadPoolExecutor(2)

    def count(self, row):
        self.context.metrics.add_counter("Rows", 3)
        return row["body"].decode()

    def handle(self, data, context):
        return list(self.pool.map(self.count, data))
""", stateful=False))
    assert s.client().post("/predictions/m", "x").text == "x"
    expect(lambda: s.metric("Rows") == 3, "the counter")

"""Every performance mechanism can be switched off, and no answer changes.

CONTINUO_TEST_TUNING=none,journal runs all other end-to-end tests with the other mechanisms off. Without the journal,
the tests of the journal itself have nothing to test."""

import json
import re
import subprocess

import grpc
import numpy as np
import pytest

from models import BIN, ROOT, Model, counter
from rpc import Rpc, request
from test_grpc_stream import Stream
from test_streaming import talker
from test_v2_http import accumulator, identity, one, post
from v2rpc import channel_of, step, stub_of
from v2request import request as v2_request

TABLE = (ROOT / "core" / "tuning" / "tuning.def").read_text()
ROWS = [(name, decision) for name, decision in
        re.findall(r'CN_TUNING\(\w+, "([a-z-]+)", (?:true|false),\n.*?"(\d{4})"\)', TABLE, re.S)]
NAMES = [name for name, _ in ROWS]
LISTS = ["none", *(f"all,-{name}" for name in NAMES)]

# Keeps 40 kB for each sequence, so that states, answers and records are large.
LARGE_LUA = """
return { api = 1, init = function() return { n = 0, text = "" } end,
    step = function(state, req)
        state.n = state.n + 1
        state.text = (tostring(state.n) .. " "):rep(20000)
        return { text = state.text }
    end }
"""


class Totals:
    """Makes steps of many sequences, and compares each answer with the expected sum."""

    def __init__(self, count):
        self.sums = [0] * count

    def round(self, s, number):
        """Makes one step of each sequence, all at once, so that they share batches."""
        clients = [s.raw(f"r{i}") for i in range(len(self.sums))]
        for i, client in enumerate(clients):
            client.send(f"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts-request-sequence-id: q{i}\r\n"
                        f"Content-Length: 1\r\n\r\n{number}")
        for i, client in enumerate(clients):
            self.sums[i] += number
            answer = client.answer()
            assert (answer.status, answer.text) == (200, str(self.sums[i])), answer
            client.close()


def check_streams(s):
    answer = s.client().step("talker", "t", "3 0")
    assert (answer.status, answer.text) == (202, "1 2 3 end"), answer
    assert s.client().step("talker", "t", "said").text == "3"


def check_grpc(s):
    rpc = Rpc(s.grpc)
    for number, total in ((3, b"3"), (4, b"7")):
        assert rpc.inference.Predictions(request("counter", number, "over grpc"), timeout=30).prediction == total
    stream = Stream(rpc)
    for number in range(1, 20):
        assert stream.step("counter", number, "streamed").prediction == str(number * (number + 1) // 2).encode()
    stream.half_close()
    assert stream.rest() == []
    with pytest.raises(grpc.RpcError) as error:
        rpc.inference.Predictions(request("nobody", 1), timeout=30)
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
    rpc.channel.close()


def check_v2(s, sums):
    """Sends small and large requests in JSON, the same JSON again, binary and gRPC, and JSON with mistakes."""
    for data in ([1.5, -2.25, 3e10], [0.1], [float(2 ** 60)]):
        for _ in range(2):
            answer = post(s, "identity", one("FP64", "FP64", [len(data)], data))
            assert answer.json()["outputs"][0]["data"] == data, answer.text
    wrong = post(s, "identity", b'{"inputs":[{"name":"FP64","datatype":"FP64","shape":[1],"data":[1.5,]}]}')
    assert "failed to parse the request JSON buffer" in wrong.text, wrong.text
    values = np.arange(250000, dtype=np.float32)
    head = json.dumps({"inputs": [{"name": "FP32", "datatype": "FP32", "shape": [values.size],
                                   "parameters": {"binary_data_size": values.nbytes}}],
                       "outputs": [{"name": "FP32", "parameters": {"binary_data": True}}]}).encode()
    for _ in range(2):
        answer = post(s, "identity", head + values.tobytes(), {"Inference-Header-Content-Length": str(len(head))})
        assert answer.content.endswith(values.tobytes()), answer.content[:200]
    with channel_of(s) as channel:
        calls = stub_of(channel)
        asked = v2_request("identity", [("FP32", "FP32", [values.size])], [values.tobytes()])
        assert calls.ModelInfer(asked, timeout=30).raw_output_contents[0] == values.tobytes()
        for number in (5, 6):
            more = {} if "v" in sums else {"sequence_start": True}
            sums["v"] = sums.get("v", 0) + number
            answer = calls.ModelInfer(step("accumulator", number, "v", **more), timeout=30)
            assert int.from_bytes(answer.raw_output_contents[0], "little") == sums["v"]


def check_large(s, number):
    for i in range(6):
        answer = s.client().step("large", f"l{i}", "x")
        assert answer.text == f"{number} " * 20000, answer.text[:100]


@pytest.mark.parametrize("tuning", LISTS)
def test_answers_are_the_same_without_a_mechanism(server, folder, tuning):
    """Sequences in batches, streams, gRPC, v2, large states, a worker that dies between commit and answer, and a server
    that is killed: each promise holds with all mechanisms off, and with each one off alone."""
    s = server(counter(batchSize=16, minWorkers=2, maxWorkers=2, state={"journalMaxBytes": 65536}), talker(),
               accumulator(), identity(), Model("large", LARGE_LUA), flags=[f"--tuning={tuning}", "--loops", "1"],
               env={"CONTINUO_TEST_KILL_AT": "after_commit:6", "CONTINUO_TEST_KILL_ONCE": folder / "killed"})
    totals, sums = Totals(24), {}
    for number in range(1, 9):
        totals.round(s, number)
    check_streams(s)
    check_grpc(s)
    check_v2(s, sums)
    check_large(s, 1)
    assert (folder / "killed").exists(), "a worker died after its commit"
    s.kill()
    s.restart()
    totals.round(s, 9)
    check_v2(s, sums)
    check_large(s, 2)
    s.stop()
    s.restart()
    totals.round(s, 1)
    check_large(s, 3)


def test_the_table_is_documented():
    """docs/performance.md says for each name in --help what it gains, and names the page with the reason."""
    performance = (ROOT / "docs" / "performance.md").read_text()
    pages = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    assert len(ROWS) == TABLE.count("\nCN_TUNING("), "each row of the table was read"
    for name, decision in ROWS:
        assert f"`{name}`" in performance, name
        assert decision in pages, (name, decision)


def test_help_lists_the_mechanisms():
    """Each name that the option accepts is in the help, in the manual page, and in the message for a wrong name."""
    for flags, code in ((["--help", "tuning"], 0), (["--print-man"], 0), (["--tuning", "fast"], 2)):
        done = subprocess.run([BIN / "continuo", *flags], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code, done
        for name in NAMES:
            assert name in (done.stdout + done.stderr).replace("\\-", "-"), (flags, name)

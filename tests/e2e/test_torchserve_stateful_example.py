"""examples/torchserve-stateful: the commands of its README, and many clients at once over gRPC."""

import concurrent.futures
import pathlib
import subprocess
import sys

from models import BIN, BUILD, ROOT
from rpc import Rpc, request, unpack_details
from test_examples import blocks
from test_python_torchserve import EXAMPLE, pytestmark, served  # noqa: F401 - a fixture and the reason to skip
from torchserve import TorchServe
from waiting import limit

SUM = ("sum", EXAMPLE / "running_sum.py", EXAMPLE / "running_sum.yaml")
COUNTDOWN = ("down", EXAMPLE / "countdown.py", EXAMPLE / "countdown.yaml")
CLIENTS = 16


def countdown_from(total):
    return "".join(f"{number}\n" for number in range(total, 0, -1))


def streamed_steps(target, client):
    """A client of the countdown: three steps in calls of their own, then the last."""
    with Rpc(target) as rpc:
        def ask(number):
            answers = rpc.inference.StreamPredictions(request("down", number, f"s{client}"), timeout=limit(60))
            return "".join(answer.prediction.decode() for answer in answers)

        return [ask(number) for number in (2 * client, 3, 4, 0)]


def test_sixteen_clients_at_once_over_both_kinds_of_grpc_stream(served):  # noqa: F811
    """Each client's sums are its own, whatever the others send meanwhile. All send their steps at once, which is more
    than the 100 waiting requests that TorchServe takes by default."""
    target = address(served(SUM, COUNTDOWN, settings="job_queue_size=1000\n"))

    def sums(client):
        steps = [request("sum", number, f"s{client}") for number in range(client, client + 10)]
        with Rpc(target) as rpc:
            answers = list(rpc.inference.StreamPredictions2(iter(steps), timeout=limit(60)))
            assert [unpack_details(answer.status) for answer in answers if answer.HasField("status")] == []
            return [int(answer.prediction) for answer in answers]

    with concurrent.futures.ThreadPoolExecutor(2 * CLIENTS) as pool:
        found = [pool.submit(sums, client) for client in range(CLIENTS)]
        down = [pool.submit(streamed_steps, target, client) for client in range(1, 1 + CLIENTS)]
        for client, each in enumerate(found):
            assert each.result() == [sum(range(client, client + n)) for n in range(1, 11)]
        for client, each in enumerate(down, 1):
            total = 2 * client
            assert each.result() == [f"{total}\n", countdown_from(total + 3), f"{total + 7}\n", f"{total + 7}\n"]


def address(ts):
    return ts.ready.group(4).rpartition("/")[2]


class Desk:
    """A folder in which somebody types what the example's README says."""

    def __init__(self, ts):
        self.ts = ts
        (ts.folder / "build").mkdir()
        for name, target in (("build/release", BUILD), ("examples", ROOT / "examples"), ("proto", ROOT / "proto"),
                             (".venv", pathlib.Path(sys.prefix))):
            (ts.folder / name).symlink_to(target)
        self.config = ts.properties(f"continuo.python={sys.executable}\n")

    def type(self, block):
        """The output of a block's commands. Ports are this test's own; nothing else is changed."""
        for old, new in (("--models all", f"--models all --ts-config {self.config}"),
                         ("build/release/bin", str(BIN))):
            block = block.replace(old, new)
        if self.ts.ready:
            block = block.replace("http://localhost:8080", self.ts.ready.group(1))
            block = block.replace(".txt\n", f".txt --target {address(self.ts)}\n")
            block = block.replace("localhost:7070", address(self.ts))
        before = self.ts.output.stat().st_size if self.ts.output.exists() else 0
        with open(self.ts.output, "ab") as out, open(self.ts.folder / "errors", "ab") as errors:  # the server keeps them
            run = subprocess.run(["bash", "-euc", block], cwd=self.ts.folder, stdout=out, stderr=errors,
                                 timeout=limit(120), check=False, env=self.ts.environment())
        said = self.ts.output.read_text()[before:]
        assert run.returncode == 0, f"{block}\n{said[-3000:]}\n{(self.ts.folder / 'errors').read_text()[-3000:]}"
        return "".join(line for line in said.splitlines(keepends=True) if " info continuo " not in line)


def test_the_example_s_commands_work_as_they_stand_there(folder, transcript):
    """The commands are the first that people who come from TorchServe type."""
    ts = TorchServe(folder, transcript)
    desk = Desk(ts)
    try:
        start, curls, grpc, own_client, stop = blocks(EXAMPLE / "README.md", "sh")
        desk.type(start)
        assert ts.ready, ts.text
        assert desk.type(curls) == "37" + countdown_from(5) + "5\n"
        assert desk.type(grpc).split() == ["3", "7", "12", "5", "4", "3", "2", "1"]
        assert desk.type(own_client).split() == ["3", "7", "12"]
        assert "TorchServe has stopped." in desk.type(stop)
    finally:
        ts.destroy()

"""The Python package continuo-client (clients/python), against servers that are killed."""

import asyncio
import os
import random
import re
import subprocess
import sys
import threading

import numpy
import pytest

from models import ROOT, Model, counter, stateless
from ports import fixed_addresses
from test_examples import blocks
from test_tls import Identity
from test_tokens import keys
from waiting import FACTOR, limit

sys.path.insert(0, str(ROOT / "clients" / "python"))

from continuo_client import AsyncClient, Client, errors  # noqa: E402

SEQUENCES = 32
KILLS = 6
TYPED = ROOT / "examples" / "v2" / "accumulator"
ENDLESS_LUA = "return { api = 1, step = function() while true do end end }"


def at_a_fixed_port():
    """Returns the flags of a server that comes back at the same address, and the address."""
    flags = fixed_addresses("inference")
    return flags, flags[1]


def typed():
    return Model("sums", (TYPED / "handler.lua").read_text(), (TYPED / "model-config.yaml").read_text())


class Progress:
    """Counts the steps of all sequences, so that each kill meets work."""

    def __init__(self):
        self.steps, self.kills, self.failures = 0, 0, []
        self._changed = threading.Condition()

    def add(self):
        with self._changed:
            self.steps += 1
            self._changed.notify_all()

    def fail(self, what):
        with self._changed:
            self.failures.append(what)
            self._changed.notify_all()

    def thread(self, act):
        """Starts a thread whose exception is a failure."""
        def run():
            try:
                act()
            except BaseException as error:
                self.fail(repr(error))
                raise

        started = threading.Thread(target=run)
        started.start()
        return started

    def await_more(self, steps):
        """Waits for further steps. Returns False when a sequence has failed."""
        with self._changed:
            goal = self.steps + steps
            assert self._changed.wait_for(lambda: self.steps >= goal or self.failures, limit(60))
            return not self.failures


def kill_now_and_then(s, progress):
    """Kills workers and the whole server, each time when the sequences have moved on."""
    for round_ in range(KILLS):
        if not progress.await_more(150):
            return
        if round_ % 3 == 2:
            s.kill()
            s.restart()
        else:
            s.kill_worker("counter")
        progress.kills += 1


def check(answer, count, total):
    assert (answer.text, answer.step) == (str(total), count), (answer, count, total)


def numbers_of(name, progress):
    """The numbers of a sequence: 60, and more until the last kill, however fast the machine is."""
    chance, count = random.Random(name), 0
    while count < 60 or not (progress.kills == KILLS or progress.failures):
        count += 1
        yield chance.randrange(1000)


def step_all(progress, name, open_sequence):
    """Steps a sequence of its own and verifies each running sum."""
    with open_sequence() as sequence:
        total = 0
        for count, number in enumerate(numbers_of(name, progress), 1):
            total += number
            check(sequence.step(number), count, total)
            progress.add()


def in_threads(url, how, progress):
    client = Client(url, timeout=limit(60))
    open_one = {"http": lambda: client.sequence("counter"), "stream": lambda: client.stream("counter")}[how]
    return [progress.thread(lambda i=i: step_all(progress, f"{how}{i}", open_one))
            for i in range(SEQUENCES)]


async def step_all_async(progress, name, open_sequence):
    async with open_sequence() as sequence:
        total = 0
        for count, number in enumerate(numbers_of(name, progress), 1):
            total += number
            check(await sequence.step(number), count, total)
            progress.add()


def in_a_loop(url, how, progress):
    async def all_of_them():
        async with AsyncClient(url, timeout=limit(60)) as client:
            open_one = {"async http": lambda: client.sequence("counter"),
                        "async stream": lambda: client.stream("counter")}[how]
            await asyncio.gather(*(step_all_async(progress, f"{how}{i}", open_one)
                                   for i in range(SEQUENCES)))

    return [progress.thread(lambda: asyncio.run(all_of_them()))]


@pytest.mark.load
@pytest.mark.parametrize("how", ["http", "stream", "async http", "async stream"])
def test_kills_of_workers_and_servers_lose_double_and_reorder_nothing(server, how):
    """32 sequences, at least 60 steps each; six kills, two of them of the whole server."""
    flags, url = at_a_fixed_port()
    s = server(counter(minWorkers=2, maxWorkers=2, batchSize=8), flags=flags)
    progress = Progress()
    threads = (in_a_loop if how.startswith("async") else in_threads)(url, how, progress)
    kill_now_and_then(s, progress)
    for thread in threads:
        thread.join()
    assert not progress.failures
    assert progress.steps >= SEQUENCES * 60 and progress.kills == KILLS


def test_many_steps_of_a_stream_are_sent_before_their_answers(server):
    flags, url = at_a_fixed_port()
    s = server(counter(), flags=[*flags, "--stream-credit", "16"])
    with Client(url, timeout=limit(60)).stream("counter", "a") as stream:
        answers = stream.steps(range(1, 101))
        assert [answer.text for answer in answers] == [str(n * (n + 1) // 2) for n in range(1, 101)]
        s.kill()
        s.restart()
        answers = stream.steps([0] * 40)
        assert [answer.step for answer in answers] == list(range(101, 141))
        assert {answer.text for answer in answers} == {"5050"}


@pytest.mark.parametrize("form", ["sequence", "stream"])
def test_a_lost_answer_is_not_a_second_step(server, form):
    """The client's timeout passes while the step waits; retry() brings the answer of that step."""
    s = server(counter())
    one = getattr(Client(s.inference, timeout=limit(20)), form)("counter", "a")
    assert one.step(4).text == "4"
    with s.hold():
        with pytest.raises(errors.ClientTimeoutError):
            one.step(5, timeout=0.3)
        with pytest.raises(RuntimeError, match="retry"):
            one.step(6)
    again = one.retry()
    again = again[0] if form == "stream" else again
    assert (again.text, again.step) == ("9", 2)
    assert one.step(1).text == "10"


@pytest.mark.parametrize("form", ["sequence", "stream"])
def test_start_and_end(server, form):
    s = server(counter())
    one = getattr(Client(s.inference, timeout=limit(20)), form)("counter", "a")
    one.step(4)
    assert one.step(5, end=True).text == "9"
    assert (one.step(7, start=True).step, one.step(1).text) == (1, "8")
    other = getattr(Client(s.inference), form)("counter", "a")  # goes on with what is there
    assert other.step(1).text == "9"
    with pytest.raises((errors.StepDoneError, errors.StreamClosedError)):
        one.step(2)
    if form == "sequence":
        assert one.step(2).text == "11"
        one.step(0, end=True)
        answers = [Client(s.inference).sequence("counter", "b", numbered=False) for _ in range(2)]
        assert [each.step(1).text for each in answers * 2] == ["1", "2", "3", "4"]


def test_values(server):
    """bytes, str and JSON go as they are, and come back by their content type."""
    s = server(stateless())
    client = Client(s.inference)
    for value in b"\x00\xff", "ünï", {"a": [1, None, 2.5]}:
        answer = client.predict("echo", value)
        assert answer.content == (value if isinstance(value, bytes) else answer.text.encode())
    with client.stream("echo") as stream:
        assert stream.step(b"\x00\xff").content == b"\x00\xff"


@pytest.mark.parametrize("form", ["sequence", "stream"])
def test_tensors_of_numpy(server, form):
    s = server(typed())
    more = {"tensors": True} if form == "stream" else {}
    one = getattr(Client(s.inference, timeout=limit(20)), form)("sums", **more)
    answer = one.step({"INPUT": numpy.array([5], "int32")}, start=True)
    assert answer.data["OUTPUT"].dtype == numpy.int32 and list(answer.data["OUTPUT"]) == [5]
    assert list(one.step(numpy.array([6], "int32")).data["OUTPUT"]) == [11]  # the only input
    with pytest.raises(errors.ContinuoError):
        one.step({"OTHER": numpy.array([6], "int32")})
    assert list(one.step(numpy.array([1], "int32"), end=True).data["OUTPUT"]) == [12]


def test_tensors_of_torch(server):
    torch = pytest.importorskip("torch", reason="PyTorch is not in the tests' environment")
    s = server(typed())
    one = Client(s.inference).sequence("sums")
    answer = one.step(torch.tensor([5], dtype=torch.int32), start=True)
    assert torch.equal(answer.data["OUTPUT"], torch.tensor([5], dtype=torch.int32))


def test_each_error_has_its_class(server):
    """Type, status and word are those of the server, and `help` says what to do."""
    s = server(counter(), Model("endless", ENDLESS_LUA, {"handler": {"limits": {"callMSec": 200}}}),
               flags=["--max-request-size", "65536"])
    client = Client(s.inference, timeout=limit(20))
    for raised, status, kind, act in [
            (errors.ModelNotFoundError, 404, "ModelNotFoundException", lambda: client.predict("no", 1)),
            (errors.ModelNotFoundError, 404, "ModelNotFoundException",
             lambda: client.stream("no").step(1)),
            (errors.VersionNotFoundError, 404, "ModelVersionNotFoundException",
             lambda: client.sequence("counter", version="9").step(1)),
            (errors.TooLargeError, 413, "RequestEntityTooLargeException",
             lambda: client.sequence("counter").step(bytes(4_000_000))),
            (errors.TooLargeError, 413, "RequestEntityTooLargeException",
             lambda: client.stream("counter").step(bytes(4_000_000))),
            (errors.HandlerFailedError, 500, "InternalServerException",
             lambda: client.sequence("counter").step("four")),
            (errors.HandlerFailedError, 500, "InternalServerException",
             lambda: client.stream("counter").step("four"))]:
        with pytest.raises(raised) as caught:
            act()
        error = caught.value
        assert (error.status, error.type) == (status, kind) and error.message and error.help, error
    with pytest.raises(errors.ContinuoError) as caught:
        client.sequence("endless").step(1)
    assert caught.value.status == 500 and "200" in caught.value.message, caught.value

    async def too_large():
        async with AsyncClient(s.inference, timeout=limit(20)) as each:
            with pytest.raises(errors.TooLargeError):
                await each.sequence("counter").step(bytes(4_000_000))
    asyncio.run(too_large())


def test_a_failed_step_leaves_the_sequence_usable(server):
    s = server(counter(), flags=["--stream-credit", "8"])
    client = Client(s.inference, timeout=limit(20))
    for one in client.sequence("counter"), client.stream("counter"):
        one.step(4)
        with pytest.raises(errors.HandlerFailedError):
            one.step("four")
        assert one.step(5).text == "9"
    with client.stream("counter") as stream:
        with pytest.raises(errors.HandlerFailedError):
            stream.steps([1, "two", 3, 4])
        assert (stream.step(1).step, stream.step(0).text) == (2, "2")


def test_keys(server):
    s = server(counter(), flags=["--token-auth"])
    key = keys(s)["inference"]["key"]
    for form in "sequence", "stream":
        with pytest.raises(errors.TokenRefusedError) as caught:
            getattr(Client(s.inference, token="wrong"), form)("counter").step(1)
        assert "token=" in caught.value.help
        assert getattr(Client(s.inference, token=key), form)("counter").step(1).text == "1"


def test_tls(server, folder):
    identity = Identity(folder, "own")
    s = server(counter(), flags=["--inference-address", "https://127.0.0.1:0", *identity.flags()])
    for form in "sequence", "stream":
        with pytest.raises(errors.ConnectionFailedError, match="(?i)certificate"):
            getattr(Client(s.inference), form)("counter").step(1)
        for url in s.inference, s.inference.replace("https", "HTTPS"):  # which once was plain HTTP
            one = getattr(Client(url, tls=str(identity.cert)), form)("counter")
            assert [one.step(n).text for n in (4, 8)] == ["4", "12"]

    async def talk():
        async with AsyncClient(s.inference, tls=str(identity.cert)) as client:
            both = client.sequence("counter"), client.stream("counter")
            return [(await one.step(4)).text for one in both]
    assert asyncio.run(talk()) == ["4", "4"]


def test_nobody_answers():
    _, url = at_a_fixed_port()
    for form in "sequence", "stream":
        with pytest.raises(errors.ConnectionFailedError):
            getattr(Client(url, timeout=0.3 * FACTOR), form)("counter").step(1)
    with pytest.raises(ValueError, match="http://127.0.0.1:8080"):
        Client("127.0.0.1:8080")


@pytest.mark.parametrize("i", range(3))
def test_the_blocks_of_the_docs_work_as_they_stand_there(server, i):
    s = server(Model("average", blocks(ROOT / "docs" / "handlers-lua.md", "lua")[0]))
    text = blocks(ROOT / "docs" / "clients.md", "python")[i].replace("http://localhost:8080", s.inference)
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=limit(30), check=False,
                         env={**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python")})
    assert run.returncode == 0, run.stderr
    assert re.findall(r"\d+(?:\.\d+)?", run.stdout)[-1].rstrip("0.") == "9", run.stdout


def test_the_wheel_can_be_installed_and_imported(folder):
    made = subprocess.run([sys.executable, ROOT / "scripts" / "wheel.py", "--client"], capture_output=True, text=True,
                          timeout=limit(30), check=True).stdout
    wheel = ROOT / re.search(r"build/\S+\.whl", made).group()
    site = folder / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site,
                    wheel], check=True, timeout=limit(60))
    subprocess.run([sys.executable, "-c", "import continuo_client as c; assert 'site' in c.__file__"],
                   check=True, timeout=limit(30), cwd=folder, env={**os.environ, "PYTHONPATH": str(site)})
    assert (site / "continuo_client" / "py.typed").exists()


def test_the_classes_are_those_of_errors_def():
    rows = re.findall(r'CN_ERROR\(\w+, "(\w+)", (\d+), \d+,\s+"(\w+)"\)',
                      (ROOT / "core" / "errors" / "errors.def").read_text())
    of_server = {word: (each.status, each.type) for word, each in errors.BY_WORD.items() if each.status}
    assert of_server == {word: (int(status), kind) for word, status, kind in rows}

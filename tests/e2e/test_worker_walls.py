"""The walls around workers: what a handler that tries to escape gets. Archives may come from several owners who do not
trust each other, so a worker must reach neither the server nor the workers of other models."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import pytest

from models import BIN, BUILD, counter, python
from waiting import expect

WORKER = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
needs_python = pytest.mark.skipif(not WORKER.exists(), reason="this build has no Python (python3-dev)")
NOBODY = 65534
# setpriv still has root's rights when it looks for the program, so it runs env, which has none.
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env"]
RIGHTS = ["not_dumpable", "no_new_privs", "no_capabilities"]

# Each function tries one thing. It returns if the thing can be done, and raises OSError if not.
PRISONER = """
import ctypes
import os
import socket
import stat
import tempfile
import threading

LIBC = ctypes.CDLL(None, use_errno=True)


def must(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def ptrace(server):
    must(LIBC.ptrace(16, server, 0, 0))


def environ(server):
    open(f"/proc/{server}/environ", "rb").read()


def memory(server):
    open(f"/proc/{server}/mem", "rb").close()


def descriptors(server):
    os.readlink(f"/proc/{server}/fd/0")


def mount(server):
    must(LIBC.mount(b"none", tempfile.gettempdir().encode(), b"tmpfs", 0, None))


def give_away(server):
    with tempfile.NamedTemporaryFile() as file:
        os.chown(file.name, 1, 1)


def device(server):
    path = os.path.join(tempfile.gettempdir(), f"device-{os.getpid()}")
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.unlink(path)


def other_user(server):
    os.setuid(1)


def packets(server):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()


def signal(server):
    os.kill(server, 0)


def connect(server):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.connect(("127.0.0.1", int(open("port").read())))


def unix_service(server):
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close()


def name_space(server):
    must(LIBC.unshare(0x10000000))


def program(server):
    if os.spawnv(os.P_WAIT, "/bin/true", ["true"]) != 0:
        raise PermissionError(1, "Operation not permitted")


def thread(server):
    one = threading.Thread(target=print)
    one.start()
    one.join()


def init(req):
    return {}


def step(state, req):
    try:
        globals()[req.text](os.getppid())
    except OSError as error:
        return error.strerror or os.strerror(error.errno)
    return "done"
"""
REFUSED = ("Operation not permitted", "Permission denied")
ATTEMPTS = ["ptrace", "environ", "memory", "descriptors", "mount", "give_away", "device", "other_user", "packets",
            "connect", "unix_service", "name_space"]


def interpreter_of(user):
    """An interpreter that this user can run: that of the tests may lie in root's home."""
    if user == "own":
        return sys.executable
    for path in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([*AS_NOBODY, path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip("the user nobody can run no interpreter")


def as_nobody(s, user=NOBODY):
    """Lets the server run as the user nobody, or as another one; skips the test where root cannot do that."""
    words_before = [*AS_NOBODY[:1], f"--reuid={user}", *AS_NOBODY[2:]]
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root, and setpriv")
    s.folder.parent.chmod(0o711)  # the folder of this test
    for words, reason in (([BIN / "continuo", "--version"], "run this build"),
                          (["test", "-x", s.folder], "reach the folder of the test")):
        if subprocess.run([*words_before, *words], capture_output=True, check=False).returncode != 0:
            pytest.skip("the user nobody cannot " + reason)
    command = s.command

    def command_of_nobody():
        words = command()
        for path in (s.folder, *s.folder.rglob("*")):
            os.chown(path, user, NOBODY)
        return [*words_before, *words]
    s.command = command_of_nobody
    return s.start()


@pytest.fixture(params=["own", "nobody"])
def started(server, request):
    """started(model, ..., flags=[...]) starts a server, once as the user of the test and once as nobody."""
    def start(*models, flags=()):
        for model in models:
            if "python" in model.yaml:
                model.yaml["python"] = interpreter_of(request.param)
        s = server(*models, flags=flags, start=False)
        return as_nobody(s) if request.param == "nobody" else s.start()
    return start


def status_of(pid):
    """The lines of /proc/PID/status, which every user may read."""
    return dict(re.findall(r"^(\w+):\s*(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M))


def test_a_worker_has_no_rights(started):
    """Not even a worker that root has started: neither now nor by a program that it runs."""
    s = started(counter())
    [pid] = s.expect_ready("counter", 1)
    found = status_of(pid)
    assert found["NoNewPrivs"] == "1"
    for which in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(found[which], 16) == 0, which
    if int(found["Uid"].split()[0]) == 0:
        assert int(found["CapBnd"], 16) == 0
    [worker] = s.workers("counter")
    assert worker["walls"][:3] == RIGHTS
    assert s.client().step("counter", "a", "5").text == "5"


@needs_python
def test_a_handler_cannot_take_what_is_the_servers(started):
    """The server's memory holds keys and other models' states. Nothing that only root may do is left, either."""
    s = started(python("prisoner", PRISONER))
    client = s.client()
    for attempt in ATTEMPTS:
        answer = client.step("prisoner", "a", attempt)
        assert answer.status == 200 and answer.text in REFUSED, (attempt, answer)


@needs_python
def test_a_handler_may_do_its_work(started):
    """Programs, threads and files of its own are a handler's business."""
    client = started(python("prisoner", PRISONER)).client()
    assert [client.step("prisoner", "a", attempt).text for attempt in ("program", "thread")] == ["done"] * 2


@needs_python
def test_a_handler_sends_no_signals_to_the_server(started):
    """It could stop or kill the server of its own user."""
    s = started(python("prisoner", PRISONER))
    [worker] = s.workers("prisoner")
    if "no_signals" not in worker["walls"]:
        assert "no_signals: " in worker["wallsLacking"], worker
        s.expect_log("event=walls_lacking", "no_signals")
        pytest.skip("the kernel is older than Linux 6.12: " + worker["wallsLacking"])
    assert s.client().step("prisoner", "a", "signal").text in REFUSED


@needs_python
def test_the_network_is_there_for_a_model_whose_yaml_asks_for_it(started):
    """The same step that is refused without the key. Services of the machine stay out of reach."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = {"port": str(listener.getsockname()[1])}
        closed, opened = python("closed", PRISONER), python("opened", PRISONER, network=True)
        closed.extra.update(port)
        opened.extra.update(port)
        s = started(closed, opened)
        client = s.client()
        assert client.step("closed", "a", "connect").text in REFUSED
        assert client.step("opened", "a", "connect").text == "done"
    assert client.step("opened", "a", "unix_service").text in REFUSED
    assert ["no_network" in s.workers(model)[0]["walls"] for model in ("closed", "opened")] == [True, False]


def test_a_lua_worker_runs_nothing_but_threads(started):
    """Its filter is the tightest, and it needs no more for states, answers and the store."""
    s = started(counter())
    s.expect_ready("counter", 1)
    [worker] = s.workers("counter")
    assert "seccomp" in worker["walls"] or "seccomp: " in worker["wallsLacking"], worker
    if "seccomp" in worker["walls"]:
        assert status_of(worker["pid"])["Seccomp"] == "2"
    client = s.client()
    assert [client.step("counter", "a", "1").text for _ in range(3)] == ["1", "2", "3"]
    s.kill_worker("counter")
    s.expect_ready("counter", 1)
    assert client.step("counter", "a", "1").text == "4"


@needs_python
@pytest.mark.skipif(os.geteuid() != 0, reason="what only root may do")
def test_without_walls_the_same_attempts_succeed(server):
    """So the walls are what stops them."""
    s = server(python("prisoner", PRISONER), flags=["--worker-walls", "off"])
    client = s.client()
    for attempt in ("environ", "memory", "give_away"):
        assert client.step("prisoner", "a", attempt).text == "done", attempt
    [worker] = s.workers("prisoner")
    assert worker["walls"] == []


def test_a_forked_worker_stands_behind_the_walls_of_its_zygote(server):
    """A zygote has raised them before it loaded the model, and its children inherit them."""
    if not WORKER.exists():
        pytest.skip("this build has no Python (python3-dev)")
    s = server(python("prisoner", PRISONER, preload=True, minWorkers=2, maxWorkers=2))
    pids = s.expect_ready("prisoner", 2)
    assert all(int(status_of(pid)["CapPrm"], 16) == 0 for pid in pids)
    assert all(worker["walls"][:3] == RIGHTS for worker in s.workers("prisoner"))
    answer = s.client().step("prisoner", "a", "environ")
    assert answer.text in REFUSED, answer


@needs_python
def test_forked_workers_have_the_limit_of_processes(server):
    """The process that forks them has none: they would inherit it, and it would end their forks when others grow."""
    user = 57000 + os.getpid() % 3000
    model = python("prisoner", PRISONER, preload=True, minWorkers=2, maxWorkers=2)
    model.yaml["python"] = interpreter_of("nobody")
    s = as_nobody(server(model, flags=["--worker-processes", "40"], start=False), user)
    pids = s.expect_ready("prisoner", 2)
    workers = s.workers("prisoner")
    if any("limitsLacking" in worker and "Operation not permitted" not in worker["limitsLacking"] for worker in workers):
        pytest.skip(workers[0]["limitsLacking"])
    assert not any("limitsLacking" in worker for worker in workers), workers
    for pid in pids:
        line = next(line for line in open(f"/proc/{pid}/limits", encoding="ascii") if line.startswith("Max processes"))
        assert 40 <= int(line.split()[3]) < 1000, line


def test_the_server_is_not_dumpable(server):
    """A process that is not dumpable has files in /proc that belong to root; as root they always do, so what is
    checked is that another process of the same user cannot read them."""
    s = server(counter(), start=False)
    s = as_nobody(s)
    shown = subprocess.run([*AS_NOBODY, "cat", f"/proc/{s.process.pid}/environ"], capture_output=True, check=False)
    assert shown.returncode != 0 and b"Permission denied" in shown.stderr
    expect(lambda: s.workers("counter")[0]["memoryUsage"] > 0, "the worker's memory is still known")


def test_required_walls_decide_whether_a_model_is_loaded(server):
    """An operator who needs all walls learns that the kernel lacks one before a handler runs."""
    s = server(counter())
    s.expect_ready("counter", 1)
    lacking = s.workers("counter")[0].get("wallsLacking")
    strict = server(flags=["--worker-walls", "require"])
    archive = strict.pack(counter()).name
    answer = strict.admin().post(f"/models?url={archive}&initial_workers=1&synchronous=true")
    if lacking:
        assert answer.status >= 400 and lacking in answer.text, answer
    else:
        assert answer.status == 200 and strict.client().step("counter", "a", "2").text == "2", answer


def test_a_wrong_word_is_refused(server):
    s = server(flags=["--worker-walls", "high"], start=False)
    shown = subprocess.run(s.command(), capture_output=True, text=True, check=False)
    assert shown.returncode != 0 and "worker-walls" in shown.stderr and "one of off|on|require" in shown.stderr, shown

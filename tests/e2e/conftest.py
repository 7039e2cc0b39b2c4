"""Fixtures of the end-to-end tests. Their parts are in tests/support."""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from disk import mounted  # noqa: E402
from models import BIN, BUILD  # noqa: E402
from server import Server  # noqa: E402
from source import Source  # noqa: E402
from torchserve import TorchServe  # noqa: E402
from transcript import Transcript  # noqa: E402

FAILED = pytest.StashKey()

"""Files (without test_ and .py) that test programs with one thread: workers and their handlers, tools, clients and
scripts. One thread has no data race, and ThreadSanitizer makes everything several times as slow, so with its build only
the first test of each file runs."""
ONE_THREAD = frozenset("""
    apt_repository archiver archives backup beginners completions counter_curl ctl ctl_nodes ctl_seq ctl_verbs
    damaged_pages develop docs environments escape examples formats full_disk grafana grpc_tools handler_metrics
    handlers image import install instructions kubernetes lua_limit newcomer onnx onnx_triton openapi perf_analyzer
    python python_arrays python_device python_failures python_limits python_preload python_state python_torchserve
    python_torchserve_archives python_torchserve_builtin python_torchserve_workers python_triton release
    signed_archives startup_errors store_damage stream_input test_sh torch torch_lua torch_model_archiver
    torch_package torch_portability torch_probe torch_state torchserve_cli torchserve_config
    torchserve_stateful_example tracing_phoenix v2_state v2_typed wheel worker_memory worker_temp worker_walls zygote
""".split())


def pytest_addoption(parser):
    parser.addoption("--one-of-each-file", action="store_true",
                     help="run the first test of each file that is not marked as load")


def pytest_collection_modifyitems(config, items):
    """Keeps one test of a file if that is enough: the first that is not marked as load."""
    if config.getoption("--one-of-each-file"):
        shortened = {item.path for item in items}
    elif BUILD.name == "tsan":
        shortened = {item.path for item in items if item.path.stem.removeprefix("test_") in ONE_THREAD}
    else:
        return
    first = {item.path: item for item in reversed(items) if item.get_closest_marker("load") is None}
    kept = [item for item in items if item.path not in shortened or first.get(item.path) is item]
    dropped = set(items).difference(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in dropped])
    items[:] = kept


def pytest_configure(config):
    config.addinivalue_line("markers", "load: heavy load; shortened under sanitizers")


def pytest_sessionstart(session):
    if not (BIN / "continuo").exists():
        raise pytest.UsageError(f"no server in {BIN}: run scripts/build.sh, or set CONTINUO_BUILD")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows the transcript of a test that fails, and where its folder was kept. Shows nothing if the test passes."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        item.stash[FAILED] = True
        given = getattr(item, "funcargs", {}).values()
        for transcript in {each if isinstance(each, Transcript) else each.transcript
                           for each in given if isinstance(each, (Transcript, Server))}:
            report.sections.append(("transcript", str(transcript)))
        if folder := item.funcargs.get("folder") if hasattr(item, "funcargs") else None:
            report.sections.append(("folder", f"kept: {folder}"))


@pytest.fixture
def transcript():
    return Transcript()


@pytest.fixture
def folder(request):
    """A folder for this test, kept when it fails."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="continuo-e2e-"))
    yield path
    if not request.node.stash.get(FAILED, False):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def small_disk(folder):
    """A file system of 6 MB; needs the right to mount."""
    with mounted(folder / "disk") as path:
        yield path


@contextlib.contextmanager
def servers_in(folder, transcript, failed):
    """Yields the function behind the fixture `server`. At the end of the test it checks every server that was started.
    """
    servers = []

    def start_server(*models, flags=(), env=None, clock=False, start=True, name="server", share=None):
        home = share or folder / f"s{len(servers)}"
        home.mkdir(exist_ok=True)
        made = Server(home, transcript, flags, env, clock, models, name)
        servers.append(made)
        return made.start() if start else made

    yield start_server
    try:
        if not failed():
            running = [each for each in servers if each.process is not None and each.process.poll() is None]
            for each in running:  # all at once, because each may have a time for which it drains
                each.terminate()
            for each in running:
                each.stop()
        reports = [text for each in servers for text in each.sanitizer_reports()]
        assert not reports, "\n".join(reports)
    finally:
        for each in servers:
            each.destroy()


@pytest.fixture
def server(folder, transcript, request):
    """server(model, ..., flags=[...], env={...}, clock=False) starts a server with these models.

    With start=False the server is set up but not started. At the end of the test each server that still runs must stop
    cleanly, and none may have left a sanitizer report."""
    try:
        with servers_in(folder, transcript, lambda: request.node.stash.get(FAILED, False)) as start_server:
            yield start_server
    except BaseException:
        request.node.stash[FAILED] = True  # keeps the folder
        raise


@pytest.fixture(params=[1, 2, 4] if os.environ.get("CONTINUO_TEST_LOOPS", "0") == "0" else [None])
def any_loops(request, monkeypatch):
    """The test runs with one, two and four loops, however many cores there are, unless a number is given."""
    if request.param:
        monkeypatch.setenv("CONTINUO_TEST_LOOPS", str(request.param))


@pytest.fixture(scope="module")
def shared_server():
    """Like `server`, but the tests of a module share what it starts. For modules with many small cases that change
    nothing. After the last test the server must stop cleanly."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-e2e-"))
    with servers_in(folder, Transcript(), lambda: False) as start_server:
        yield start_server
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def torchserve(folder, transcript, request):
    """torchserve(env={...}) makes an operator's folder for the command of that name.

    Servers that still run at the end of the test are killed. None may have left a sanitizer report."""
    made = []

    def make(env=None):
        home = folder / f"t{len(made)}"
        home.mkdir()
        made.append(TorchServe(home, transcript, env))
        return made[-1]

    yield make
    try:
        for each in made:
            if each.pid_file.exists() and not request.node.stash.get(FAILED, False):
                each.run("--stop")
        reports = [text for each in made for text in each.sanitizer_reports()]
        assert not reports, "\n".join(reports)
    except BaseException:
        request.node.stash[FAILED] = True  # keeps the folder
        raise
    finally:
        for each in made:
            for line in each.text.splitlines()[-200:]:
                transcript.log("output", "| " + line)
            each.destroy()


@pytest.fixture
def source(folder):
    """A web server from which archives are downloaded (tests/support/source.py)."""
    (folder / "source").mkdir()
    made = Source(folder / "source")
    yield made
    made.go_on.set()
    made.shutdown()
    made.server_close()

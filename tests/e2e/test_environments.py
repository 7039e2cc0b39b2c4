"""Packages of an archive's requirements file: installed once, shared, kept, removed, and never half.

No test needs a network: each makes its wheels itself, and pip gets no index.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile

import pytest

from client import Client
from disk import clear, fill
from models import BIN, BUILD
from server import address_of
from shared_store import shared_store_in
from torchserve import TorchServe
from waiting import expect, limit

WORKER = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="this build has no Python (python3-dev)")
PYTHONS = os.environ.get("CONTINUO_PYTHONS", sys.executable).split(":")
ON = ("--install-packages",)
OFFLINE = {"PIP_NO_INDEX": "1"}

HANDLER = """
import sys

import tiny


def handle(req):
    return {"version": tiny.VERSION, "prefix": sys.prefix}
"""

TORCHSERVE_HANDLER = """
import tiny


def handle(data, context):
    return [tiny.VERSION for _ in data or []]
"""

# A package whose build waits for a file, as a download or a compiler would. No wheel can do that.
SLOW_SETUP = """
import os
import pathlib
import time

GATE = pathlib.Path({gate!r})


def get_requires_for_build_wheel(settings=None):
    return []


def build_wheel(folder, settings=None, metadata=None):
    (GATE / "pid").write_text(str(os.getpid()))
    while not (GATE / "open").exists():
        time.sleep(0.01)
    import shutil
    name = "tiny-1.0-py3-none-any.whl"
    shutil.copy(GATE / name, folder)
    return name
"""


def wheel(folder, name="tiny", version="1.0", needs=()):
    """A wheel with one module, which knows its version. A wheel is a zip file with a list of its files."""
    info = f"{name}-{version}.dist-info"
    files = {f"{name}.py": f"VERSION = {version!r}\n",
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" +
                                 "".join(f"Requires-Dist: {need}\n" for need in needs),
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(each), text)
    return path


def archive(store, name, requirements="tiny==1.0\n", wheels=(), version="1.0", handler=HANDLER, python=sys.executable,
            extra=None, file=None, keys=""):
    """An archive with a requirements file, as any archiver makes it."""
    manifest = {"runtime": "python", "model": {"modelName": name, "modelVersion": version, "handler": "handler.py",
                                               "configFile": "model-config.yaml",
                                               "requirementsFile": "requirements.txt"}}
    path = store / (file or f"{name}.mar")
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        made.writestr("handler.py", handler)
        made.writestr("requirements.txt", requirements)
        made.writestr("model-config.yaml", f"python: {python}\nminWorkers: 1\nmaxWorkers: 1\n{keys}")
        for each in wheels:
            made.write(each, f"wheels/{each.name}")
        for inside, text in (extra or {}).items():
            made.writestr(inside, text)
    return path


def with_tiny(s, name, **more):
    more.setdefault("wheels", [wheel(s.work / "wheels")])
    return archive(s.store, name, **more)


def environments(s):
    return s.admin().get("/environments").json["environments"]


def on_disk(s):
    """The folders of environments, without their notes."""
    folder = s.state_dir / "environments"
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.exists() else []


def register(s, url, expected=200, more=""):
    answer = register_slowly(s, url + more)
    assert answer.status == expected, answer
    return answer


@pytest.fixture(params=PYTHONS, ids=lambda path: path.replace("/", "_"))
def interpreter(request):
    return request.param


def test_wheels_of_the_archive_are_installed_without_an_index(server, interpreter):
    """The worker runs in an environment with the package, and still sees what its interpreter has."""
    s = server(flags=ON, env={"PIP_INDEX_URL": "http://127.0.0.1:1/none"})
    with_tiny(s, "m", python=interpreter, handler=HANDLER + "\n\nimport pip\n")
    register(s, "m.mar")
    answer = s.client().post("/predictions/m", b"x")
    assert answer.json["version"] == "1.0", answer
    assert answer.json["prefix"] == str(on_disk(s)[0]), answer
    shown = s.describe("m")
    assert shown["environment"]["state"] == "ready" and len(shown["environment"]["digest"]) == 64
    assert shown["environment"]["python"].startswith(str(on_disk(s)[0]))


def test_nothing_is_installed_unless_the_operator_wants_it(server):
    """Packages run code of strangers. The log says why the handler does not find its own."""
    s = server()
    with_tiny(s, "m")
    answer = register(s, "m.mar", 500)
    assert "No module named 'tiny'" in answer.message
    s.expect_log("event=requirements_not_installed model=m", "--install-packages")
    assert not on_disk(s) and environments(s) == []


def test_models_and_versions_with_equal_requirements_share_an_environment(server):
    """One installation, whatever the archive is called; other requirements get another one."""
    s = server(flags=ON)
    with_tiny(s, "a")
    with_tiny(s, "b")
    with_tiny(s, "a2", version="2.0")
    with_tiny(s, "c", requirements="tiny==2.0\n", wheels=[wheel(s.work / "other", version="2.0")])
    for name in ("a", "b", "c"):
        register(s, f"{name}.mar")
    register(s, "a2.mar", more="&model_name=a")
    assert s.client().post("/predictions/b", b"x").json["version"] == "1.0"
    assert s.client().post("/predictions/c", b"x").json["version"] == "2.0"
    assert len(on_disk(s)) == 2
    used = {each["digest"]: {(model["modelName"], model["modelVersion"]) for model in each["models"]}
            for each in environments(s)}
    assert used[s.describe("a")["environment"]["digest"]] == {("a", "1.0"), ("b", "1.0"), ("a", "2.0")}
    listed = subprocess.run([BIN / "continuo-ctl", "environments", "--server", s.management], capture_output=True,
                            text=True, check=True, timeout=limit(20)).stdout
    assert "a/1.0, a/2.0, b/1.0" in listed and "ready" in listed, listed


def test_an_environment_without_models_is_removed_after_a_while(server):
    """A model that is registered anew in between finds its packages; then the disk is free again."""
    s = server(flags=(*ON, "--environment-keep", "60000"), clock=True)
    with_tiny(s, "m")
    register(s, "m.mar")
    before = on_disk(s)
    assert s.admin().delete("/models/m").status == 200
    assert [each["state"] for each in environments(s)] == ["unused"]
    register(s, "m.mar")
    assert on_disk(s) == before
    assert s.admin().delete("/models/m").status == 200
    s.clock.advance(60001)
    expect(lambda: environments(s) == [] and not on_disk(s), "the removal")
    assert not list((s.state_dir / "environments").iterdir())


def test_a_restart_uses_what_was_installed(server):
    """The wheels may be gone from the index by then, and a start should not wait for pip."""
    s = server(flags=ON)
    with_tiny(s, "m")
    register(s, "m.mar")
    before = on_disk(s)
    s.stop()
    s.models = ["m=m.mar"]
    s.start()
    s.expect_ready("m")
    assert s.client().post("/predictions/m", b"x").json["version"] == "1.0"
    assert on_disk(s) == before
    assert sum("event=environment_building" in line for line in s.lines) == 1


FAILURES = [
    ("absent==9\n", "the package absent==9 cannot be installed"),
    ("tiny==1.0\ntiny==2.0\n", "tiny==1.0 and tiny==2.0"),
    ("tiny = one\n", "the package tiny"),
    ("tiny==1.0 --hash=sha256:" + "0" * 64 + "\n", "the package tiny==1.0"),
]


@pytest.mark.parametrize("requirements, words", FAILURES, ids=["absent", "conflict", "syntax", "hash"])
def test_a_failure_names_the_package_and_undoes_the_registration(server, requirements, words):
    """The operator corrects what the message names, and registers the model again under the same name."""
    s = server(flags=ON)
    with_tiny(s, "m", requirements=requirements)
    answer = register(s, "m.mar", 400)
    assert answer.json["type"] == "ModelException", answer
    assert answer.message.startswith("Custom pip package installation failed for model m: "), answer
    assert words in answer.message and "last lines: " in answer.message, answer
    assert s.admin().get("/models/m").status == 404
    expect(lambda: not on_disk(s), "the removal of what was half made")
    with_tiny(s, "m")
    register(s, "m.mar")


def test_a_lock_file_in_toml_is_refused_with_a_remedy(server):
    """pip cannot read it, and its own message would not say what to do."""
    s = server(flags=ON)
    path = with_tiny(s, "m")
    with zipfile.ZipFile(path) as old:
        files = {name: old.read(name) for name in old.namelist()}
    files["MAR-INF/MANIFEST.json"] = files["MAR-INF/MANIFEST.json"].replace(b"requirements.txt", b"pylock.toml")
    files["pylock.toml"] = files.pop("requirements.txt")
    with zipfile.ZipFile(path, "w") as new:
        for name, content in files.items():
            new.writestr(name, content)
    assert "write the locked versions as a requirements file" in register(s, "m.mar", 400).message


def test_a_requirements_file_that_is_not_in_the_archive_is_refused(server):
    """A model without its packages would only fail later, when its handler is loaded."""
    s = server(flags=ON)
    path = with_tiny(s, "m")
    with zipfile.ZipFile(path) as old:
        files = {name: old.read(name) for name in old.namelist() if name != "requirements.txt"}
    with zipfile.ZipFile(path, "w") as new:
        for name, content in files.items():
            new.writestr(name, content)
    assert "the requirements file requirements.txt is not in the archive" in register(s, "m.mar", 400).message


def test_a_reload_with_other_requirements_gets_other_packages(server):
    """The new archive is tried beside the old one, which serves until the new packages are there."""
    s = server(flags=(*ON, "--model-control-mode", "poll", "--repository-poll", "50"), start=False)
    with_tiny(s, "m")
    s.start()
    assert s.client().post("/predictions/m", b"x").json["version"] == "1.0"
    with_tiny(s, "m", requirements="absent==9\n", file="next")
    (s.store / "next").rename(s.store / "m.mar")
    failed = expect(lambda: s.describe("m")["failedReload"], "the failure is shown", 60)
    assert "the package absent==9 cannot be installed" in failed["error"], failed
    assert s.client().post("/predictions/m", b"x").json["version"] == "1.0"
    with_tiny(s, "m", requirements="tiny==2.0\n", file="next", wheels=[wheel(s.work / "other", version="2.0")])
    (s.store / "next").rename(s.store / "m.mar")
    expect(lambda: b'"2.0"' in s.client().post("/predictions/m", b"x").body, "the new packages", 60)
    assert len([each for each in environments(s) if each["state"] == "ready"]) == 1


def test_a_full_disk_is_an_error_that_says_so(server, small_disk):
    """The packages do not fit, the server lives, and with room the same call succeeds. The model is a folder,
    which needs no room to be unpacked, and has no manifest: requirements.txt is known by its name."""
    s = server(flags=ON, start=False)
    s.state_dir = small_disk / "state"
    wheel(s.store / "m" / "wheels")
    (s.store / "m" / "handler.py").write_text(HANDLER)
    (s.store / "m" / "requirements.txt").write_text("tiny==1.0\n")
    (s.store / "m" / "model-config.yaml").write_text(f"python: {sys.executable}\nstate: {{durability: none}}\n")
    s.start()
    fill(small_disk)
    assert "No space left on device" in register(s, "m", 400).message
    clear(small_disk)
    register(s, "m")
    assert s.client().post("/predictions/m", b"x").json["version"] == "1.0"
    s.stop()


# --- while it is built


@pytest.fixture
def gate(folder):
    """A folder whose file `open` lets slow packages go on."""
    made = folder / "gate"
    made.mkdir()
    wheel(made)
    return made


def slow(s, gate, name="m", **more):
    """An archive with a source package that waits for the gate while it is built."""
    project = '[build-system]\nrequires = []\nbuild-backend = "back"\nbackend-path = ["."]\n'
    project += '[project]\nname = "tiny"\nversion = "1.0"\n'
    return archive(s.store, name, requirements="./source\n",
                   extra={"source/pyproject.toml": project, "source/back.py": SLOW_SETUP.format(gate=str(gate))},
                   **more)


class Registration:
    """A register call that is not answered until the packages are there."""

    def __init__(self, s, url):
        self.answers = []
        self._thread = threading.Thread(target=lambda: self.answers.append(register_slowly(s, url)))
        self._thread.start()

    def answer(self):
        self._thread.join(limit(120))
        assert self.answers, "the registration was not answered"
        return self.answers[0]


def register_slowly(s, url):
    client = Client(address_of(s.management), s.transcript, "slow admin", timeout=120)
    return client.post(f"/models?url={url}&initial_workers=1&synchronous=true")


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def building(gate):
    """Waits until pip runs the package's code; returns the number of that process."""
    expect(lambda: (gate / "pid").exists() and (gate / "pid").read_text(), "the installer", 60)
    return int((gate / "pid").read_text())


def test_progress_is_shown_and_other_models_are_served_meanwhile(server, gate):
    """The event loop does not wait for pip, and neither does anybody else."""
    s = server(flags=ON, env=OFFLINE)
    slow(s, gate)
    with_tiny(s, "quick")
    registration = Registration(s, "m.mar")
    building(gate)
    shown = s.admin().get("/models/m").json[0]
    assert shown["environment"]["state"] == "building" and shown["workers"] == []
    assert "Processing ./source" in shown["environment"]["step"] or "Building" in shown["environment"]["step"]
    assert s.client().post("/predictions/m", b"x").status in (404, 503)
    listed = subprocess.run([BIN / "continuo-ctl", "environments", "--server", s.management], capture_output=True,
                            text=True, check=True, timeout=limit(20)).stdout
    assert "building" in listed and "m/1.0" in listed, listed
    register(s, "quick.mar")
    assert s.client().post("/predictions/quick", b"x").json["version"] == "1.0"
    assert not registration.answers
    (gate / "open").touch()
    assert registration.answer().status == 200
    assert s.client().post("/predictions/m", b"x").json["version"] == "1.0"


def test_a_store_is_in_use_while_packages_are_installed(server, gate):
    """Before, it was listed as unused, and could be removed with the states of its sequences."""
    s = server(flags=ON, env=OFFLINE)
    slow(s, gate)
    store = s.state_dir / "models" / "m" / "1.0"
    store.mkdir(parents=True)
    registration = Registration(s, "m.mar")
    building(gate)
    assert [(each["name"], each["state"]) for each in s.admin().get("/stores").json["stores"]] == [("m/1.0", "in use")]
    answer = s.admin().delete("/stores/m/1.0")
    assert answer.status == 409 and "registered model" in answer.message
    assert store.exists()
    (gate / "open").touch()
    assert registration.answer().status == 200


def test_states_in_a_shared_store_stay_while_packages_are_installed(server, gate, folder, transcript):
    """No worker of the model holds a lease yet, so nothing in the store tells that it is about to be served."""
    with shared_store_in(folder, transcript) as store:
        s = server(flags=(*ON, "--state-store", store.url), env=OFFLINE)
        slow(s, gate)
        registration = Registration(s, "m.mar")
        building(gate)
        answer = s.admin().delete("/shared-states/m/1.0")
        assert answer.status == 409 and "still registering" in answer.message
        assert s.admin().get("/shared-states/m/1.0").status == 200
        (gate / "open").touch()
        assert registration.answer().status == 200


def test_no_store_is_removed_while_the_server_starts(server, gate, folder):
    """Nobody knows before the start is over which stores belong to its models."""
    address = f"unix:{folder}/m.sock"
    s = server(flags=(*ON, "--management-address", address), env=OFFLINE, start=False)
    slow(s, gate)
    s.models = ["m=m.mar"]
    (s.state_dir / "models" / "other" / "1.0").mkdir(parents=True)

    def remove():
        return subprocess.run([BIN / "continuo-ctl", "--server", address, "store", "rm", "other/1.0"],
                              capture_output=True, text=True, check=False, timeout=limit(20))

    s.launch()
    building(gate)
    refused = remove()
    assert refused.returncode == 1 and "still starting" in refused.stderr, refused
    (gate / "open").touch()
    s.wait_ready()
    assert remove().returncode == 0


def test_a_server_that_is_killed_leaves_neither_half_an_environment_nor_an_installer(server, gate):
    """After kill -9 in the middle, pip is gone, and the next start makes the environment again."""
    s = server(flags=ON, env=OFFLINE, start=False)
    slow(s, gate)
    s.models = ["m=m.mar"]
    s.launch()
    pid = building(gate)
    half = on_disk(s)
    assert len(half) == 1
    s.kill()
    expect(lambda: is_gone(pid), "the end of the installer")
    (gate / "open").touch()
    s.restart()
    s.expect_ready("m", timeout=60)
    assert s.client().post("/predictions/m", b"x").json["version"] == "1.0"
    assert len(on_disk(s)) == 1 and on_disk(s) != half


def test_a_killed_installer_is_an_error_that_says_so(server, gate):
    """The kernel may kill pip when memory is short. The server lives, and the same call succeeds later."""
    s = server(flags=ON, env=OFFLINE)
    slow(s, gate)
    registration = Registration(s, "m.mar")
    os.killpg(os.getpgid(building(gate)), signal.SIGKILL)
    answer = registration.answer()
    assert answer.status == 400 and "was killed by signal 9 (SIGKILL)" in answer.message, answer
    (gate / "open").touch()
    register(s, "m.mar")


def test_an_installer_that_hangs_meets_its_timeout(server, gate):
    """An index that never answers does not keep a registration for ever, and no process stays."""
    s = server(flags=(*ON, "--install-timeout", "600000"), env=OFFLINE, clock=True)
    slow(s, gate)
    registration = Registration(s, "m.mar")
    pid = building(gate)
    s.clock.advance(600001)
    answer = registration.answer()
    assert answer.status == 400 and "did not end within 600000 ms (--install-timeout)" in answer.message, answer
    expect(lambda: is_gone(pid), "the end of the installer")


def test_a_stop_does_not_wait_for_an_installer(server, gate):
    """A stop at a bad moment is a stop like any other, and leaves no process behind."""
    s = server(flags=ON, env=OFFLINE, start=False)
    slow(s, gate)
    s.models = ["m=m.mar"]
    s.launch()
    pid = building(gate)
    s.stop()
    expect(lambda: is_gone(pid), "the end of the installer")


# --- interpreters


def test_a_venv_of_a_venv_sees_the_packages_of_its_parent(server, folder):
    """A venv that is made by a venv's interpreter would not: handlers need what is installed there."""
    parent = folder / "parent"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", parent], check=True, timeout=limit(60))
    site = next(parent.glob("lib/python*/site-packages"))
    (site / "of_parent.py").write_text("WORD = 'parent'\n")
    (site / "tiny.py").write_text("VERSION = 'of the parent'\n")
    s = server(flags=ON)
    with_tiny(s, "m", python=parent / "bin" / "python",
              handler=HANDLER.replace("import tiny", "import of_parent\nimport tiny"))
    register(s, "m.mar")
    assert s.client().post("/predictions/m", b"x").json["version"] == "1.0"


def test_an_interpreter_that_disappears_is_an_error_of_the_model(server, folder):
    """The environment that was made with it is not used by mistake, and the server lives."""
    parent = folder / "parent"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", parent], check=True, timeout=limit(60))
    s = server(flags=ON)
    with_tiny(s, "m", python=parent / "bin" / "python")
    register(s, "m.mar")
    assert s.admin().delete("/models/m").status == 200
    shutil.rmtree(parent)
    assert "there is no Python interpreter" in register(s, "m.mar", 400).message


# --- as TorchServe


@pytest.fixture
def served(folder, transcript):
    made = TorchServe(folder, transcript)
    yield made
    reports = made.sanitizer_reports()
    made.destroy()
    assert not reports, "\n".join(reports)


@pytest.mark.parametrize("use_venv", ["true", "false"])
def test_torchserves_setting_installs_packages(served, use_venv):
    """install_py_dep_per_model in config.properties, with and without useVenv in the model's YAML."""
    archive(served.store, "m", wheels=[wheel(served.folder / "wheels")], handler=TORCHSERVE_HANDLER,
            keys=f"useVenv: {use_venv}\n")
    config = served.properties("install_py_dep_per_model=true\n")
    served.start("--model-store", served.store, "--ts-config", config, "--models", "m=m.mar", "--ncs")
    answer = served.client().request("POST", "/predictions/m", b"x")
    assert (answer.status, answer.text) == (200, "1.0")
    assert served.describe("m")["useVenv"] == (use_venv == "true")

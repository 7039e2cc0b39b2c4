"""The wheel of the server: pip install on a machine that has Python and nothing else of ours."""

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from models import BUILD, ROOT
from test_install import serves
from waiting import limit

DATED = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}
PROGRAMS = ["continuo", "continuo-archiver", "continuo-ctl", "continuo-dev", "continuo-torchserve"]


def run(*command, env=None):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, env=env,
                          timeout=limit(120), check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def missing():
    for tool in ("cmake", "patchelf", "readelf", "dpkg-query"):
        if shutil.which(tool) is None:
            return f"no {tool}: installed by scripts/setup.sh"
    if "CN_SANITIZE:STRING=\n" not in (BUILD / "CMakeCache.txt").read_text():
        return "wheels are made of builds without sanitizers"
    if not (BUILD / "bin/python/continuo/_worker.abi3.so").exists():
        return "this build has no Python package"
    if subprocess.run([sys.executable, "-c", "import pip, venv"], capture_output=True, check=False).returncode:
        return "the tests' Python has no pip or no venv"
    return ""


@pytest.fixture(scope="module")
def wheel():
    if why := missing():
        pytest.skip(why)
    me = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with open(BUILD / "wheel-of-tests", "a+", encoding="utf-8") as note:  # one of the test processes makes it
        fcntl.flock(note, fcntl.LOCK_EX)
        note.seek(0)
        words = note.read().split()
        if words[:1] != [me]:
            made = run("scripts/package.sh", "wheels", BUILD, env=DATED)
            words = [me, re.search(r"^wheel: (build/continuo-\S+manylinux\S+\.whl),", made, re.M)[1]]
            note.truncate(0)
            note.write(" ".join(words))
    return ROOT / words[1]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new environment with the wheel, installed without a network."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet", "--no-deps",
        "--no-index", wheel)
    return folder


def loaded_from(path):
    """Returns the folders from which the loader takes the libraries of a program, without the C library's own."""
    found = dict(re.findall(r"^\s*(\S+) => (\S+)", run("ldd", path, env={"PATH": os.environ["PATH"]}), re.M))
    return {os.path.dirname(os.path.realpath(place)) for name, place in found.items()
            if not re.match(r"lib(c|m|pthread|resolv|dl|rt)\.so", name)}


def test_the_demo_runs_from_a_new_environment(installed, folder):
    """It is the promise of the wheel: one command, and the first stateful answer, with an empty environment."""
    done = subprocess.run([installed / "bin/continuo", "demo"], cwd=folder, env={}, text=True, capture_output=True,
                          check=False, timeout=limit(60))
    assert (done.returncode, done.stderr) == (0, ""), done
    assert re.findall(r"the answer is +(\d+) ", done.stdout) == ["4", "12", "42", "142"]


def test_the_installed_server_has_grpc_and_python_models(installed, server, folder):
    """The worker and its Python package are opened while the server runs, so no program names them."""
    serves(server, installed / "bin/continuo")
    path = {"PATH": f"{installed}/bin:{os.environ['PATH']}"}
    for words in (["new", "python", "m"], ["test", "m"]):
        done = subprocess.run([installed / "bin/continuo", *words], cwd=folder, env=path, text=True,
                              capture_output=True, check=False, timeout=limit(60))
        assert done.returncode == 0, done
    assert "m: all answers are right" in done.stdout


def test_torchscript_models_find_the_pytorch_of_the_environment(wheel, installed, folder):
    """The libraries come with a wheel of their own, because they fit some versions of PyTorch only."""
    torch = importlib.util.find_spec("torch")
    if torch is None or not (BUILD / "bin/libcontinuo_torch.so").exists():
        pytest.skip("this build has no TorchScript library, or the tests' Python has no PyTorch")
    library, = wheel.parent.glob(wheel.name.replace("continuo-", "continuo_torch-").replace("cp39-abi3", "py3-none"))
    with zipfile.ZipFile(library) as opened:
        metadata, = [opened.read(name).decode() for name in opened.namelist() if name.endswith("/METADATA")]
        brought = {os.path.basename(name) for name in opened.namelist() if name.endswith(".so")}
    assert re.search(r"^Requires-Dist: torch(==[0-9.]+|>=2\.\d+,<2\.\d+)$", metadata, re.M)
    assert "libcontinuo_torch.so" in brought, "a worker opens it first"
    assert len(brought) == len(list(BUILD.glob("bin/libcontinuo_torch*.so"))), brought
    run(sys.executable, "-m", "pip", "--python", installed / "bin/python", "install", "--quiet", "--no-deps",
        "--no-index", library)
    site, = installed.glob("lib/python3*/site-packages")
    (site / "torch").symlink_to(os.path.dirname(torch.origin))
    env = {"PATH": f"{installed}/bin:{os.environ['PATH']}", "PYTHON": sys.executable}
    for words in (["new", "torch", "m"], ["test", "m"]):
        done = subprocess.run([installed / "bin/continuo", *words], cwd=folder, env=env, text=True,
                              capture_output=True, check=False, timeout=limit(120))
        assert done.returncode == 0, done
    assert "m: all answers are right" in done.stdout


def test_the_extra_torchserve_brings_the_command_under_its_name(wheel, folder):
    """Scripts that start TorchServe go on. Without the extra, the package torchserve may be in the same environment."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    run(sys.executable, "-m", "pip", "--python", folder / "venv/bin/python", "install", "--quiet", "--no-index",
        "--find-links", wheel.parent, f"continuo[torchserve] @ {wheel.as_uri()}")
    said = run(folder / "venv/bin/torchserve", "--version", env={})
    assert said == run(folder / "venv/bin/continuo-torchserve", "--version", env={}) and said
    assert loaded_from(folder / "venv/bin/torchserve") <= {os.path.realpath(folder / "venv/libexec/continuo/libraries")}


def test_every_program_brings_its_libraries(installed):
    """A library of the machine would be another version than the one with which everything was tested, or none."""
    libraries = installed / "libexec/continuo/libraries"
    programs = [path for path in (installed / "bin").iterdir() if path.name.startswith("continuo")]
    assert sorted(path.name for path in programs) == PROGRAMS
    site, = installed.glob("lib/python3*/site-packages/continuo/_worker.abi3.so")
    opened = [installed / "libexec/continuo" / name
              for name in ("continuo-worker", "python/continuo/_worker.abi3.so")]
    for path in [*programs, site, *opened, *libraries.iterdir()]:
        assert loaded_from(path) <= {os.path.realpath(libraries)}, path
    for name in PROGRAMS:
        assert run(installed / "bin" / name, "--version", env={}).strip(), name
    said = run(installed / "bin/python", "-c", "from continuo import testing, _worker; "
               "print(testing.request('5').text, _worker.VERSION)", env={})
    assert said.split()[0] == "5"


def test_a_folder_that_is_no_environment_may_hold_it(wheel, folder):
    """pip --target leaves out parts of what a wheel has for an environment."""
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder / "here", wheel)
    (folder / "here").rename(folder / "there")
    assert "has taken over" in run(folder / "there/bin/continuo", "demo", env={})
    assert run(sys.executable, "-c", "from continuo import _worker; print(_worker.VERSION)",
               env={"PYTHONPATH": str(folder / "there")}).strip()


def test_the_wheel_has_licences_and_a_list_of_libraries(wheel):
    with zipfile.ZipFile(wheel) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in opened.infolist()}
        assert {entry.date_time for entry in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    inside, = [name for name in files if name.endswith(".dist-info/sboms/continuo.cdx.json")]
    info, data = inside.split("/")[0], inside.split(".dist-info")[0] + ".data"
    assert set(modes.values()) == {0o644, 0o755} and modes[f"{data}/scripts/continuo"] == 0o755
    for name in ("data/share/man/man1/continuo.1", "data/include/continuo/handler.h", "scripts/continuo",
                 "data/share/bash-completion/completions/continuo", "data/share/continuo/examples/counter/handler.lua"):
        assert files[f"{data}/{name}"], name
    assert not any(re.search(r"/scripts/(torchserve|torch-model-archiver)$|systemd", name) for name in files)

    bill = json.loads(files[inside])
    assert bill == {**json.loads(wheel.with_name(wheel.name + ".cdx.json").read_text()),
                    "serialNumber": bill["serialNumber"], "metadata": bill["metadata"]}
    bundled = {}
    for component in bill["components"]:
        has = [each for each in component["properties"] if each["name"].startswith("continuo:bundled")]
        if has:
            assert files[f"{info}/licenses/{component['name']}.txt"], "its licence is in the wheel"
        bundled.update(zip([each["value"] for each in has[::2]], [each["value"] for each in has[1::2]]))
    folder = f"{data}/data/"
    assert bundled == {name.removeprefix(folder): hashlib.sha256(text).hexdigest() for name, text in files.items()
                       if name.startswith(f"{folder}libexec/continuo/libraries/")}
    assert {"libexec/continuo/libraries/libnghttp2.so.14", "libexec/continuo/libraries/libhiredis.so.0.14"} <= set(bundled)
    for text in re.findall(rb"/usr/share/common-licenses/((?:L?GPL|Apache)-[\d.]*\d)",
                           b"".join(files[name] for name in files if f"{info}/licenses/" in name)):
        assert files[f"{info}/licenses/common/{text.decode()}"]


def test_equal_builds_give_equal_bytes(wheel):
    """A wheel can be held against a build of the same commit."""
    before = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert str(wheel.relative_to(ROOT)) in run("scripts/server_wheel.py", BUILD, env=DATED)
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == before


def test_of_two_libraries_for_one_pytorch_the_older_build_is_named(folder, monkeypatch):
    """The library without a version in its name comes from each build, so the message must not say to remove it."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import server_wheel

    torch = folder / "torch"
    for made in (folder / "bin", torch / "lib"):
        made.mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '2.13.0+cpu'\n")
    for name in ("libcontinuo_torch.so", "libcontinuo_torch-2.13.so"):
        (folder / "bin" / name).touch()
    monkeypatch.setattr(server_wheel, "run", lambda *command: f"{torch}/lib:/elsewhere\n")
    with pytest.raises(server_wheel.sbom.Failure, match=r"remove .*/libcontinuo_torch-2\.13\.so$"):
        server_wheel.torch_libraries(folder)

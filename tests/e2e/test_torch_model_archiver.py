"""Archives of the pip package torch-model-archiver are served, and our own have the same layout.

The package packs Python handlers. A handler in another language must have ".py" in its name (handler.py.lua), or come
as an extra file, or, in C, as the library of the runtime LSP."""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest

from models import COUNTER_LUA, ROOT, archiver
from waiting import limit

YAML = "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 4\nsequenceBatching: true\n"
SUFFIX = {"default": ".mar", "zip-store": ".mar", "tgz": ".tar.gz", "no-archive": ""}


@pytest.fixture
def source(folder):
    """The files of a model: a Lua handler, a C one, the YAML, and folders."""
    (folder / "counter.py.lua").write_text(COUNTER_LUA)
    (folder / "counter.lua").write_text(COUNTER_LUA)
    (folder / "model-config.yaml").write_text(YAML)
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 300)
    (folder / "more" / "deep").mkdir(parents=True)
    (folder / "more" / "words.txt").write_text("ja, nein\n")
    (folder / "more" / "deep" / "n.txt").write_text("1\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I", ROOT / "include", "-o", folder / "speech.so",
                    ROOT / "examples" / "speech" / "speech.c", "-lm"], check=True, timeout=limit(60))
    return folder


def theirs(source, *args, out):
    """The pip package's command. Its temporary folder is in the test's own folder."""
    tmp = source / "staging"
    tmp.mkdir(exist_ok=True)
    tool = pathlib.Path(sys.executable).parent / "torch-model-archiver"
    run = subprocess.run([tool, *map(str, args), "--export-path", out], capture_output=True, text=True, check=False,
                         timeout=limit(60), cwd=source, env={**os.environ, "TMPDIR": str(tmp)})
    assert run.returncode == 0, run.stderr


def counter_flags(archive_format="default"):
    return ["--model-name", "counter", "--version", "3.1", "--handler", "counter.py.lua", "--serialized-file",
            "weights.bin", "--config-file", "model-config.yaml", "--extra-files", "more",
            "--archive-format", archive_format]


@pytest.mark.parametrize("archive_format", list(SUFFIX))
def test_its_archives_are_served(server, source, archive_format):
    """Every format with a Lua handler is served."""
    s = server(start=False)
    theirs(source, *counter_flags(archive_format), out=s.store)
    s.start()
    assert s.register_url("counter" + SUFFIX[archive_format]).status == 200
    assert [s.client().step("counter", "a", n).text for n in (3, 4)] == ["3", "7"]
    assert s.describe("counter")["modelVersion"] == "3.1"


def test_a_lua_handler_may_be_an_extra_file(server, source):
    """The register call names the file by TorchServe's parameter `handler`."""
    s = server(start=False)
    theirs(source, "--model-name", "counter", "--version", "1.0", "--handler", "base_handler", "--config-file",
           "model-config.yaml", "--extra-files", "counter.lua", out=s.store)
    s.start()
    refused = s.register_url("counter.mar")  # TorchServe's own handler, whose package is not here
    assert (refused.status == 500 and "'base_handler'" in refused.message  # or a build that runs no Python
            or refused.status == 400 and "built without Python" in refused.message), refused
    assert s.register_url("counter.mar", handler="counter.lua").status == 200
    assert s.client().step("counter", "a", 5).text == "5"


def test_a_c_handler_comes_as_the_library_of_lsp(server, source):
    """--runtime LSP --handler speech packs speech.so and writes "speech" into the manifest."""
    s = server(start=False)
    theirs(source, "--model-name", "speech", "--version", "1.0", "--runtime", "LSP", "--handler", "speech",
           "--config-file", "model-config.yaml", out=s.store)
    s.start()
    assert s.register_url("speech.mar").status == 200
    assert s.describe("speech")["runtime"] == "c"
    assert s.client().step("speech", "a", bytes(640)).status == 200


def contents(path):
    """Returns file names with their bytes, as TorchServe unpacks them: for a tar without the first part of each path.
    """
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    if path.suffix == ".mar":
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    with tarfile.open(path, "r:gz") as archive:
        return {member.name.partition("/")[2]: archive.extractfile(member).read()
                for member in archive.getmembers() if member.isfile()}


@pytest.mark.parametrize("archive_format", list(SUFFIX))
def test_ours_have_its_layout(source, transcript, archive_format):
    """The files are in the same places, and the manifest has the same order. Ours has digests after that."""
    for name in ("their", "our"):
        (source / name).mkdir()
    theirs(source, *counter_flags(archive_format), out=source / "their")
    archiver(*counter_flags(archive_format), "--export-path", source / "our", transcript=transcript, cwd=source)
    their, our = (contents(source / name / f"counter{SUFFIX[archive_format]}") for name in ("their", "our"))
    manifests = [json.loads(files.pop("MAR-INF/MANIFEST.json")) for files in (their, our)]
    assert our == their
    assert set(their) == {"counter.py.lua", "weights.bin", "model-config.yaml", "words.txt", "deep/n.txt"}
    assert [*manifests[1]][:len(manifests[0])] == [*manifests[0]]
    assert [*manifests[1]["model"].items()] == [*manifests[0]["model"].items()]
    assert manifests[0]["runtime"] == "python" and manifests[1]["runtime"] in ("python", "lua")

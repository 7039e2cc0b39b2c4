"""Tests of continuo-archiver on the command line."""

import json
import subprocess
import zipfile

import pytest

from models import BIN, COUNTER_LUA, archiver
from waiting import limit


@pytest.fixture
def source(folder):
    (folder / "handler.lua").write_text(COUNTER_LUA)
    (folder / "model-config.yaml").write_text("minWorkers: 1\nsequenceBatching: true\n")
    return folder


def flags(source, out, *more):
    return ["--model-name", "m", "--version", "2.5", "--handler", source / "handler.lua",
            "--config-file", source / "model-config.yaml", "--export-path", out, *more]


def test_the_same_input_gives_the_same_bytes(source, transcript):
    """Archives can be compared and cached by their digest."""
    made = []
    for name in ("one", "two"):
        (source / name).mkdir()
        archiver(*flags(source, source / name), transcript=transcript)
        made.append((source / name / "m.mar").read_bytes())
        (source / "handler.lua").touch()
    assert made[0] == made[1]


def test_the_manifest_has_torchserves_keys_and_digests(source, transcript):
    """Other tools read the manifest, too."""
    archiver(*flags(source, source), transcript=transcript)
    with zipfile.ZipFile(source / "m.mar") as archive:
        manifest = json.loads(archive.read("MAR-INF/MANIFEST.json"))
        assert archive.read("handler.lua").decode() == COUNTER_LUA
    assert manifest["model"]["modelName"] == "m" and manifest["model"]["modelVersion"] == "2.5"
    assert manifest["model"]["handler"] == "handler.lua"
    assert manifest["model"]["configFile"] == "model-config.yaml"
    assert manifest["files"]["handler.lua"].startswith("sha256:")


def test_verify_finds_a_changed_byte(source, transcript):
    """The server must load exactly what was packed."""
    archiver(*flags(source, source, "--archive-format", "no-archive"), transcript=transcript)
    assert archiver("verify", source / "m", check=False, transcript=transcript).returncode == 0
    (source / "m" / "handler.lua").write_text(COUNTER_LUA.replace("+", "-"))
    changed = archiver("verify", source / "m", check=False, transcript=transcript)
    assert changed.returncode != 0 and "handler.lua" in changed.stderr


def test_inspect_shows_what_is_inside(source, transcript):
    """`inspect` shows an archive without unpacking it."""
    archiver(*flags(source, source), transcript=transcript)
    shown = archiver("inspect", source / "m.mar", transcript=transcript).stdout
    assert "handler.lua" in shown and "2.5" in shown


@pytest.mark.parametrize("runtime", ["lua", "c", "torch", "onnx"])
def test_a_runtime_can_be_named(source, transcript, runtime):
    """Each runtime that the help names goes into the manifest."""
    archiver(*flags(source, source, "--runtime", runtime, "--no-check"), transcript=transcript)
    with zipfile.ZipFile(source / "m.mar") as archive:
        assert json.loads(archive.read("MAR-INF/MANIFEST.json"))["runtime"] == runtime


def test_output_that_is_not_whole_is_no_success(source, transcript):
    """If standard output is a full disk, the command fails, because the output is not complete."""
    archiver(*flags(source, source), transcript=transcript)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BIN / "continuo-archiver", "inspect", source / "m.mar"], stdout=full,
                              stderr=subprocess.PIPE, timeout=limit(30), check=False)
    assert done.returncode == 1 and b"not be written completely" in done.stderr


def test_an_existing_archive_is_kept_unless_forced(source, transcript):
    """torch-model-archiver does the same."""
    archiver(*flags(source, source), transcript=transcript)
    again = archiver(*flags(source, source), check=False, transcript=transcript)
    assert again.returncode == 1 and "already exists" in again.stderr and "--force" in again.stderr
    assert archiver(*flags(source, source, "--force"), transcript=transcript).returncode == 0


@pytest.mark.parametrize("yaml, place", [
    ("minWorkers: 1\nbatchSize: many\n", "model-config.yaml:2:12"),
    ("minWorkers: [1\n", "model-config.yaml:"),
    ("minWorkers: 1\nminWorkers: 2\n", "model-config.yaml:2:1"),
])
def test_a_wrong_yaml_is_found_at_packing_time(source, transcript, yaml, place):
    """The message has file, line and column."""
    (source / "model-config.yaml").write_text(yaml)
    run = archiver(*flags(source, source), check=False, transcript=transcript)
    assert run.returncode == 1 and place in run.stderr
    assert not (source / "m.mar").exists()


def test_an_unknown_key_warns_with_the_nearest_known_one(source, transcript):
    """A misspelt key must not silently have no effect."""
    (source / "model-config.yaml").write_text("minWorkers: 1\nmaxWorker: 2\n")
    run = archiver(*flags(source, source), transcript=transcript)
    assert "model-config.yaml:2:1" in run.stderr and "maxWorkers" in run.stderr


def test_a_missing_handler_is_named(source, transcript):
    """The exit status is 1, and there is no archive."""
    (source / "handler.lua").unlink()
    run = archiver(*flags(source, source), check=False, transcript=transcript)
    assert run.returncode == 1 and "handler.lua" in run.stderr


def test_missing_flags_are_named(transcript):
    """The exit status is 2 for a wrong command line, as with torch-model-archiver."""
    run = archiver("--model-name", "m", check=False, transcript=transcript)
    assert run.returncode == 2 and "--handler" in run.stderr


def test_it_answers_to_torch_model_archivers_name(source, transcript):
    """Scripts that call torch-model-archiver still work."""
    run = subprocess.run([BIN / "torch-model-archiver", *map(str, flags(source, source))],
                         capture_output=True, text=True, timeout=limit(30), check=False)
    assert run.returncode == 0, run.stderr
    assert (source / "m.mar").exists()

"""python/environment.py: what the server is told about an installation. pip itself runs in tests/e2e."""

import importlib.util
import pathlib
import sys

import pytest

PATH = pathlib.Path(__file__).resolve().parents[2] / "python" / "environment.py"


@pytest.fixture
def environment(monkeypatch):
    """The module, with a list in place of the socket."""
    spec = importlib.util.spec_from_file_location("environment", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.told = []
    monkeypatch.setattr(module, "tell", lambda word, text: module.told.append((word, text)))
    return module


LINES = [
    ("ERROR: No matching distribution found for absent==9", "absent==9"),
    ("ERROR: Could not find a version that satisfies the requirement absent==9 (from versions: none)", "absent==9"),
    ("  ERROR: Failed building wheel for tiny", "tiny"),
    ("ERROR: Failed to build installable wheels for some pyproject.toml based projects (tiny)", "tiny"),
    ("ERROR: Failed to build installable wheels for some pyproject.toml based projects tiny, other", "tiny"),
    ("ERROR: Cannot install tiny==1.0 and tiny==2.0 because these package versions have conflicting dependencies.",
     "tiny==1.0 and tiny==2.0"),
    ("ERROR: Invalid requirement: 'tiny = one' (from line 1 of requirements.txt)", "tiny"),
    ("    tiny==1.0 from file:///m/wheels/tiny-1.0-py3-none-any.whl (from -r requirements.txt (line 1)):", "tiny==1.0"),
    ("Collecting tiny", ""),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", ""),
]


@pytest.mark.parametrize("line, package", LINES, ids=range(len(LINES)))
def test_the_package_that_failed_is_found_in_what_pip_says(environment, line, package):
    """The operator is told which package it was, and pip words that in many ways."""
    assert environment.package_in(line) == package


def test_the_first_error_counts_and_the_last_package_is_remembered(environment, capsys):
    """pip goes on talking after its first error, which is the one that helps."""
    output = environment.Output()
    for line in ("Collecting tiny==1.0", "  Downloading tiny-1.0.whl (1 kB)", "", "ERROR: first\n", "ERROR: second"):
        output.take(line)
    assert (output.package, output.last, output.error) == ("", "tiny==1.0", "first")
    assert environment.told == [("step", "Collecting tiny==1.0"), ("step", "Downloading tiny-1.0.whl (1 kB)")]
    assert "ERROR: second" in capsys.readouterr().out


def test_pip_is_led_to_the_archives_wheels_alone(environment):
    """An archive that brings its wheels must not depend on an index, nor take a package from one."""
    command = environment.pip_command("python", "requirements.txt", "wheels")
    assert command[-3:] == ["--no-index", "--find-links", "wheels"]
    assert "--no-index" not in environment.pip_command("python", "requirements.txt", "")


def test_an_environment_sees_what_its_interpreter_sees(environment, monkeypatch, tmp_path):
    """A venv has folders of its own and may hide the system's packages; another interpreter has neither."""
    monkeypatch.setattr(sys, "prefix", "/usr")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert environment.parent_venv() == ([], True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert environment.parent_venv()[1] is False
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = true\n")
    folders, sees = environment.parent_venv()
    assert sees and folders


def test_a_lock_file_in_toml_is_refused_before_anything_is_made(environment, tmp_path):
    """pip could not read it, and would leave half an environment."""
    with pytest.raises(environment.Failed, match="write the locked versions as a requirements file"):
        environment.build(str(tmp_path / "place"), "pylock.toml")
    assert not (tmp_path / "place").exists()

"""scripts/release.sh makes the commit, the tag and the notes of a release, or says why not and changes nothing."""

import os
import re
import shutil
import subprocess

import pytest

from models import BUILD, ROOT
from waiting import limit

FILES = ["CHANGELOG.md", "CMakeLists.txt", "clients/python/continuo_client/__init__.py", "clients/python/pyproject.toml",
         "docs/install.md", "python/continuo/__init__.py", "scripts/release.sh"]
CHANGES = """# Changes

Lines of introduction.

## Unreleased

- The second change ([docs/install.md](docs/install.md)).
- The first change.

### Known limits

- A list below a heading of its own.

## 0.0.9 (2026-01-02)

- An old change.
"""
# What the tests ask git for must not depend on the settings of the machine.
ENV = {**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
       "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "SOURCE_DATE_EPOCH": "1767225600",
       "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@localhost", "GIT_COMMITTER_NAME": "a",
       "GIT_COMMITTER_EMAIL": "a@localhost"}

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="no git"),
    pytest.mark.skipif(BUILD.name != "release", reason="a script does not depend on the build")]


class Checkout:
    """A repository with the files of a release, at version 0.1.0, and a CHANGELOG of its own."""

    def __init__(self, path):
        self.path = path
        version = re.search(r"project\(continuo VERSION ([0-9.]+) ", (ROOT / "CMakeLists.txt").read_text())[1]
        for name in [*FILES, ".gitignore"]:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text((ROOT / name).read_text().replace(version, "0.1.0"))
        (path / "scripts/release.sh").chmod(0o755)
        (path / "CHANGELOG.md").write_text(CHANGES)
        self.git("init", "-q", "-b", "main")
        self.commit()

    def git(self, *words):
        return subprocess.run(["git", *words], cwd=self.path, env=ENV, capture_output=True, text=True, check=True,
                              timeout=limit(120)).stdout

    def commit(self):
        self.git("add", ".")
        self.git("commit", "-q", "-m", "test: a tree")

    def replace(self, name, old, new):
        text = (self.path / name).read_text()
        assert old in text
        (self.path / name).write_text(text.replace(old, new))

    def release(self, *words):
        return subprocess.run([self.path / "scripts/release.sh", *words], env=ENV, capture_output=True, text=True,
                              check=False, timeout=limit(120))

    def everything(self):
        """Returns what a refused release must leave as it is."""
        return (self.git("rev-parse", "HEAD"), self.git("tag"), self.git("status", "--porcelain"),
                (self.path / "build/release-notes.md").exists(), (self.path / "CHANGELOG.md").read_text())


@pytest.fixture
def checkout(folder):
    return Checkout(folder)


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(checkout):
    before = checkout.everything()
    done = checkout.release("--dry-run", "--tested", "1.0.0")
    assert done.returncode == 0, done.stderr
    assert "the tag v1.0.0:" in done.stdout and "- The second change" in done.stdout
    assert "An old change" not in done.stdout
    assert checkout.everything() == before


def test_a_release_is_a_commit_a_tag_and_notes(checkout):
    """The notes are the tag's message and the release page's text. Headings begin with what git takes for comments."""
    before = checkout.git("rev-parse", "HEAD").strip()
    done = checkout.release("--tested", "1.0.0")
    assert done.returncode == 0, done.stderr
    assert checkout.git("rev-parse", "HEAD^").strip() == before
    assert checkout.git("log", "-1", "--format=%s").strip() == "release: 1.0.0"
    assert sorted(checkout.git("show", "--format=", "--name-only").split()) == sorted(set(FILES) - {"scripts/release.sh"})
    assert checkout.git("status", "--porcelain") == ""

    changes = CHANGES.replace("## Unreleased\n", "## Unreleased\n\n## 1.0.0 (2026-01-01)\n")
    assert (checkout.path / "CHANGELOG.md").read_text() == changes
    for name in set(FILES) - {"CHANGELOG.md", "scripts/release.sh"}:
        text = checkout.git("show", f"HEAD:{name}")
        assert "1.0.0" in text and "0.1.0" not in text, name

    section = CHANGES[CHANGES.index("- The second"):CHANGES.index("## 0.0.9")]
    notes = f"# Continuo 1.0.0\n\nReleased on 2026-01-01.\n\n{section.strip()}\n"
    assert (checkout.path / "build/release-notes.md").read_text() == notes
    assert checkout.git("cat-file", "-t", "v1.0.0").strip() == "tag"
    assert checkout.git("rev-parse", "v1.0.0^{commit}") == checkout.git("rev-parse", "HEAD")
    assert checkout.git("tag", "-l", "--format=%(contents)", "v1.0.0").strip() == notes.strip()

    again = checkout.release("--tested", "1.0.1")
    assert again.returncode == 1 and 'no entries under "Unreleased"' in again.stderr


def test_the_next_release_follows_the_first(checkout):
    assert checkout.release("--tested", "1.0.0").returncode == 0
    checkout.replace("CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- A third change.\n")
    checkout.commit()
    done = checkout.release("--tested", "1.1.0")
    assert done.returncode == 0, done.stderr
    assert (checkout.path / "build/release-notes.md").read_text().splitlines()[4:] == ["- A third change."]
    assert "## Unreleased\n\n## 1.1.0 (2026-01-01)\n\n- A third change.\n\n## 1.0.0 (2026-01-01)\n" in (
        checkout.path / "CHANGELOG.md").read_text()


def test_only_a_commit_whose_tests_have_passed_is_released(checkout):
    """scripts/test.sh writes the commit into a file when all of it has passed."""
    refused = checkout.release("1.0.0")
    assert refused.returncode == 1 and "scripts/test.sh has not passed here for commit" in refused.stderr
    (checkout.path / "build").mkdir()
    (checkout.path / "build/tested").write_text(checkout.git("rev-parse", "HEAD^{tree}"))
    assert checkout.release("1.0.0").returncode == 1
    (checkout.path / "build/tested").write_text(checkout.git("rev-parse", "HEAD"))
    done = checkout.release("1.0.0")
    assert done.returncode == 0, done.stderr


def dirty(checkout):
    (checkout.path / "notes.txt").write_text("a file that git does not know\n")


def other_branch(checkout):
    checkout.git("checkout", "-q", "-b", "other")


def tagged(checkout):
    checkout.git("tag", "v1.0.0")


def newer_tag(checkout):
    checkout.git("tag", "v1.10.0")


def empty_section(checkout):
    start, end = CHANGES.index("- The second"), CHANGES.index("## 0.0.9")
    (checkout.path / "CHANGELOG.md").write_text(CHANGES[:start] + "Words, and no entry.\n\n" + CHANGES[end:])
    checkout.commit()


def no_section(checkout):
    checkout.replace("CHANGELOG.md", "## Unreleased", "## Next")
    checkout.commit()


def versions_differ(checkout):
    checkout.replace("clients/python/pyproject.toml", 'version = "0.1.0"', 'version = "0.2.0"')
    checkout.commit()


@pytest.mark.parametrize("prepare, version, said", [
    (dirty, "1.0.0", "changes that are not committed:\n?? notes.txt"),
    (other_branch, "1.0.0", "this checkout is on other; a release is made on main"),
    (tagged, "1.0.0", "the tag v1.0.0 exists already"),
    (newer_tag, "1.9.0", "the version 1.9.0 is lower than 1.10.0, which has been released"),
    (None, "0.0.9", "the version 0.0.9 is lower than"),
    (None, "v1.0.0", 'the version "v1.0.0" is not MAJOR.MINOR.PATCH'),
    (None, "1.0", 'the version "1.0" is not MAJOR.MINOR.PATCH'),
    (None, "1.0.01", 'the version "1.0.01" is not MAJOR.MINOR.PATCH'),
    (empty_section, "1.0.0", 'CHANGELOG.md has no entries under "Unreleased"'),
    (no_section, "1.0.0", 'CHANGELOG.md has 0 headings "## Unreleased" instead of one'),
    (versions_differ, "1.0.0",
     "the versions differ: CMakeLists.txt has 0.1.0, and clients/python/pyproject.toml has 0.2.0")])
def test_what_cannot_be_released_is_refused_with_the_reason(checkout, prepare, version, said):
    if prepare:
        prepare(checkout)
    before = checkout.everything()
    for options in (["--tested"], ["--dry-run", "--tested"]):
        done = checkout.release(*options, version)
        assert done.returncode == 1 and said in done.stderr, done.stderr
        assert checkout.everything() == before


def test_a_release_that_git_refuses_leaves_nothing_behind(checkout):
    """A hook may refuse the commit, or the signature of the tag may fail after the commit was made."""
    before = checkout.everything()
    hook = checkout.path / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    done = checkout.release("--tested", "1.0.0")
    assert done.returncode == 1 and "git failed, and the tree is as it was" in done.stderr
    assert checkout.everything() == before
    hook.unlink()
    checkout.git("config", "tag.gpgSign", "true")
    checkout.git("config", "gpg.program", "false")
    done = checkout.release("--tested", "1.0.0")
    assert done.returncode == 1 and "git failed, and the tree is as it was" in done.stderr
    assert checkout.everything() == before


@pytest.mark.parametrize("words, said", [
    ([], "which version?"), (["--force", "1.0.0"], "unknown argument --force"), (["1.0.0", "2.0.0"], "one version, not")])
def test_wrong_options_are_refused(checkout, words, said):
    done = checkout.release(*words)
    assert done.returncode == 2 and said in done.stderr

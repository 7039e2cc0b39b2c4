"""The signed repository that scripts/apt_repository.py makes, as apt sees it. The packages are empty ones, because the
real package has a test of its own."""

import gzip
import os
import pathlib
import shutil
import subprocess

import pytest

from models import BUILD, ROOT
from waiting import limit

TOOLS = ("apt-get", "apt-cache", "dpkg-deb", "gpg", "gpgconf")
missing = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"not installed here: {' '.join(missing)}"),
    pytest.mark.skipif(BUILD.name != "release", reason="a script does not depend on the build")]
FOLDERS = ("state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d",
           "etc/trusted.gpg.d")
MACHINE = "amd64"


class Workplace:
    """A key, a repository, and an apt that knows nothing but this repository."""

    def __init__(self, folder):
        self.folder, self.repository = folder, folder / "repository"
        self.keys = folder / "g"
        self.keys.mkdir(mode=0o700)
        self.env = {**os.environ, "GNUPGHOME": str(self.keys), "LC_ALL": "C", "SOURCE_DATE_EPOCH": "1767225600"}
        self.apt_home = folder / "apt"
        for each in FOLDERS:
            (self.apt_home / each).mkdir(parents=True)
        (self.apt_home / "state/status").touch()

    def run(self, *command, code=0):
        done = subprocess.run([str(word) for word in command], cwd=self.folder, env=self.env, capture_output=True,
                              text=True, check=False, timeout=limit(60))
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def make_key(self, name):
        self.run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", f"{name}@example.org", "ed25519", "sign")
        return f"{name}@example.org"

    def make_package(self, version, text=""):
        tree = self.folder / f"tree-{version}{text}"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(f"Package: continuo\nVersion: {version}\nArchitecture: {MACHINE}\n"
                                             f"Maintainer: nobody <nobody@example.org>\nDescription: a test{text}\n")
        return self.run("dpkg-deb", "--root-owner-group", "--build", tree, self.folder) and (
            self.folder / f"continuo_{version}_{MACHINE}.deb")

    def publish(self, key, *packages, code=0):
        return self.run(ROOT / "scripts/apt_repository.py", self.repository, key, *packages, code=code)

    def apt(self, program, *words, code=0):
        key = self.folder / "continuo.asc"
        (self.apt_home / "etc/sources.list").write_text(f"deb [signed-by={key}] file:{self.repository} stable main\n")
        settings = {"Dir::State": self.apt_home / "state", "Dir::State::status": self.apt_home / "state/status",
                    "Dir::Cache": self.apt_home / "cache", "Dir::Etc": self.apt_home / "etc",
                    "APT::Architecture": MACHINE, "APT::Architectures": MACHINE, "APT::Sandbox::User": ""}
        return self.run(program, *(f"-o{name}={value}" for name, value in settings.items()), *words, code=code)

    def trust(self):
        """The user gets the key by a way of their own, once."""
        shutil.copy(self.repository / "continuo.asc", self.folder / "continuo.asc")


@pytest.fixture
def place(tmp_path_factory):
    made = Workplace(tmp_path_factory.mktemp("r"))  # gpg's sockets need a short path
    yield made
    subprocess.run(["gpgconf", "--kill", "all"], env=made.env, check=False)


def test_apt_takes_the_newest_package_of_a_signed_repository(place):
    key = place.make_key("signer")
    first = place.make_package("1.0.0")
    assert f"1 package for {MACHINE}" in place.publish(key, first)
    place.trust()
    place.apt("apt-get", "update", "--error-on=any")
    assert "Candidate: 1.0.0" in place.apt("apt-cache", "policy", "continuo")

    place.publish(key, place.make_package("1.1.0"))
    place.apt("apt-get", "update", "--error-on=any")
    assert "Candidate: 1.1.0" in place.apt("apt-cache", "policy", "continuo")
    first.unlink()
    place.apt("apt-get", "download", "continuo=1.0.0")  # the older package stays, for a way back
    assert place.run("dpkg-deb", "-f", f"continuo_1.0.0_{MACHINE}.deb", "Version").strip() == "1.0.0"


def test_what_somebody_has_changed_is_refused(place):
    key = place.make_key("signer")
    place.publish(key, place.make_package("1.0.0"))
    place.trust()
    deb, = place.repository.rglob("*.deb")
    place.apt("apt-get", "update", "--error-on=any")
    (place.folder / deb.name).unlink()  # apt would find it complete
    deb.write_bytes(deb.read_bytes()[:-1] + b"x")
    place.apt("apt-get", "download", "continuo", code=100)

    for each in filter(pathlib.Path.is_file, (place.repository / "dists/stable/main").rglob("*")):
        content = each.read_bytes()
        packed = content.startswith(b"\x1f\x8b")
        content = (gzip.decompress(content) if packed else content).replace(b"Version: 1.0.0", b"Version: 6.0.0")
        each.write_bytes(gzip.compress(content) if packed else content)
    shutil.rmtree(place.apt_home / "state/lists")
    (place.apt_home / "state/lists/partial").mkdir(parents=True)
    place.apt("apt-get", "update", "--error-on=any", code=100)


def test_another_key_is_refused(place):
    place.publish(place.make_key("signer"), place.make_package("1.0.0"))
    place.trust()
    place.publish(place.make_key("stranger"), place.make_package("2.0.0"))
    assert "NO_PUBKEY" in place.apt("apt-get", "update", "--error-on=any", code=100)


def test_one_version_is_one_package(place):
    """A user who has 1.0.0 must have the same one as everybody else."""
    key = place.make_key("signer")
    place.publish(key, place.make_package("1.0.0"))
    place.publish(key, place.folder / f"continuo_1.0.0_{MACHINE}.deb")
    said = place.publish(key, place.make_package("1.0.0", "-changed"), code=1)
    assert "has another continuo_1.0.0_" in said and "give" in said and "a new version" in said
    assert "there is no file" in place.publish(key, place.folder / "gone.deb", code=1)
    (place.folder / "notes.deb").write_text("x")
    assert "dpkg-deb failed" in place.publish(key, place.folder / "notes.deb", code=1)
    assert "no secret key of nobody@" in place.publish("nobody@example.org", place.make_package("2.0.0"), code=1)
    assert len(list(place.repository.rglob("*.deb"))) == 1

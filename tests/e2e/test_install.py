"""An installed tree runs from any place, and the Debian package is complete."""

import os
import shutil
import subprocess

import pytest

from models import BUILD, ROOT, counter
from waiting import limit

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake: installed by scripts/setup.sh")

PROGRAMS = ["continuo", "continuo-archiver", "continuo-ctl", "continuo-dev", "torch-model-archiver", "torchserve"]
PAGES = ["man1/continuo.1", "man1/continuo-archiver.1", "man1/continuo-ctl.1", "man1/continuo-dev.1", "man1/torchserve.1",
         "man1/torch-model-archiver.1", "man5/continuo.yaml.5"]


def run(*command):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True,
                          timeout=limit(120), check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def serves(server, program):
    """Makes a step over HTTP, and one over gRPC, which loads the module."""
    made = server(counter(), start=False)
    made.program = program
    made.start()
    assert made.client().step("counter", "a", "4").text == "4"
    assert made.lines and not any("grpc_loaded" in line for line in made.lines)
    import grpc  # the only one here who needs it
    with grpc.insecure_channel(made.grpc) as channel:
        grpc.channel_ready_future(channel).result(timeout=limit(10))
    assert made.client().step("counter", "a", "5").text == "9"
    made.stop()
    return made


def test_an_installed_tree_runs_wherever_it_lies(server, folder):
    prefix, moved = folder / "prefix", folder / "moved"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    assert sorted(path.name for path in (prefix / "bin").iterdir()) == PROGRAMS
    assert all((prefix / "share/man" / page).stat().st_size > 20 for page in PAGES)
    for path in ("include/continuo/handler.h", "share/continuo/proto/inference.proto", "share/doc/continuo/copyright",
                 "share/continuo/examples/counter/handler.lua", "lib/systemd/system/continuo.service"):
        assert (prefix / path).is_file(), path
    assert not (prefix.parent / "etc").exists()  # settings come with the package alone
    prefix.rename(moved)
    made = serves(server, moved / "bin/continuo")
    assert any(f"module={moved}" in line for line in made.lines)


def test_the_debian_package_has_it_all(server, folder):
    cache = (BUILD / "CMakeCache.txt").read_text()
    if "CN_SANITIZE:STRING=\n" not in cache or shutil.which("dpkg-shlibdeps") is None:
        pytest.skip("packages are made of builds without sanitizers, with dpkg-dev")
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder / "package")
    package, = (folder / "package").glob("continuo_*.deb")
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert all(library in depends for library in ("liblmdb0", "liblua5.4-0", "libmicrohttpd12", "libgrpc"))
    run("dpkg-deb", "-R", package, folder / "files")
    assert (folder / "files/DEBIAN/conffiles").read_text() == "/etc/continuo/continuo.yaml\n"
    assert (folder / "files/etc/continuo/continuo.yaml").is_file()
    assert all(os.access(folder / "files/DEBIAN" / name, os.X_OK) for name in ("postinst", "prerm", "postrm"))
    serves(server, folder / "files/usr/bin/continuo")
    told = run(folder / "files/usr/bin/continuo", "--config", folder / "files/etc/continuo/continuo.yaml",
               "--print-config")
    assert 'state-dir: "/var/lib/continuo/state"' in told


@pytest.mark.parametrize("script, arguments, said", [
    ("postinst", ["configure", ""], ["daemon-reload"]),
    ("postinst", ["configure", "0.1.0"], ["daemon-reload", "try-restart continuo.service"]),
    ("postinst", ["abort-upgrade", "0.1.0"], []),
    ("prerm", ["upgrade", "0.2.0"], []),
    ("prerm", ["remove"], ["disable --now continuo.service"]),
    ("postrm", ["remove"], ["daemon-reload"]),
    ("postrm", ["purge"], [])])
def test_the_package_tells_systemd(folder, script, arguments, said):
    """A new package's server runs at once, and a removed one drains first. Without systemd nothing is called."""
    systemctl, log, system = folder / "systemctl", folder / "log", folder / "system"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >>{log}\n[ "$1" = daemon-reload ]\n')
    systemctl.chmod(0o755)
    text = (ROOT / "packaging" / script).read_text().replace("/run/systemd/system", str(system))
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", text, script, *arguments], env=env, check=True)
    assert not log.exists()
    system.mkdir()
    subprocess.run(["sh", "-c", text, script, *arguments], env=env, check=True)
    assert (log.read_text().splitlines() if log.exists() else []) == said

"""An installed tree runs from any place, and the Debian package is complete."""

import hashlib
import json
import os
import re
import shutil
import subprocess

import pytest

from models import BUILD, ROOT, counter
from waiting import limit

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake: installed by scripts/setup.sh")

PROGRAMS = ["continuo", "continuo-archiver", "continuo-ctl", "continuo-dev", "torch-model-archiver", "torchserve"]
PAGES = ["man1/continuo.1", "man1/continuo-archiver.1", "man1/continuo-ctl.1", "man1/continuo-dev.1", "man1/torchserve.1",
         "man1/torch-model-archiver.1", "man5/continuo.yaml.5"]


DATED = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}


def run(*command, env=None):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, env=env,
                          timeout=limit(120), check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def serves(server, program):
    """Makes a step over HTTP, and a connection to the gRPC port."""
    made = server(counter(), start=False)
    made.program = program
    made.start()
    assert made.client().step("counter", "a", "4").text == "4"
    import grpc  # the only one here who needs it
    with grpc.insecure_channel(made.grpc) as channel:
        grpc.channel_ready_future(channel).result(timeout=limit(10))
    assert made.client().step("counter", "a", "5").text == "9"
    made.stop()
    return made


def bill_of(path):
    """Reads the list of libraries beside a package or wheel, and checks what holds for each."""
    bill = json.loads(path.with_name(path.name + ".cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"] == "2026-01-01T00:00:00Z"
    described = bill["metadata"]["component"]
    assert described["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]
    for component in bill["components"]:
        installed = run("dpkg-query", "-W", "-f", "${Version}", component["name"])
        assert component["version"] == installed and component["purl"].startswith("pkg:deb/debian/")
        licence, = component["licenses"]
        assert licence.get("expression") or licence["license"]["name"], component
    graph = {node["ref"]: node["dependsOn"] for node in bill["dependencies"]}
    reached, found = [described["bom-ref"]], set()
    while reached:
        found.add(ref := reached.pop())
        reached += [need for need in graph[ref] if need not in found]
    assert found == graph.keys() == {described["bom-ref"], *(each["bom-ref"] for each in bill["components"])}
    return {component["name"]: component for component in bill["components"]}


def check_bills(package, wheels):
    """The list lets the users of a package look up which libraries come with it, for known holes and for licences."""
    libraries = bill_of(package)
    for name, licence in {"libgnutls30": "LGPL-2.1-or-later", "libnghttp2-14": "MIT", "liblmdb0": "OLDAP-2.8",
                          "liblua5.4-0": "MIT", "libwslay1": "MIT", "libjemalloc2": "BSD-2-Clause"}.items():
        assert libraries[name]["licenses"] == [{"expression": licence}] and libraries[name]["scope"] == "required", name
    assert libraries["libhiredis0.14"]["scope"] == "optional"
    assert not {"libmicrohttpd12", "libgrpc29"} & libraries.keys()  # only bench/ links these
    bills = {wheel.name.split("-")[0]: bill_of(wheel) for wheel in wheels}
    assert bills["continuo_client"] == {}
    if "continuo" in bills:  # without Python's headers there is none
        assert {"liblmdb0", "libxxhash0"} <= bills["continuo"].keys() and "libnghttp2-14" not in bills["continuo"]

    written = {path: path.with_name(path.name + ".cdx.json").read_bytes() for path in [package, *wheels]}
    subprocess.run([ROOT / "scripts/sbom.py", *written], env=DATED, check=True, timeout=limit(120))
    assert written == {path: path.with_name(path.name + ".cdx.json").read_bytes() for path in written}


def check_links(prefix):
    """A link to a page that was left out would lead nowhere, for a reader who has no other documentation."""
    checked = 0
    for page in (prefix / "share").rglob("*.md"):
        text = re.sub(r"(?ms)^ *```.*?^ *```[^\n]*$|`[^`\n]*`", "", page.read_text())
        for target in re.findall(r"\]\(([^)\s#]+)", text):
            if not re.match(r"[a-z][a-z0-9+.-]*:", target):
                assert (page.parent / target).exists(), f"{page}: {target}"
                checked += 1
    assert checked > 500


def test_an_installed_tree_runs_wherever_it_lies(server, folder):
    prefix, moved = folder / "prefix", folder / "moved"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    assert sorted(path.name for path in (prefix / "bin").iterdir()) == PROGRAMS
    assert all((prefix / "share/man" / page).stat().st_size > 20 for page in PAGES)
    for path in ("include/continuo/handler.h", "share/continuo/proto/inference.proto", "share/doc/continuo/copyright",
                 "share/continuo/examples/counter/handler.lua", "lib/systemd/system/continuo.service"):
        assert (prefix / path).is_file(), path
    check_links(prefix)
    assert not (prefix.parent / "etc").exists()  # settings come with the package alone
    prefix.rename(moved)
    serves(server, moved / "bin/continuo")


def test_the_debian_package_has_it_all(server, folder):
    cache = (BUILD / "CMakeCache.txt").read_text()
    if "CN_SANITIZE:STRING=\n" not in cache or shutil.which("dpkg-shlibdeps") is None:
        pytest.skip("packages are made of builds without sanitizers, with dpkg-dev")
    made = run("scripts/package.sh", BUILD, env=DATED)
    package = ROOT / re.search(r"^package: (build/continuo_\S+\.deb),", made, re.M)[1]
    check_bills(package, [ROOT / wheel for wheel in re.findall(r"^wheel: (build/\S+\.whl),", made, re.M)])
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert all(library in depends for library in ("liblmdb0", "liblua5.4-0", "libgnutls30", "libnghttp2-14"))
    run("dpkg-deb", "-R", package, folder / "files")
    assert (folder / "files/DEBIAN/conffiles").read_text() == "/etc/continuo/continuo.yaml\n"
    assert (folder / "files/etc/continuo/continuo.yaml").is_file()
    assert all(os.access(folder / "files/DEBIAN" / name, os.X_OK) for name in ("postinst", "prerm", "postrm"))
    serves(server, folder / "files/usr/bin/continuo")
    told = run(folder / "files/usr/bin/continuo", "--config", folder / "files/etc/continuo/continuo.yaml",
               "--print-config")
    assert 'state-dir: "/var/lib/continuo/state"' in told


def test_what_has_no_list_of_libraries_is_named(folder):
    """A list with a hole would be wrong without a sign of it."""
    (folder / "notes.txt").write_text("x")
    for path, said in ((folder / "notes.txt", "is neither a Debian package (.deb) nor a wheel (.whl)"),
                       (folder / "gone.deb", "there is no file")):
        done = subprocess.run([ROOT / "scripts/sbom.py", path], capture_output=True, text=True, check=False,
                              timeout=limit(60))
        assert done.returncode == 1 and said in done.stderr and not list(folder.glob("*.json"))


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
    text = text.replace("/var/lib", str(folder / "lib"))
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", text, script, *arguments], env=env, check=True)
    assert not log.exists()
    system.mkdir()
    subprocess.run(["sh", "-c", text, script, *arguments], env=env, check=True)
    assert (log.read_text().splitlines() if log.exists() else []) == said


def test_only_purge_removes_models_and_sequences(folder):
    """Somebody who installs the package again after remove goes on; after purge nothing of the package is left."""
    text = (ROOT / "packaging/postrm").read_text().replace("/var/lib", str(folder / "lib"))
    text = text.replace("/run/systemd/system", str(folder / "none"))
    for each in ("private/continuo/state", "private/other"):
        (folder / "lib" / each).mkdir(parents=True)
    (folder / "lib/continuo").symlink_to("private/continuo")
    subprocess.run(["sh", "-c", text, "postrm", "remove"], check=True)
    assert (folder / "lib/continuo/state").is_dir()
    subprocess.run(["sh", "-c", text, "postrm", "purge"], check=True)
    assert sorted(path.name for path in (folder / "lib").rglob("*")) == ["other", "private"]

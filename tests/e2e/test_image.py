"""The container image that scripts/oci_image.py makes of a tree. scripts/try_image.sh runs a whole image, which takes a
registry of packages, root's rights and minutes; here the tree is a small one."""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.parse

import pytest

from models import ROOT, counter
from waiting import limit

SCRIPT = ROOT / "scripts" / "oci_image.py"
DATED = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}
NAME = "localhost/continuo:0.1.0-slim"


def make(folder, out, *, tree=None, name=NAME, code=0):
    done = subprocess.run([sys.executable, SCRIPT, tree or "-", folder / out, name], env=DATED, check=False, capture_output=True,
                          input=None if tree else a_tree(), timeout=limit(60))
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() + done.stderr.decode()


def a_tree():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("usr/bin/continuo")
        info.size = 7
        tar.addfile(info, io.BytesIO(b"program"))
    return out.getvalue()


def entries_of(path):
    with tarfile.open(path) as image:
        return {each.name: image.extractfile(each).read() for each in image if each.isfile()}


def config_of(entries):
    listed, = json.loads(entries["manifest.json"])
    return json.loads(entries[listed["Config"]])


def test_each_part_of_an_image_has_the_name_of_its_content(folder):
    said = make(folder, "image.tar")
    entries = entries_of(folder / "image.tar")
    for name, content in entries.items():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(content).hexdigest() == name.rpartition("/")[2]

    def read(descriptor):
        content = entries["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(content) == descriptor["size"]
        return content
    assert json.loads(entries["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(entries["index.json"])["manifests"][0]
    assert index["digest"] in said and index["annotations"]["org.opencontainers.image.ref.name"] == "0.1.0-slim"
    manifest = json.loads(read(index))
    layer, = manifest["layers"]
    config = json.loads(read(manifest["config"]))
    tree = gzip.decompress(read(layer))
    assert tree == a_tree() and config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(tree).hexdigest()}"]
    assert config == config_of(entries) and config["os"] == "linux"


def test_equal_trees_give_equal_images(folder):
    """A user who makes the image again can see that it has what its source says."""
    make(folder, "one.tar")
    (folder / "tree.tar").write_bytes(a_tree())
    make(folder, "two.tar", tree=folder / "tree.tar")
    assert (folder / "one.tar").read_bytes() == (folder / "two.tar").read_bytes()
    assert sorted(path.name for path in folder.iterdir() if path.suffix == ".tar") == ["one.tar", "tree.tar", "two.tar"]


def test_the_settings_are_those_of_the_containerfile(folder):
    make(folder, "image.tar")
    config = config_of(entries_of(folder / "image.tar"))["config"]
    assert config["User"] == "continuo" and config["WorkingDir"] == "/state" and config["Volumes"] == {"/state": {}}
    assert config["Entrypoint"] == ["continuo"] and config["ExposedPorts"].keys() == {"8080/tcp", "8082/tcp", "7070/tcp"}
    assert "CONTINUO_MANAGEMENT_ADDRESS=http://127.0.0.1:8081" in config["Env"], "only the container itself reaches it"
    assert {"CONTINUO_STATE_DIR=/state/sequences", "CONTINUO_MODEL_STORE=/models"} <= set(config["Env"])
    assert config["Healthcheck"]["Interval"] == 10 * 10**9 and config["Healthcheck"]["Timeout"] == 5 * 10**9


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_health_check_finds_a_server_only_where_one_is(server, folder):
    make(folder, "image.tar")
    kind, *command = config_of(entries_of(folder / "image.tar"))["config"]["Healthcheck"]["Test"]
    s = server(counter())
    port = urllib.parse.urlsplit(s.inference).port
    command = [word.replace("/8080 ", f"/{port} ") for word in command]
    assert kind == "CMD" and f"/{port} " in command[-1]

    def check():
        return subprocess.run(command, check=False, capture_output=True, timeout=limit(30)).returncode
    assert check() == 0
    s.stop()
    assert check() != 0


@pytest.mark.parametrize("name", ["Continuo:1", "continuo", "", "a b:1"])
def test_a_name_that_no_registry_takes_is_refused(folder, name):
    assert "NAME:TAG" in make(folder, "image.tar", name=name, code=2)
    assert not (folder / "image.tar").exists()


def test_a_tree_that_is_not_there_is_named(folder):
    assert "gone.tar" in make(folder, "image.tar", tree=folder / "gone.tar", code=1)

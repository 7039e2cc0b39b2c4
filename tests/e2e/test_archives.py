"""Archives come from outside: a faulty one is refused at registration, with the reason, and does no harm."""

import hashlib
import io
import json
import tarfile
import zipfile

import pytest

from models import COUNTER_LUA, Model, counter

YAML = "minWorkers: 1\nsequenceBatching: true\n"


def manifest(**changes):
    files = changes.pop("files", None)
    model = {"modelName": "bad", "handler": "handler.lua", "modelVersion": "1.0", "configFile": "model-config.yaml"}
    model.update(changes)
    whole = {"createdOn": "01/01/2026 00:00:00", "runtime": "lua", "model": model, "archiverVersion": "0.1.0"}
    if files:
        whole["files"] = files
    return json.dumps(whole)


def good_files():
    return {"handler.lua": COUNTER_LUA, "model-config.yaml": YAML, "MAR-INF/MANIFEST.json": manifest()}


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def with_file(name, content, files=None):
    return zipped({**(files or good_files()), name: content})


def without(name):
    files = good_files()
    del files[name]
    return zipped(files)


def with_link(target):
    out = io.BytesIO(zipped(good_files()))
    with zipfile.ZipFile(out, "a") as archive:
        link = zipfile.ZipInfo("link")
        link.create_system = 3  # Unix, so that the mode below counts
        link.external_attr = 0o120777 << 16
        archive.writestr(link, target)
    return out.getvalue()


def digest_mismatch():
    sums = {"handler.lua": "sha256:" + hashlib.sha256(b"something else").hexdigest()}
    return with_file("MAR-INF/MANIFEST.json", manifest(files=sums))


def too_many_files():
    return zipped({**good_files(), **{f"f{i}": "" for i in range(10_001)}})


# name -> (the archive's bytes, a word that the answer must have)
BAD = {
    "no-manifest": (without("MAR-INF/MANIFEST.json"), "MANIFEST.json"),
    "manifest-is-not-json": (with_file("MAR-INF/MANIFEST.json", "{"), "MANIFEST.json"),
    "manifest-is-a-list": (with_file("MAR-INF/MANIFEST.json", "[]"), "MANIFEST.json"),
    "manifest-without-name": (with_file("MAR-INF/MANIFEST.json", manifest(modelName="")), "modelName"),
    "unknown-runtime": (with_file("MAR-INF/MANIFEST.json", manifest().replace('"lua"', '"cobol"')), "cobol"),
    "zip-slip": (with_file("../evil", "x"), "../evil"),
    "deep-zip-slip": (with_file("a/../../evil", "x"), "evil"),
    "absolute-path": (with_file("/tmp/continuo-evil", "x"), "/tmp/continuo-evil"),
    "link": (with_link("/etc/passwd"), "link"),
    "digest-mismatch": (digest_mismatch(), "handler.lua"),
    "too-many-files": (too_many_files(), "10000"),
    "handler-missing": (without("handler.lua"), "handler.lua"),
    "handler-outside": (with_file("MAR-INF/MANIFEST.json", manifest(handler="../../etc/passwd")), "etc/passwd"),
    "config-missing": (without("model-config.yaml"), "model-config.yaml"),
    "yaml-broken": (with_file("model-config.yaml", "minWorkers: 1\n  batchSize: [\n"), "model-config.yaml:"),
    "yaml-wrong-type": (with_file("model-config.yaml", "minWorkers: many\n"), "model-config.yaml:1:13"),
    "yaml-out-of-range": (with_file("model-config.yaml", "batchSize: 0\n"), "batchSize"),
    "garbage": (b"this is no archive" * 100, "bad.mar"),
    "cut-off": (zipped(good_files())[:300], "bad.mar"),
    "empty": (b"", "bad.mar"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_malformed_archive_is_refused_with_its_reason(server, what):
    """The answer is a 4xx that names the faulty entry. Nothing is written outside the folder, and the server continues.
    """
    s = server(counter())
    data, word = BAD[what]
    (s.store / "bad.mar").write_bytes(data)
    answer = s.register_url("bad.mar")
    assert 400 <= answer.status < 500, answer
    assert word in answer.message, answer
    assert not list(s.folder.rglob("evil*")) and not list(s.folder.parent.glob("evil*"))
    assert s.client().step("bad", "x", 1).error == "model_not_found"
    assert s.client().step("counter", "x", 1).text == "1"
    # The name is free: the repaired archive registers under it.
    (s.store / "bad.mar").write_bytes(zipped(good_files()))
    assert s.register_url("bad.mar").status == 200
    assert s.client().step("bad", "x", 2).text == "2"


@pytest.mark.parametrize("url", ["../outside.mar", "missing.mar", "sub/../../outside.mar", "ftp://host/a.mar", ""])
def test_a_url_that_leads_nowhere_or_out_of_the_store_is_refused(server, url):
    """The answer is TorchServe's 404, whether or not the file exists."""
    s = server(counter())
    (s.folder / "outside.mar").write_bytes(zipped(good_files()))
    answer = s.register_url(url)
    assert (answer.status, answer.json["type"]) == (404, "ModelNotFoundException"), answer


def test_a_tar_with_a_device_is_refused(server):
    """Only files and folders may be unpacked."""
    s = server(counter())
    with tarfile.open(s.store / "bad.tar.gz", "w:gz") as archive:
        for name, content in good_files().items():
            entry = tarfile.TarInfo("bad/" + name)
            entry.size = len(content.encode())
            archive.addfile(entry, io.BytesIO(content.encode()))
        device = tarfile.TarInfo("bad/null")
        device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 1, 3
        archive.addfile(device)
    answer = s.register_url("bad.tar.gz")
    assert 400 <= answer.status < 500 and "null" in answer.message, answer


def test_a_handler_that_does_not_compile_is_shown_with_its_line(server):
    """The model is not left half registered."""
    s = server(counter())
    answer = s.register(Model("broken", "local M = {}\nfunction M.step(\nreturn M\n"))
    assert (answer.status, answer.json["type"]) == (500, "InternalServerException"), answer
    assert "handler.lua:3" in answer.message, answer
    assert s.admin().get("/models/broken").status == 404


@pytest.mark.parametrize("archive_format", ["default", "tgz", "no-archive"])
def test_every_archive_format_serves(server, archive_format):
    """Every format that the archiver writes can be served."""
    s = server(start=False)
    model = counter()
    model.archive_format = archive_format
    path = s.pack(model)
    s.start()
    assert s.register_url(path.name).status == 200
    assert s.client().step("counter", "f", 5).text == "5"


def test_a_folder_can_be_registered_by_its_path(server):
    """TorchServe's own tests of stateful models do this."""
    s = server(start=False)
    model = counter()
    model.archive_format = "no-archive"
    path = s.pack(model)
    s.start()
    assert s.register_url(str(path)).status == 200
    assert s.client().step("counter", "f", 5).text == "5"


def test_files_beside_the_handler_are_there(server):
    """--extra-files are in the model's folder, and `require` finds modules only there."""
    lua = """
    local numbers = require("numbers")
    return { api = 1, step = function() return { text = tostring(numbers.answer) } end }
    """
    s = server(Model("extra", lua, stateful=False, extra={"numbers.lua": "return { answer = 42 }"}))
    assert s.client().post("/predictions/extra").text == "42"

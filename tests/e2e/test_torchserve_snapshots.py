"""Snapshots: changes that were made over the API are there again after the next start."""

import json
import os
import re
import signal

from models import counter, stateless
from server import Clock
from torchserve import NO_TOKENS, PORTS
from waiting import expect

START = ("--model-store", "model-store")


def read(path):
    """Returns the keys of a snapshot as Java would read them."""
    keys = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            key, _, value = line.partition("=")
            keys[key] = re.sub(r"\\(.)", r"\1", value)
    return keys


def models_of(path):
    return json.loads(read(path)["model_snapshot"])["models"]


def test_snapshots_have_torchserves_form(torchserve):
    """Tools that read TorchServe's snapshots can read names, keys and JSON."""
    t = torchserve()
    t.pack(counter())
    t.properties("load_models=counter.mar\nenable_model_api=true\n")
    t.start("--ts-config", "config.properties", *START)
    [path] = expect(lambda: t.snapshots("startup"), "a snapshot of the start")
    assert re.fullmatch(r"\d{17}-startup\.cfg", path.name)
    assert path.stat().st_mode & 0o777 == 0o600, "it has the settings, and so may have passwords"
    keys = read(path)
    assert keys["load_models"] == "counter.mar" and keys["model_store"] == "model-store"
    assert keys["inference_address"] == "http://127.0.0.1:0" and keys["version"] == "0.12.0"
    snapshot = json.loads(keys["model_snapshot"])
    assert snapshot["name"] == path.name and snapshot["modelCount"] == 1
    assert abs(snapshot["created"] / 1000 - path.stat().st_mtime) < 60
    assert snapshot["models"] == {"counter": {"1.0": {
        "defaultVersion": True, "marName": "counter.mar", "minWorkers": 1, "maxWorkers": 1, "batchSize": 4,
        "maxBatchDelay": 0, "responseTimeout": 120, "startupTimeout": 120, "runtimeType": "lua"}}}


def test_each_change_writes_a_snapshot(torchserve):
    """The changes are register, scale, set-default, unregister, and the shutdown."""
    t = torchserve()
    t.pack(counter(), "one.mar")
    t.pack(counter(version="2.0"), "two.mar")
    t.properties("enable_model_api=true\n")
    t.start("--ts-config", "config.properties", *START)
    seen = []

    def newest():
        found = [path for path in t.snapshots() if path not in seen]
        seen.extend(found)
        return models_of(found[-1]) if found else None

    expect(lambda: newest() == {}, "a snapshot without models")
    for call, expected in [
        (lambda: t.admin().post("/models?url=one.mar&initial_workers=1"), {"1.0": (True, 1)}),
        (lambda: t.admin().post("/models?url=two.mar&initial_workers=1"), {"1.0": (True, 1), "2.0": (False, 1)}),
        (lambda: t.admin().put("/models/counter/2.0?min_worker=2&max_worker=3"), {"1.0": (True, 1), "2.0": (False, 2)}),
        (lambda: t.admin().put("/models/counter/2.0/set-default"), {"1.0": (False, 1), "2.0": (True, 2)}),
        (lambda: t.admin().delete("/models/counter/1.0"), {"2.0": (True, 2)}),
    ]:
        answer = call()
        assert answer.status in (200, 202), answer
        models = expect(newest, f"a snapshot after {answer}")["counter"]
        assert {key: (value["defaultVersion"], value["minWorkers"]) for key, value in models.items()} == expected
    t.stop()
    [path] = t.snapshots("shutdown")
    assert path == t.snapshots()[-1] and list(models_of(path)["counter"]) == ["2.0"]


def test_a_version_that_went_at_its_deadline_is_in_no_snapshot(torchserve, transcript):
    """No call removes such a version, but a server that is killed afterwards must not bring it back."""
    t = torchserve()
    clock = Clock(t.folder / "clock", transcript)
    t.env["CONTINUO_TEST_CLOCK"] = str(clock.path)
    t.pack(counter(), "one.mar")
    t.pack(counter(version="2.0"), "two.mar")
    t.properties("enable_model_api=true\n")
    t.start("--ts-config", "config.properties", *START)
    for url in ("one.mar", "two.mar"):
        assert t.admin().post(f"/models?url={url}&initial_workers=1").status == 200
    assert t.admin().put("/models/counter/2.0/set-default?swap_deadline=60").status == 200
    clock.advance(61_000)
    expect(lambda: "event=version_retired" in t.text, "the old version is retired")
    clock.advance(601_000)
    expect(lambda: "event=model_closed" in t.text, "and goes")
    expect(lambda: list(models_of(t.snapshots()[-1])["counter"]) == ["2.0"], "a snapshot without it")


def test_the_newest_snapshot_is_restored(torchserve):
    """The snapshot has scaled workers, two versions and their default, and a model that was registered over the API.
    With --ncs nothing of it is restored."""
    t = torchserve()
    t.pack(counter(), "one.mar")
    t.pack(counter(version="2.0"), "two.mar")
    t.pack(stateless())
    t.properties("enable_model_api=true\nload_models=echo.mar\n")
    t.start("--ts-config", "config.properties", *START)
    for url in ("one.mar", "two.mar"):
        assert t.admin().post(f"/models?url={url}&initial_workers=1&batch_size=7").status == 200
    assert t.admin().put("/models/counter/2.0/set-default").status == 200
    assert t.admin().put("/models/counter/2.0?min_worker=2&max_worker=3&synchronous=true").status == 200
    assert t.admin().delete("/models/echo").status == 200
    t.client().step("counter", "a", 5)
    t.stop()
    said = t.start()
    assert "restoring the newest snapshot logs/config/" in said
    assert [m["modelName"] for m in t.admin().get("/models").json["models"]] == ["counter"]
    model = t.describe("counter")
    assert (model["modelVersion"], model["minWorkers"], model["maxWorkers"], model["batchSize"]) == ("2.0", 2, 3, 7)
    assert t.describe("counter", "1.0")["minWorkers"] == 1
    assert t.client().step("counter", "a", 5).text == "10"
    t.stop()
    t.start("--ncs", *START)
    assert [m["modelName"] for m in t.admin().get("/models").json["models"]] == ["echo"]


def test_a_snapshot_survives_kill_9(torchserve):
    """The snapshot that was written last counts, not only the one of a clean end."""
    t = torchserve()
    t.pack(counter())
    t.properties("enable_model_api=true\n")
    t.start("--ts-config", "config.properties", *START)
    assert t.admin().post("/models?url=counter.mar&initial_workers=1").status == 200
    expect(lambda: t.snapshots("snapshot"), "a snapshot")
    os.kill(t.pid, signal.SIGKILL)
    expect(lambda: t.server_pids() == [], "all processes are gone")
    t.start()
    assert t.client().step("counter", "a", 5).text == "5"


def test_a_snapshot_can_be_named(torchserve):
    """--ts-config names a snapshot of TorchServe's own, with the keys that TorchServe writes."""
    t = torchserve()
    t.pack(counter())
    snapshot = {"name": "20240101000000000-shutdown.cfg", "modelCount": 1, "created": 1704067200000, "models": {
        "renamed": {"1.0": {"defaultVersion": True, "marName": "counter.mar", "minWorkers": 2, "maxWorkers": 2,
                            "batchSize": 3, "maxBatchDelay": 100, "responseTimeout": 60, "startupTimeout": 60,
                            "runtimeType": "python"}}}}
    escaped = json.dumps(snapshot, indent=2).replace("\n", "\\n").replace(":", "\\:").replace("=", "\\=")
    (t.folder / "old.cfg").write_text(
        "#Saving snapshot\n#Mon Jan 01 00:00:00 UTC 2024\n" + PORTS.replace("://", "\\://") + NO_TOKENS +
        "tsConfigFile=config.properties\nvmargs=-Xmx4g\npython=/usr/bin/python3\nversion=0.12.0\n"
        f"model_store=model-store\nload_models=gone.mar\nmodel_snapshot={escaped}\n")
    said = t.start("--ts-config", "old.cfg")
    assert "torchserve: old.cfg" not in said
    model = t.describe("renamed")
    assert (model["minWorkers"], model["batchSize"], model["maxBatchDelay"], model["responseTimeout"]) == (2, 3, 100, 60)
    assert model["loadedAtStartup"] is True


def test_a_snapshot_without_its_archive_stops_the_start(torchserve):
    """The message is TorchServe's and the status is 1. With --ncs the server starts."""
    t = torchserve()
    t.pack(counter())
    t.properties("load_models=counter.mar\n")
    t.start("--ts-config", "config.properties", *START)
    t.stop()
    (t.store / "counter.mar").unlink()
    code, said = t.run("--start")
    assert code == 1
    assert "Model archive file for model :counter, version :1.0 not found in model store" in said
    t.start("--ncs", *START)


def test_a_model_that_was_registered_by_a_url_of_the_stores_archive_is_restored(torchserve):
    """The last part of the URL is the name of a file in the store, where a registration looks, too."""
    t = torchserve()
    t.pack(counter())
    t.properties("enable_model_api=true\nallowed_urls=s3://.*\n")
    t.start("--ts-config", "config.properties", *START)
    assert t.admin().post("/models?url=s3://bucket/counter.mar&initial_workers=1").status == 200
    t.stop()
    t.start()
    assert t.client().step("counter", "a", 5).text == "5"


def test_no_snapshots_without_them(torchserve):
    """--no-config-snapshots leaves the folder as it is."""
    t = torchserve()
    t.pack(counter())
    t.properties("load_models=counter.mar\nenable_model_api=true\n")
    t.start("--no-config-snapshots", *START)
    t.admin().put("/models/counter?min_worker=2&synchronous=true")
    t.stop()
    assert not (t.folder / "logs" / "config").exists()


def test_a_folder_that_cannot_be_written_does_not_stop_the_server(torchserve):
    """A line reports each failure."""
    t = torchserve({"LOG_LOCATION": "file/logs"})
    t.pack(counter())
    (t.folder / "file").write_text("")
    t.properties("load_models=counter.mar\n")
    t.start("--ts-config", "config.properties", *START)
    expect(lambda: "event=snapshot_failed" in t.text and "file/logs/config" in t.text, "a line that says so")
    assert t.client().step("counter", "a", 5).text == "5"


def test_old_snapshots_are_deleted(torchserve):
    """The newest continuo.snapshots-kept snapshots are kept, and other files are left alone."""
    t = torchserve()
    t.pack(counter())
    t.properties("load_models=counter.mar\ncontinuo.snapshots-kept=3\n")
    config = t.folder / "logs" / "config"
    config.mkdir(parents=True)
    for name in ("20200101000000000-startup.cfg", "20200101000000001-shutdown.cfg", "mine.cfg"):
        (config / name).write_text("")
    t.start("--ts-config", "config.properties", *START)
    for workers in (2, 1, 2):
        count = len(t.snapshots("snapshot"))
        t.admin().put(f"/models/counter?min_worker={workers}&synchronous=true")
        expect(lambda: len(t.snapshots("snapshot")) != count or count == 2, "a snapshot")
    t.stop()
    assert len(t.snapshots()) == 3 and t.snapshots()[-1].name.endswith("-shutdown.cfg")
    assert (config / "mine.cfg").exists()
    assert not any(path.name.startswith("2020") for path in t.snapshots())

"""config.properties, as an operator has it from TorchServe, and what the server makes of it."""

import os

from models import counter, stateless

WITHOUT_WORKERS = "sequenceBatching: true\nbatchSize: 4\n"


def without_workers(name="counter", **more):
    model = counter(name)
    model.yaml = WITHOUT_WORKERS + "".join(f"{key}: {value}\n" for key, value in more.items())
    return model


def test_workers_at_start_follow_torchserves_rule(torchserve):
    """The YAML's word, then that of `models`, then the default's, then one for each processor."""
    t = torchserve()
    t.pack(without_workers())
    t.pack(without_workers("other"))
    t.pack(counter("third", minWorkers=1, maxWorkers=1))
    t.properties('load_models=counter.mar,other.mar,third.mar\n'
                 'models={"other": {"1.0": {"minWorkers": 3, "maxWorkers": 4}}, '
                 '"third": {"1.0": {"minWorkers": 3, "maxWorkers": 4}}}\n')
    t.start("--ncs", "--model-store", "model-store")
    processors = len(os.sched_getaffinity(0))
    assert [t.describe(name)["minWorkers"] for name in ("counter", "other", "third")] == [processors, 3, 1]
    assert t.describe("other")["maxWorkers"] == 4
    t.stop()
    t.properties("load_models=counter.mar\ndefault_workers_per_model=2\n")
    t.start("--ncs", "--model-store", "model-store")
    assert t.describe("counter")["minWorkers"] == 2


def test_defaults_of_models_come_from_the_file(torchserve):
    """Where the model's YAML is silent; where it speaks it wins."""
    t = torchserve()
    t.pack(without_workers())
    t.pack(without_workers("other", responseTimeout=9, jobQueueSize=8))
    t.properties("default_workers_per_model=1\ndefault_response_timeout=7\ndefault_startup_timeout=77\n"
                 "job_queue_size=5\nload_models=all\n")
    t.start("--ncs", "--model-store", "model-store")
    model, other = t.describe("counter"), t.describe("other")
    assert (model["responseTimeout"], model["startupTimeout"]) == (7, 77)
    assert model["jobQueueStatus"]["remainingCapacity"] == 5
    assert other["responseTimeout"] == 9 and other["jobQueueStatus"]["remainingCapacity"] == 8


def test_a_body_over_max_request_size_is_413(torchserve):
    """One byte below passes."""
    t = torchserve()
    t.pack(stateless())
    t.properties("max_request_size=2000\nload_models=echo.mar\ndefault_workers_per_model=1\n")
    t.start("--ncs", "--model-store", "model-store")
    assert t.client().post("/predictions/echo", b"x" * 2000).status == 200
    refused = t.client().post("/predictions/echo", b"x" * 2001)
    assert (refused.status, refused.body) == (413, b"")


def test_an_answer_over_max_response_size_is_an_error(torchserve):
    """And the worker stays."""
    t = torchserve()
    t.pack(stateless())
    t.properties("max_response_size=2000\nload_models=echo.mar\ndefault_workers_per_model=1\n")
    t.start("--ncs", "--model-store", "model-store")
    pids = [worker["pid"] for worker in t.describe("echo")["workers"]]
    assert t.client().post("/predictions/echo", b"x" * 3000).status >= 500
    assert t.client().post("/predictions/echo", b"x" * 100).status == 200
    assert [worker["pid"] for worker in t.describe("echo")["workers"]] == pids


def test_keys_without_effect_and_unknown_keys_are_told_once(torchserve):
    """One line each, with file and line; the server starts."""
    t = torchserve()
    t.properties("vmargs=-Xmx4g\nnumber_of_netty_threads=32\nload_model=all\nuse_native_io=true\n")
    said = t.start("--ncs", "--model-store", "model-store")
    lines = [line for line in said.splitlines() if line.startswith("torchserve: ")]
    assert lines == [
        "torchserve: config.properties:8: number_of_netty_threads has no effect: there is no Netty; "
        "continuo.loops sets the number of event loops",
        "torchserve: config.properties:9: load_model is no known key (did you mean load_models?)"]


def test_environment_beats_flag_beats_file(torchserve):
    """TorchServe's order, where the file allows variables."""
    t = torchserve({"TS_LOAD_MODELS": "env=counter.mar"})
    t.pack(counter())
    config = t.properties("load_models=file=counter.mar\n", name="a.properties")
    t.start("--ncs", "--ts-config", config, "--model-store", "model-store", "--models", "flag=counter.mar")
    assert [m["modelName"] for m in t.admin().get("/models").json["models"]] == ["flag"]
    t.stop()
    t.properties("load_models=file=counter.mar\nenable_envvars_config=true\n", name="a.properties")
    t.start("--ncs", "--ts-config", config, "--model-store", "model-store", "--models", "flag=counter.mar")
    assert [m["modelName"] for m in t.admin().get("/models").json["models"]] == ["env"]


def test_ts_config_file_names_the_file(torchserve):
    """As containers do it."""
    t = torchserve({"TS_CONFIG_FILE": "b.properties"})
    t.pack(counter())
    t.properties("load_models=counter.mar\nmodel_store=model-store\n", name="b.properties")
    t.start("--ncs")
    assert t.client().step("counter", "a", 3).text == "3"

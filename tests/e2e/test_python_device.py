"""deviceType and deviceIds of a Python model. There is no GPU here, so a library of ours stands for CUDA's driver and
says how many devices there are. tests/gpu/run.sh runs a model on a real one."""

import subprocess

import pytest

from models import BUILD, Model, python
from waiting import expect

WORKER = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
SANITIZED = WORKER.exists() and b"__asan_init" in WORKER.read_bytes()
pytestmark = pytest.mark.skipif(not WORKER.exists() or SANITIZED, reason="needs Python workers without a sanitizer")

DRIVER = """
int cuInit(unsigned flags) { (void)flags; return STATUS; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
"""
NATIVE = """
def load(model):
    global device
    device = model.device


def step(state, req):
    return device
"""
TORCHSERVE = """
def handle(data, context):
    return [str(context.system_properties["gpu_id"])] * len(data) if data else None
"""


@pytest.fixture
def driver(folder, monkeypatch):
    """driver(status) is CUDA's driver for servers that start from now on; its cuInit answers with `status`."""
    def make(status):
        source = folder / "driver.c"
        source.write_text(DRIVER)
        subprocess.run(["gcc", "-shared", "-fPIC", f"-DSTATUS={status}", source, "-o", folder / "libcuda.so.1"], check=True)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    return make


@pytest.fixture
def serve(server, driver):
    """serve(handler, status=0, **yaml) starts a server with this model."""
    def start(text, status=0, **yaml):
        driver(status)
        return server(python("m", text, deviceType="gpu", **yaml))
    return start


def devices(s):
    return sorted(worker["device"] for worker in s.describe("m")["workers"])


@pytest.mark.parametrize("ids, shown", [(None, ["cuda:0", "cuda:1", "cuda:0"]), ([1], ["cuda:1"] * 3),
                                        ([1, 0], ["cuda:1", "cuda:0", "cuda:1"])])
def test_workers_take_the_devices_in_turn(serve, ids, shown):
    s = serve(NATIVE, minWorkers=3, maxWorkers=3, **({"deviceIds": ids} if ids else {}))
    expect(lambda: devices(s) == sorted(shown), f"the workers have {shown}")
    assert {s.client().step("m", f"s{i}", "x").text for i in range(9)} <= set(shown)
    assert not any("has no effect" in line for line in list(s.lines))


def test_a_handler_for_torchserve_gets_its_gpu_id(serve):
    s = serve(TORCHSERVE, deviceIds=[1])
    assert s.client().step("m", "a", "x").text == "1"


def test_a_machine_without_a_device_runs_the_handler_on_the_cpu(serve):
    s = serve(NATIVE, status=100)
    s.expect_log(" warn ", "there is no CUDA device", "error 100")
    assert s.client().step("m", "a", "x").text == "cpu"
    assert devices(s) == ["cpu"]


def test_a_device_that_is_not_there_is_named(server, driver):
    driver(0)
    answer = server(Model("other")).register(python("m", NATIVE, deviceType="gpu", deviceIds=[7]))
    assert answer.status == 500
    assert "deviceIds: there is no device 7; the devices of this machine are 0 to 1" in answer.message


def test_a_model_on_a_gpu_is_not_forked(serve):
    """CUDA does not survive a fork, so preload: true is declined, and each worker loads the model itself. The process
    that declines does not load it: it would take the device's memory for nothing."""
    s = serve(NATIVE.replace("    device = model.device\n", "    device = model.device\n    print('load in', model.worker)\n"),
              preload=True, minWorkers=2, maxWorkers=2)
    s.expect_log("event=zygote_declined", "CUDA does not survive a fork")
    expect(lambda: devices(s) == ["cuda:0", "cuda:1"], "both workers have a device")
    s.expect_log("load in 1")
    s.expect_log("load in 2")
    assert not any("load in 0" in line for line in list(s.lines))


def test_a_handler_in_lua_is_warned(server):
    s = server(Model("m", yaml={"deviceType": "gpu"}))
    s.expect_log("event=model_config_warning", "deviceType has no effect here: handlers in Lua and C get no GPU")

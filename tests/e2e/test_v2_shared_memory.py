"""System shared memory of the v2 protocol: regions are registered over HTTP, and tensors are read from them and written
to them."""

import concurrent.futures
import json
import os
import pathlib

import numpy as np
import pytest
import requests
import tritonclient.http as triton
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from test_v2_http import accumulator, client_of, identity, post, tensor
from waiting import expect, limit

ALLOWED = ["--allow-client-shm"]


@pytest.fixture
def regions():
    """regions(bytes) makes an object in shared memory and returns its handle and key."""
    made = []

    def make(size, name="region"):
        key = f"/continuo-test-{os.getpid()}-{len(made)}"
        made.append(shm.create_shared_memory_region(name, key, size))
        return made[-1], key

    yield make
    for handle in made:
        shm.destroy_shared_memory_region(handle)


@pytest.fixture
def same(server):
    return server(identity(), flags=ALLOWED)


def shared_input(name, shape, datatype, region, size, offset=0, library=triton):
    given = library.InferInput(name, shape, datatype)
    given.set_shared_memory(region, size, offset)
    return given


def shared_output(name, region, size, offset=0):
    wanted = triton.InferRequestedOutput(name)
    wanted.set_shared_memory(region, size, offset)
    return wanted


def call(s, path, document=None, kind="system"):
    answer = requests.post(f"{s.inference}/v2/{kind}sharedmemory/{path}",
                           data="" if document is None else json.dumps(document), timeout=20)
    return answer.status_code, answer.json()["error"] if answer.text else ""


def infer(s, document):
    answer = post(s, "identity", document)
    return answer.status_code, answer.json()


def by_region(name, shape, datatype, region, size, offset=None, outputs=None):
    params = {"shared_memory_region": region, "shared_memory_byte_size": size}
    if offset is not None:
        params["shared_memory_offset"] = offset
    document = {"inputs": [{"name": name, "datatype": datatype, "shape": shape, "parameters": params}]}
    return {**document, "outputs": outputs} if outputs else document


def test_inputs_and_outputs_of_tritonclient(same, regions):
    """Two tensors are in one region, and an output goes into another. The answer does not contain its data."""
    client = client_of(same)
    source, source_key = regions(256)
    target, target_key = regions(256)
    numbers = np.arange(8, dtype=np.float32)
    small = np.array([1, -2, 3], np.int16)
    shm.set_shared_memory_region(source, [numbers])
    shm.set_shared_memory_region(source, [small], offset=64)
    client.register_system_shared_memory("source", source_key, 256)
    client.register_system_shared_memory("target", target_key, 192, offset=64)
    assert client.get_system_shared_memory_status() == [
        {"name": "source", "key": source_key, "offset": 0, "byte_size": 256},
        {"name": "target", "key": target_key, "offset": 64, "byte_size": 192},
    ]
    answer = client.infer(
        "identity",
        [shared_input("FP32", [8], "FP32", "source", 32), shared_input("INT16", [3], "INT16", "source", 6, 64)],
        outputs=[shared_output("FP32", "target", 32, 16), triton.InferRequestedOutput("INT16", binary_data=True)])
    assert answer.get_output("FP32") == {"name": "FP32", "datatype": "FP32", "shape": [8]}
    assert answer.as_numpy("INT16").tolist() == small.tolist()
    assert shm.get_contents_as_numpy(target, np.float32, [8], offset=80).tolist() == numbers.tolist()
    client.unregister_system_shared_memory("source")
    assert [region["name"] for region in client.get_system_shared_memory_status()] == ["target"]
    client.unregister_system_shared_memory()
    assert client.get_system_shared_memory_status() == []


def test_strings_and_sequences(server, regions):
    """BYTES are in their wire form. A stateful model can take its steps from shared memory like from the body."""
    s = server(identity(), accumulator(), flags=ALLOWED)
    client = client_of(s)
    handle, key = regions(128)
    words = np.array([b"one", b"", b"three\0"], dtype=object)
    packed = serialize_byte_tensor(words)
    shm.set_shared_memory_region(handle, [packed])
    client.register_system_shared_memory("words", key, 128)
    answer = client.infer("identity", [shared_input("BYTES", [3], "BYTES", "words", len(packed.item()))])
    assert answer.as_numpy("BYTES").tolist() == words.tolist()
    for total in (5, 10):
        shm.set_shared_memory_region(handle, [np.array([5], np.int32)])
        answer = client.infer("accumulator", [shared_input("INPUT", [1], "INT32", "words", 4)], sequence_id=3,
                              sequence_start=total == 5)
        assert answer.as_numpy("OUTPUT").tolist() == [total]


def test_a_region_that_shrinks_is_an_error_and_no_crash(same, regions):
    """The client makes the object smaller than an input or an output, before or after its registration."""
    client = client_of(same)
    handle, key = regions(8192)
    client.register_system_shared_memory("r", key, 8192)
    path = pathlib.Path("/dev/shm") / key.lstrip("/")
    os.truncate(path, 100)
    words = "shared memory region 'r' has become smaller than it was when it was registered"
    status, body = infer(same, by_region("FP32", [4], "FP32", "r", 16, 4096))
    assert status == 400 and words in body["error"]
    document = {"inputs": [{"name": "FP32", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}],
                "outputs": [{"name": "FP32", "parameters": {"shared_memory_region": "r",
                                                            "shared_memory_byte_size": 16,
                                                            "shared_memory_offset": 4096}}]}
    status, body = infer(same, document)
    assert status == 400 and words in body["error"]
    assert path.stat().st_size == 100
    status, body = infer(same, by_region("FP32", [4], "FP32", "r", 16))
    assert status == 200
    os.truncate(path, 8192)
    assert infer(same, by_region("FP32", [4], "FP32", "r", 16, 4096))[1]["outputs"][0]["data"] == [0, 0, 0, 0]


def test_it_shrinks_while_it_is_read(same, regions):
    """The object is cut and grows again at any moment. Each answer is right or an error, and the server lives on."""
    client = client_of(same)
    handle, key = regions(1 << 20)
    client.register_system_shared_memory("r", key, 1 << 20)
    path = pathlib.Path("/dev/shm") / key.lstrip("/")
    document = by_region("INT8", [1 << 20], "INT8", "r", 1 << 20, outputs=[
        {"name": "INT8", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 1 << 20}}])
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(infer, same, document) for _ in range(30)]
        while not all(call.done() for call in calls):
            os.truncate(path, 4096)
            os.truncate(path, 1 << 20)
        seen = {call.result()[0] for call in calls}
    assert seen <= {200, 400}
    assert client.is_server_live() and infer(same, document)[0] == 200


def test_an_unlinked_region_still_works(same, regions):
    """The memory lives as long as the registration, or as long as a request uses it."""
    client = client_of(same)
    key = f"/continuo-gone-{os.getpid()}"
    path = pathlib.Path("/dev/shm") / key.lstrip("/")
    path.write_bytes(np.array([7.5], np.float32).tobytes())
    client.register_system_shared_memory("r", key, 4)
    path.unlink()
    assert infer(same, by_region("FP32", [1], "FP32", "r", 4))[1]["outputs"][0]["data"] == [7.5]
    with concurrent.futures.ThreadPoolExecutor(1) as pool, same.hold():
        running = pool.submit(infer, same, by_region("FP32", [1], "FP32", "r", 4, outputs=[
            {"name": "FP32", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}}]))
        same.expect_outstanding("identity", 1)
        client.unregister_system_shared_memory("r")
    assert running.result()[0] == 200


def test_errors_of_registration(same, regions):
    client = client_of(same)
    handle, key = regions(64)
    client.register_system_shared_memory("r", key, 64)
    missing = "/continuo-nothing-here"
    for name, document, status, words in [
        ("r", {"key": key, "byte_size": 64}, 400, "shared memory region 'r' already in manager"),
        ("x", {"key": missing, "byte_size": 4}, 500, f"Unable to open shared memory region: '{missing}'"),
        ("x", {"key": "/../../etc/passwd", "byte_size": 4}, 500, "Unable to open shared memory region"),
        ("x", {"key": "", "byte_size": 4}, 500, "Unable to open shared memory region: ''"),
        ("x", {"key": key, "byte_size": 65}, 400, "failed to register shared memory region 'x': invalid args"),
        ("x", {"key": key, "offset": 60, "byte_size": 5}, 400, "invalid args"),
        ("x", {"key": key, "offset": 2**64 - 1, "byte_size": 2}, 400, "invalid args"),
        ("x", {"key": key, "byte_size": 0}, 400, "invalid args"),
        ("x", {"byte_size": 4}, 400, "Shared memory register request has no 'key' field"),
        ("x", {"key": key}, 400, "Shared memory register request has no 'byte_size' field"),
        ("x", {"key": 5, "byte_size": 4}, 500, "Unable to parse 'key'"),
        ("x", {"key": key, "byte_size": -4}, 500, "non-unsigned-integer"),
        ("x", [], 500, "failed to parse the request JSON buffer"),
        ("x", {"key": "/triton_python_backend_shm_region_1", "byte_size": 4}, 400,
         "cannot register shared memory region 'x' with key '/triton_python_backend_shm_region_1' as the key "
         "contains the reserved prefix 'triton_python_backend_shm_region_'"),
    ]:
        got, text = call(same, f"region/{name}/register", document)
        assert got == status and words in text, (document, got, text)
    assert call(same, "register", {"key": key, "byte_size": 4}) == (
        400, "'region name' is necessary to register system shared memory region")
    with pytest.raises(InferenceServerException, match="Unable to find system shared memory region: 'x'") as missed:
        client.get_system_shared_memory_status("x")
    assert missed.value.status() == "404"
    assert call(same, "region/x/unregister") == (200, "")


def test_errors_of_inference(same, regions):
    client = client_of(same)
    handle, key = regions(64)
    client.register_system_shared_memory("r", key, 64)
    for name, size, offset, status, words in [
        ("x", 4, None, 404, "Unable to find shared memory region: 'x'"),
        ("", 4, None, 404, "Unable to find shared memory region: ''"),
        ("r", 4, 65, 400, "Invalid offset for shared memory region: 'r'"),
        ("r", 4, 61, 400, "Invalid offset + byte size for shared memory region: 'r'"),
        ("r", 2**64 - 1, 4, 400, "Invalid offset + byte size for shared memory region: 'r'"),
        ("r", 8, None, 400, "input byte size mismatch for input 'FP32' for model 'identity'. Expected 4, got 8"),
        ("r", "4", None, 500, "Unable to parse 'shared_memory_byte_size'"),
        (4, 4, None, 500, "Unable to parse 'shared_memory_region'"),
    ]:
        got, body = infer(same, by_region("FP32", [1], "FP32", name, size, offset))
        assert got == status and words in body["error"], (name, size, offset, body)

    def with_output(**params):
        return infer(same, {"inputs": [{"name": "FP32", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}],
                            "outputs": [{"name": "FP32", "parameters": {"shared_memory_region": "r", **params}}]})

    assert with_output(shared_memory_byte_size=15) == (500, {
        "error": "shared memory size specified with the request for output 'FP32' (15 bytes) should be at least "
                 "16 bytes to hold the results"})
    assert with_output() == (400, {"error": "'shared_memory_byte_size' must be specified along with "
                                            "'shared_memory_region' parameter for tensor 'FP32'"})
    for other in ({"binary_data": True}, {"classification": 2}):
        assert with_output(shared_memory_byte_size=16, **other) == (
            400, {"error": f"Output can't set both 'shared_memory_region' and '{next(iter(other))}'"})
    assert with_output(shared_memory_byte_size=16)[0] == 200


def test_it_is_off_by_default(server):
    """Status still works, but nothing can be registered."""
    s = server(identity())
    words = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    assert call(s, "region/r/register", {"key": "/x", "byte_size": 4}) == (501, words)
    assert call(s, "region/r/unregister") == call(s, "unregister") == (501, words)
    assert client_of(s).get_system_shared_memory_status() == []


def test_regions_are_bounded(server, regions):
    s = server(identity(), flags=[*ALLOWED, "--max-shared-memory-regions", "2", "--max-shared-memory-size", "64"])
    handle, key = regions(100)
    assert call(s, "region/big/register", {"key": key, "byte_size": 65})[0] == 400
    for name in ("a", "b"):
        assert call(s, f"region/{name}/register", {"key": key, "byte_size": 64}) == (200, "")
    status, text = call(s, "region/c/register", {"key": key, "byte_size": 64})
    assert status == 503 and "--max-shared-memory-regions" in text
    assert call(s, "unregister") == (200, "")
    assert call(s, "region/c/register", {"key": key, "byte_size": 64}) == (200, "")


def test_a_request_reads_no_more_than_it_may_send(server, regions):
    """Bytes in shared memory count against --max-request-size."""
    s = server(identity(), flags=[*ALLOWED, "--max-request-size", "2048"])
    handle, key = regions(4096)
    client_of(s).register_system_shared_memory("r", key, 4096)
    status, body = infer(s, by_region("INT8", [4096], "INT8", "r", 4096))
    assert status == 400 and "--max-v2-request-size" in body["error"]
    assert infer(s, by_region("INT8", [2048], "INT8", "r", 2048))[0] == 200


def test_cuda_is_not_here(same):
    """The answers are those of a server without GPUs."""
    client = client_of(same)
    assert client.get_cuda_shared_memory_status() == []
    document = {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 4}
    assert call(same, "region/r/register", document, "cuda") == (
        400, "failed to register CUDA shared memory region: 'r', GPUs not supported")
    client.unregister_cuda_shared_memory()
    client.unregister_cuda_shared_memory("r")
    status = requests.get(f"{same.inference}/v2/cudasharedmemory/region/r/status", timeout=20)
    assert status.status_code == 404


def test_a_region_in_use_is_listed_until_it_is_free(server, regions):
    """Unregistering works at once. As long as a request uses the region, it keeps its name and cannot be used by other
    requests."""
    s = server(identity(), flags=ALLOWED)
    client = client_of(s)
    handle, key = regions(256)
    shm.set_shared_memory_region(handle, [np.arange(4, dtype=np.float32)])
    client.register_system_shared_memory("r", key, 256)
    document = by_region("FP32", [4], "FP32", "r", 16, outputs=[
        {"name": "FP32", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 16}}])
    with concurrent.futures.ThreadPoolExecutor(1) as pool, s.hold() as hold:
        running = pool.submit(infer, s, document)
        s.expect_outstanding("identity", 1)
        client.unregister_system_shared_memory("r")
        assert [region["name"] for region in client.get_system_shared_memory_status()] == ["r"]
        status, body = infer(s, document)
        assert status == 404 and "Unable to find shared memory region: 'r'" in body["error"]
        with pytest.raises(InferenceServerException, match="already in manager"):
            client.register_system_shared_memory("r", key, 128)
        hold.release()
        assert running.result(timeout=limit(30))[0] == 200
    expect(lambda: client.get_system_shared_memory_status() == [], "the region is free")
    client.register_system_shared_memory("r", key, 128)
    assert client.get_system_shared_memory_status()[0]["byte_size"] == 128

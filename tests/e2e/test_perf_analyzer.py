"""Makes perf_analyzer's calls in its order. It must find what it looks for, and no call may fail."""

import itertools
import json
import os
import queue
import subprocess
import threading

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
import tritonclient.utils.shared_memory as shm

from test_v2_http import accumulator
from test_v2_repository import adder
from waiting import limit


class Analyzer:
    """The calls at the start and in measurement windows. `url` is that of the HTTP port. The bytes of the C++ client
    are made by hand."""

    def __init__(self, url, model):
        self.url, self.model = url, model
        self.session = requests.Session()
        metadata = self.get(f"/v2/models/{model}")
        config = self.get(f"/v2/models/{model}/config")
        self.has_statistics = "statistics" in self.get("/v2")["extensions"]
        # It drops the first dimension of shapes blindly where there are batches.
        self.inputs = {each["name"]: each for each in metadata["inputs"]}
        for each in self.inputs.values():
            each["shape"] = each["shape"][1:] if config["max_batch_size"] > 0 else each["shape"]
        assert {each["name"] for each in config["input"]} <= set(self.inputs)
        assert all(isinstance(each["optional"], bool) and isinstance(each["is_shape_tensor"], bool)
                   for each in config["input"])
        assert isinstance(config["model_transaction_policy"]["decoupled"], bool)
        assert isinstance(config["response_cache"]["enable"], bool)
        self.is_sequence = "sequence_batching" in config
        self.max_batch_size = config["max_batch_size"]

    def get(self, path):
        answer = self.session.get(self.url + path, timeout=20)
        assert answer.status_code == 200
        return answer.json()

    def statistics(self):
        """Returns the statistics of the version under test. Counters are unsigned, and the version is a decimal string.
        """
        entry = self.get(f"/v2/models/{self.model}/stats")["model_stats"][0]
        assert isinstance(entry["version"], str)
        return entry

    def infer(self, request_id, values, parameters=None):
        """Makes a request as the C++ client does: always with the length header, with binary data and outputs. Returns
        the output."""
        (name, spec), = self.inputs.items()
        data = np.array(values, np.int32).tobytes()
        document = {
            "id": request_id,
            "parameters": {"binary_data_output": True, **(parameters or {})},
            "inputs": [{"name": name, "shape": [len(values)], "datatype": spec["datatype"],
                        "parameters": {"binary_data_size": len(data)}}],
        }
        head = json.dumps(document).encode()
        answer = self.session.post(f"{self.url}/v2/models/{self.model}/infer", data=head + data, timeout=20,
                                   headers={"Inference-Header-Content-Length": str(len(head)),
                                            "Content-Type": "application/octet-stream"})
        assert answer.status_code == 200, answer.text
        length = int(answer.headers["Inference-Header-Content-Length"])
        document = json.loads(answer.content[:length])
        assert document["id"] == request_id  # a missing one loses the request
        output, = document["outputs"]
        assert set(output["parameters"]) == {"binary_data_size"}
        assert len(answer.content) - length == output["parameters"]["binary_data_size"]
        return np.frombuffer(answer.content[length:], np.int32).tolist()

    def window(self, traffic):
        """Makes one measurement: statistics, traffic, statistics. Returns what was counted."""
        before = self.statistics()
        traffic()
        after = self.statistics()
        counted = {key: after["inference_stats"][key]["count"] - before["inference_stats"][key]["count"]
                   for key in after["inference_stats"]}
        assert counted["queue"] > 0  # else it ends with "failed to find the requested model version"
        return counted, after["execution_count"] - before["execution_count"]


def in_threads(n, run):
    """Calls run(k) in each of n threads. A failure in one of them fails the test."""
    failed = []

    def guarded(k):
        try:
            run(k)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def test_concurrency_range(server):
    """perf_analyzer -m adder -i http --concurrency-range 4"""
    s = server(adder(1))
    analyzer = Analyzer(s.inference, "adder")
    assert analyzer.has_statistics and not analyzer.is_sequence and analyzer.max_batch_size == 0
    numbers = itertools.count()
    lock = threading.Lock()

    def caller(_):
        mine = Analyzer(s.inference, "adder")
        for _ in range(20):
            with lock:
                number = next(numbers)
            assert mine.infer(str(number), [number]) == [number + 1]

    for _ in range(2):
        counted, executions = analyzer.window(lambda: in_threads(4, caller))
        assert counted["success"] == counted["queue"] == counted["compute_infer"] == 80
        assert counted["fail"] == 0 and 0 < executions <= 80


def test_sequences_with_ids_from_a_range(server):
    """perf_analyzer -m accumulator -i http --concurrency-range 4 --sequence-length 5 --sequence-id-range 1000:1006

    Ids are used again at once, so a START may come for an id whose END was just accepted. A sequence of length 1 has
    both flags."""
    s = server(accumulator())
    analyzer = Analyzer(s.inference, "accumulator")
    assert analyzer.is_sequence
    in_use, lock, ids = set(), threading.Lock(), itertools.count()

    def next_id(own):
        with lock:
            candidate = 1000 + next(ids) % 6
            if candidate in in_use:
                return own  # it takes its own again
            in_use.discard(own)
            in_use.add(candidate)
            return candidate

    def caller(k):
        mine = Analyzer(s.inference, "accumulator")
        own = None
        for round_ in range(6):
            own = next_id(own)
            while own is None:
                own = next_id(own)
            length = (5, 1, 4)[round_ % 3]
            for step in range(length):
                flags = {"sequence_id": own, "sequence_start": step == 0, "sequence_end": step == length - 1}
                assert mine.infer(f"{k}-{round_}-{step}", [3], flags) == [3 * (step + 1)]

    counted, _ = analyzer.window(lambda: in_threads(4, caller))
    assert counted["success"] == 4 * (5 + 1 + 4) * 2
    assert counted["fail"] == 0


def test_shared_memory_metrics_and_traces(server):
    """perf_analyzer --shared-memory=system --collect-metrics --trace-level TIMESTAMPS --trace-rate 10"""
    s = server(adder(1), flags=["--allow-client-shm"])
    client = triton.InferenceServerClient(s.inference.removeprefix("http://"))
    analyzer = Analyzer(s.inference, "adder")
    assert client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "10"})["trace_rate"] == "10"
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()
    keys = {"input": f"/continuo-perf-in-{os.getpid()}", "output": f"/continuo-perf-out-{os.getpid()}"}
    handles = {name: shm.create_shared_memory_region(name, key, 4) for name, key in keys.items()}
    try:
        for name, key in keys.items():
            client.register_system_shared_memory(name, key, 4)
        given = triton.InferInput("X", [1], "INT32")
        given.set_shared_memory("input", 4)
        wanted = triton.InferRequestedOutput("Y", binary_data=True)
        wanted.set_shared_memory("output", 4)

        def traffic():
            for number in range(12):
                shm.set_shared_memory_region(handles["input"], [np.array([number], np.int32)])
                answer = client.infer("adder", [given], outputs=[wanted], request_id=str(number))
                assert answer.get_response()["id"] == str(number)
                assert shm.get_contents_as_numpy(handles["output"], np.int32, [1]).tolist() == [number + 1]

        counted, _ = analyzer.window(traffic)
        assert counted["success"] == 12
        page = requests.get(s.metrics + "/metrics", timeout=20)
        assert page.status_code == 200 and "nv_inference_count" in page.text
        client.unregister_system_shared_memory()
    finally:
        for handle in handles.values():
            shm.destroy_shared_memory_region(handle)


@pytest.mark.parametrize("model, is_sequence", [(adder(1), False), (accumulator(), True)])
def test_streaming(server, model, is_sequence):
    """perf_analyzer -i grpc --async --streaming sends requests before answers come. Each request asks for an empty
    final response, and is done when an answer says that it is the last."""
    s = server(model)
    name = "INPUT" if is_sequence else "X"
    client = triton_grpc.InferenceServerClient(s.grpc.removeprefix("http://"))
    metadata = client.get_model_metadata(model.name, as_json=True)
    config = client.get_model_config(model.name, as_json=True)["config"]
    assert ("sequence_batching" in config) == is_sequence
    assert [each["name"] for each in metadata["inputs"]] == [each["name"] for each in config["input"]] == [name]
    assert "statistics" in client.get_server_metadata(as_json=True)["extensions"]
    before = client.get_inference_statistics(model.name).model_stats[0].inference_stats
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    pending = set()
    for number in range(40):
        given = triton_grpc.InferInput(name, [1], "INT32")
        given.set_data_from_numpy(np.array([number], np.int32))
        more = {"sequence_id": 500 + number % 4, "sequence_start": number < 4, "sequence_end": number >= 36}
        client.async_stream_infer(model.name, [given], request_id=str(number), enable_empty_final_response=True,
                                  **(more if is_sequence else {}))
        pending.add(str(number))
    while pending:
        result, error = answers.get(timeout=20)
        assert error is None
        response = result.get_response()
        if response.parameters["triton_final_response"].bool_param:
            pending.remove(response.id)
    client.stop_stream()
    after = client.get_inference_statistics(model.name).model_stats[0].inference_stats
    assert after.queue.count - before.queue.count == 40
    client.close()


def whole(model):
    """perf_analyzer expects whole numbers as versions."""
    model.version = "1"
    return model


@pytest.mark.skipif("CONTINUO_PERF_ANALYZER" not in os.environ,
                    reason="CONTINUO_PERF_ANALYZER names no perf_analyzer (docs/from-triton.md says where to get one)")
@pytest.mark.parametrize("model, arguments", [
    (adder(1, version="1"), ["--concurrency-range", "1:3"]),
    (adder(1, version="1"), ["-i", "grpc", "--concurrency-range", "4", "--async"]),
    (adder(1, version="1"), ["--request-rate-range", "100", "--collect-metrics"]),
    (adder(1, version="1"), ["--shared-memory", "system", "--output-shared-memory-size", "4096"]),
    (whole(accumulator()), ["--concurrency-range", "8", "--sequence-length", "20"]),
    (whole(accumulator()), ["-i", "grpc", "--streaming", "--concurrency-range", "8", "--sequence-length", "20"]),
])
def test_the_real_one(server, model, arguments):
    """perf_analyzer itself measures, and none of its calls fails."""
    s = server(model, flags=["--allow-client-shm"])
    url = s.grpc if "grpc" in arguments else s.inference
    if "--collect-metrics" in arguments:
        arguments = [*arguments, "--metrics-url", s.metrics.removeprefix("http://") + "/metrics"]
    done = subprocess.run(
        [os.environ["CONTINUO_PERF_ANALYZER"], "-m", model.name, "-u", url.removeprefix("http://"), *arguments,
         "--measurement-interval", "500", "--stability-percentage", "999"], text=True, capture_output=True, timeout=limit(120))
    assert done.returncode == 0 and "Throughput: " in done.stdout, done.stdout + done.stderr
    stats = requests.get(f"{s.inference}/v2/models/{model.name}/stats").json()["model_stats"][0]["inference_stats"]
    assert stats["success"]["count"] > 0 and stats["fail"]["count"] == 0

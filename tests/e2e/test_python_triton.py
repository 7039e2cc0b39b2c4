"""Models for Triton's Python backend, from a model repository as Triton has it, unchanged.

tests/differential/triton.py compares the same model.py files on Triton itself. Here is what Triton cannot do, and what
a model can do wrong.
"""

import json
import queue
import sys

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from models import BUILD, archiver
from test_named_keys import Keys
from test_v2_http import client_of, tensor
from v2rpc import client_of as grpc_of, tensor as grpc_tensor
from waiting import expect, limit

WORKER = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="this build has no Python (python3-dev)")

HEAD = """import json
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def words(name, *texts):
    return pb_utils.Tensor(name, np.array([text.encode() for text in texts], dtype=object))


def number(request, name="X"):
    return int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().flatten()[0])


def total(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([value], np.int32))])


"""
X_TO_Y = """backend: "python"
input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
SEQUENCES = "sequence_batching { max_sequence_idle_microseconds: 600000000 oldest { max_candidate_sequences: 8 } }\n"
DECOUPLED = "model_transaction_policy { decoupled: true }\n"


def put(repository, name, source, config=X_TO_Y, version=1, files=None):
    folder = repository / name
    (folder / str(version)).mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(config)
    if source is not None:
        (folder / str(version) / "model.py").write_text(HEAD + source)
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def execute(body, more=""):
    """A model whose execute() makes `answers` by this body, for each request."""
    lines = "".join(f"            {line}\n" for line in body.splitlines())
    return (f"class TritonPythonModel:\n{more}    def execute(self, requests):\n        answers = []\n"
            f"        for request in requests:\n{lines}        return answers\n")


@pytest.fixture
def repository(folder):
    made = folder / "repository"
    made.mkdir()
    return made


@pytest.fixture
def serve(server, repository):
    """serve(flags...) starts a server on the repository, without a model store."""
    def make(*flags):
        return server(flags=["--model-repository", str(repository), "--python", sys.executable, *flags])
    return make


def ask(s, model, value=1, **more):
    """The number in Y, or the error's text and its status."""
    parameters = {key: more.pop(key) for key in ("sequence_id", "sequence_start", "sequence_end") if key in more}
    document = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [value]}], **more}
    if parameters:
        document["parameters"] = parameters
    answer = requests.post(f"{s.inference}/v2/models/{model}/infer", json=document, timeout=limit(60))
    if answer.status_code != 200:
        return answer.status_code, answer.json()["error"]
    return answer.json()["outputs"][0]["data"][0]


def reason(s, model):
    index = requests.post(s.inference + "/v2/repository/index", timeout=limit(20)).json()
    return next(each.get("reason", "") for each in index if each["name"] == model)


# --- what a model gets and gives

TOLD = execute("""told = {"inputs": [[t.name(), t.triton_dtype(), t.is_cpu(), t.shape()] for t in request.inputs()],
        "id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
        "outputs": sorted(request.requested_output_names()), "parameters": json.loads(request.parameters()),
        "timeout": request.timeout(), "cancelled": request.is_cancelled(), "args": self.args,
        "config": self.config, "file": os.path.relpath(__file__, self.args["model_repository"]),
        "beside": open(os.path.join(self.args["model_repository"], "1", "weights.txt")).read(),
        "above": open(os.path.join(self.args["model_repository"], "words", "all.txt")).read(),
        "helps": helper.VALUE, "output": pb_utils.get_output_config_by_name(self.config, "TOLD"),
        "none": pb_utils.get_input_config_by_name(self.config, "TOLD")}
answers.append(pb_utils.InferenceResponse([words("TOLD", json.dumps(told)), words("MORE", "left out")]))""", """
    def initialize(self, args):
        global helper
        import helper
        self.config = json.loads(args["model_config"])
        self.args = {key: args[key] for key in args if key != "model_config"}

    def finalize(self):
        pb_utils.Logger.log_warn("this is the end")

""")


def test_what_a_model_gets(serve, repository):
    """Arguments, configuration, request, and its files at the places where Triton has them."""
    put(repository, "told", TOLD, """backend: "python" max_batch_size: 4
        input { name: "X" data_type: TYPE_FP16 dims: [ -1 ] optional: true }
        output [ { name: "TOLD" data_type: TYPE_STRING dims: [ 1 ] }, { name: "Z" data_type: TYPE_BOOL dims: [ 1 ] } ]
        parameters { key: "mine" value: { string_value: "yes" } }
        instance_group [ { count: 1 } ]""",
        files={"1/weights.txt": "heavy", "words/all.txt": "one two", "1/helper.py": "VALUE = 7\n",
               "2/model.py.txt": "not this version", "labels.txt": "a\n"})
    (repository / "told" / "2" / "model.py.txt").unlink()
    (repository / "told" / "2").rmdir()
    s = serve()
    document = {"id": "mine", "inputs": [{"name": "X", "datatype": "FP16", "shape": [2, 3], "data": [0] * 6}],
                "parameters": {"a": 1, "b": "text", "c": True, "d": 0.5}}
    x = tensor("X", np.zeros((2, 3), np.float16), "FP16")
    answer = client_of(s).infer("told", [x], request_id="mine", outputs=None,
                                parameters=document["parameters"]).as_numpy("TOLD")
    told = json.loads(answer[0])
    assert told.pop("config").items() >= {
        "name": "told", "backend": "python", "max_batch_size": 4, "parameters": {"mine": {"string_value": "yes"}}}.items()
    arguments = told.pop("args")
    assert told.pop("output")["data_type"] == "TYPE_STRING"
    assert told == {"inputs": [["X", 10, True, [2, 3]]], "id": "mine", "correlation": 0, "flags": 0,
                    "outputs": ["TOLD", "Z"], "parameters": document["parameters"], "timeout": 0,
                    "cancelled": False, "file": "1/model.py", "beside": "heavy", "above": "one two", "helps": 7,
                    "none": None}
    assert arguments.pop("model_repository").startswith("/")
    assert arguments == {"model_name": "told", "model_version": "1", "model_instance_kind": "CPU",
                         "model_instance_device_id": "0", "model_instance_name": "told_0"}
    s.expect_log("the output \\\"MORE\\\"", "does not declare")
    told = json.loads(client_of(s).infer("told", [x]).as_numpy("TOLD")[0])
    assert told["id"] == "" and told["parameters"] == {}
    s.stop()
    s.expect_log("this is the end")


TYPES = {"BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
         "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16,
         "FP32": np.float32, "FP64": np.float64}
SAME = execute("""tensors = []
for tensor in request.inputs():
    array = tensor.as_numpy()
    if array.dtype != object:
        tensors.append(pb_utils.Tensor.from_dlpack(tensor.name(), tensor.to_dlpack()))
        assert (np.from_dlpack(tensor) == array).all()
        assert pb_utils.triton_string_to_numpy("TYPE_" + tensor.name()) == array.dtype
        assert pb_utils.numpy_to_triton_type(array.dtype.type) == tensor.triton_dtype()
    else:
        again = pb_utils.deserialize_bytes_tensor(pb_utils.serialize_byte_tensor(array))
        tensors.append(pb_utils.Tensor(tensor.name(), again.reshape(array.shape)))
answers.append(pb_utils.InferenceResponse(output_tensors=tensors))""")


def test_every_datatype_comes_back(serve, repository):
    """Through NumPy's arrays and through DLPack, and strings through their serialized form."""
    fields = "".join(f'{way} {{ name: "{kind}" data_type: TYPE_{kind} dims: [ -1, 2 ] }}\n'
                     for kind in (*TYPES, "STRING") for way in ("input", "output"))
    put(repository, "same", SAME, 'backend: "python"\n' + fields)
    s = serve()
    values = {kind: np.array([[0, 1], [1, 0], [1, 1]]).astype(numpy) for kind, numpy in TYPES.items()}
    values["STRING"] = np.array([[b"a", b""], [b"\\x00", "ü".encode()]], dtype=object)
    answer = client_of(s).infer("same", [tensor(kind, array, "BYTES" if kind == "STRING" else kind)
                                         for kind, array in values.items()])
    for kind, array in values.items():
        back = answer.as_numpy(kind)
        assert back.dtype == array.dtype and back.tolist() == array.tolist(), kind


def test_requests_come_in_batches(serve, repository):
    """execute() gets up to max_batch_size requests, and its responses go to them in order."""
    put(repository, "queued", execute('answers.append(total(number(request) * 1000 + len(requests)))'),
        X_TO_Y + "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 8 ] "
                 "max_queue_delay_microseconds: 60000000 }")
    s = serve()
    answers = queue.Queue()
    with grpc_of(s) as client:
        for value in range(8):
            x = grpc_tensor("X", np.array([[value]], np.int32), "INT32")
            client.async_infer("queued", [x], lambda result, error, value=value: answers.put(
                (value, error or int(result.as_numpy("Y").flatten()[0]))))
        assert sorted(answers.get(timeout=limit(60)) for _ in range(8)) == [(n, n * 1000 + 8) for n in range(8)]


# --- decoupled models

MANY = """class TritonPythonModel:
    def initialize(self, args):
        assert pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self.main = threading.current_thread()

    def execute(self, requests):
        assert self.main is threading.current_thread()
        for request in requests:
            sender, n = request.get_response_sender(), number(request)
            if n == 77:  # waits until the client has left
                sender.send(total(0))
                while not request.is_cancelled():
                    time.sleep(0.005)
                pb_utils.Logger.log_info("the client of 77 has left")
                continue
            if n > 100:
                threading.Thread(target=self.count, args=(sender, n - 100), daemon=True).start()
            else:
                self.count(sender, abs(n))
            if n < 0:
                raise ValueError("asked for")
            if n == 50:
                sender.send(total(1))

    def count(self, sender, n):
        for i in range(n):
            sender.send(total(i), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if i == n - 1 and n % 2 else 0)
        if n % 2 == 0 and n != 8:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        if n == 8:
            error = pb_utils.TritonError("no 8", pb_utils.TritonError.UNAVAILABLE)
            sender.send(pb_utils.InferenceResponse(error=error), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


class Stream:
    """A gRPC stream of tritonclient."""

    def __init__(self, s):
        self.answers = queue.Queue()
        self.ended = []  # the end that came with a response
        self.client = triton_grpc.InferenceServerClient(s.grpc)
        self.client.start_stream(lambda result, error: self.answers.put(error or result))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.stop_stream(cancel_requests=True)
        self.client.close()

    def send(self, model, value, **more):
        x = grpc_tensor("X", np.array([value], np.int32), "INT32")
        self.client.async_stream_infer(model, [x], enable_empty_final_response=True, **more)

    def next(self):
        """The number of the next response; None: the end; a text: an error."""
        if self.ended:
            return self.ended.pop()
        result = self.answers.get(timeout=limit(30))
        if isinstance(result, InferenceServerException):
            return str(result)
        array = result.as_numpy("Y")
        if array is None:
            return None
        if result.get_response().parameters["triton_final_response"].bool_param:
            self.ended.append(None)
        return int(array[0])

    def rest(self):
        found = []
        while True:
            found.append(self.next())
            if found[-1] is None or isinstance(found[-1], str):
                return found


def test_a_decoupled_model_sends_many_responses(serve, repository):
    """From execute() and from threads, with the end on the last response or after it."""
    put(repository, "many", MANY, X_TO_Y + DECOUPLED)
    s = serve()
    with Stream(s) as stream:
        for value in (3, 4, 0, 103, 2104, 5000):
            stream.send("many", value)
            count = value - 100 if value > 100 else value
            found = stream.rest()
            assert found == [*range(count), None], (value, found[:5], len(found))
        stream.send("many", 8)
        found = stream.rest()
        assert found[:8] == list(range(8)) and "no 8" in found[8], found
        stream.send("many", -2)  # ended before execute() raised
        assert stream.rest() == [0, 1, None]
        s.expect_log("execute() raised after the end of its requests", "ValueError: asked for")
        stream.send("many", 3)
        assert stream.rest() == [0, 1, 2, None]
    answer = requests.post(f"{s.inference}/v2/models/many/infer", timeout=limit(30), headers={
        "Accept": "application/x-ndjson"}, json={"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [3]}]})
    assert [json.loads(line)["outputs"][0]["data"] for line in answer.text.splitlines()] == [[0], [1], [2]]


def test_responses_leave_while_execute_runs(serve, repository):
    """A client that goes is seen by the model, whose call then ends."""
    put(repository, "many", MANY, X_TO_Y + DECOUPLED)
    s = serve()
    with Stream(s) as stream:
        stream.send("many", 77)
        assert stream.next() == 0
    s.expect_log("the client of 77 has left")
    with Stream(s) as stream:
        stream.send("many", 1)
        assert stream.rest() == [0, None]


@pytest.mark.parametrize("sent", ["np.zeros(20000, np.int32)", "np.zeros(1, np.float64)"], ids=["large", "wrong"])
def test_a_model_that_sends_without_end_holds_up_nobody(serve, repository, sent):
    """Faster than the worker can send them, or of the wrong datatype: the model learns that its client has left, or
    that the request has failed, and the next request is answered."""
    put(repository, "endless", f"""class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            if number(request) == 1:
                made = pb_utils.InferenceResponse([pb_utils.Tensor("Y", {sent})])
                while not request.is_cancelled():
                    sender.send(made)
            sender.send(total(2), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""", X_TO_Y.replace("TYPE_INT32 dims: [ 1 ] } ]\n", "TYPE_INT32 dims: [ -1 ] } ]\n") + DECOUPLED)
    s = serve()
    with Stream(s) as stream:
        stream.send("endless", 1)
        stream.answers.get(timeout=limit(20))
    with Stream(s) as stream:
        stream.send("endless", 0)
        assert stream.rest() == [2, None]


def test_an_exception_ends_what_has_no_end(serve, repository):
    """Responses that were sent before have left."""
    put(repository, "raises", """class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            request.get_response_sender().send(total(number(request)))
        raise ValueError("asked for")
""", X_TO_Y + DECOUPLED)
    put(repository, "returns", """class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            request.get_response_sender()
        return [total(1)]
""", X_TO_Y + DECOUPLED)
    s = serve()
    with Stream(s) as stream:
        stream.send("raises", 5)
        found = stream.rest()
        assert found[0] == 5 and "1/model.py" in found[1] and "ValueError: asked for" in found[1], found
        stream.send("returns", 5)
        assert "must return None" in stream.rest()[0]


def test_async_execute(serve, repository):
    """Calls of a decoupled model overlap while they wait; another model's call is waited for."""
    put(repository, "plain", "import asyncio\n\n" + execute("await asyncio.sleep(0)\nanswers.append(total(number(request) + 1))")
        .replace("def execute", "async def execute"))
    put(repository, "many", """import asyncio

waiting = asyncio.Event()


class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            sender, n = request.get_response_sender(), number(request)
            if n == 0:
                sender.send(total(0))
                await waiting.wait()
            else:
                waiting.set()
            sender.send(total(n), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""", X_TO_Y + DECOUPLED)
    s = serve()
    assert ask(s, "plain", 4) == 5
    with Stream(s) as one, Stream(s) as other:
        one.send("many", 0)
        assert one.next() == 0
        other.send("many", 9)
        assert other.rest() == [9, None] and one.rest() == [0, None]


def test_a_sender_of_a_model_that_is_not_decoupled(serve, repository):
    """It sends one response, also later and from a thread; a second one fails the request. A thread that
    sends before execute() returns does not make the worker's event loop, which would then be another thread's."""
    put(repository, "later", """class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request.get_response_sender(), number(request))).start()

    def answer(self, sender, n):
        sender.send(total(n))
        if n == 2:
            sender.send(total(n))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        try:
            sender.send(total(n))
        except pb_utils.TritonModelException as error:
            pb_utils.Logger.log_error(str(error))
""")
    put(repository, "nothing", execute("request.get_response_sender().send(flags=1)\nanswers.append(None)"))
    put(repository, "before", """import asyncio

made_in = []
set_event_loop = asyncio.set_event_loop


def noted(loop):
    made_in.append(threading.current_thread())
    set_event_loop(loop)


class TritonPythonModel:
    def initialize(self, args):
        asyncio.set_event_loop = noted

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            thread = threading.Thread(target=sender.send, args=(total(number(request)), 1))
            thread.start()
            thread.join()
        assert all(each is threading.main_thread() for each in made_in), made_in
""")
    s = serve()
    assert [ask(s, "before", n) for n in (5, 7)] == [5, 7]
    assert ask(s, "later", 6) == 6
    status, says = ask(s, "later", 2)
    assert status == 500 and "expected a single response, got 2" in says
    s.expect_log("the sender is closed")
    status, says = ask(s, "nothing")
    assert status == 500 and "without a response" in says


# --- sequences

SUMS = execute("""key = request.correlation_id()
if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
    self.totals[key] = 0
self.totals[key] += number(request)
answers.append(total(self.totals[key]))""", """
    def initialize(self, args):
        self.totals = {}

""")
KEPT = SUMS.replace("self.totals = {}", "from continuo import SequenceState\n        self.totals = SequenceState()")
IMPLICIT = execute("""sum = number(request) + number(request, "SUM_IN")
answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([sum], np.int32)),
                                           pb_utils.Tensor("SUM_OUT", np.array([sum], np.int32))]))""")
STATE = SEQUENCES.replace("oldest", """state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [ 1 ]
    initial_state { name: "ten" data_type: TYPE_INT32 dims: [ 1 ] data_file: "ten" } } oldest""")


def test_a_sequence_in_the_models_memory_is_closed_with_its_worker(serve, repository):
    """The client is told, and may begin the sequence anew."""
    put(repository, "own", SUMS, X_TO_Y + SEQUENCES)
    s = serve()
    assert ask(s, "own", 3, sequence_id=42, sequence_start=True) == 3
    assert ask(s, "own", 4, sequence_id=42) == 7
    assert ask(s, "own", 5, sequence_id="a", sequence_start=True) == 5
    s.kill_worker("own")
    status, says = ask(s, "own", 5, sequence_id=42)
    assert status == 400 and "sequence 42" in says and "(worker_lost)" in says, (status, says)
    assert "START" in ask(s, "own", 5, sequence_id=42)[1]
    assert ask(s, "own", 9, sequence_id=42, sequence_start=True) == 9
    assert ask(s, "own", 1, sequence_id=42, sequence_end=True) == 10
    assert 'reason="worker_lost"' in requests.get(s.metrics + "/metrics", timeout=limit(20)).text


@pytest.mark.parametrize("model, more", [("kept", SEQUENCES), ("implicit", STATE)])
def test_a_state_that_is_handed_over_outlives_worker_and_server(serve, repository, model, more):
    """By one line, SequenceState; and by the state tensors of config.pbtxt, with their initial value."""
    put(repository, "kept", KEPT, X_TO_Y + SEQUENCES)
    put(repository, "implicit", IMPLICIT, X_TO_Y + STATE)
    (repository / "implicit" / "initial_state").mkdir()
    (repository / "implicit" / "initial_state" / "ten").write_bytes(np.array([10], np.int32).tobytes())
    s = serve()
    begin = 10 if model == "implicit" else 0
    assert ask(s, model, 3, sequence_id=42, sequence_start=True) == begin + 3
    assert ask(s, model, 3, sequence_id="text", sequence_start=True) == begin + 3
    s.kill_worker(model)
    assert ask(s, model, 4, sequence_id=42) == begin + 7
    s.kill()
    s.restart()
    assert ask(s, model, 5, sequence_id=42) == begin + 12
    assert ask(s, model, 5, sequence_id="text", sequence_end=True) == begin + 8
    assert "START" in ask(s, model, 5, sequence_id="text")[1]


@pytest.mark.parametrize("model", [SUMS, KEPT])
def test_an_integer_id_has_its_owner_too(serve, repository, folder, model):
    """42 and "42" are two sequences of each key, and neither is that of another key."""
    keys = Keys(folder)
    keys.add("shop", "infer")
    keys.add("other", "infer")
    put(repository, "own", model, X_TO_Y + SEQUENCES)
    s = serve("--keys", keys.path)
    for i in range(2):
        for n, (name, id) in enumerate([("shop", 42), ("shop", "42"), ("other", 42), ("other", 2 ** 64 - 1)]):
            document = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [10 * n + 1]}],
                        "parameters": {"sequence_id": id, "sequence_start": i == 0}}
            answer = requests.post(f"{s.inference}/v2/models/own/infer", json=document, headers=keys.http(name), timeout=limit(60))
            assert answer.status_code == 200 and answer.json()["outputs"][0]["data"] == [(i + 1) * (10 * n + 1)], answer.text


CONTROLS = """max_batch_size: 4
sequence_batching { max_sequence_idle_microseconds: 600000000 direct { minimum_slot_utilization: 1.0
    max_queue_delay_microseconds: 60000000 } control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] }
"""
ROWS = """class TritonPythonModel:
    def execute(self, requests):
        rows = [[pb_utils.get_input_tensor_by_name(each, name).as_numpy().tolist()
                 for name in ("X", "START", "END", "READY", "CORRID")] + [each.correlation_id(), each.flags()]
                for each in requests]
        text = np.array([[json.dumps(rows).encode()]], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", text)]) for _ in requests]
"""


def test_controls_and_slots(serve, repository):
    """The direct strategy: a sequence's slot is its row in each call, and a free slot is a row that is not ready."""
    put(repository, "rows", ROWS, X_TO_Y.replace('"Y" data_type: TYPE_INT32', '"Y" data_type: TYPE_STRING') + CONTROLS
        .replace("minimum_slot_utilization: 1.0\n    max_queue_delay_microseconds: 60000000", ""))
    s = serve()

    def step(value, sequence, **more):
        document = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [value]}],
                    "parameters": {"sequence_id": sequence, **more}}
        answer = requests.post(f"{s.inference}/v2/models/rows/infer", json=document, timeout=limit(60))
        return json.loads(answer.json()["outputs"][0]["data"][0])

    assert step(5, 7, sequence_start=True) == [[[[5]], [[1]], [[False]], [[1.0]], [[7]], 7, 1]]
    assert step(6, 8, sequence_start=True) == [[[[0]], [[0]], [[False]], [[0.0]], [[0]], 0, 0],
                                               [[[6]], [[1]], [[False]], [[1.0]], [[8]], 8, 1]]
    assert step(4, 7) == [[[[4]], [[0]], [[False]], [[1.0]], [[7]], 7, 0]]
    assert step(3, 7, sequence_end=True) == [[[[3]], [[0]], [[True]], [[1.0]], [[7]], 7, 2]]


def test_a_decoupled_sequence_with_state(serve, repository):
    """The next step begins when the end of the one before was sent; the state is that of the end."""
    put(repository, "both", """from continuo import SequenceState


class TritonPythonModel:
    def initialize(self, args):
        self.sums = SequenceState("sums")

    def execute(self, requests):
        for request in requests:
            sender, key = request.get_response_sender(), request.correlation_id()
            before = self.sums.get(key, 0)
            self.sums[key] = before + number(request)
            for value in (before, self.sums[key]):
                sender.send(total(value))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""", X_TO_Y + SEQUENCES + DECOUPLED)
    s = serve()
    with Stream(s) as stream:
        stream.send("both", 3, sequence_id=5, sequence_start=True)
        stream.send("both", 4, sequence_id=5)
        assert stream.rest() == [0, 3, None] and stream.rest() == [3, 7, None]
    s.kill_worker("both")
    with Stream(s) as stream:
        stream.send("both", 1, sequence_id=5)
        assert stream.rest() == [7, 8, None]


# --- what a model can do wrong

WRONG = {
    "no-class": ("VALUE = 1\n", "TritonPythonModel"),
    "no-execute": ("class TritonPythonModel:\n    pass\n", "has no method execute(self, requests)"),
    "initialize": ("class TritonPythonModel:\n    def initialize(self, args):\n        raise KeyError(args['model_name'])\n\n"
                   "    def execute(self, requests):\n        return None\n", "KeyError: 'initialize'"),
    "syntax": ("class TritonPythonModel:\n    def execute(self, requests)\n", "SyntaxError"),
    "decoupled": ("class TritonPythonModel:\n    def initialize(self, args):\n        raise OSError('no weights')\n\n"
                  "    def execute(self, requests):\n        return None\n", "OSError: no weights"),
}


def test_a_model_that_cannot_be_loaded_says_why(serve, repository):
    """The model's file and line in the log and the index; other models are served."""
    for name, (source, _) in WRONG.items():
        put(repository, name, source, X_TO_Y + (DECOUPLED if name == "decoupled" else ""))
    put(repository, "no-file", None)
    put(repository, "no-outputs", WRONG["no-class"][0], 'backend: "python" input { name: "X" data_type: TYPE_INT32 dims: 1 }')
    put(repository, "no-config", WRONG["no-class"][0])
    (repository / "no-config" / "config.pbtxt").unlink()
    put(repository, "no-numpy", "pass\n", files={"1/numpy.py": "raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')"})
    put(repository, "good", execute("answers.append(total(1))"))
    s = serve("--exit-on-model-failure=false")
    expect(lambda: ask(s, "good") == 1, "the good model answers", 60)
    for name, (_, words) in WRONG.items():
        s.expect_log(words, name, timeout=60)
    s.expect_log("event=model_not_imported", "no-file", "1/model.py does not exist")
    s.expect_log("event=model_not_imported", "no-outputs", "lists no output", "auto_complete_config is not called")
    s.expect_log("event=model_not_imported", "no-config", "config.pbtxt")
    s.expect_log("no-numpy", "No module named 'numpy'", "install the package that has it for")


BAD = {
    "raises": ("raise ValueError('asked for')", 500, "1/model.py:26: ValueError: asked for"),
    "too-few": ("pass", 500, "got 1 requests and returned 0 responses"),
    "too-many": ("answers += [total(1), total(2)]", 500, "got 1 requests and returned 2 responses"),
    "wrong-kind": ("answers.append('yes')", 500, "an element is a str"),
    "wrong-type": ("answers.append(pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(1, np.float32))]))", 500,
                   "FP32, but the model declares INT32"),
    "no-array": ("answers.append(pb_utils.InferenceResponse([pb_utils.Tensor('Y', [1])]))", 500,
                 "a NumPy array is needed, got list"),
    "twice": ("answers.append(pb_utils.InferenceResponse(total(1).output_tensors() + total(2).output_tensors()))", 500,
              "has the output \"Y\" twice"),
    "default": ("answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError('no')))", 500, "no"),
    "invalid": ("answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError('no', pb_utils.TritonError.INVALID_ARG)))",
                400, "no"),
    "absent": ("answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError('no', pb_utils.TritonError.NOT_FOUND)))",
               404, "no"),
    "busy": ("answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError('no', pb_utils.TritonError.UNAVAILABLE)))",
             503, "no"),
    "exists": ("answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError('no', pb_utils.TritonError.ALREADY_EXISTS)))",
               409, "no"),
    "unsupported": ("answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError('no', pb_utils.TritonError.UNSUPPORTED)))",
                    501, "no"),
    "bls": ("pb_utils.InferenceRequest(model_name='other', requested_output_names=['Y'], inputs=[]).exec()", 500,
            "a model cannot call other models"),
    "load": ("pb_utils.load_model('other')", 500, "a model cannot call other models"),
    "exits": ("raise SystemExit(3)", 500, "sys.exit(3)"),
    "both": ("request.get_response_sender()\nanswers.append(total(1))", 500, "return None for it"),
}


def test_what_a_model_does_wrong_answers_its_request(serve, repository):
    """And nothing else: the worker goes on."""
    for name, (body, _, _) in BAD.items():
        put(repository, name, execute(body))
    put(repository, "none", "class TritonPythonModel:\n    def execute(self, requests):\n        return None\n")
    s = serve()
    pids = {name: s.ready_pids(name) for name in BAD}
    for name, (_, status, words) in BAD.items():
        got = ask(s, name)
        assert isinstance(got, tuple) and got[0] == status and words in got[1], (name, got)
        got = ask(s, name)
        assert got[0] == status, (name, got)
    assert "must return a list with one InferenceResponse for each request, got None" in ask(s, "none")[1]
    assert {name: s.ready_pids(name) for name in BAD} == pids


OWN = """import gc


class Kept(pb_utils.Tensor):
    def __init__(self, name, array):
        super().__init__(name, array)
        self.note = [self]


class Sum(pb_utils.InferenceResponse):
    pass


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        answers = []
        for request in requests:
            self.kept.append(request)
            request.note = "mine"
            x = pb_utils.get_input_tensor_by_name(request, "X")
            assert isinstance(x, pb_utils.Tensor) and isinstance(request, pb_utils.InferenceRequest)
            assert x.as_numpy() is x.as_numpy() and type(x) is pb_utils.Tensor and type(request) is pb_utils.InferenceRequest
            sum = np.array([int(each.inputs()[0].as_numpy()[0]) for each in self.kept], np.int32).sum(keepdims=True)
            y = [lambda: Kept("Y", sum.astype(np.int32)), lambda: pb_utils.Tensor(name="Y", tensor=sum.astype(np.int32)),
                 lambda: pb_utils.Tensor("Y", sum.astype(">i4"))][len(self.kept) % 3]()
            assert y.as_numpy().tolist() == sum.tolist() and y.shape() == [1]
            unknown = pb_utils.Tensor("unknown", sum)
            answers.append([lambda: pb_utils.InferenceResponse(output_tensors=[y]), lambda: Sum([unknown, y]),
                            lambda: pb_utils.InferenceResponse((y,), None), lambda: pb_utils.InferenceResponse([y, x, unknown]),
                            lambda: pb_utils.InferenceResponse([y], parameters={"a": 1})][len(self.kept) % 5]())
            for wrong in (lambda: pb_utils.InferenceResponse([1]), lambda: pb_utils.InferenceResponse(output_tensors=["Y"]),
                          lambda: pb_utils.Tensor(1, sum), lambda: pb_utils.Tensor("Y", sum, 3), lambda: pb_utils.Tensor("Y"),
                          lambda: pb_utils.InferenceResponse(tensors=[])):
                try:
                    wrong()
                except TypeError:
                    continue
                raise AssertionError("it was not refused")
        gc.collect()
        return answers
"""


def test_classes_of_a_models_own(serve, repository):
    """A model may derive classes, name arguments, keep its requests, and answer with an input or in an unusual way."""
    put(repository, "own", OWN, X_TO_Y + 'output { name: "X" data_type: TYPE_INT32 dims: [ 1 ] }')
    s = serve()
    assert [ask(s, "own", i) for i in range(1, 41)] == [sum(range(1, i + 1)) for i in range(1, 41)]


def test_an_output_that_is_missing(serve, repository):
    """The client that asked for it by name gets an error; another one gets what there is."""
    put(repository, "half", execute("answers.append(total(1))"),
        X_TO_Y + 'output { name: "Z" data_type: TYPE_INT32 dims: [ 1 ] }')
    s = serve()
    assert ask(s, "half") == 1
    assert ask(s, "half", outputs=[{"name": "Y"}]) == 1
    status, says = ask(s, "half", outputs=[{"name": "Z"}])
    assert status == 500 and "no output 'Z'" in says


def test_metrics_and_log(serve, repository):
    """Also those of initialize() and of threads, which the server gets with the next call."""
    put(repository, "counted", execute("self.calls.increment(number(request))\nself.size.set(3.5)\nself.size.increment(1)\n"
                                       "pb_utils.Logger.log('said so', pb_utils.Logger.WARNING)\n"
                                       "answers.append(total(int(self.calls.value())))", """
    def initialize(self, args):
        family = pb_utils.MetricFamily(name="model_calls", description="Calls", kind=pb_utils.MetricFamily.COUNTER)
        self.calls = family.Metric(labels={"who": "me"})
        self.calls.increment(100)
        self.size = pb_utils.MetricFamily("model_size", "Size", pb_utils.MetricFamily.GAUGE).Metric()
        thread = threading.Thread(target=lambda: self.calls.increment(1000))
        thread.start()
        thread.join()

"""))
    s = serve()
    assert (ask(s, "counted", 1), ask(s, "counted", 2)) == (1101, 1103)
    s.expect_log(" warn ", "said so")

    def shown():
        page = requests.get(s.metrics + "/metrics", timeout=limit(20)).text
        return [line for line in page.splitlines() if line.startswith(("model_calls", "model_size"))]
    expect(lambda: any(line.endswith(" 1103") or line.endswith(" 1103.0") for line in shown()), "the counter is shown")


def test_a_model_on_a_gpu_is_told_so_without_a_warning(serve, repository):
    """Handlers in Lua and C do not follow deviceType, and the log says so. Here that warning would be wrong."""
    put(repository, "on-gpu", execute("answers.append(total(int(self.kind == 'GPU')))", """
    def initialize(self, args):
        self.kind = args["model_instance_kind"]

"""), X_TO_Y + "instance_group [ { count: 1 kind: KIND_GPU gpus: [ 0, 1 ] } ]\n")
    s = serve()
    assert ask(s, "on-gpu") == 1
    assert not any("event=model_config_warning" in line for line in list(s.lines))


def test_the_archiver_makes_an_archive_of_it(server, folder, repository):
    """That any server loads; it has the model's folder as it was, without other versions."""
    put(repository, "sums", SUMS, X_TO_Y + SEQUENCES + "version_policy { all {} }", files={"shared/words.txt": "x"})
    put(repository, "sums", SUMS, X_TO_Y + SEQUENCES + "version_policy { all {} }", version=3)
    archiver("import", repository / "sums", "--export-path", folder)
    inspected = json.loads(archiver("inspect", "--json", folder / "sums-3.mar").stdout)
    assert inspected["manifest"]["model"]["handler"] == "3/model.py"
    assert {each["path"] for each in inspected["files"]} >= {"3/model.py", "shared/words.txt", "config.pbtxt",
                                                             "model-config.yaml"}
    assert not any(each["path"].startswith("1/") for each in inspected["files"])


def test_the_environment_of_the_configuration(serve, repository, folder):
    """A folder with an interpreter runs the model and stays out of the archive; a packed one is told."""
    env = repository / "own" / "env" / "bin"
    env.mkdir(parents=True)
    (env / "python3").write_text(f"#!/bin/sh\nFROM_ENV=yes exec {sys.executable} \"$@\"\n")
    (env / "python3").chmod(0o755)
    parameter = 'parameters { key: "EXECUTION_ENV_PATH" value: { string_value: "$$TRITON_MODEL_DIRECTORY/%s" } }'
    source = execute("answers.append(total(os.environ.get('FROM_ENV') == 'yes'))")
    source = source.replace("total(os.environ.get('FROM_ENV') == 'yes')", "total(int(os.environ.get('FROM_ENV') == 'yes'))")
    put(repository, "own", source, X_TO_Y + parameter % "env")
    put(repository, "packed", source, X_TO_Y + parameter % "env.tar.gz", files={"env.tar.gz": "x"})
    s = serve()
    assert (ask(s, "own"), ask(s, "packed")) == (1, 0)
    s.expect_log("event=model_field_ignored", "EXECUTION_ENV_PATH", "Unpack the environment")
    archiver("import", repository / "own", "--export-path", folder)
    inspected = json.loads(archiver("inspect", "--json", folder / "own.mar").stdout)
    assert not any(each["path"].startswith("env/") for each in inspected["files"])

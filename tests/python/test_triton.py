"""Models for Triton's Python backend: what the module triton_python_backend_utils does, and how their sequences are kept.

tests/differential/triton.py runs the same models on Triton. NumPy is needed, as Triton's models need it.
"""

import json
import threading

import pytest
from continuo import testing
from continuo.types import Refuse, Tensor
from worker_fake import Worker

numpy = pytest.importorskip("numpy", reason="models of Triton need NumPy")

CONFIG = {"input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
          "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}]}
HEAD = """
import numpy as np
import triton_python_backend_utils as pb_utils

def number(request):
    return int(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()[0])

def total(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([value], np.int32))])

"""
SUMS = HEAD + """
class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            key = request.correlation_id()
            self.totals[key] = self.totals.get(key, 0) + number(request)
            answers.append(total(self.totals[key]))
        return answers
"""


@pytest.fixture
def serve(tmp_path):
    made = []

    def start(handler, **more):
        config = {**CONFIG, **more.pop("config", {})}
        made.append(Worker(tmp_path, handler, "model.py", config=config, typed=True, name="m", version="1", **more))
        return made[-1]

    yield start
    for each in made:
        each.stop()


def ask(value, **more):
    return testing.request(inputs=[("X", "INT32", (1,), bytearray(int(value).to_bytes(4, "little")))], **more)


def answered(reply):
    return int(reply.outputs["Y"][0])


def test_a_sequence_belongs_to_the_process_that_remembers_it(serve):
    """In another process its next step is refused as lost, and other sequences go on."""
    worker = serve(SUMS, stateful=True)
    replies = worker.batch(ask(3, sequence_id="\x0142"), ask(4, sequence_id="text"))
    assert [answered(each) for each in replies] == [3, 4]
    worker.restart()
    lost, fresh = worker.batch(ask(5, sequence_id="\x0142"), ask(6, sequence_id="new"))
    assert isinstance(lost, Refuse) and lost.close_reason == "worker_lost" and '"42"' in str(lost)
    assert answered(fresh) == 6


def test_one_line_keeps_it(serve):
    """SequenceState keeps the sums in the states, and 42 and "42" are two sequences."""
    worker = serve("from continuo import SequenceState\n" + SUMS.replace("{}", "SequenceState()"), stateful=True)
    assert answered(worker.batch(ask(3, sequence_id="\x0142"))[0]) == 3
    worker.restart()
    replies = worker.batch(ask(4, sequence_id="\x0142"), ask(1, sequence_id="42"))
    assert [answered(each) for each in replies] == [7, 1]
    assert worker.states["\x0142"] == {"value": 7}


def test_a_model_without_sequences_is_never_lost(serve):
    """A new process answers its requests."""
    worker = serve(SUMS)
    assert [answered(each) for each in worker.batch(ask(3), ask(4))] == [3, 7]
    worker.restart()
    assert answered(worker.batch(ask(5))[0]) == 5


class Row:
    """The worker's row of a stream."""

    def __init__(self):
        self.sent = []

    def send(self, reply):
        self.sent.append(answered(reply))


@pytest.fixture
def sender():
    from continuo.triton.sender import InferenceResponseSender, ResponseStream

    woken = []
    made = InferenceResponseSender(lambda: woken.append(1))
    made.stream = ResponseStream(made, True, lambda response: reply_of(response))
    made.woken = woken
    return made


def reply_of(response):
    from continuo.types import Reply

    return Reply(outputs={each.name(): each.as_numpy() for each in response.output_tensors()})


def response(value=None, error=None):
    from continuo.triton.messages import InferenceResponse
    from continuo.triton.tensor import Tensor as Made

    tensors = [] if value is None else [Made("Y", numpy.array([value], numpy.int32))]
    return InferenceResponse(tensors, error)


def test_a_stream_waits_until_its_sender_has_something(sender):
    """Each response wakes the worker, and after the end nothing can be sent."""
    row = Row()
    assert sender.stream.resume(row, None) is None
    sender.send(response(1))
    sender.send(response(2))
    assert sender.woken == [1, 1]
    assert sender.stream.resume(row, None) is None and row.sent == [1, 2]
    sender.send(flags=1)
    assert sender.stream.resume(row, None) == (False, None, 0)
    with pytest.raises(Exception, match="the sender is closed"):
        sender.send(response(3))


def test_an_end_on_the_last_response_is_its_answer(sender):
    """The response with the end is the answer itself, so that no empty one follows."""
    row = Row()
    sender.send(response(1))
    sender.send(response(2), 1)
    more, reply, _ = sender.stream.resume(row, None)
    assert (more, answered(reply), row.sent) == (False, 2, [1])


def test_what_was_sent_before_an_error_leaves_first(sender):
    """The error comes in the stream's next turn."""
    from continuo.triton.messages import TritonError

    row = Row()
    sender.send(response(1))
    sender.send(response(error=TritonError("no", TritonError.NOT_FOUND)), 1)
    assert sender.stream.resume(row, None) == (True, None, 0) and row.sent == [1]
    with pytest.raises(Refuse, match="no") as refused:
        sender.stream.resume(row, None)
    assert refused.value.status == 404


def test_a_request_of_a_test_is_checked_as_the_server_does():
    with pytest.raises(ValueError, match=r"input 'X' has 12 bytes, but FP32 of shape \(1, 2\) takes 8"):
        testing.request(inputs=[("X", "FP32", (1, 2), bytes(12))])


def test_an_exception_ends_a_request_once(sender):
    """The first exception is the one that the client is told."""
    row = Row()
    sender.send(response(1))
    sender.fail(KeyError("x"))
    sender.fail(KeyError("y"))
    assert sender.stream.resume(row, None) == (True, None, 0) and row.sent == [1]
    with pytest.raises(KeyError, match="x"):
        sender.stream.resume(row, None)


def test_a_stream_that_must_end_tells_its_model(sender):
    """The model sees that the request is cancelled, and may go on sending."""
    sender.send(response(1))
    assert sender.stream.resume(Row(), "gone") == (False, None, 0)
    assert sender.is_cancelled()
    sender.send(response(2), 1)  # nobody gets it
    sender.stream.close()


def test_a_slow_client_holds_the_models_thread(sender):
    """No more than WAITING_MAX responses wait for the worker, however fast the model is."""
    from continuo.triton import sender as module

    n = module.WAITING_MAX + 10
    thread = threading.Thread(target=lambda: [sender.send(response(value)) for value in range(n)])
    thread.start()
    while len(sender.woken) < module.WAITING_MAX:
        thread.join(0.001)
    assert thread.is_alive() and len(sender.woken) == module.WAITING_MAX
    row = Row()
    while len(row.sent) < n:
        assert sender.stream.resume(row, None) in (None, (True, None, 0))
    thread.join()
    assert row.sent == list(range(n))


def test_other_steps_have_their_turn_while_a_model_sends(sender):
    """However many responses wait, the worker takes TURN_MAX of them at a time; all of them if the request must end."""
    from continuo.triton import sender as module

    n = module.TURN_MAX
    for value in range(3 * n):
        sender.send(response(value))
    row = Row()
    assert sender.stream.resume(row, None) == (True, None, 0) and row.sent == list(range(n))
    assert sender.stream.resume(row, "gone") == (False, None, 0) and row.sent == list(range(3 * n))


def test_a_response_that_cannot_be_sent_frees_the_models_thread(sender):
    """Nobody takes the responses behind it, and send() does not wait for that."""
    from continuo.triton import sender as module

    class Refusing(Row):
        def send(self, piece):
            raise TypeError("the wrong datatype")

    sender.send(response(0))
    with pytest.raises(TypeError, match="the wrong datatype"):
        sender.stream.resume(Refusing(), None)
    assert sender.is_cancelled()
    thread = threading.Thread(target=lambda: [sender.send(response(1)) for _ in range(module.WAITING_MAX + 1)], daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("give, says", [
    (lambda sender: sender.send(), "a response is needed"),
    (lambda sender: sender.send(response(1), 2), "flags must be 0 or"),
    (lambda sender: sender.send("text"), "an InferenceResponse is needed, got a str"),
])
def test_a_wrong_call_of_send_says_so(sender, give, says):
    """The exception names what was given."""
    with pytest.raises(Exception, match=says):
        give(sender)


def test_tensors_share_memory_by_dlpack():
    """Nothing is copied; what DLPack or NumPy does not have is refused by name."""
    from continuo.triton.tensor import Tensor as Made

    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    made = Made("mine", array)
    for again in (Made.from_dlpack("again", made), Made.from_dlpack("again", made.to_dlpack()), Made.from_dlpack("x", array)):
        assert again.as_numpy().tolist() == array.tolist() and again.shape() == [2, 3]
        assert numpy.shares_memory(again.as_numpy(), array)
    for wrong, says in ((numpy.array([b"x"], object), "DLPack has no strings"),):
        with pytest.raises(Exception, match=says):
            Made("text", wrong).to_dlpack()
    with pytest.raises(Exception, match="has no datatype of Triton"):
        Made("complex", numpy.zeros(1, complex))
    with pytest.raises(Exception, match="NumPy has no BF16"):
        Made._received("bf", "BF16", (1,), bytearray(2)).as_numpy()
    raw = Made._received("bf", "BF16", (1,), bytearray(2))
    assert raw._packable() == Tensor("BF16", (1,), bytearray(2)) and raw.triton_dtype() == 14


def test_a_configuration_is_completed_in_one_way_only():
    """What it has already stays, and a contradiction is an error."""
    from continuo.triton.model_config import ModelConfig

    config = ModelConfig({"name": "m", "max_batch_size": 4, "input": [], "output": [{"name": "Y", "dims": [1]}]})
    config.set_max_batch_size(8)
    config.add_input({"name": "X", "data_type": "TYPE_INT32", "dims": [2], "optional": True})
    config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [1]})
    config.set_dynamic_batching()
    config.set_model_transaction_policy({"decoupled": True})
    assert config.as_dict() == {
        "name": "m", "max_batch_size": 4, "dynamic_batching": {}, "model_transaction_policy": {"decoupled": True},
        "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [2], "optional": True}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}]}
    for entry, says in (({"name": "Z"}, "data_type is missing"),
                        ({"name": "Z", "data_type": "TYPE_INT8", "dims": [1], "mine": 1}, "unknown property mine"),
                        ({"name": "Y", "data_type": "TYPE_FP32", "dims": [3]}, r"has dims \[1\] in the")):
        with pytest.raises(ValueError, match=says):
            config.add_output(entry)


def test_the_configuration_has_tritons_names(serve, tmp_path):
    """Also if the model's YAML was written by hand, in Continuo's spelling."""
    worker = serve(HEAD + """
import json

class TritonPythonModel:
    def initialize(self, args):
        open("told.json", "w").write(json.dumps(args))

    def execute(self, requests):
        return [total(1) for _ in requests]
""".replace("told.json", str(tmp_path / "told.json")), config={
        "inputs": [{"name": "X", "dataType": "BYTES", "dims": 1}], "maxBatchSize": 3, "deviceType": "gpu", "deviceIds": [2, 5],
        "decoupled": False})
    told = json.loads((tmp_path / "told.json").read_text())
    config = json.loads(told["model_config"])
    assert (told["model_instance_kind"], told["model_instance_device_id"]) == ("GPU", "2")
    assert config["max_batch_size"] == 3 and config["instance_group"][0]["kind"] == "KIND_GPU"
    assert answered(worker.batch(ask(1))[0]) == 1


def test_settings_have_all_names_that_the_server_knows():
    """The server's own names, and Triton's in either spelling."""
    from continuo.triton import model_config, runner
    from continuo.types import Model

    tensor = {"name": "X", "dataType": "BYTES", "shape": [2], "allowRaggedBatch": True}
    made = model_config.triton_config(Model(config={
        "inputs": [tensor], "outputs": [tensor], "maxBatchSize": 4, "modelTransactionPolicy": {"decoupled": True},
        "sequenceBatching": {"direct": {}}, "dynamicBatching": {}}))
    assert (made["max_batch_size"], made["model_transaction_policy"]) == (4, {"decoupled": True})
    assert made["sequence_batching"] == {"direct": {}} and made["dynamic_batching"] == {}
    assert [(each["name"], each["data_type"], each["dims"]) for each in made["input"] + made["output"]] == \
        [("X", "TYPE_STRING", [2])] * 2
    assert made["input"][0]["allow_ragged_batch"]
    for state in ({"input_name": "a", "output_name": "b"}, {"inputName": "a", "outputName": "b"}, {"name": "b"}):
        assert runner._state_outputs({"sequenceBatching": {"state": [state]}}) == ["b"]
    assert runner._state_outputs({"state": {"tensors": [{"input": "a", "output": "b"}]}}) == ["b"]


def test_a_process_from_which_workers_are_forked_is_the_first_instance():
    from continuo.triton.model_config import arguments
    from continuo.types import Model

    names = [arguments(Model(name="m", worker=worker, config={"maxWorkers": 2}))["model_instance_name"]
             for worker in (0, 1, 2)]
    assert names == ["m_0_0", "m_0_0", "m_0_1"]

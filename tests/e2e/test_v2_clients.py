"""tritonclient's http, http.aio, grpc and grpc.aio with every example of examples/v2: synchronous, asynchronous and in
streams, with sequences by integer and string ids, shared memory, compression, cancellation and timeouts."""

import asyncio
import os

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from models import BUILD, Model, ROOT, archiver
from recorder import Sender
from test_v2_dynamic_batching import dynamic
from test_v2_http import TYPES, VALUES
from v2clients import GRPC_KINDS, KINDS, client_of_kind
from waiting import expect, limit

V2 = ROOT / "examples" / "v2"

# name: (example, handler, configuration). A handler without ending is a C example's library.
EXAMPLES = {
    "accumulator": ("accumulator", "handler.lua", "model-config.yaml"),
    "oldest_lua": ("accumulator", "controls.lua", "oldest.yaml"),
    "oldest_c": ("accumulator", "accumulator", "oldest.yaml"),
    "direct_lua": ("accumulator", "controls.lua", "direct.yaml"),
    "direct_c": ("accumulator", "accumulator", "direct.yaml"),
    "implicit_lua": ("implicit_state", "handler.lua", "model-config.yaml"),
    "implicit_c": ("implicit_state", "implicit_state", "model-config.yaml"),
    "repeat": ("repeat", "handler.lua", "model-config.yaml"),
    "decoupled_square": ("decoupled_square", "decoupled_square", "model-config.yaml"),
    "generate": ("generate", "handler.lua", "model-config.yaml"),
    "identity": ("identity", "identity", "model-config.yaml"),
    "square": ("square", "square", "model-config.yaml"),
    "linear_lua": ("linear", "handler.lua", "model-config.yaml"),
    "linear_c": ("linear", "linear", "model-config.yaml"),
}
SUMS = [name for name, (example, _, _) in EXAMPLES.items() if example in ("accumulator", "implicit_state")]


def test_no_example_is_missing():
    assert {example for example, _, _ in EXAMPLES.values()} == {path.name for path in V2.iterdir() if path.is_dir()}


@pytest.fixture
def start(server):
    """start(*names, flags=[...]) starts a server with these examples. Models in `alone` have batches of one."""
    def run(*names, alone=False, **options):
        s = server(Model("echo"), start=False, **options)
        for name in names:
            example, handler, yaml = EXAMPLES[name]
            path = V2 / example / handler if handler.endswith(".lua") else BUILD / "examples" / f"{handler}.so"
            yaml = V2 / example / yaml
            if alone:
                own = s.work / f"{name}.yaml"
                own.write_text(yaml.read_text().replace("batchSize: 16", "batchSize: 1"))
                yaml = own
            archiver("--model-name", name, "--version", "1.0", "--handler", path, "--config-file", yaml,
                     "--export-path", s.store)
            s.models.append(f"{name}={name}.mar")
        return s.start()
    return run


@pytest.fixture
def client(request):
    """client(kind, server) makes a client, which is closed at the end."""
    def connect(kind, s, **options):
        made = client_of_kind(kind, s, **options)
        request.addfinalizer(made.close)
        return made
    return connect


def step(c, model, value, sequence, start=False, end=False, **more):
    """Makes a call of the running sum."""
    shape = [1, 1] if model.startswith(("oldest", "direct")) else [1]
    return (model, [c.tensor("INPUT", np.full(shape, value, np.int32), "INT32")],
            {"sequence_id": sequence, "sequence_start": start, "sequence_end": end, **more})


def ask(c, call):
    model, inputs, more = call
    return c.infer(model, inputs, **more)


def total(answer):
    assert not isinstance(answer, Exception), answer
    return int(answer.as_numpy("OUTPUT").reshape(-1)[0])


def about(answer):
    """Returns a function that gives the response's members by name, because both transports use the same names."""
    response = answer.get_response()
    return response.get if isinstance(response, dict) else lambda name: getattr(response, name)


# --- sync and async


@pytest.mark.parametrize("kind", KINDS)
def test_sequences(start, client, kind):
    """START, a step, START on the live id and END, with both kinds of ids, and a step after that."""
    c = client(kind, start(*SUMS))
    for model in SUMS:
        for sequence in (7, "seven"):
            totals = [total(ask(c, step(c, model, *values))) for values in (
                (1, sequence, True), (2, sequence), (42, sequence, True), (9, sequence, False, True))]
            assert totals == [1, 3, 42, 51], (model, sequence)
            with pytest.raises(InferenceServerException, match=f"sequence {sequence} to model '{model}' must specify "
                                                               "the START flag on the first request"):
                ask(c, step(c, model, 1, sequence))


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_together(start, client, kind):
    """Four sequences of each model run at once, with one step of each at a time."""
    c = client(kind, start(*SUMS))
    all_of = [(model, sequence) for model in SUMS for sequence in (1, 2, "one", "two")]
    for round_ in range(1, 6):
        answers = c.together([step(c, model, round_ * place, sequence, round_ == 1, round_ == 5)
                              for place, (model, sequence) in enumerate(all_of)])
        assert [total(answer) for answer in answers] == [
            place * round_ * (round_ + 1) // 2 for place in range(len(all_of))]


@pytest.mark.parametrize("kind", KINDS)
def test_stateless_examples_together(start, client, kind):
    """Each answer has the id and values of its own request, in every datatype. A wrong request affects no other one."""
    c = client(kind, start("identity", "square"))
    calls = [("identity", [c.tensor(datatype, VALUES[datatype], datatype)],
              {"request_id": datatype, "outputs": [c.output(datatype)]}) for datatype in TYPES]
    calls += [("square", [c.tensor("IN", np.arange(n, dtype=np.float32), "FP32")], {"request_id": str(n)})
              for n in range(40)]
    calls.append(("square", [c.tensor("IN", np.arange(4, dtype=np.int32), "INT32")], {"request_id": "wrong"}))
    answers = c.together(calls)
    assert "data-type is 'INT32', but model 'square' expects 'FP32'" in str(answers.pop())
    assert [about(answer)("id") for answer in answers] == [more["request_id"] for _, _, more in calls[:-1]]
    for datatype, answer in zip(TYPES, answers):
        assert answer.as_numpy(datatype).tolist() == VALUES[datatype].tolist()
    for n, answer in enumerate(answers[len(TYPES):]):
        assert answer.as_numpy("OUT").tolist() == [float(k * k) for k in range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_examples_that_stack_their_rows(start, client, kind):
    """A request of several rows gets as many rows, whatever other requests are in its batch."""
    models = ("linear_lua", "linear_c")
    c = client(kind, start(*models))
    calls = [(model, [c.tensor("X", np.full((n, 3), n, np.float32), "FP32")], {}) for model in models for n in (1, 2, 3)]
    for answer, n in zip(c.together(calls), (1, 2, 3, 1, 2, 3)):
        assert answer.as_numpy("Y").tolist() == [[10 + 1.75 * n, 20.0 + n]] * n


@pytest.mark.parametrize("kind", KINDS)
def test_decoupled_examples_are_refused(start, client, kind):
    """Calls that return one response refuse them, whatever the request contains."""
    c = client(kind, start("repeat", "decoupled_square", "generate"))
    words = "ModelInfer RPC" if kind in GRPC_KINDS else "HTTP end point"
    for model in ("repeat", "decoupled_square", "generate"):
        with pytest.raises(InferenceServerException,
                           match=f"{words} doesn't support models with decoupled transaction policy"):
            c.infer(model, [c.tensor("IN", np.array([1], np.int32), "INT32")])


# --- streams


@pytest.mark.parametrize("kind", GRPC_KINDS)
def test_examples_in_one_stream(start, client, kind):
    """Requests for models and sequences alternate, and the answers come in the order of the requests."""
    c = client(kind, start(*SUMS, "identity", "square"))
    calls, expected = [], []
    for round_ in range(1, 5):
        for model in SUMS:
            for sequence in (1, "one"):
                calls.append(step(c, model, round_, sequence, round_ == 1, round_ == 4))
                expected.append(round_ * (round_ + 1) // 2)
        calls.append(("square", [c.tensor("IN", np.array([round_], np.float32), "FP32")], {}))
        expected.append(round_ * round_)
        calls.append(("identity", [c.tensor("INT8", np.array([-round_], np.int8), "INT8")],
                      {"outputs": [c.output("INT8")]}))
        expected.append(-round_)
    calls = [(model, inputs, {**more, "request_id": str(place)}) for place, (model, inputs, more) in enumerate(calls)]
    answers = c.stream(calls, len(calls))
    assert [answer.get_response().id for answer in answers] == [str(place) for place in range(len(calls))]
    assert [answer.as_numpy(answer.get_response().outputs[0].name).reshape(-1)[0] for answer in answers] == expected


@pytest.mark.parametrize("kind", GRPC_KINDS)
def test_decoupled_examples_in_a_stream(start, client, kind):
    """Requests get no, one or many responses, each in order. Clients that can ask for it (aio cannot) also get the end
    of each."""
    c = client(kind, start("repeat", "decoupled_square", "generate"))
    ints = lambda *values: np.array(values, np.int32)  # noqa: E731
    texts = lambda *values: np.array(values, np.object_)  # noqa: E731
    ends = {"enable_empty_final_response": True} if kind == "grpc" else {}
    end = ["end"] if ends else []

    def repeat(name, *values):
        return ("repeat", [c.tensor("IN", ints(*values), "INT32"),
                           c.tensor("DELAY", np.zeros(len(values), np.uint32), "UINT32")], {"request_id": name, **ends})

    calls = [repeat("four", 4, 2, 0, 1), repeat("none"),
             ("decoupled_square", [c.tensor("IN", ints(3), "INT32")], {"request_id": "square", **ends}),
             ("generate", [c.tensor("text_input", texts(b"a b a c a"), "BYTES"),
                           c.tensor("stream", np.array([True]), "BOOL"), c.tensor("max_tokens", ints(2), "INT32")],
              {"request_id": "text", **ends})]
    found = {more["request_id"]: [] for _, _, more in calls}
    answers = c.stream(calls, 4 + 3 + 2 + len(calls) * len(end))
    for answer in answers:
        assert not isinstance(answer, Exception), answer
        response = answer.get_response()
        if response.outputs:
            name = "text_output" if response.id == "text" else "OUT"
            found[response.id].append(answer.as_numpy(name).tolist()[0])
        else:
            found[response.id].append("end")
        assert response.parameters["triton_final_response"].bool_param == (not response.outputs)
    assert found == {"four": [4, 2, 0, 1] + end, "none": end, "square": [3, 3, 3] + end, "text": [b"b", b"a"] + end}


# --- shared memory, compression


@pytest.fixture
def region(request):
    """region(bytes) returns the handle and the key of an object in shared memory."""
    def make(size):
        key = f"/continuo-clients-{os.getpid()}-{len(made)}"
        made.append(shm.create_shared_memory_region(f"r{len(made)}", key, size))
        return made[-1], key

    made = []
    request.addfinalizer(lambda: [shm.destroy_shared_memory_region(handle) for handle in made])
    return make


@pytest.mark.parametrize("kind", KINDS)
def test_shared_memory(start, client, region, kind):
    """Inputs and outputs are in regions, for stateless examples, examples in C, and sequences of each kind."""
    c = client(kind, start(*SUMS, "identity", "square", flags=["--allow-client-shm"]))
    given, given_key = region(64)
    taken, taken_key = region(64)
    c.do("unregister_system_shared_memory")
    c.do("register_system_shared_memory", "in", given_key, 64)
    c.do("register_system_shared_memory", "out", taken_key, 64)
    values = np.array([1.5, -2, 3], np.float32)
    shm.set_shared_memory_region(given, [values], offset=4)
    for model, name, result, expected in (("identity", "FP32", "FP32", values), ("square", "IN", "OUT", values**2)):
        answer = c.infer(model, [c.shared(name, [3], "FP32", "in", 12, 4)], outputs=[c.output(result, "out", 12, 8)])
        assert shm.get_contents_as_numpy(taken, np.float32, [3], offset=8).tolist() == expected.tolist()
        assert c.sent(answer) == [None], "only its name, type and shape come with the answer"
    for number, model in enumerate(SUMS):
        for value, expected in ((5, 5), (6, 11)):
            shm.set_shared_memory_region(given, [np.array([value], np.int32)])
            _, (plain,), more = step(c, model, 0, number + 1, start=value == 5, end=value == 6)
            c.infer(model, [c.shared("INPUT", plain.shape(), "INT32", "in", 4)], outputs=[c.output("OUTPUT", "out", 4)],
                    **more)
            assert shm.get_contents_as_numpy(taken, np.int32, [1]).tolist() == [expected], model
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'nowhere'"):
        c.infer("identity", [c.shared("FP32", [3], "FP32", "nowhere", 12)])
    with pytest.raises(InferenceServerException, match="Invalid offset . byte size for shared memory region: 'in'"):
        c.infer("identity", [c.shared("FP32", [3], "FP32", "in", 12, 60)])
    c.do("unregister_system_shared_memory", "in")
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'in'"):
        c.infer("identity", [c.shared("FP32", [3], "FP32", "in", 12)])


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("kind", KINDS)
def test_compression(start, client, kind, algorithm):
    """Requests and answers are compressed, with large and with small bodies."""
    c = client(kind, start("accumulator", "identity", flags=["--compress-above", 1000]))
    for n in (1, 200_000):
        answer = c.infer("identity", [c.tensor("FP64", np.arange(n, dtype=np.float64), "FP64"),
                                      c.tensor("BYTES", VALUES["BYTES"], "BYTES")],
                         outputs=[c.output("FP64"), c.output("BYTES")], **c.compress(algorithm))
        assert answer.as_numpy("FP64").tobytes() == np.arange(n, dtype=np.float64).tobytes()
        assert answer.as_numpy("BYTES").tolist() == VALUES["BYTES"].tolist()
    for value, expected in ((1, 1), (2, 3)):
        assert total(ask(c, step(c, "accumulator", value, 5, value == 1, **c.compress(algorithm)))) == expected


# --- who does not wait


HELD = 2  # what a held worker has already; that is done for nobody
IMPATIENT = {"http": {"network_timeout": 0.3}, "http.aio": {"conn_timeout": 0.3}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_clients_timeout(start, client, kind):
    """When a client stops waiting, its request leaves the server, and the sequence continues."""
    s = start("accumulator", alone=True)
    patient = client(kind, s)
    hasty = client(kind, s, **IMPATIENT[kind]) if kind in IMPATIENT else patient
    assert total(ask(patient, step(patient, "accumulator", 1, 5, True))) == 1
    more = {"client_timeout": 0.3} if kind in GRPC_KINDS else {}
    with s.hold():
        for number in range(6, 11):  # the worker has the first
            with pytest.raises((InferenceServerException, OSError, asyncio.TimeoutError)) as error:
                ask(hasty, step(hasty, "accumulator", 1, number, True, **more))
            assert "DEADLINE" in str(error.value) or not isinstance(error.value, InferenceServerException), error
        expect(lambda: s.outstanding("accumulator") <= HELD, "what waited has left with its client")
    expect(lambda: s.outstanding("accumulator") == 0, "nothing is left")
    assert total(ask(patient, step(patient, "accumulator", 2, 5))) == 3


@pytest.mark.parametrize("kind", ["http.aio", "grpc", "grpc.aio"])
def test_a_cancelled_call(start, client, kind):
    """Each client cancels in its own way; http can only use its timeout. Waiting requests leave the server."""
    s = start("accumulator", alone=True)
    c = client(kind, s)
    assert total(ask(c, step(c, "accumulator", 1, 5, True))) == 1
    calls = [step(c, "accumulator", 1, number, True) for number in range(6, 26)]

    async def cancel_all():
        tasks = [asyncio.ensure_future(c.client.infer(model, inputs, **more)) for model, inputs, more in calls]
        while s.outstanding("accumulator") < len(calls):
            await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with s.hold():
        if kind == "grpc":
            heard = []
            contexts = [c.client.async_infer(model, inputs, lambda result, error: heard.append(error), **more)
                        for model, inputs, more in calls]
            s.expect_outstanding("accumulator", len(calls))
            for context in contexts:
                context.cancel()
            expect(lambda: len(heard) == len(calls), "each call has ended")
            assert {str(error) for error in heard} == {"[StatusCode.CANCELLED] Locally cancelled by application!"}
        else:
            ended = c.run(asyncio.wait_for(cancel_all(), limit(60)))
            assert all(isinstance(error, (asyncio.CancelledError, InferenceServerException)) for error in ended), ended
        expect(lambda: s.outstanding("accumulator") <= HELD, "what waited has left with its client")
    expect(lambda: s.outstanding("accumulator") == 0, "nothing is left")
    assert total(ask(c, step(c, "accumulator", 2, 5))) == 3


@pytest.mark.parametrize("kind", GRPC_KINDS)
def test_a_cancelled_stream(start, client, kind):
    """All requests of the stream are gone, also those of decoupled models. Another stream continues the sequence."""
    s = start("accumulator", "repeat")
    c = client(kind, s)
    assert total(c.stream([step(c, "accumulator", 1, 5, True)], 1)[0]) == 1
    slow = ("repeat", [c.tensor("IN", np.array([1, 2], np.int32), "INT32"),
                       c.tensor("DELAY", np.array([0, 3_600_000], np.uint32), "UINT32")], {})
    if kind == "grpc":
        heard = []
        c.client.start_stream(lambda result, error: heard.append(error or result))
        c.client.async_stream_infer(slow[0], slow[1])
        expect(lambda: heard, "the first response")
        c.client.stop_stream(cancel_requests=True)
        assert heard[0].as_numpy("OUT").tolist() == [1]
    else:
        async def first():
            async def requests():
                yield {"model_name": slow[0], "inputs": slow[1]}
                await asyncio.sleep(3600)

            answers = c.client.stream_infer(requests())
            async for result, _ in answers:
                assert result.as_numpy("OUT").tolist() == [1]
                break
            answers.cancel()
        c.run(asyncio.wait_for(first(), limit(60)))
    expect(lambda: s.metric("continuo_grpc_calls_open") == 0 and s.outstanding("repeat") == 0, "nothing is left")
    assert total(c.stream([step(c, "accumulator", 2, 5)], 1)[0]) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_requests_own_timeout(server, client, kind):
    """The parameter `timeout` is in microseconds. When it is over, the server answers instead of the model."""
    s = server(dynamic("{default_queue_policy: {default_timeout_microseconds: 60000000, "
                       "allow_timeout_override: true}}", max_batch_size=1))
    c = client(kind, s)
    sender = Sender(s)
    with s.hold():
        sender.send(1)  # is at the worker; what comes now waits
        with pytest.raises(InferenceServerException, match="Request timeout expired"):
            c.infer("recorder", [c.tensor("INPUT", np.array([[2]], np.int32), "INT32")], timeout=200_000)
    assert [reply.total for reply in sender.replies()] == [1]

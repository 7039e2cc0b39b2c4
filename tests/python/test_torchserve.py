"""TorchServe's handlers as programs of Continuo: what they get, what they return, and their errors."""

import asyncio
import json

import pytest
from continuo import _entry
from continuo.testing import request
from continuo.torchserve.frames import AnswerSocket, FrameError
from continuo.torchserve.stand_in.ts.protocol.otf_message_handler import create_predict_response
from continuo.types import CheckedReply, Part, Refuse
from worker_fake import Worker, body


@pytest.fixture
def serve(tmp_path):
    workers = []

    def make(handler, **how):
        workers.append(Worker(tmp_path, handler, **how))
        return workers[-1]

    yield make
    for worker in workers:
        worker.stop()


ECHO = """
    class Echo:
        def initialize(self, context):
            self.context = context

        def handle(self, data, context):
            return [repr(sorted(row.items())) for row in data]
"""


# --- entry points


@pytest.mark.parametrize("handler, file", [
    ("def handle(data, context):\n    return data and ['yes'] * len(data)\n", "handler.py"),
    ("def serve(data, context):\n    return data and ['yes'] * len(data)\n", "handler.py:serve"),
    ("class A:\n    def initialize(self, context): self.word = 'yes'\n"
     "    def handle(self, data, context): return [self.word] * len(data)\n", "handler.py"),
    ("class A:\n    def initialize(self, context): self.word = 'yes'\n"
     "    def handle(self, data, context): return [self.word] * len(data)\n"
     "service = A()\n\n"
     "def handle(data, context):\n"
     "    if data is None:\n        return service.initialize(context)\n"
     "    return service.handle(data, context)\n", "handler.py"),
])
def test_every_entry_point_of_torchserve_is_found(serve, handler, file):
    assert serve(handler, file=file).ask("x") == b"yes"


def test_a_handler_may_be_named_without_its_suffix(serve, tmp_path):
    (tmp_path / "mine.py").write_text("def go(data, context):\n    return data and ['went']\n")
    assert serve(None, file="mine:go").ask("x") == b"went"


def test_a_function_is_called_once_with_none_before_the_first_batch(serve):
    worker = serve("""
        calls = []
        def handle(data, context):
            calls.append(data)
            return [str(calls[0])]
    """)
    assert worker.ask("x") == b"None"


def test_two_classes_are_refused_with_their_names(serve):
    with pytest.raises(Exception, match="its classes are: A, B.*--extra-files"):
        serve("class A:\n    def handle(self, d, c): pass\n    def initialize(self, c): pass\n"
              "class B:\n    pass\n")


def test_a_module_without_entry_point_is_refused(serve):
    with pytest.raises(_entry.HandlerError, match="none of the entry points of TorchServe"):
        serve("x = 1\n")


def test_a_name_that_torchserve_does_not_have_is_refused(serve):
    with pytest.raises(_entry.HandlerError, match="neither nothing nor nothing.py"):
        serve(None, file="nothing")


# --- what a handler gets


@pytest.mark.parametrize("kind, data, seen", [
    ("", b"4", bytearray(b"4")),
    ("application/octet-stream", b"\xff", bytearray(b"\xff")),
    ("text/plain", b"4", "4"),
    ("text/plain", b"\xff", bytearray(b"\xff")),
    ("application/json", b'{"a":[1]}', {"a": [1]}),
    ("application/json", b"no", bytearray(b"no")),
])
def test_a_parameter_is_decoded_by_its_type(serve, kind, data, seen):
    reply = serve(ECHO).ask(parts=[Part("body", data, kind)])
    assert reply == repr([("body", seen)]).encode()


def test_the_last_parameter_of_a_name_counts(serve):
    reply = serve(ECHO).ask(parts=[Part("a", b"1"), Part("b", b"2"), Part("a", b"3")])
    assert reply == repr([("a", bytearray(b"3")), ("b", bytearray(b"2"))]).encode()


def test_the_context_tells_about_model_and_requests(serve):
    worker = serve("""
        import json

        class Handler:
            def initialize(self, context):
                self.properties = dict(context.system_properties)
                self.said = [context.model_name, context.manifest, context.model_yaml_config]

            def handle(self, data, context):
                return [json.dumps([self.properties, self.said,
                                    context.get_request_id(i), context.get_request_id(9),
                                    context.get_request_header(i, "X-Mine"),
                                    context.get_request_header(i, "x-mine"),
                                    context.get_request_header(i, "x_mine"),
                                    context.get_request_header(i, "none"),
                                    context.get_request_header(i, "body"),
                                    context.get_request_header(i, "explain"),
                                    context.get_request_header(i, "url_path"),
                                    context.get_sequence_id(i)]) for i, _ in enumerate(data)]
    """, files={"MAR-INF/MANIFEST.json": '{"model": {"modelName": "m"}}'}, batch_size=4, name="m",
        config={"handler": {"cache": {"capacity": 4}}}, device="cuda:1")
    reply = worker.ask(parts=[Part("body", b"4", "text/plain")], headers={"X-Mine": "yes"},
                       request_id="r-1", explain=True)
    properties, said, *rest = json.loads(reply)
    assert properties == {"model_dir": worker.model.dir, "gpu_id": 1, "batch_size": 4,
                          "server_name": "MMS", "server_version": "0.12.0",
                          "limit_max_image_pixels": True}
    assert said == ["m", {"model": {"modelName": "m"}}, {"handler": {"cache": {"capacity": 4}}}]
    assert rest == ["r-1", None, "yes", "yes", "yes", None, {"content-type": "text/plain"}, "True",
                    "", None]


def test_the_archive_s_files_can_be_imported_and_opened(serve):
    worker = serve("""
        import helper

        def handle(data, context):
            return data and [helper.word + open("words.txt").read()]
    """, files={"helper.py": "word = 'a'\n", "words.txt": "b"})
    assert worker.ask("x") == b"ab"


# --- what a handler gives


@pytest.mark.parametrize("result, sent", [
    ("'text'", b"text"), ("b'\\xff'", b"\xff"), ("bytearray(b'a')", b"a"), ("7", b"7"),
    ("{'a': [1]}", b'{\n  "a": [\n    1\n  ]\n}'), ("None", b"null"), ("[]", b"[]"),
])
def test_results_are_encoded(serve, result, sent):
    assert serve(f"def handle(data, context):\n    return data and [{result}]\n").ask("x") == sent


def test_status_headers_and_type_are_those_of_the_request_they_are_set_for(serve):
    worker = serve("""
        def handle(data, context):
            if data:
                context.set_response_status(201, "Made", 1)
                context.set_response_header(1, "X-Mine", "yes")
                context.set_response_content_type(1, "text/x-own")
                assert context.get_response_status(1) == (201, "Made")
                assert context.get_response_content_type(1) == "text/x-own"
            return data and ["a", "b"]
    """)
    plain, made = worker.batch(request("x"), request("y"))
    assert plain == b"a"
    assert (made.body, made.status, made.headers, made.content_type) == \
        (b"b", 201, {"X-Mine": "yes"}, "text/x-own")


def test_all_statuses_can_be_set_at_once(serve):
    worker = serve("def handle(data, context):\n    if data:\n"
                   "        context.set_all_response_status(404)\n    return data and ['a', 'b']\n")
    assert [each.status for each in worker.batch(request("x"), request("y"))] == [404, 404]


# --- the contract of a batch


@pytest.mark.parametrize("result, message", [
    ("'abc'", "Invalid model predict output"),
    ("None", "Invalid model predict output"),
    ("('a', 'b')", "Invalid model predict output"),
    ("['a']", "number of batch response mismatched"),
    ("['a', 'b', 'c']", "number of batch response mismatched"),
    ("['a', object()]", "Unsupported model output data type."),
])
def test_a_result_that_breaks_the_contract_fails_the_batch(serve, result, message):
    worker = serve(f"def handle(data, context):\n    return data and {result}\n")
    replies = worker.batch(request("x"), request("y"))
    assert [(each.message, each.status) for each in replies] == [(message, 503)] * 2


def test_what_a_handler_raises_fails_the_batch(serve):
    worker = serve("def handle(data, context):\n    if data: raise ValueError('as told')\n")
    replies = worker.batch(request("x"), request("y"))
    assert [repr(each) for each in replies] == ["ValueError('as told')"] * 2


@pytest.mark.parametrize("raised, status, message", [
    ("PredictionException('no', 404)", 404, "no"), ("PredictionException('no')", 500, "no"),
    ("PredictionException('no', 7)", 500, "no")])
def test_a_prediction_exception_has_its_status(serve, raised, status, message):
    reply = serve("from ts.utils.util import PredictionException\n\n"
                  f"def handle(data, context):\n    if data: raise {raised}\n").ask("x")
    assert isinstance(reply, Refuse)
    assert (reply.status, reply.message) == (status, message)


@pytest.mark.parametrize("raised", ["MemoryError()", "RuntimeError('CUDA out of memory')"])
def test_memory_that_is_used_up_is_told_as_that(serve, raised):
    reply = serve(f"def handle(data, context):\n    if data: raise {raised}\n").ask("x")
    assert isinstance(reply, MemoryError)


def test_a_base_handler_loads_its_model_and_runs_it(serve):
    pytest.importorskip("torch", reason="BaseHandler needs PyTorch")
    worker = serve("""
        import json

        import torch
        from ts.torch_handler.base_handler import BaseHandler

        class Handler(BaseHandler):
            def preprocess(self, data):
                return torch.tensor([json.loads(row["body"]) for row in data])

            def get_insights(self, tensors, inputs, target):
                return [["explained", target]] * len(tensors)
    """, files={"net.py": """
        import torch

        class Doubles(torch.nn.Module):
            def forward(self, x):
                return 2 * x
    """, "MAR-INF/MANIFEST.json": '{"model": {"modelName": "m", "modelFile": "net.py"}}'})
    assert [json.loads(each) for each in worker.batch(request("[1, 2]"), request("[3, 4]"))] == \
        [[2, 4], [6, 8]]
    assert json.loads(worker.ask("[1]", explain=True)) == ["explained", 0]


def test_micro_batches_run_beside_each_other(serve):
    """Each part of the batch has its turn in each method, as many at a time as the YAML says."""
    pytest.importorskip("torch", reason="BaseHandler needs PyTorch")
    worker = serve("""
        import threading

        from ts.handler_utils.micro_batching import MicroBatching
        from ts.torch_handler.base_handler import BaseHandler

        class Handler(BaseHandler):
            def __init__(self):
                super().__init__()
                self.handle = MicroBatching(self)

            def initialize(self, context):
                settings = context.model_yaml_config["micro_batching"]
                self.handle.micro_batch_size = settings["micro_batch_size"]
                self.handle.parallelism = settings["parallelism"]
                self.two = threading.Barrier(2)

            def preprocess(self, data):
                self.two.wait(10)  # two parts are here at the same time
                if any(row["body"] == b"bad" for row in data):
                    raise ValueError("bad row")
                return [(row["body"].decode(), len(data)) for row in data]

            def inference(self, data):
                return [f"{text} of {n}" for text, n in data]

            def postprocess(self, data):
                return data
    """, config={"micro_batching": {"micro_batch_size": 2, "parallelism": {"preprocess": 2}}})
    replies = worker.batch(*(request(text) for text in "abcdefg"))
    assert replies == [*(f"{text} of 2".encode() for text in "abcdef"), b"g of 1"]
    assert worker.program.entry.handle.parallelism == {"preprocess": 2, "inference": 1, "postprocess": 1}
    assert {str(each) for each in worker.batch(*(request(text) for text in ("a", "b", "c", "bad")))} == {"bad row"}


# --- answers in pieces


STREAMS = """
    from ts.handler_utils.utils import send_intermediate_predict_response

    def handle(data, context):
        if data is None:
            return
        for n in range(2):
            context.set_response_content_type(0, "text/plain")
            send_intermediate_predict_response([f"{n};"] * len(data), context.request_ids,
                                               "Intermediate Prediction success", 200, context)
        return ["end"] * len(data)
"""


def test_intermediate_answers_leave_before_the_last(serve):
    first, second = request("x", request_id="1"), request("y", request_id="2")
    assert serve(STREAMS).batch(first, second) == [b"end", b"end"]
    head, piece = first._row.sent
    assert (head.body, head.content_type, head.headers) == \
        (b"0;", "text/plain", {"ts_stream_next": "true"})
    assert piece == b"1;"
    assert [body(each) for each in second._row.sent] == [b"0;", b"1;"]


def test_frames_that_are_sent_together_are_all_given(serve):
    """A handler may collect frames and send them in one call, as a socket allows."""
    row = request("x", request_id="1")
    handler = STREAMS.replace("send_intermediate_predict_response", "create_predict_response").replace(
        """            create_predict_response([f"{n};"] * len(data), context.request_ids,
                                               "Intermediate Prediction success", 200, context)
""", """            frames += create_predict_response([f"{n};"] * len(data), context.request_ids, "", 200, context,
                                              True)
        context.cl_socket.sendall(frames)
""").replace("        for n in range(2):", "        frames = bytearray()\n        for n in range(2):")
    handler = handler.replace("ts.handler_utils.utils", "ts.protocol.otf_message_handler")
    assert serve(handler).batch(row) == [b"end"]
    assert [body(each) for each in row._row.sent] == [b"0;", b"1;"]


def test_a_frame_that_ends_too_early_gives_nothing(serve):
    """The whole frame before it is not given either, so the handler knows that its call has failed."""
    given = []
    whole = create_predict_response(["a"], {0: "1"}, "", 200)
    with pytest.raises(FrameError, match="part of a frame"):
        AnswerSocket(given.append).sendall(whole + whole[:-4])
    assert given == []
    AnswerSocket(given.append).sendall(whole + whole)
    assert [piece.body for piece in given] == [b"a", b"a"]


CONTINUOUS = """
    class Handler:
        def initialize(self, context):
            context.cache = {}
            self.rounds = []

        def handle(self, data, context):
            results = []
            for i, row in enumerate(data):
                id = context.get_request_id(i)
                left = context.cache.setdefault(id, int(row.get("body") or 0))
                context.cache[id] = left - 1
                results.append(f"{id}:{left} ")
            self.rounds.append(len(data))
            context.stopping_criteria = [self.criterion(i, context) for i, _ in enumerate(data)]
            return results

        def criterion(self, i, context):
            left = context.cache[context.get_request_id(i)]
            return lambda result: None if left < 0 else left == 0
"""


def drain(stream):
    """Returns all pieces of a stream."""
    pieces = [body(next(stream))]
    try:
        while True:
            pieces.append(next(stream))
    except StopIteration as end:
        return pieces + [body(end.value)]


def test_rows_whose_criterion_says_so_go_on_in_common_rounds(serve):
    worker = serve(CONTINUOUS, config={"continuousBatching": True})
    a, b, plain = worker.batch(request("3", request_id="a"), request("2", request_id="b"),
                               request("0", request_id="c"))
    assert plain == b"c:0 "
    first = next(a)
    assert (first.body, first.headers) == (b"a:3 ", {"ts_stream_next": "true"})
    assert body(next(b)) == b"b:2 "
    assert next(a) == b"a:2 "
    assert drain_rest(b) == [b"b:1 "]
    assert drain_rest(a) == [b"a:1 "]
    handler = worker.program.entry.handle.__self__
    assert handler.rounds == [3, 2, 1]
    assert worker.program.streams.live == []


def drain_rest(stream):
    pieces = []
    while True:
        try:
            pieces.append(body(next(stream)))
        except StopIteration as end:
            return pieces + [body(end.value)]


def test_a_new_request_joins_the_streams(serve):
    worker = serve(CONTINUOUS, config={"continuousBatching": True})
    (a,) = worker.batch(request("3", request_id="a"))
    next(a)
    assert worker.ask("0", request_id="b") == b"b:0 "
    assert worker.program.entry.handle.__self__.rounds == [1, 2]
    assert next(a) == b"a:2 "
    assert worker.program.entry.handle.__self__.rounds == [1, 2]


def test_a_stream_whose_client_is_gone_ends(serve):
    worker = serve(CONTINUOUS, config={"continuousBatching": True})
    gone = request("9", request_id="a")
    (a,) = worker.batch(gone)
    next(a)
    gone._row.stop = "gone"
    assert drain_rest(a) == [b""]
    assert worker.program.streams.live == []
    (dropped,) = worker.batch(request("9", request_id="b"))
    next(dropped)
    dropped.close()
    assert worker.program.streams.live == []


def test_an_error_in_a_round_ends_all_streams(serve):
    worker = serve("""
        def handle(data, context):
            if data is None:
                return
            if not data[0]:
                raise ValueError("in the middle")
            context.stopping_criteria = [lambda result: False for _ in data]
            return ["x"] * len(data)
    """, config={"continuousBatching": True})
    a, b = worker.batch(request("", request_id="a"), request("", request_id="b"))
    assert (body(next(a)), body(next(b))) == (b"x", b"x")
    for stream in (a, b):
        with pytest.raises(ValueError, match="in the middle"):
            next(stream)


def test_the_end_header_ends_its_sequences(serve):
    worker = serve("""
        def handle(data, context):
            if data:
                context.set_response_header(0, context.header_key_sequence_end, "s1; s2")
            return data and ["x"] * len(data)
    """, config={"continuousBatching": True}, stateful=True)
    replies = worker.batch(*[request("x", sequence_id=id) for id in ("s1", "s2", "s3")])
    assert [isinstance(each, CheckedReply) and each.end_sequence for each in replies] == \
        [True, True, False]


# --- sequences


COUNTER = """
    from continuo import SequenceState

    class Counter:
        def initialize(self, context):
            self.totals = SequenceState()

        def handle(self, data, context):
            results = []
            for i, row in enumerate(data):
                id = context.get_sequence_id(i)
                self.totals[id] = self.totals.get(id, 0) + int(row["body"])
                results.append(self.totals[id])
            return results
"""


def test_sequence_state_outlives_the_worker(serve):
    worker = serve(COUNTER, stateful=True)
    assert worker.batch(request("2", sequence_id="a"), request("5", sequence_id="b")) == \
        [b"2", b"5"]
    worker.restart()
    assert worker.ask("2", sequence_id="a") == b"4"
    assert worker.states == {"a": {"value": 4}, "b": {"value": 5}}


def test_a_failed_batch_changes_no_sequence_state(serve):
    worker = serve(COUNTER, stateful=True)
    worker.ask("2", sequence_id="a")
    replies = worker.batch(request("1", sequence_id="a"), request("no", sequence_id="b"))
    assert all(isinstance(each, ValueError) for each in replies)
    assert worker.ask("2", sequence_id="a") == b"4"


REMEMBERS = """
    class Counter:
        def initialize(self, context):
            self.totals = {}

        def handle(self, data, context):
            results = []
            for i, row in enumerate(data):
                id = context.get_sequence_id(i)
                self.totals[id] = self.totals.get(id, 0) + int(row["body"])
                results.append(self.totals[id])
            return results
"""


def test_without_it_a_sequence_of_a_worker_that_is_gone_is_closed(serve):
    worker = serve(REMEMBERS, stateful=True)
    assert worker.ask("2", sequence_id="a") == b"2"
    assert worker.ask("2", sequence_id="a") == b"4"
    worker.restart()
    lost, new = worker.batch(request("2", sequence_id="a"), request("3", sequence_id="b"))
    assert (lost.status, lost.close_reason) == (410, "worker_lost")
    assert "worker_lost" in lost.message and "SequenceState" in lost.message
    assert new == b"3"


def test_the_start_header_is_there_where_the_server_made_the_id(serve):
    worker = serve("""
        def handle(data, context):
            return data and [str(context.get_request_header(0, context.header_key_sequence_start))]
    """, stateful=True)
    made = request("x", sequence_id="made", start=True)
    made._row.generated_id = True
    assert worker.batch(made) == [b"true"]
    assert worker.ask("x", sequence_id="own", start=True) == b"None"


# --- metrics


def test_metrics_reach_the_server(serve):
    worker = serve("""
        from ts.metrics.dimension import Dimension
        from ts.metrics.metric_type_enum import MetricTypes

        def handle(data, context):
            if data is None:
                return
            metrics = context.metrics
            metrics.add_counter("Count", 2, 0)
            metrics.add_time("Time", 3.5, None, "ms", [Dimension("Step", "one")])
            metrics.add_size("Size", 1, unit="GB")
            metrics.add_percent("Part", 50)
            metrics.add_error("Error", 1)
            metrics.add_metric("Own", 4, "things", metric_type=MetricTypes.HISTOGRAM)
            metrics.add_time("HandlerTime", 1)
            mine = metrics.add_metric_to_cache("Mine", "count", ["Kind"], MetricTypes.GAUGE)
            mine.add_or_update(7, ["loud"])
            metrics.get_metric("Mine", MetricTypes.GAUGE).add_or_update(1, [])
            return ["done"]
    """, name="m")
    assert worker.ask("x") == b"done"
    model = {"ModelName": "m", "Level": "Model"}
    assert worker.measured == [
        ("counter", "Count", 2.0, model, "Count"),
        ("gauge", "Time", 3.5, {"Step": "one", **model}, "Milliseconds"),
        ("gauge", "Size", 1.0, model, "Gigabytes"),
        ("gauge", "Part", 50.0, model, "Percent"),
        ("counter", "Error", 1.0, {"Level": "Error"}, "unit"),
        ("histogram", "Own", 4.0, model, "things"),
        ("gauge", "Mine", 7.0, {"Kind": "loud"}, "Count")]


def test_metrics_that_the_server_s_file_declares_are_there(serve):
    """TorchServe's handlers get them by get_metric, without making them."""
    worker = serve("""
        from ts.metrics.metric_type_enum import MetricTypes

        def handle(data, context):
            if data is None:
                return
            metrics = context.metrics
            metrics.get_metric("Tokens").add_or_update(2, ["loud"])
            metrics.get_metric("Load", MetricTypes.GAUGE).add_or_update(1, [])
            metrics.get_metric("PredictionTime", MetricTypes.GAUGE).add_or_update(1, ["m", "Model"])
            return ["done"]
    """, metrics=[["counter", "Tokens", "count", ["Kind"]], ["gauge", "Load", "Percent", []]])
    assert worker.ask("x") == b"done"
    assert worker.measured == [("counter", "Tokens", 2.0, {"Kind": "loud"}, "Count"),
                               ("gauge", "Load", 1.0, {}, "Percent")]


@pytest.mark.parametrize("call, error", [
    ("get_metric('none')", "MetricsCacheKeyError"),
    ("add_metric_to_cache(1, 'count')", "MetricsCacheTypeError"),
    ("add_metric_to_cache('a', 1)", "MetricsCacheTypeError"),
    ("add_metric_to_cache('a', 'count', 'Kind')", "MetricsCacheTypeError"),
    ("add_metric_to_cache('a', 'count', metric_type='counter')", "MetricsCacheTypeError"),
    ("add_time('a', 1, unit='h')", "MetricsCacheValueError"),
])
def test_wrong_uses_of_metrics_raise_torchserves_errors(serve, call, error):
    worker = serve(f"""
        from ts.metrics import metric_cache_errors

        def handle(data, context):
            if data is None:
                return
            try:
                context.metrics.{call}
            except metric_cache_errors.{error}:
                return ["raised"]
    """)
    assert worker.ask("x") == b"raised"


# --- the rest


def test_describe_asks_the_handler(serve):
    worker = serve("""
        def handle(data, context):
            if data and context.get_request_header(0, "describe") == "True":
                return [{"rows": data}]
    """)
    assert worker.program.describe() == {"rows": [{}]}


def test_an_async_handler_is_awaited(serve):
    worker = serve("""
        import asyncio

        class Handler:
            def initialize(self, context):
                pass

            async def handle(self, data, context):
                await asyncio.sleep(0)
                return ["later"] * len(data)
    """)
    assert worker.ask("x") == b"later"


def test_with_async_communication_requests_overlap(serve):
    worker = serve("""
        import asyncio
        from ts.handler_utils.utils import send_intermediate_predict_response

        class Handler:
            def initialize(self, context):
                self.order = []
                self.let_go = None

            async def handle(self, data, context):
                self.let_go = self.let_go or asyncio.Event()
                name = context.get_request_id(0)
                if name == "slow":
                    send_intermediate_predict_response(["wait;"], context.request_ids, "", 200,
                                                       context)
                    await self.let_go.wait()
                self.let_go.set()
                self.order.append(name)
                return [f"{name} {len(data)}"]
    """, config={"asyncCommunication": True})
    slow = request("x", request_id="slow")
    replies = worker.batch(slow, request("x", request_id="fast"))

    async def all_of_them():
        return await asyncio.gather(*replies)

    head, fast = asyncio.run(all_of_them())
    assert (head, body(fast)) == (b"slow 1", b"fast 1")
    assert [body(each) for each in slow._row.sent] == [b"wait;"]
    assert worker.program.entry.handle.__self__.order == ["fast", "slow"]


@pytest.mark.parametrize("envelope, sent, seen, answer", [
    ("body", b'[1]', "[[1]]", b"ok"),
    ("json", b'{"instances": [1, {"b64": "aGk="}]}', None, None),
    ("json", b'{"instances": [{"b64": "aGk="}]}', "[b'hi']", b'{"predictions": ["ok"]}'),
    ("kserve", b'{"instances": [4]}', "[4]", b'{\n  "predictions": [\n    "ok"\n  ]\n}'),
])
def test_envelopes_open_requests_and_close_answers(serve, envelope, sent, seen, answer):
    worker = serve("seen = []\n\ndef handle(data, context):\n    seen.append(repr(data))\n"
                   "    return data and ['ok'] * len(data)\n")
    from continuo.torchserve.envelopes import find_envelope
    worker.program.envelope = find_envelope(envelope)
    reply = worker.ask(parts=[Part("body", sent, "application/json")])
    if answer is not None:
        assert reply == answer
        assert worker.program.module.seen[-1] == seen


def test_instances_that_the_server_has_opened_are_rows(serve):
    worker = serve("seen = []\n\ndef handle(data, context):\n    seen.append(data)\n"
                   "    return data and [each for each in data]\n", envelope="kserve")
    opened = [request(text) for text in ('"a"', '{"b": [1]}')]
    for each in opened:
        each._row.instance = True
    plain = request(parts=[Part("body", b'{"instances": [7]}', "application/json")])
    first, other, second = worker.batch(opened[0], plain, opened[1])
    assert [(each.body, each.content_type) for each in (first, second)] == \
        [(b'"a"', "application/json"), (b'{\n  "b": [\n    1\n  ]\n}', "application/json")]
    assert json.loads(other) == {"predictions": [7]}
    assert worker.program.module.seen == [None, ["a", {"b": [1]}], [7]]


def test_the_v2_envelope_shapes_tensors(serve):
    worker = serve("def handle(data, context):\n"
                   "    return data and [sum(map(sum, row['data'])) for row in data]\n",
                   files={"MAR-INF/MANIFEST.json":
                          '{"model": {"modelName": "m", "modelVersion": "1.0"}}'})
    from continuo.torchserve.envelopes import find_envelope
    worker.program.envelope = find_envelope("kservev2")
    asked = {"id": "7", "inputs": [{"name": "x", "shape": [2, 2], "datatype": "INT64",
                                    "data": [1, 2, 3, 4]}]}
    reply = worker.ask(parts=[Part("body", json.dumps(asked).encode(), "application/json")])
    assert json.loads(reply) == {
        "id": "7", "model_name": "m", "model_version": "1.0",
        "outputs": [{"name": "x", "datatype": "INT64", "data": [10], "shape": [1]}]}

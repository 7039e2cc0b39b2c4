"""Compares what TorchServe's handlers get and return, with the same archives, made by TorchServe's own archiver.

A handler writes into its answers what it sees. So a case compares these facts with the answer's body, and the effects
of the handler's calls with the answer's status and headers."""

import json
import os
import pathlib
import subprocess
import sys

PLAIN = {"Content-Type": "text/plain"}

# The body is a JSON list of a command and its arguments. Each row answers for itself, except what concerns the whole
# batch.
FACTS = '''
import json

import helper
from ts.metrics.dimension import Dimension
from ts.metrics.metric_type_enum import MetricTypes
from ts.handler_utils.utils import send_intermediate_predict_response
from ts.utils.util import PredictionException, list_classes_from_module

# A class of this file would be a second handler.
Thing = helper.Thing
RESULTS = {"text": "text", "empty text": "", "umlaut": "\\u00e4", "bytes": b"\\xff\\x00",
           "bytearray": bytearray(b"ab"), "integer": 7, "float": 0.5, "none": None, "true": True,
           "list": [1, "two"], "dict": {"a": {"b": []}}, "tuple": (1, 2), "object": Thing(),
           "set": {1}, "nan": float("nan"), "number key": {1: 2}}
ERRORS = {"value": ValueError("as told"), "memory": MemoryError(), "key": KeyError("k"),
          "cuda": RuntimeError("CUDA error: as told"), "prediction": PredictionException("as told"),
          "prediction 404": PredictionException("not here", 404),
          "prediction 507": PredictionException("no room", 507), "assertion": AssertionError()}


class Handler:
    def __init__(self):
        self.calls = 0

    def initialize(self, context):
        self.properties = dict(context.system_properties)
        self.at_start = [context.model_name, context.manifest, context.model_yaml_config,
                         context.request_ids, context.get_request_id(0)]

    def handle(self, data, context):
        self.calls += 1
        words = [json.loads(text(row.get("body", row.get("data", "[]"))) or '["row"]')
                 for row in data]
        whole = getattr(self, "whole_" + words[0][0], None)
        if whole:
            return whole(data, context, *words[0][1:])
        return [getattr(self, "do_" + word[0])(i, row, context, *word[1:])
                for i, (row, word) in enumerate(zip(data, words))]

    # --- the batch

    def whole_return(self, data, context, what):
        return {"nothing": None, "text": "text", "tuple": ("a",), "too few": [], "dict": {"a": 1},
                "too many": ["a"] * (len(data) + 1), "one bad": ["a"] * (len(data) - 1) + [Thing()],
                }[what]

    def whole_raise(self, data, context, what):
        raise ERRORS[what]

    def whole_stream(self, data, context, n, kind):
        for at in range(n):
            if kind:
                context.set_response_content_type(0, kind)
            context.set_response_header(0, "x-piece", str(at))
            send_intermediate_predict_response([f"{at};"] * len(data), context.request_ids,
                                               "Intermediate Prediction success", 200, context)
        return ["end"] * len(data)

    def whole_status(self, data, context, code):
        context.set_all_response_status(code, "As told")
        return ["all"] * len(data)

    # --- a row

    def do_row(self, i, row, context):
        return json.dumps([[name, type(value).__name__, text(value)]
                           for name, value in sorted(row.items())])

    def do_result(self, i, row, context, name):
        return RESULTS[name]

    def do_properties(self, i, row, context):
        found = {name: [type(value).__name__, value]
                 for name, value in sorted(self.properties.items())}
        found["model_dir"] = open(self.properties["model_dir"] + "/words.txt").read()
        return json.dumps([found, self.at_start, helper.WORD, open("words.txt").read()])

    def do_headers(self, i, row, context, *names):
        seen = context.get_all_request_header(i)
        return json.dumps([[name, context.get_request_header(i, name), name in seen]
                           for name in names])

    def do_response(self, i, row, context):
        before = [context.get_response_status(i)[0], context.get_response_headers(i),
                  context.get_response_content_type(i)]
        context.set_response_status(203, "Told", i)
        context.set_response_header(i, "x-told", "yes")
        context.set_response_content_type(i, "application/x-told")
        after = [context.get_response_status(i), context.get_response_headers(i),
                 context.get_response_content_type(i)]
        return json.dumps([before, after])

    def do_ids(self, i, row, context):
        id = context.get_request_id(i)
        return json.dumps([len(id), id == context.request_ids[i], context.get_request_id(99),
                           context.get_sequence_id(i), context.header_key_sequence_id,
                           context.header_key_sequence_start, context.header_key_sequence_end])

    def do_metrics(self, i, row, context):
        metrics = context.metrics
        metrics.add_counter("FactsCounter", 2)
        metrics.add_time("FactsTime", 3, None, "ms", [Dimension("Step", "one")])
        metrics.add_size("FactsSize", 1, None, "GB")
        metrics.add_percent("FactsPercent", 50)
        metrics.add_metric_to_cache("FactsOwn", "count", ["Kind"], MetricTypes.GAUGE)
        own = metrics.get_metric("FactsOwn", MetricTypes.GAUGE)
        own.add_or_update(7, ["loud"])
        own.add_or_update(7, [])
        problems = []
        for call in (lambda: metrics.get_metric("none"), lambda: metrics.add_time("a", 1, unit="h"),
                     lambda: metrics.add_size("a", 1, unit="TB"),
                     lambda: metrics.add_metric_to_cache(1, "count"),
                     lambda: metrics.add_metric_to_cache("a", "count", metric_type="gauge")):
            try:
                call()
                problems.append("none")
            except Exception as error:
                problems.append([type(error).__name__, type(error).__mro__[1].__name__])
        return json.dumps([own.unit, own.dimension_names, problems])


def text(value):
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else json.dumps(value)
'''
FUNCTION = '''
calls = []


def handle(data, context):
    calls.append(data is None)
    return [f"{len(data)} {calls}"] * len(data) if data else None
'''
ENTRY = '''
def handle(data, context):
    raise RuntimeError("not this one")


def serve(data, context):
    return data and ["served"] * len(data)
'''
# The model's own class is in a file that the handler's base class imports.
NETWORK = '''
import torch


class Doubles(torch.nn.Module):
    def forward(self, x):
        return 2 * x
'''
BASE = '''
import json

import torch
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    def preprocess(self, data):
        rows = [row.get("body") or row.get("data") for row in data]
        return torch.tensor([row if isinstance(row, list) else json.loads(row) for row in rows])

    def get_insights(self, tensors, inputs, target):
        return [["explained", target]] * len(tensors)

    def describe_handle(self):
        return {"doubles": True}
'''
# Answers n, n-1, ... 0, one piece in each round.
CONTINUOUS = '''
class Handler:
    def initialize(self, context):
        context.cache = {}

    def handle(self, data, context):
        results = []
        for i, row in enumerate(data):
            id = context.get_request_id(i)
            if id not in context.cache:
                body = row.get("body")
                context.cache[id] = int(body if isinstance(body, str) else bytes(body).decode())
            results.append(f"{context.cache[id]};")
            context.cache[id] -= 1
        context.stopping_criteria = [self.criterion(context, i) for i in range(len(data))]
        return results

    def criterion(self, context, i):
        left = context.cache[context.get_request_id(i)] + 1
        return lambda result: None if left < 0 else left == 0
'''
# The running sum of a sequence, kept in this worker, as TorchServe's handlers do.
REMEMBERS = '''
class Handler:
    def initialize(self, context):
        self.sums = {}

    def handle(self, data, context):
        answers = []
        for i, row in enumerate(data):
            word = row.get("body") or row.get("data")
            id = context.get_sequence_id(i)
            start = context.get_request_header(i, context.header_key_sequence_start)
            self.sums[id] = self.sums.get(id, 0) + int(bytes(word).decode()
                                                       if not isinstance(word, str) else word)
            context.set_response_header(i, "x-start", str(start))
            answers.append(self.sums[id])
        return answers
'''
ONE_WORKER = "minWorkers: 1\nmaxWorkers: 1\nmaxBatchDelay: 1\n"
SEQUENCES = ("sequenceBatching: true\nsequenceMaxIdleMSec: 60000\nmaxNumSequence: 20\nbatchSize: 4\n"
             "maxSequenceJobQueueSize: 4\n")
HELPER = {"helper.py": 'WORD = "from a file beside"\n\n\nclass Thing:\n    pass\n',
          "words.txt": "in the archive"}
# name: (handler's name, handler, YAML, other files, more flags)
MODELS = {
    "facts": ("facts.py", FACTS, "handler:\n  own: [1, two]\n", HELPER, []),
    "function": ("function.py", FUNCTION, "", {}, []),
    "entry": ("entry:serve", ENTRY, "", {}, []),
    "base": ("base.py", BASE, "python: {torch}\n", {}, ["--model-file", "network.py"]),
    "continuous": ("continuous.py", CONTINUOUS, "continuousBatching: true\nbatchSize: 2\n", {}, []),
    "remembers": ("remembers.py", REMEMBERS, SEQUENCES, {}, []),
}
SETTINGS = {
    "settings": "disable_token_authorization=true\nenable_model_api=true\nmetrics_mode=prometheus\n"
                "model_metrics_auto_detect=true\n",
    "flags": ["--ncs"], "models": [f"{name}={name}.mar" for name in MODELS],
}


def pack(folder, torch_python):
    """Makes the archives with the pip package torch-model-archiver. The model `base` needs torch, so its YAML names an
    interpreter that has it; TorchServe ignores that key."""
    tool = pathlib.Path(sys.executable).parent / "torch-model-archiver"
    archives = []
    for name, (handler, text, yaml, files, flags) in MODELS.items():
        source = folder / name
        source.mkdir(parents=True)
        (source / "staging").mkdir()
        files = {**files, handler.partition(":")[0].removesuffix(".py") + ".py": text,
                 "network.py": NETWORK,
                 "model-config.yaml": ONE_WORKER + yaml.replace("{torch}", str(torch_python))}
        for file, content in files.items():
            (source / file).write_text(content)
        extra = [file for file in files if file in HELPER]
        command = [tool, "--model-name", name, "--version", "1.0", "--handler", handler,
                   "--config-file", "model-config.yaml", "--export-path", folder, *flags]
        command += ["--extra-files", ",".join(extra)] if extra else []
        subprocess.run(list(map(str, command)), cwd=source, check=True, timeout=120,
                       env={**os.environ, "TMPDIR": str(source / "staging")})
        archives.append(folder / f"{name}.mar")
    return archives


def cases(pair):
    def ask(case, *words, headers=None, model="facts", path="predictions"):
        pair.http(f"python {case}", "inference", "POST", f"/{path}/{model}", json.dumps(words),
                  headers or PLAIN)

    for name in ("text", "empty text", "umlaut", "bytes", "bytearray", "integer", "float", "none",
                 "true", "list", "dict", "tuple", "object", "set", "nan", "number key"):
        ask(f"result {name}", "result", name)
    for name in ("nothing", "text", "tuple", "too few", "dict", "too many", "one bad"):
        ask(f"return {name}", "return", name)
    for name in ("value", "memory", "key", "cuda", "prediction", "prediction 404", "prediction 507",
                 "assertion"):
        ask(f"raise {name}", "raise", name)
    for n, kind in ((1, ""), (3, ""), (2, "text/x-told")):
        ask(f"stream {n} {kind}", "stream", n, kind)
    for code in (200, 204, 301, 404, 500):
        ask(f"status {code}", "status", code)
    ask("properties", "properties")
    ask("response", "response")
    ask("ids", "ids")
    ask("metrics", "metrics")
    ask("an unknown command", "nothing")
    header_cases(ask)
    row_cases(pair)
    other_models(pair)
    sequence_cases(pair)


def header_cases(ask):
    names = ["X-Mine", "x-mine", "explain", "url_path", "describe", "body", "Content-Type",
             "content-type", "None", "ts_request_sequence_id", "ts_request_sequence_start"]
    mine = {**PLAIN, "X-Mine": "a", "Accept": "*/*"}
    for path in ("predictions", "explanations"):
        ask(f"headers of {path}", "headers", *names, headers=mine, path=path)
    ask("headers of a sequence", "headers", *names,
        headers={**mine, "ts_request_sequence_id": "s", "ts_request_sequence_start": "true"})


def row_cases(pair):
    """Asks with bodies that hold no command. The handler answers with the parameters and their types."""
    bodies = {
        "nothing": ("", {}), "form": ("a=1&b=2&a=3", {"Content-Type": "application/x-www-form-urlencoded"}),
    }
    for case, (body, headers) in bodies.items():
        pair.http(f"python row {case}", "inference", "POST", "/predictions/facts", body, headers)


def other_models(pair):
    def ask(case, model, body, path="predictions", headers=None):
        pair.http(f"python {case}", "inference", "POST", f"/{path}/{model}", body, headers or PLAIN)

    ask("function", "function", "x")
    ask("entry", "entry", "x")
    kind = {"Content-Type": "application/json"}
    ask("base", "base", "[1, 2]", headers=kind)
    ask("base of text", "base", "[1.5]")
    ask("base of nonsense", "base", "no", headers=kind)
    ask("base explains", "base", "[1]", "explanations", kind)
    pair.http("python base describes", "management", "GET", "/models/base?customized=true")
    for n in (-5, -1, 1, 4):  # after 0, a stream of one piece, TorchServe's client waits for ever
        ask(f"continuous {n}", "continuous", str(n))


def sequence_cases(pair):
    def step(case, body, **headers):
        pair.http(f"python sequence {case}", "inference", "POST", "/predictions/remembers", body,
                  {**PLAIN, **headers})

    for number in (1, 2, 3):
        step(f"step {number}", str(number), ts_request_sequence_id="a")
    step("another", "5", ts_request_sequence_id="b")
    step("failing", "x", ts_request_sequence_id="b")
    step("after a failure", "5", ts_request_sequence_id="b")
    step("made", "1")
    step("start header", "1", ts_request_sequence_id="c", ts_request_sequence_start="true")

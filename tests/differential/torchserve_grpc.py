"""The gRPC calls of tests/differential/torchserve.py: compares codes, details and messages of both services."""

import json
import pathlib
import sys
import threading

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import rpc  # noqa: E402  the clients of the end-to-end tests
from torchserve_pair import add_members  # noqa: E402

NUMBERS = {"zero": 0, "negative": -1, "huge": 2147483647}
REGISTER = {"batch_size": 4, "max_batch_delay": 250, "response_timeout": 77, "startup_timeout": 88}


def answered(side, port, ask):
    """Returns the parts of the answer to `ask(clients)`: a message, a list of messages, or an error."""
    with rpc.Rpc(f"127.0.0.1:{side.ports[port]}") as clients:
        try:
            return side.plain(shown(ask(clients)))
        except grpc.RpcError as error:
            return side.plain({"code": error.code().name, "details": error.details()})


def shown(answer):
    if isinstance(answer, list):
        parts = {"code": "OK", "count": len(answer)}
        for at, message in enumerate(answer):
            parts.update({f"{part} {at}": text for part, text in fields(message).items()})
        return parts
    return {"code": "OK", **fields(answer)}


def fields(message):
    parts = {}
    for field, value in message.ListFields():
        if field.name == "status":
            parts["status code"], parts["status message"] = value.code, value.message
            continue
        text = value.decode() if isinstance(value, bytes) else str(value)
        try:
            add_members(parts, "json ", json.loads(text))
        except ValueError:
            parts[field.name] = text
    return parts


class Calls:
    def __init__(self, pair):
        self.pair = pair

    def management(self, case, method, **request):
        types = {"DescribeModel": "DescribeModelRequest", "ListModels": "ListModelsRequest",
                 "RegisterModel": "RegisterModelRequest", "ScaleWorker": "ScaleWorkerRequest",
                 "SetDefault": "SetDefaultRequest", "UnregisterModel": "UnregisterModelRequest"}
        message = getattr(rpc.module("management_pb2"), types[method])(**request)
        self.pair.compare(f"grpc {method} {case}", lambda side: answered(
            side, "grpc_management",
            lambda clients: getattr(clients.management, method)(message, timeout=60)))

    def predict(self, case, model, body=b"hello", version="", method="Predictions", sequence=None):
        message = rpc.request(model, body, sequence, version)
        self.pair.compare(f"grpc {method} {case}", lambda side: answered(
            side, "grpc_inference",
            lambda clients: clients.inference.Predictions(message, timeout=60)))

    def stream(self, case, *messages):
        """Waits for each answer before it sends the next request, as TorchServe's clients must."""
        def ask(clients):
            answers = []

            def sent():
                for number, message in enumerate(messages):
                    yield message
                    while len(answers) <= number:
                        got.wait(0.01)

            got = threading.Event()
            for answer in clients.inference.StreamPredictions2(sent(), timeout=20):
                answers.append(answer)
                got.set()
            return answers

        self.pair.compare(f"grpc StreamPredictions2 {case}",
                          lambda side: answered(side, "grpc_inference", ask))


def management_cases(pair):
    calls = Calls(pair)
    for case, limit, token in (("nothing", 0, 0), ("two", 2, 0), ("from two", 2, 2), ("negative", -1, -1),
                               ("many", 1000, 0), ("behind the end", 5, 100)):
        calls.management(case, "ListModels", limit=limit, next_page_token=token)
    for case, name, version in (("a model", "idle", ""), ("a version", "idle", "1.0"), ("all", "idle", "all"),
                                ("no name", "", ""), ("unknown", "none", ""),
                                ("unknown version", "idle", "7")):
        calls.management(case, "DescribeModel", model_name=name, model_version=version)
    calls.management("customized", "DescribeModel", model_name="served", customized=True)
    calls.management("customized without worker", "DescribeModel", model_name="idle", customized=True)
    register_cases(calls)
    for case, name, least, most in (("none", "idle", 0, 0), ("max below min", "idle", 2, 1),
                                    ("unknown", "none", 1, 1), ("no name", "", 1, 1)):
        if case != "none":
            calls.management(case, "ScaleWorker", model_name=name, min_worker=least, max_worker=most,
                             synchronous=True)
    calls.management("unknown version", "ScaleWorker", model_name="idle", model_version="7", min_worker=1)
    for case, name, version in (("right", "idle", "1.0"), ("unknown", "none", "1.0"), ("no name", "", "1.0"),
                                ("no version", "idle", ""), ("unknown version", "idle", "7")):
        calls.management(case, "SetDefault", model_name=name, model_version=version)
    for case, name, version in (("unknown", "none", ""), ("no name", "", ""), ("unknown version", "idle", "7")):
        calls.management(case, "UnregisterModel", model_name=name, model_version=version)
    version_cases(calls)


def register_cases(calls):
    def one(case, name, **request):
        calls.management(case, "RegisterModel", **request)
        calls.management(f"registered {case}", "DescribeModel", model_name=name)
        calls.management(f"registered {case}", "UnregisterModel", model_name=name)

    for parameter, right in REGISTER.items():
        for kind, value in {"valid": right, **NUMBERS}.items():
            if kind != "huge":
                one(f"{parameter}={kind}", f"g{parameter}{kind}".replace("_", ""), url="echo.mar",
                    model_name=f"g{parameter}{kind}".replace("_", ""), **{parameter: value})
    one("initial_workers=negative", "g1", url="echo.mar", model_name="g1", initial_workers=-1)
    one("synchronous", "g2", url="echo.mar", model_name="g2", synchronous=True)
    one("least", "echo", url="echo.mar")
    for case, request in {"nothing": {}, "no such file": {"url": "nothing.mar"},
                          "relative": {"url": "../echo.mar"}, "damaged": {"url": "damaged.mar"},
                          "runtime": {"url": "echo.mar", "runtime": "ruby"},
                          "handler": {"url": "echo.mar", "handler": "gone.py"}}.items():
        model = f"g{case.replace(' ', '')}"
        one(case, model, model_name=model, **request)
    calls.management("twice", "RegisterModel", url="echo.mar", model_name="idle")


def version_cases(calls):
    calls.management("first of two", "RegisterModel", url="echo.mar", model_name="gv")
    calls.management("second of two", "RegisterModel", url="echo2.mar", model_name="gv")
    calls.management("the default", "UnregisterModel", model_name="gv")
    calls.management("the second", "SetDefault", model_name="gv", model_version="2.0")
    calls.management("the first", "UnregisterModel", model_name="gv", model_version="1.0")
    calls.management("the last", "UnregisterModel", model_name="gv")


def inference_cases(pair):
    calls = Calls(pair)
    empty = rpc.module("google.protobuf.empty_pb2").Empty()
    pair.compare("grpc Ping", lambda side: answered(
        side, "grpc_inference", lambda clients: clients.inference.Ping(empty, timeout=20)))
    for case, model, version in (("a model", "served", ""), ("a version", "served", "1.0"), ("no name", "", ""),
                                 ("unknown", "none", ""), ("unknown version", "served", "7"),
                                 ("no worker", "idle", ""), ("no worker of a version", "idle", "1.0")):
        calls.predict(case, model, version=version)
    for case, body in {"raise": b"!raise", "status 202": b"!status 202 Later", "status 400": b"!status 400 No",
                       "status 418": b"!status 418 Teapot", "status 500": b"!status 500 Oh",
                       "status 503": b"!status 503 Busy", "json": b"!json", "header": b"!header a b"}.items():
        calls.predict(case, "served", body)
    calls.predict("too large", "served", b"x" * 200000)
    calls.stream("three steps", *[rpc.request("counter", number, "g1") for number in (1, 2, 3)])
    calls.stream("two sequences", rpc.request("counter", 1, "g2"), rpc.request("counter", 5, "g1"))
    calls.stream("without an id", rpc.request("counter", 1))
    calls.stream("unknown", rpc.request("none", 1, "g1"))
    calls.stream("no name", rpc.request("", 1, "g1"))
    calls.stream("not stateful", rpc.request("served", 1, "g1"))

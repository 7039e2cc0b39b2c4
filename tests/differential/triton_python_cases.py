"""What is asked of Triton and of Continuo about models that only the Python backend has (triton_python_models.py)."""

import itertools
import struct

import triton_wire as wire
from triton_grpc_cases import stream
from triton_http_cases import infer, tensor, wants

HOW = ("names", "methods", "constants", "types", "strings", "tensor", "error", "response", "args", "folder", "config by name",
       "request", "parameters", *(f"config {key}" for key in (
           "name", "backend", "max_batch_size", "input", "output", "parameters", "model_transaction_policy",
           "default_model_filename", "platform", "version_policy", "cc_model_filenames", "model_warmup", "none")))
GIVES = ("good", "none", "empty", "two", "a number", "wrong element", "none in list", "undeclared", "missing", "nothing",
         "shape", "not contiguous", "both", "model exception", "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG",
         "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED")


def how(text):
    return tensor("HOW", "BYTES", [1], [text])


def module():
    for what in HOW:
        yield f"python module {what}", infer("module", wants(how(what)))
    yield "python module request with id", infer("module", wants(how("request"), id="mine"))
    yield "python module request with outputs", infer("module", wants(how("request"), outputs=[{"name": "TEXT"}]))
    yield "python module parameters given", infer("module", wants(how("parameters"), parameters={
        "a": 1, "b": "text", "c": True, "d": 0.5, "timeout": 5000000, "priority": 1}))
    yield "python module timeout", infer("module", wants(how("request"), parameters={"timeout": 5000000}))


def gives():
    for what in GIVES:
        yield f"python gives {what}", infer("gives", wants(how(what)))
        yield f"python gives OUT of {what}", infer("gives", wants(how(what), outputs=[{"name": "OUT"}]))
        yield f"python gives MORE of {what}", infer("gives", wants(how(what), outputs=[{"name": "MORE"}]))
        message = wire.request("gives", [("HOW", "BYTES", [1])], [struct.pack("<I", len(what)) + what.encode()], id="g")
        yield f"python grpc gives {what}", lambda side, m=message: wire.rpc(side, "ModelInfer", m)


def rows():
    number = itertools.count(900)
    one, other = next(number), next(number)
    story = [(5, one, {"sequence_start": True}), (6, other, {"sequence_start": True}), (7, one, {}), (8, other, {}),
             (9, one, {"sequence_end": True}), (10, other, {"sequence_end": True})]

    def run(side):
        made = {}
        for at, (value, sequence, flags) in enumerate(story, 1):
            body = wants(tensor("INPUT", "INT32", [1, 1], [value]), parameters={"sequence_id": sequence, **flags})
            made.update({f"{at} {part}": text for part, text in infer("rows", body)(side).items()})
        return made

    yield "python rows of slots", run


def later():
    for model, n in itertools.product(("threads", "coroutine"), (0, 1, 3, 50)):
        message = wire.request(model, [("IN", "INT32", [n])], [struct.pack(f"<{n}i", *range(n))], id="m",
                               triton_enable_empty_final_response=True)
        yield f"grpc stream of {model} {n}", stream(message)


def all_cases(_):
    for group in (module, gives, rows, later):
        yield from group()

"""The calls that both servers get over HTTP: pairs of a case's name and a function that asks one side."""

import gzip
import itertools
import json
import struct
import time
import zlib

import triton_wire as wire
from triton_models import DTYPES

COUNTED_S = 0.5  # how long an answered request may stay uncounted, in s
FOUR = [1, 2, 3, 4]
NOWHERE = ("nothing", "add.", ".add", "ADD", "add%20", "%61dd", "many.versions.1")


def get(path, **headers):
    return lambda side: wire.call(side, "GET", path, **headers)


def post(path, body=None, **headers):
    return lambda side: wire.call(side, "POST", path, body, **headers)


def infer(model, body, version=None, **headers):
    return post(f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer", body, **headers)


def tensor(name, datatype, shape, data=None, **parameters):
    made = {"name": name, "datatype": datatype, "shape": shape}
    if data is not None:
        made["data"] = data
    if parameters:
        made["parameters"] = parameters
    return made


def wants(*inputs, **more):
    return {"inputs": list(inputs), **more}


A, B = tensor("A", "INT32", [4], FOUR), tensor("B", "INT32", [4], [10, 20, 30, 40])
BA, BB = tensor("A", "INT32", [1, 4], FOUR), tensor("B", "INT32", [1, 4], [10, 20, 30, 40])
INTS = struct.pack("<4i", *FOUR)


def without(document, key):
    return {name: value for name, value in document.items() if name != key}


# --- servers and models


def health():
    for what in ("live", "ready"):
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD"):
            yield f"health {method} {what}", lambda side, m=method, w=what: wire.call(side, m, f"/v2/health/{w}")
        for path in (f"/v2/health/{what}/", f"/v2/health/{what}?x=1", f"/v2//health/{what}"):
            yield f"health {path}", get(path)
    for path in ("/v2/health", "/v2/", "/v2", "/v1", "/v2/nothing", "/v2/models", "/v2/models/"):
        yield f"health {path}", get(path)


def routes():
    paths = ("/v2", "/v2/models/add", "/v2/models/add/ready", "/v2/models/add/config", "/v2/models/add/stats",
             "/v2/models/add/infer", "/v2/models/add/generate", "/v2/models/add/generate_stream", "/v2/models/stats",
             "/v2/models/add/versions/1", "/v2/models/add/versions", "/v2/models/add/versions/1/infer",
             "/v2/models/add/nothing", "/v2/repository/index", "/v2/repository/models/nothing/load",
             "/v2/repository/models/nothing/unload", "/v2/repository/models/nothing", "/v2/systemsharedmemory/status",
             "/v2/systemsharedmemory/region/r/status", "/v2/systemsharedmemory/region/r/register",
             "/v2/systemsharedmemory/register", "/v2/systemsharedmemory/unregister",
             "/v2/systemsharedmemory/region/r/unregister", "/v2/cudasharedmemory/status", "/v2/logging",
             "/v2/trace/setting", "/v2/models/add/trace/setting", "/v2/models/add/versions/1/trace/setting")
    for path, method in itertools.product(paths, ("GET", "POST", "PUT", "DELETE")):
        if not (method == "GET" and path.endswith("stats")):
            yield f"route {method} {path}", lambda side, m=method, p=path: without_values(wire.call(side, m, p))


def without_values(answer):
    """For cases that are about the route only: the content of a successful answer is compared elsewhere."""
    if answer["status"] == 200:
        return {"status": 200, "type": answer.get("header content-type", "")}
    return answer


def metadata():
    models = ("add", "badd", "types", "words", "sums", "single", "named", "many", "apart", "many.versions", "queued",
              "generate")
    for model in models:
        yield f"metadata {model}", get(f"/v2/models/{model}")
        yield f"metadata ready {model}", get(f"/v2/models/{model}/ready")
        yield f"config {model}", get(f"/v2/models/{model}/config")
    versions = ("1", "3", "2", "0", "01", "-1", "abc", "99999999999999999999", "1.0", "")
    for version, what in itertools.product(versions, ("", "/ready", "/config", "/stats")):
        if (version, what) in (("1", "/stats"), ("3", "/stats")):
            continue
        yield f"metadata version {version!r}{what}", get(f"/v2/models/many.versions/versions/{version}{what}")
    for model, what in itertools.product(("spare", "broken", *NOWHERE), ("", "/ready", "/config", "/stats")):
        yield f"metadata absent {model}{what}", get(f"/v2/models/{model}{what}")


def statistics():
    for model in ("add", "sums", "many", "types"):
        for path in (f"/v2/models/{model}/stats", f"/v2/models/{model}/versions/1/stats"):
            yield f"statistics {path}", lambda side, p=path: counts(wire.call(side, "GET", p))


def counts(answer):
    """Returns names and counts, but not how often a model ran: that depends on which requests were batched."""
    stats = json.loads(answer.pop("body.model_stats", "[]"))
    for n, one in enumerate(stats):
        for key in ("name", "version", "memory_usage"):
            answer[f"{n} {key}"] = wire.canonical(one.get(key))
        answer[f"{n} keys"] = wire.canonical(sorted(one))
        answer[f"{n} inference_stats"] = wire.canonical(sorted(one["inference_stats"]))
        answer[f"{n} response_stats"] = wire.canonical(sorted(next(iter(one["response_stats"].values()), ())))
        answer[f"{n} batch_stats"] = wire.canonical(sorted(next(iter(one["batch_stats"]), ())))
    return answer


def counted():
    """Returns what a request adds to a model's statistics. Triton counts a request after it has answered it. So the
    counts are read until two readings agree and, after the request, until they have changed."""
    def now(side, model):
        text = wire.call(side, "GET", f"/v2/models/{model}/stats")["body.model_stats"]
        one = json.loads(text)[0]
        return {"inferences": one["inference_count"], "executions": one["execution_count"],
                **{key: value["count"] for key, value in one["inference_stats"].items()}}

    def settled(side, model, moved_from=None):
        until = time.monotonic() + COUNTED_S
        last = now(side, model)
        while True:
            time.sleep(0.02)
            one = now(side, model)
            if one == last and (one != moved_from or time.monotonic() > until):
                return one
            last = one

    def difference(side, model, ask):
        before = settled(side, model)
        ask(side)
        after = settled(side, model, before)
        return {key: after[key] - before[key] for key in before}

    asks = {"add": infer("add", wants(A, B)), "badd": infer("badd", wants(tensor("A", "INT32", [3, 4], FOUR * 3),
                                                                         tensor("B", "INT32", [3, 4], FOUR * 3))),
            "fails": infer("fails", wants(tensor("HOW", "BYTES", [1], ["invalid"]))),
            "single": infer("single", wants(tensor("INPUT", "INT32", [1], [1]),
                                            parameters={"sequence_id": 77, "sequence_start": True, "sequence_end": True}))}
    for model, ask in asks.items():
        yield f"statistics counted {model}", lambda side, m=model, a=ask: difference(side, m, a)
    wrong = infer("add", wants(A))
    yield "statistics counted of a wrong request", lambda side: difference(side, "add", wrong)


# --- inference


def json_documents():
    yield "json whole", infer("add", wants(A, B))
    yield "json with id", infer("add", wants(A, B, id="an id"))
    for at in ("1", "3", "2", "0", "x"):
        yield f"json version {at}", infer("many.versions", wants(A, B), at)
    yield "json default version", infer("many.versions", wants(A, B))
    for text in ("", "{", "[]", "null", "1", '"x"', "{}", '{"inputs":[]}', "{inputs:[]}", '{"inputs":[}', "x",
                 '{"inputs":[]} x', '{"inputs":[],}', "\ufeff{}", '{"a":1e999,"inputs":[]}', "{'inputs':[]}", " " * 10,
                 '{"inputs":[{"name":"A","datatype":"INT32","shape":[1],"data":[01]}]}', "[" * 300 + "]" * 300):
        yield f"json text {text[:60]!r}", infer("add", text)
    for key, value in itertools.product(("id", "parameters", "inputs", "outputs"), (None, 1, -1, 1.5, True, "x", [], {}, [1])):
        yield f"json {key}={value!r}", infer("add", wants(A, B, **{key: value}) if key != "inputs" else {key: value})
    for key in ("name", "datatype", "shape", "data"):
        yield f"json input without {key}", infer("add", wants(without(A, key), B))
        for value in (None, 1, -1, 1.5, True, "x", [], {}, [1], [-1], ["x"], [2 ** 63], [2 ** 64], [1.5], [[4]], [0]):
            yield f"json input {key}={value!r}", infer("add", wants({**A, key: value}, B))
    yield "json unknown keys", infer("add", wants({**A, "more": 1}, B, more=[1]))
    for first in (0, 1, 3, 5, 8):
        yield f"json {first} elements of 4", infer("add", wants(tensor("A", "INT32", [4], FOUR * 2)
                                                                | {"data": (FOUR * 2)[:first]}, B))
    for shape in ([4], [2, 2], [1, 4], [4, 1], [], [0], [5], [2 ** 40], [2 ** 31, 2 ** 31, 4], [2 ** 62]):
        yield f"json shape {shape}", infer("add", wants(tensor("A", "INT32", shape, FOUR), B))
        yield f"json batch shape {shape}", infer("badd", wants(tensor("A", "INT32", shape, FOUR), BB))
    for nested in ([[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]], [1, [2, 3], 4], [[1, 2, 3, 4]], [[], 1, 2, 3, 4]):
        yield f"json nested {nested}", infer("add", wants(tensor("A", "INT32", [4], nested), B))
    for depth in (90, 99, 100, 101, 150):
        nested = 1
        for _ in range(depth):
            nested = [nested]
        yield f"json nested {depth} deep", infer("words", wants(tensor("X", "BYTES", [1], nested)))
        yield f"json numbers nested {depth} deep", infer("scores", wants(tensor("X", "FP32", [1], nested)))


def against_the_model():
    for names in itertools.product(("A", "B", "C", ""), repeat=2):
        given = [tensor(name, "INT32", [4], FOUR) for name in names]
        yield f"inputs {names}", infer("add", wants(*given))
    yield "inputs one", infer("add", wants(A))
    yield "inputs other one", infer("add", wants(B, id="r-1"))
    yield "inputs three", infer("add", wants(A, B, tensor("C", "INT32", [4], FOUR)))
    yield "inputs none", infer("add", wants())
    yield "inputs in the other order", infer("add", wants(B, A))
    yield "inputs optional none", infer("told", wants())
    yield "inputs optional too many", infer("told", wants(tensor("X", "INT32", [1], [1]), A))
    yield "inputs optional unknown", infer("told", wants(A))
    for datatype in ("FP32", "INT64", "UINT32", "BYTES", "BOOL", "FP16", "BF16", "int32", "TYPE_INT32", ""):
        data = ["1"] * 4 if datatype == "BYTES" else [True] * 4 if datatype == "BOOL" else FOUR
        yield f"inputs datatype {datatype!r}", infer("add", wants(tensor("A", datatype, [4], data), B))
    for rows in ((1, 1), (4, 4), (5, 5), (1, 2), (2, 1), (0, 0), (1, 0)):
        given = [tensor(name, "INT32", [n, 4], FOUR * n) for name, n in zip("AB", rows)]
        yield f"batch rows {rows}", infer("badd", wants(*given))
    yield "batch without batch dimension", infer("badd", wants(A, B))
    yield "batch of another size", infer("badd", wants(tensor("A", "INT32", [1, 5], FOUR + [5]), BB))
    yield "batch two dimensions more", infer("badd", wants(tensor("A", "INT32", [1, 2, 2], FOUR), BB))
    yield "batch queued", infer("queued", wants(BA, BB))


VALUES = {"true": True, "false": False, "0": 0, "1": 1, "-1": -1, "1.0": 1.0, "1.5": 1.5, "300": 300, "70000": 70000,
          "2^31": 2 ** 31, "2^32": 2 ** 32, "2^63": 2 ** 63, "2^64": 2 ** 64, "-2^31": -2 ** 31, "-2^63": -2 ** 63,
          "-2^63-1": -2 ** 63 - 1, "text": "text", "null": None, "map": {}, "1e10": 1e10, "0.1": 0.1, "1e300": 1e300,
          "umlaut": "\u00fc\u4e2d", "nul": "a\x00b", "": ""}


def values():
    for kind, (word, value) in itertools.product(DTYPES, VALUES.items()):
        datatype = "BYTES" if kind == "STRING" else kind
        yield f"value {datatype} {word}", infer("types", wants(tensor(kind, datatype, [1], [value])))
    for literal, kind in itertools.product(("NaN", "Infinity", "-Infinity", "-0.0", "1E5", "+1", ".5", "0x10", "nan", "Inf"),
                                           ("FP32", "FP64", "INT32")):
        text = '{"inputs":[{"name":"%s","datatype":"%s","shape":[1],"data":[%s]}]}' % (kind, kind, literal)
        yield f"value {kind} literal {literal}", infer("types", text)
    for kind in DTYPES:
        datatype = "BYTES" if kind == "STRING" else kind
        yield f"value {datatype} empty", infer("types", wants(tensor(kind, datatype, [0], [])))
        yield f"value {datatype} too many", infer("types", wants(tensor(kind, datatype, [1], [1, 1])))
        yield f"value {datatype} binary out", infer("types", wants(tensor(kind, datatype, [1], [1]),
                                                                   parameters={"binary_data_output": True}))


SIZES = {"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "UINT32": 4, "INT32": 4, "FP32": 4,
         "UINT64": 8, "INT64": 8, "FP64": 8}


def binary_body(head, tail, length=None, **headers):
    text = json.dumps(head).encode()
    headers["Inference_Header_Content_Length"] = str(len(text)) if length is None else str(length)
    return text + tail, headers


def binary(model, head, tail, length=None, **headers):
    body, headers = binary_body(head, tail, length, **headers)
    return infer(model, body, **headers)


def string(text, claimed=None):
    return struct.pack("<I", len(text) if claimed is None else claimed) + text


def binary_parts():
    for kind, size in SIZES.items():
        tail = bytes(1 for _ in range(2 * size))
        head = wants(tensor(kind, kind, [2], binary_data_size=2 * size))
        yield f"binary {kind} in", binary("types", head, tail)
        out = {**head, "outputs": [{"name": kind, "parameters": {"binary_data": True}}]}
        yield f"binary {kind} in and out", binary("types", out, tail)
        for wrong in sorted({-1, 1, size}):
            yield f"binary {kind} {wrong:+} bytes", binary(
                "types", wants(tensor(kind, kind, [2], binary_data_size=2 * size + wrong)), tail + b"\1" * wrong)
    head = wants(tensor("A", "INT32", [4], binary_data_size=16), B)
    for cut, more in ((0, b""), (1, b""), (16, b""), (0, b"x")):
        yield f"binary cut {cut} more {len(more)}", binary("add", head, INTS[cut:] + more)
    for length in ("", "x", "-1", "1", "0", "10", "100000", "99999999999", "1.5", " 1", "+1", "0x10"):
        yield f"binary header length {length!r}", binary("add", head, INTS, length)
    whole = json.dumps(wants(A, B))
    yield "binary header length of all", infer("add", whole, Inference_Header_Content_Length=str(len(whole)))
    yield "binary header length of all and one", infer("add", whole, Inference_Header_Content_Length=str(len(whole) + 1))
    for value in (None, "16", 16.0, -16, True, [], 0, 2 ** 64):
        yield f"binary data size {value!r}", binary("add", wants(tensor("A", "INT32", [4], binary_data_size=value), B), INTS)
    yield "binary data and size", binary("add", wants(tensor("A", "INT32", [4], FOUR, binary_data_size=16), B), INTS)
    yield "binary twice", binary("add", wants(*(tensor(name, "INT32", [4], binary_data_size=16) for name in "AB")), INTS * 2)
    for name, shape, data in (("one", [1], string(b"x")), ("two", [2], string(b"x") + string(b"yz")),
                              ("few", [2], string(b"x")), ("many", [1], string(b"x") * 2), ("empty", [1], string(b"")),
                              ("short length", [1], b"\1\0"), ("short text", [1], string(b"x", 5)),
                              ("tail", [1], string(b"x") + b"\0\0"), ("huge", [1], string(b"x", 2 ** 31)), ("none", [0], b"")):
        yield f"binary strings {name}", binary("words", wants(tensor("X", "BYTES", shape, binary_data_size=len(data))), data)
        out = wants(tensor("X", "BYTES", shape, binary_data_size=len(data)), parameters={"binary_data_output": True})
        yield f"binary strings {name} both ways", binary("words", out, data)
    yield "binary strings no text", binary("words", wants(tensor("X", "BYTES", [1], binary_data_size=6)), string(b"\xff\xfe"))
    for model, tail in (("scores", b"\0\0\x80?" * 3), ("scores", b"\0\0\x80"), ("scores", b""), ("bscores", b"\0\0\x80?"),
                        ("words", b"raw text"), ("add", INTS), ("open", b"\0\0\x80?"), ("told", INTS[:4]), ("many", INTS),
                        ("types", INTS), ("single", INTS[:4])):
        yield f"raw {model} {len(tail)}", infer(model, tail, Inference_Header_Content_Length="0")
    yield "raw with id header", infer("scores", b"\0\0\x80?", Inference_Header_Content_Length="0", id="x")


def outputs():
    for names in (["SUM"], ["DIFF"], ["SUM", "DIFF"], ["DIFF", "SUM"], ["SUM", "SUM"], ["NONE"], ["SUM", "NONE"], [""], []):
        asked = [{"name": name} for name in names]
        yield f"outputs {names}", infer("add", wants(A, B, outputs=asked))
    for number in (1, 2, 3):
        yield f"outputs declared order {number}", infer("add", wants(A, B))
    kinds = ("binary_data", "classification", "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size",
             "else")
    for key, value in itertools.product(kinds, (None, True, False, 0, 1, -1, 1.5, "x", [], {}, 2 ** 64)):
        yield f"outputs {key}={value!r}", infer("add", wants(A, B, outputs=[{"name": "SUM", "parameters": {key: value}}]))
    for pair in itertools.combinations(("binary_data", "classification", "shared_memory_region"), 2):
        both = {key: {"binary_data": True, "classification": 1, "shared_memory_region": "r"}[key] for key in pair}
        yield f"outputs {pair}", infer("add", wants(A, B, outputs=[{"name": "SUM", "parameters": both}]))
    for parameters in ([], 1, "x", None, {}):
        yield f"outputs parameters={parameters!r}", infer("add", wants(A, B, outputs=[{"name": "SUM",
                                                                                    "parameters": parameters}]))
    for value in (True, False, 1, 0, "true", None, []):
        yield f"outputs binary_data_output={value!r}", infer("add", wants(A, B, parameters={"binary_data_output": value}))
    yield "outputs binary_data_output and asked", infer("add", wants(A, B, outputs=[{"name": "SUM"}],
                                                                    parameters={"binary_data_output": True}))
    yield "outputs mixed", infer("add", wants(A, B, outputs=[{"name": "DIFF", "parameters": {"binary_data": True}},
                                                             {"name": "SUM"}]))


def classes(n, **more):
    return [{"name": "X", "parameters": {"classification": n, **more}}]


def classification():
    scores = [0.5, -1.25, 3.75, 3.75, 0.0]
    for n in (1, 2, 5, 6, 1000):
        yield f"classification {n} of 5", infer("scores", wants(tensor("X", "FP32", [5], scores), outputs=classes(n)))
        yield f"classification {n} of a batch", infer(
            "bscores", wants(tensor("X", "FP32", [2, 5], scores + scores[::-1]), outputs=classes(n)))
    for kind, data in (("INT32", [3, -1, 2]), ("UINT8", [3, 200, 2]), ("INT64", [3, -1, 2]), ("FP64", [0.1, 1e10, -3.0]),
                       ("BOOL", [True, False, True]), ("UINT64", [1, 2, 3]), ("INT8", [1, -2, 3])):
        asked = [{"name": kind, "parameters": {"classification": 2}}]
        yield f"classification of {kind}", infer("types", wants(tensor(kind, kind, [3], data), outputs=asked))
    yield "classification of nothing", infer("scores", wants(tensor("X", "FP32", [0], []), outputs=classes(2)))
    yield "classification of BYTES", infer("words", wants(tensor("X", "BYTES", [2], ["a", "b"]), outputs=classes(1)))


def parameters():
    standard = ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output", "headers",
                "triton_enable_empty_final_response", "triton_x", "triton", "mine", "")
    for key, (word, value) in itertools.product(standard, {"true": True, "0": 0, "1": 1, "-1": -1, "1.5": 1.5, "text": "text",
                                                            "null": None, "list": [1], "map": {"a": 1}, "2^63": 2 ** 63,
                                                            "2^64": 2 ** 64, "empty text": "", "1e3": 1e3}.items()):
        yield f"parameter {key}={word}", infer("told", wants(parameters={key: value}))
    yield "parameter several", infer("told", wants(parameters={"b": 1, "a": "x", "c": True, "d": 0.25}, id="i"))
    yield "parameter of an input", infer("told", wants(tensor("X", "INT32", [1], [1], mine=1)))
    for how in ("invalid", "absent", "busy", "raises", "plain", "fine"):
        yield f"failing {how}", infer("fails", wants(tensor("HOW", "BYTES", [1], [how]), id="f"))
    for policy in ({"priority": n} for n in (0, 1, 3, 4, 100)):
        yield f"queue {policy}", infer("queued", wants(BA, BB, parameters=policy))
    for policy in ({"timeout": n} for n in (0, 1, 1000000)):
        yield f"queue {policy}", infer("queued", wants(BA, BB, parameters=policy))


# --- sequences


def step(side, model, value, shape=(1,), **given):
    return wire.call(side, "POST", f"/v2/models/{model}/infer",
                     wants(tensor("INPUT", "INT32", list(shape), [value]), outputs=[{"name": "OUTPUT"}, {"name": "FLAGS"}],
                           parameters=given))


def story(model, shape, *steps):
    """Sends a sequence's steps one by one. The parts of each answer have the step's number before their names."""
    def ask(side):
        made = {}
        for number, (value, given) in enumerate(steps, 1):
            for part, text in step(side, model, value, shape, **given).items():
                made[f"{number} {part}"] = text
        return made
    return ask


def said(id, *, start=None, end=None):
    given = {"sequence_id": id}
    if start is not None:
        given["sequence_start"] = start
    if end is not None:
        given["sequence_end"] = end
    return given


def sequences():
    number = itertools.count(1000)
    for model, shape, name in (("sums", (1, 1), lambda: next(number)), ("single", (1,), lambda: next(number)),
                               ("single", (1,), lambda: f"text-{next(number)}"),
                               ("named", (1,), lambda: f"text-{next(number)}")):
        i = name()
        kind = f"{model} {type(i).__name__}"
        yield f"sequence {kind} whole", story(model, shape, (1, said(i, start=True)), (2, said(i)), (3, said(i, end=True)),
                                              (4, said(i)))
        i = name()
        yield f"sequence {kind} without start", story(model, shape, (1, said(i)), (2, said(i, end=True)),
                                                      (3, said(i, start=False)))
        i = name()
        yield f"sequence {kind} start twice", story(model, shape, (1, said(i, start=True)), (2, said(i)),
                                                    (5, said(i, start=True)), (6, said(i, end=True)))
        i = name()
        yield f"sequence {kind} of one step", story(model, shape, (1, said(i, start=True, end=True)), (2, said(i)),
                                                    (3, said(i, start=True, end=True)))
        yield f"sequence {kind} no id", story(model, shape, (1, {}), (1, {"sequence_start": True}), (1, said(0, start=True)),
                                              (1, said("", start=True)), (1, said(0)), (1, said("")))
    yield "sequence sums with a text", story("sums", (1, 1), (1, said("text", start=True)))
    yield "sequence sums with a number as text", story("sums", (1, 1), (1, said("42", start=True)))
    yield "sequence named with a number", story("named", (1,), (1, said(42, start=True)))
    yield "sequence largest number", story("sums", (1, 1), (1, said(2 ** 64 - 1, start=True)),
                                           (1, said(2 ** 64 - 1, end=True)))
    yield "sequence number and text are two", story("single", (1,), (1, said(900, start=True)), (2, said("900")),
                                                    (3, said("900", start=True)), (4, said(900, end=True)),
                                                    (5, said("900", end=True)))
    yield "sequence two rows", story("sums", (2, 1), (1, said(3, start=True)))
    yield "sequence two whole rows", lambda side: wire.call(side, "POST", "/v2/models/sums/infer", wants(
        tensor("INPUT", "INT32", [2, 1], [1, 2]), parameters=said(3, start=True)))
    yield "sequence with a control input", lambda side: wire.call(side, "POST", "/v2/models/sums/infer", wants(
        tensor("INPUT", "INT32", [1, 1], [1]), tensor("START", "INT32", [1, 1], [1]), parameters=said(4, start=True)))
    yield "sequence control output", lambda side: wire.call(side, "POST", "/v2/models/sums/infer", wants(
        tensor("INPUT", "INT32", [1, 1], [1]), outputs=[{"name": "READY"}], parameters=said(4, start=True)))
    yield "sequence wrong shape", story("single", (1, 1), (1, said(5, start=True)))
    yield "sequence id of a stateless model", infer("add", wants(A, B, parameters=said(5)))
    yield "sequence long text", story("named", (1,), (1, said("x" * 128, start=True)), (1, said("x" * 128, end=True)))
    yield "sequence odd text", story("named", (1,), (1, said("a b\n\u00fc/?", start=True)),
                                     (1, said("a b\n\u00fc/?", end=True)))
    yield "sequence timeout", story("single", (1,), (1, {**said(6, start=True, end=True), "timeout": 1}))


# --- generate


def generates():
    for what in ("generate", "generate_stream"):
        def ask(body, model="generate", what=what, **headers):
            return post(f"/v2/models/{model}/{what}", body, **headers)

        bodies = {"plain": {"TEXT": "hello"}, "list": {"TEXT": ["hello"]}, "two": {"TEXT": "a", "N": 2}, "id": {
            "TEXT": "a", "id": "an id"}, "missing": {"N": 1}, "more": {"TEXT": "a", "temperature": 0.5, "top": 3, "on": True,
                                                                    "word": "w"},
            "parameters": {"TEXT": "a", "parameters": {"x": 1, "y": "z"}}, "parameters input": {"parameters": {"TEXT": "a"}},
            "nested": {"TEXT": "a", "more": {"x": 1}}, "nested parameters": {"TEXT": "a", "parameters": {"x": {"y": 1}}},
            "parameters within": {"TEXT": "a", "parameters": {"parameters": {"y": 1}}},
            "parameters text": {"TEXT": "a", "parameters": "x"}, "parameters list": {"TEXT": "a", "parameters": [1]},
            "parameters null": {"TEXT": "a", "parameters": None},
            "list parameter": {"TEXT": "a", "more": [1]}, "null parameter": {"TEXT": "a", "more": None},
            "wrong type": {"TEXT": 1}, "wrong number": {"TEXT": "a", "N": "x"}, "real": {"TEXT": "a", "N": 1.5},
            "two texts": {"TEXT": ["a", "b"]}, "no text": {"TEXT": []}, "null": {"TEXT": None}, "map": {"TEXT": {}},
            "nested list": {"TEXT": [["a"]]}, "empty": {}, "id number": {"TEXT": "a", "id": 1},
            "id empty": {"TEXT": "a", "id": ""}, "none": {"TEXT": "a", "N": 0},
            "sequence": {"TEXT": "a", "sequence_id": 4, "sequence_start": True}, "priority": {"TEXT": "a", "priority": 1},
            "triton_": {"TEXT": "a", "triton_x": 1}, "large": {"TEXT": "a", "big": 2 ** 63},
            "larger": {"TEXT": "a", "big": 2 ** 64}, "unicode": {"TEXT": "\u00fc\u4e2d"}, "bool": {"TEXT": True},
            "input parameters": {"TEXT": "a", "inputs": []}}
        for name, body in bodies.items():
            yield f"{what} {name}", ask(body)
        for text in ("", "{", "[]", "1", "null", '{"TEXT":"a","TEXT":"b"}', '{"TEXT":"a","more":1,"more":2}',
                     '{"TEXT":"a","parameters":{"TEXT":"b"}}', '{"TEXT":"a","more":1,"parameters":{"more":2}}',
                     '{"TEXT":"a","id":"x","id":"y"}', '{"TEXT":"a"} x'):
            yield f"{what} text {text}", ask(text)
        yield f"{what} nothing", ask({"TEXT": "a"}, "nothing")
        yield f"{what} spare", ask({"TEXT": "a"}, "spare")
        yield f"{what} compressed", ask(gzip.compress(b'{"TEXT":"a"}'), Content_Encoding="gzip")
        yield f"{what} identity", ask({"TEXT": "a"}, Content_Encoding="identity")
        yield f"{what} accept gzip", ask({"TEXT": "a"}, Accept_Encoding="gzip")
        for how, n in itertools.product(("with", "alone", "error"), (0, 1, 2, 3)):
            yield f"{what} many {how} {n}", ask({"IN": list(range(n)), "HOW": how}, "many")
        yield f"{what} many one number", ask({"IN": 7, "HOW": "with"}, "many")
        for how in ("invalid", "absent", "busy", "raises", "plain"):
            yield f"{what} fails {how}", ask({"HOW": how}, "fails")
        yield f"{what} batch", ask({"A": FOUR, "B": FOUR}, "badd")
        yield f"{what} batch of two", ask({"A": FOUR * 2, "B": FOUR * 2}, "badd")
        yield f"{what} batch odd", ask({"A": [1, 2, 3], "B": FOUR}, "badd")
        yield f"{what} tensors", ask({"A": FOUR, "B": FOUR}, "add")
        yield f"{what} tensor short", ask({"A": [1], "B": FOUR}, "add")
        for kind, (word, value) in itertools.product(("BOOL", "UINT8", "INT64", "FP16", "FP32", "STRING"),
                                                     {"true": True, "1": 1, "-1": -1, "1.5": 1.5, "x": "x"}.items()):
            yield f"{what} {kind} {word}", ask({kind: value}, "types")
        yield f"{what} sequence model", ask({"INPUT": 1}, "single")
        yield f"{what} version", post(f"/v2/models/many.versions/versions/3/{what}", {"A": FOUR, "B": FOUR})


def decoupled():
    body = wants(tensor("IN", "INT32", [2], [1, 2]), tensor("HOW", "BYTES", [1], ["with"]))
    yield "decoupled infer", infer("many", body)
    yield "decoupled infer wrong", infer("many", "{")
    yield "decoupled infer nothing", infer("many", {})
    for how, n in itertools.product(("with", "alone"), (0, 1, 2, 3)):
        given = wants(tensor("IN", "INT32", [n], list(range(n))), tensor("HOW", "BYTES", [1], [how]))
        yield f"apart {how} {n}", infer("apart", given)
    given = wants(tensor("IN", "INT32", [0], []), tensor("HOW", "BYTES", [1], ["error"]))
    yield "apart error", infer("apart", given)


# --- the wire


def wires():
    body = json.dumps(wants(A, B)).encode()
    path = "/v2/models/add/infer"
    for coding, data in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body)), ("identity", body), ("", body),
                         ("GZIP", gzip.compress(body)), ("br", body), ("gzip, deflate", gzip.compress(body)),
                         ("gzip", body), ("deflate", body), ("deflate", zlib.compress(body)[2:-4]), ("gzip", b""),
                         ("gzip", gzip.compress(body)[:-6]), ("gzip", gzip.compress(body) + b"x"), ("x", body)):
        yield f"coding in {coding!r} {len(data)} {data[:2].hex()}", lambda side, c=coding, d=data: wire.call(
            side, "POST", path, d, Content_Encoding=c)
    head, tail = json.dumps(wants(tensor("A", "INT32", [4], binary_data_size=16), B)).encode(), INTS
    yield "coding in gzip binary", lambda side: wire.call(side, "POST", path, gzip.compress(head + tail), Content_Encoding="gzip",
                                                     Inference_Header_Content_Length=str(len(head)))
    for kind in ("", "text/plain", "application/json", "application/x-www-form-urlencoded", "application/octet-stream",
                 "multipart/form-data", "application/json; charset=utf-8", "x"):
        yield f"wire content type {kind!r}", lambda side, k=kind: wire.call(side, "POST", path, body, Content_Type=k)
    for accept in ("*/*", "application/json", "text/plain", "image/png", ""):
        yield f"wire accept {accept!r}", lambda side, a=accept: wire.call(side, "POST", path, body, Accept=a)
    lines = [b"Host: x", b"Content-Length: %d" % len(body)]
    variants = {
        "blanks before value": [lines[0], b"Content-Length:    %d" % len(body)],
        "tabs around value": [lines[0], b"Content-Length:\t%d\t" % len(body)],
        "blanks after value": [lines[0], b"Content-Length: %d   " % len(body)],
        "no blank": [lines[0], b"Content-Length:%d" % len(body)],
        "lower case": [lines[0], b"content-length: %d" % len(body)],
        "blank after header value": [*lines, b"Content-Encoding: identity "],
        "blank before header value": [*lines, b"Content-Encoding:   identity"],
        "binary length with blanks": [*lines, b"Inference-Header-Content-Length:   %d  " % len(body)],
        "binary length with tab": [*lines, b"Inference-Header-Content-Length:\t%d\t" % len(body)],
    }
    for name, given in variants.items():
        data = b"POST %s HTTP/1.1\r\n%s\r\nConnection: close\r\n\r\n" % (path.encode(), b"\r\n".join(given)) + body
        yield f"wire {name}", lambda side, d=data: wire.raw(side, d)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 40]), body[i:i + 40]) for i in range(0, len(body), 40)) + b"0\r\n\r\n"
    yield "wire chunked", lambda side: wire.raw(side, b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                                b"Transfer-Encoding: chunked\r\n\r\n" % path.encode() + chunks)
    yield "wire 1.0", lambda side: wire.raw(side, b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body))
                                            + body)
    large = wants(tensor("X", "FP32", [1800000], [1.5] * 1800000), outputs=[{"name": "X", "parameters": {"binary_data": True}}])

    def fingerprint(answer):
        return {part: text if len(str(text)) < 1000 else len(str(text)) for part, text in answer.items()}

    text = json.dumps(large)
    yield "wire nine megabytes", lambda side: fingerprint(wire.call(side, "POST", "/v2/models/scores/infer", text))


def all_cases(_key):
    for make in (health, routes, metadata, json_documents, against_the_model, values, binary_parts, outputs, classification,
                 parameters, sequences, generates, decoupled, wires, statistics, counted):
        yield from make()

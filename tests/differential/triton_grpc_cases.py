"""The calls that both servers get over gRPC: pairs of a case's name and a function that asks one side."""

import itertools
import json
import struct

import grpc
from tritonclient.grpc import service_pb2 as pb

import triton_wire as wire
from triton_models import DTYPES

INTS = struct.pack("<4i", 1, 2, 3, 4)
A, B = ("A", "INT32", [4]), ("B", "INT32", [4])
TYPED = {"int_contents": [1, 2, 3, 4]}
FIELDS = {"bool_contents": [True], "int_contents": [1], "int64_contents": [1], "uint_contents": [1], "uint64_contents": [1],
          "fp32_contents": [1.5], "fp64_contents": [1.5], "bytes_contents": [b"x"]}
PARAMETERS = {"bool": ("bool_param", True), "int": ("int64_param", 1), "zero": ("int64_param", 0),
              "negative": ("int64_param", -1), "text": ("string_param", "x"), "empty text": ("string_param", ""),
              "double": ("double_param", 1.5), "uint": ("uint64_param", 1)}
SIZES = {"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "UINT32": 4, "INT32": 4, "FP32": 4,
         "UINT64": 8, "INT64": 8, "FP64": 8}


def ask(name, message, metadata=()):
    return lambda side: wire.rpc(side, name, message, metadata)


def infer(*args, **given):
    return ask("ModelInfer", wire.request(*args, **given))


def stream(*messages, metadata=()):
    return lambda side: wire.stream(side, messages, metadata)


def string(text):
    return struct.pack("<I", len(text)) + text


def servers_and_models():
    for name in ("ServerLive", "ServerReady", "ServerMetadata"):
        yield f"grpc {name}", ask(name, getattr(pb, name + "Request")())
    for model, version in itertools.product(("add", "many.versions", "spare", "broken", "nothing", "", "many"),
                                            ("", "1", "3", "2", "0", "-1", "x", "1.0", "01", "99999999999999999999")):
        for name in ("ModelReady", "ModelMetadata"):
            yield f"grpc {name} {model!r} {version!r}", ask(name, getattr(pb, name + "Request")(name=model, version=version))
        yield f"grpc ModelConfig {model!r} {version!r}", config(model, version)
        if model not in ("", "add", "many", "many.versions") or version not in ("", "1", "3"):
            yield f"grpc ModelStatistics {model!r} {version!r}", ask("ModelStatistics", pb.ModelStatisticsRequest(
                name=model, version=version))
        yield f"grpc infer version {model!r} {version!r}", infer(model, [A, B], [INTS, INTS], version=version)
    for model in ("badd", "types", "sums", "single", "named", "apart", "queued", "generate"):
        yield f"grpc ModelMetadata {model}", ask("ModelMetadata", pb.ModelMetadataRequest(name=model))
        yield f"grpc ModelConfig {model}", config(model)
    yield "grpc health", health("")
    yield "grpc health other", health("nothing")
    yield "grpc unknown call", unknown("/inference.GRPCInferenceService/Nothing")
    yield "grpc unknown service", unknown("/inference.Nothing/Nothing")


def config(model, version=""):
    def run(side):
        answer = wire.rpc(side, "ModelConfig", pb.ModelConfigRequest(name=model, version=version))
        return {**answer, **wire.parts_of_json(answer.pop("config", "{}"), "config")}
    return run


def unary(side, path, data):
    wire.stub_of(side)
    try:
        answer = side.channel.unary_unary(path)(data, timeout=wire.TIMEOUT_S)
    except grpc.RpcError as error:
        return wire.failure(error)
    return {"code": "OK", "bytes": answer.hex()}


def health(service):
    data = b"\n" + bytes([len(service)]) + service.encode() if service else b""
    return lambda side: unary(side, "/grpc.health.v1.Health/Check", data)


def unknown(path):
    return lambda side: {"code": unary(side, path, b"")["code"]}


def tensors():
    yield "grpc infer raw", infer("add", [A, B], [INTS, INTS])
    yield "grpc infer typed", infer("add", [(*A, TYPED), (*B, TYPED)])
    yield "grpc infer id", infer("add", [A, B], [INTS, INTS], id="an id")
    yield "grpc infer both", infer("add", [(*A, TYPED), B], [INTS, INTS])
    yield "grpc infer raw and typed", infer("add", [A, (*B, TYPED)], [INTS])
    for n in (0, 1, 3, 4):
        yield f"grpc infer {n} raw contents", infer("add", [A, B], [INTS] * n)
    for size in (0, 1, 4, 15, 17, 20):
        yield f"grpc infer raw of {size}", infer("add", [A, B], [bytes(size), INTS])
    for n in (0, 1, 3, 5):
        yield f"grpc infer {n} typed", infer("add", [(*A, {"int_contents": [1] * n}), (*B, TYPED)])
    yield "grpc infer empty contents", infer("add", [(*A, {}), (*B, TYPED)])
    yield "grpc infer two typed", infer("add", [(*A, {**TYPED, "fp32_contents": [1.0]}), (*B, TYPED)])
    for names in itertools.product(("A", "B", "C", ""), repeat=2):
        yield f"grpc inputs {names}", infer("add", [(name, "INT32", [4]) for name in names], [INTS, INTS])
    yield "grpc inputs none", infer("add")
    yield "grpc inputs one", infer("add", [A], [INTS], id="i")
    yield "grpc inputs three", infer("add", [A, B, ("C", "INT32", [4])], [INTS] * 3)
    for shape in ([], [0], [4], [2, 2], [5], [-1], [-4], [2 ** 40], [2 ** 31, 2 ** 31, 4], [2 ** 62]):
        yield f"grpc shape {shape}", infer("add", [("A", "INT32", shape), B], [INTS, INTS])
        yield f"grpc batch shape {shape}", infer("badd", [("A", "INT32", shape), ("B", "INT32", [1, 4])], [INTS, INTS])
    for datatype in ("FP32", "INT64", "BYTES", "BF16", "int32", "TYPE_INT32", ""):
        yield f"grpc datatype {datatype!r}", infer("add", [("A", datatype, [4]), B], [INTS, INTS])
        yield f"grpc datatype {datatype!r} typed", infer("add", [("A", datatype, [4], TYPED), (*B, TYPED)])
    for rows in ((1, 1), (4, 4), (5, 5), (1, 2), (0, 0)):
        given = [(name, "INT32", [n, 4]) for name, n in zip("AB", rows)]
        yield f"grpc rows {rows}", infer("badd", given, [INTS * n for n in rows])
    for kind, (field, values) in itertools.product(DTYPES, FIELDS.items()):
        datatype = "BYTES" if kind == "STRING" else kind
        yield f"grpc typed {datatype} {field}", infer("types", [(kind, datatype, [1], {field: values})])
    for kind, size in SIZES.items():
        yield f"grpc raw {kind}", infer("types", [(kind, kind, [2])], [b"\1" * (2 * size)])
    for value in (300, -1, 70000, 2 ** 31 - 1, -2 ** 31):
        for kind in ("INT8", "INT16", "INT32"):
            yield f"grpc {kind} {value}", infer("types", [(kind, kind, [1], {"int_contents": [value]})])
    for kind, value in itertools.product(("UINT8", "UINT16", "UINT32"), (300, 70000, 2 ** 32 - 1)):
        yield f"grpc {kind} {value}", infer("types", [(kind, kind, [1], {"uint_contents": [value]})])
    for name, shape, data in (("one", [1], string(b"x")), ("two", [2], string(b"x") + string(b"yz")), ("few", [2], string(b"x")),
                              ("many", [1], string(b"x") * 2), ("short length", [1], b"\1\0"), ("none", [0], b""),
                              ("short text", [1], struct.pack("<I", 9) + b"x"), ("tail", [1], string(b"x") + b"\0\0")):
        yield f"grpc strings {name}", infer("words", [("X", "BYTES", shape)], [data])
    for n in (0, 1, 2, 3):
        yield f"grpc strings {n} typed of 2", infer("words", [("X", "BYTES", [2], {"bytes_contents": [b"a"] * n})])


def outputs():
    for names in (["SUM"], ["DIFF"], ["SUM", "DIFF"], ["DIFF", "SUM"], ["SUM", "SUM"], ["NONE"], [""]):
        yield f"grpc outputs {names}", infer("add", [A, B], [INTS, INTS], names)
    keys = ("binary_data", "classification", "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size", "else")
    for key, (word, value) in itertools.product(keys, PARAMETERS.items()):
        yield f"grpc output {key}={word}", infer("add", [A, B], [INTS, INTS], [("SUM", {key: value})])
        yield f"grpc input {key}={word}", infer("add", [(*A, None, {key: value}), B], [INTS, INTS])
    for kind, data in (("INT32", struct.pack("<3i", 3, -1, 2)), ("FP32", struct.pack("<3f", .5, 2, 1))):
        for n in (1, 2, 4):
            yield f"grpc classification {n} of {kind}", infer("types", [(kind, kind, [3])], [data],
                                                              [(kind, {"classification": n})])
    yield "grpc classification of BYTES", infer("words", [("X", "BYTES", [1])], [string(b"a")], [("X", {"classification": 1})])
    yield "grpc classification and region", infer("add", [A, B], [INTS, INTS], [
        ("SUM", {"classification": 1, "shared_memory_region": "r", "shared_memory_byte_size": 16})])


def parameters():
    keys = ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output", "headers",
            "triton_enable_empty_final_response", "triton_x", "mine")
    for key, (word, value) in itertools.product(keys, PARAMETERS.items()):
        yield f"grpc parameter {key}={word}", infer("told", **{key: value})
        if key.startswith(("sequence", "triton")):
            yield f"grpc stream parameter {key}={word}", stream(wire.request("told", **{key: value}))
    unset = wire.request("told")
    unset.parameters["mine"].SetInParent()
    yield "grpc parameter unset", ask("ModelInfer", unset)
    for how in ("invalid", "absent", "busy", "raises", "plain", "fine"):
        given = wire.request("fails", [("HOW", "BYTES", [1])], [string(how.encode())], id="f")
        yield f"grpc failing {how}", ask("ModelInfer", given)
        yield f"grpc stream failing {how}", stream(given)
        yield f"grpc strict stream failing {how}", stream(given, metadata=(("triton_grpc_error", "true"),))


def step(model, value, shape, **given):
    return wire.request(model, [("INPUT", "INT32", shape)], [struct.pack("<i", value)], ["OUTPUT", "FLAGS"], **given)


def sequences():
    number = itertools.count(5000)
    for model, shape, text in (("sums", [1, 1], False), ("single", [1], False), ("single", [1], True),
                               ("named", [1], True)):
        def name(text=text):
            return f"text-{next(number)}" if text else next(number)

        def one(value, model=model, shape=shape, **given):
            return step(model, value, shape, **given)

        kind = f"{model} {'text' if text else 'number'}"
        i, j = name(), name()
        stories = {
            "whole": [one(1, sequence_id=i, sequence_start=True), one(2, sequence_id=i), one(3, sequence_id=i, sequence_end=True),
                      one(4, sequence_id=i)],
            "no start": [one(1, sequence_id=j), one(1, sequence_id=j, sequence_start=False)],
            "no id": [one(1), one(1, sequence_start=True), one(1, sequence_id=0, sequence_start=True),
                      one(1, sequence_id="", sequence_start=True)],
        }
        for what, messages in stories.items():
            yield f"grpc sequence {kind} {what}", unary_story(messages)
            yield f"grpc stream sequence {kind} {what}", stream(*messages)
    yield "grpc sequence negative", unary_story([step("single", 1, [1], sequence_id=-5, sequence_start=True),
                                                 step("single", 1, [1], sequence_id=-5, sequence_end=True)])
    yield "grpc sequence sums with text", unary_story([step("sums", 1, [1, 1], sequence_id="x", sequence_start=True)])
    yield "grpc sequence named with number", unary_story([step("named", 1, [1], sequence_id=3, sequence_start=True)])
    two = wire.request("sums", [("INPUT", "INT32", [2, 1])], [struct.pack("<2i", 1, 2)], sequence_id=3, sequence_start=True)
    yield "grpc sequence two rows", ask("ModelInfer", two)
    yield "grpc stream sequence two rows", stream(two)


def unary_story(messages):
    def run(side):
        made = {}
        for n, message in enumerate(messages, 1):
            made.update({f"{n} {part}": text for part, text in wire.rpc(side, "ModelInfer", message).items()})
        return made
    return run


def streams():
    whole = wire.request("add", [A, B], [INTS, INTS], id="w")
    wrong = wire.request("add", [A], [INTS], id="x")
    absent = wire.request("nothing", [A], [INTS], id="y")
    yield "grpc stream one", stream(whole)
    yield "grpc stream several", stream(whole, wrong, whole, absent, whole)
    yield "grpc strict stream several", stream(whole, wrong, metadata=(("triton_grpc_error", "true"),))
    yield "grpc stream none", stream()
    yield "grpc stream asked for a final", stream(wire.request("add", [A, B], [INTS, INTS], id="w",
                                                               triton_enable_empty_final_response=True))
    for how, n, empty in itertools.product(("with", "alone", "error"), (0, 1, 2, 3), (False, True)):
        given = {"triton_enable_empty_final_response": True} if empty else {}
        message = wire.request("many", [("IN", "INT32", [n]), ("HOW", "BYTES", [1])],
                               [struct.pack(f"<{n}i", *range(n)), string(how.encode())], id="m", **given)
        yield f"grpc stream many {how} {n}{' empty final' if empty else ''}", stream(message)
        if not empty:
            yield f"grpc strict stream many {how} {n}", stream(message, metadata=(("triton_grpc_error", "true"),))
            yield f"grpc infer many {how} {n}", ask("ModelInfer", message)
    for how, n in itertools.product(("with", "alone"), (0, 1, 2, 3)):
        message = wire.request("apart", [("IN", "INT32", [n]), ("HOW", "BYTES", [1])],
                               [struct.pack(f"<{n}i", *range(n)), string(how.encode())], id="m")
        yield f"grpc infer apart {how} {n}", ask("ModelInfer", message)
        if n == 1:
            yield f"grpc stream apart {how} {n}", stream(message)
    message = wire.request("apart", [("IN", "INT32", [0]), ("HOW", "BYTES", [1])], [b"", string(b"error")])
    yield "grpc infer apart error", ask("ModelInfer", message)
    yield "grpc stream many wrong", stream(wire.request("many", [("IN", "INT32", [1])], [INTS[:4]], id="m"))
    for coding in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        yield f"grpc compressed {coding.name}", lambda side, c=coding: compressed(side, whole, c)


def compressed(side, message, coding):
    try:
        return {"code": "OK", **wire.parts_of_message(wire.stub_of(side).ModelInfer(message, compression=coding,
                                                                                    timeout=wire.TIMEOUT_S))}
    except grpc.RpcError as error:
        return wire.failure(error)


def operators():
    for ready in (False, True):
        yield f"grpc index ready={ready}", lambda side, r=ready: of_index(wire.rpc(side, "RepositoryIndex",
                                                                              pb.RepositoryIndexRequest(ready=r)))
    yield "grpc index of a repository", ask("RepositoryIndex", pb.RepositoryIndexRequest(repository_name="x"))
    for name in ("nothing", "", "..", "a/b", " ", "broken", "spare/"):
        yield f"grpc load {name!r}", ask("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name=name))
        yield f"grpc unload {name!r}", ask("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=name))
    for call in ("RepositoryModelLoad", "RepositoryModelUnload"):
        yield f"grpc {call} in a repository", ask(call, getattr(pb, call + "Request")(repository_name="x", model_name="spare"))
        for key, (field, value) in itertools.product(("config", "file:1/x", "unload_dependents", "mine"),
                                                     (("bool_param", True), ("int64_param", 1), ("string_param", "x"),
                                                      ("bytes_param", b"x"))):
            message = getattr(pb, call + "Request")(model_name="spare")
            message.parameters[key].CopyFrom(pb.ModelRepositoryParameter(**{field: value}))

            def run(side, call=call, message=message):
                answer = wire.rpc(side, call, message)
                wire.rpc(side, "RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="spare"))
                return answer
            yield f"grpc {call} {key} {field}", run
    for key, value in itertools.product(("log_file", "log_info", "log_verbose_level", "log_format", "mine"),
                                        ({"bool_param": True}, {"uint32_param": 0}, {"string_param": "x"},
                                         {"string_param": "default"}, {})):
        message = pb.LogSettingsRequest()
        message.settings[key].CopyFrom(pb.LogSettingsRequest.SettingValue(**value))
        yield f"grpc log settings {key} {value}", ask("LogSettings", message)
    yield "grpc log settings", ask("LogSettings", pb.LogSettingsRequest())
    for key, value in itertools.product(("trace_file", "trace_level", "trace_rate", "trace_count", "log_frequency", "trace_mode",
                                         "mine"), ([], ["OFF"], ["x"], ["1"], ["-1"], ["OFF", "1"], ["TIMESTAMPS"])):
        yield f"grpc trace settings {key} {value}", trace_and_back({key: value})
    yield "grpc trace settings", ask("TraceSetting", pb.TraceSettingRequest())
    yield "grpc trace settings of a model", ask("TraceSetting", pb.TraceSettingRequest(model_name="add"))
    yield "grpc trace settings of no model", ask("TraceSetting", pb.TraceSettingRequest(model_name="nothing"))


TRACE_BACK = {"trace_level": ["OFF"], "trace_rate": ["1000"], "trace_count": ["-1"], "log_frequency": ["0"]}


def trace_settings(settings):
    message = pb.TraceSettingRequest()
    for key, values in settings.items():
        message.settings[key].value.extend(values)
    return message


def trace_and_back(settings):
    def run(side):
        answer = wire.rpc(side, "TraceSetting", trace_settings(settings))
        wire.rpc(side, "TraceSetting", trace_settings(TRACE_BACK))
        return answer
    return run


def of_index(answer):
    models = sorted(json.loads(answer.get("models", "[]")), key=lambda one: (one["name"], one.get("version", "")))
    return {**answer, "models": wire.canonical(models)}


def shared_memory(key):
    def register(**given):
        return pb.SystemSharedMemoryRegisterRequest(**{"name": "mine", "key": key, "byte_size": 64, **given})

    for name, message in {"whole": register(), "no name": register(name=""), "no key": register(key=""),
                          "no size": register(byte_size=0), "too large": register(byte_size=8193),
                          "beyond": register(offset=8192), "at the end": register(offset=4096, byte_size=4096),
                          "over the end": register(offset=4096, byte_size=4097), "not a page": register(offset=64), "absent": register(key="/nothing-there"),
                          "huge": register(byte_size=2 ** 64 - 1), "huge offset": register(offset=2 ** 64 - 64)}.items():
        def run(side, message=message):
            made = wire.rpc(side, "SystemSharedMemoryRegister", message)
            wire.rpc(side, "SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest())
            return made
        yield f"grpc shm register {name}", run

    def window(**given):
        return {"shared_memory_region": "mine", "shared_memory_byte_size": 16, **given}

    def unregister(side):
        return wire.when_free(lambda: wire.rpc(side, "SystemSharedMemoryUnregister",
                                               pb.SystemSharedMemoryUnregisterRequest(name="mine")))

    def within(message):
        def run(side):
            made = {}
            wire.rpc(side, "SystemSharedMemoryRegister", register())
            status = wire.rpc(side, "SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name="mine"))
            for name, answer in (("twice", wire.rpc(side, "SystemSharedMemoryRegister", register())), ("status", status),
                                 ("infer", wire.rpc(side, "ModelInfer", message)),
                                 ("unregister", unregister(side))):
                made.update({f"{name} {part}": str(text).replace(key, "KEY") for part, text in answer.items()})
            return made
        return run

    for name, given in (("whole", {}), ("offset", {"shared_memory_offset": 16}), ("over", {"shared_memory_offset": 49}),
                        ("beyond", {"shared_memory_offset": 64}), ("negative", {"shared_memory_offset": -1}),
                        ("small", {"shared_memory_byte_size": 12}), ("large", {"shared_memory_byte_size": 20}),
                        ("none", {"shared_memory_byte_size": 0}), ("negative size", {"shared_memory_byte_size": -1}),
                        ("unknown", {"shared_memory_region": "none"}), ("empty", {"shared_memory_region": ""})):
        yield f"grpc shm input {name}", within(wire.request("add", [(*A, None, window(**given)), B], [INTS]))
        yield f"grpc shm output {name}", within(wire.request("add", [A, B], [INTS, INTS], [("SUM", window(**given))]))
    alone = {"shared_memory_region": "mine"}
    yield "grpc shm input without size", within(wire.request("add", [(*A, None, alone), B], [INTS]))
    yield "grpc shm output without size", within(wire.request("add", [A, B], [INTS, INTS], [("SUM", alone)]))
    yield "grpc shm input with contents", within(wire.request("add", [(*A, TYPED, window()), (*B, TYPED)]))
    for name in ("", "none"):
        yield f"grpc shm status {name!r}", ask("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name=name))
        yield f"grpc shm unregister {name!r}", ask("SystemSharedMemoryUnregister",
                                                   pb.SystemSharedMemoryUnregisterRequest(name=name))
        yield f"grpc shm cuda status {name!r}", ask("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(name=name))
        yield f"grpc shm cuda unregister {name!r}", ask("CudaSharedMemoryUnregister",
                                                        pb.CudaSharedMemoryUnregisterRequest(name=name))
    yield "grpc shm cuda register", ask("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(
        name="x", raw_handle=b"x", byte_size=1))


def all_cases(key):
    for make in (servers_and_models, tensors, outputs, parameters, sequences, streams, lambda: shared_memory(key), operators):
        yield from make()

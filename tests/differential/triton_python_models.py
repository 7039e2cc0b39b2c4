"""Models that only the Python backend has, for the second comparison of triton.py: what a model.py gets, and what it may
give. They answer with text, so that the two servers' words can be compared."""

from triton_models import Model, batching, io, CORRID_NUMBER

TEXT_IO = io("input", "HOW", "STRING", "-1") + io("output", "TEXT", "STRING", "-1")

# --- the module: its names, and what its functions return

MODULE_PY = """class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        self.config = json.loads(args["model_config"])

    def asked(self, how, request):
        if how == "names":
            return [name for name in ("Tensor", "InferenceRequest", "InferenceResponse", "TritonError",
                                      "TritonModelException", "Logger", "MetricFamily", "ModelConfig",
                                      "get_input_tensor_by_name", "get_output_tensor_by_name",
                                      "get_input_config_by_name", "get_output_config_by_name",
                                      "triton_string_to_numpy", "triton_to_numpy_type", "numpy_to_triton_type",
                                      "serialize_byte_tensor", "deserialize_bytes_tensor", "load_model",
                                      "unload_model", "is_model_ready", "PreferredMemory", "InferenceTrace",
                                      "TRITONSERVER_RESPONSE_COMPLETE_FINAL", "TRITONSERVER_MEMORY_CPU",
                                      "TRITONSERVER_MEMORY_GPU", "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
                                      "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END", "TRITONSERVER_REQUEST_RELEASE_ALL",
                                      "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE", "get_model_dir",
                                      "using_decoupled_model_transaction_policy") if hasattr(pb, name)]
        if how == "methods":
            kinds = (pb.Tensor, pb.InferenceRequest, pb.InferenceResponse, pb.TritonError, pb.Logger, pb.MetricFamily,
                     pb.ModelConfig)
            return [f"{kind.__name__}.{name}" for kind in kinds for name in sorted(dir(kind)) if name[0] != "_"]
        if how == "constants":
            return [f"{name}={int(getattr(pb, name))}" for name in sorted(dir(pb)) if name.startswith("TRITONSERVER_RE")
                    ] + [f"{name}={int(getattr(pb.TritonError, name))}" for name in
                         ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED",
                          "ALREADY_EXISTS", "CANCELLED")]
        if how == "types":
            return [f"{name} {np.dtype(pb.triton_string_to_numpy(name))} "
                    f"{pb.numpy_to_triton_type(pb.triton_string_to_numpy(name))}"
                    for name in ("TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8",
                                 "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64",
                                 "TYPE_STRING")]
        if how == "strings":
            array = np.array([[b"a", b""], ["text".encode(), b"\\x00\\xff"]], dtype=object)
            packed = pb.serialize_byte_tensor(array)
            packed = packed if isinstance(packed, bytes) else packed.item()
            return [packed.hex(), repr(pb.deserialize_bytes_tensor(packed).tolist())]
        if how == "tensor":
            made = pb.Tensor("mine", np.arange(6, dtype=np.int16).reshape(2, 3))
            again = pb.Tensor.from_dlpack("again", made.to_dlpack())
            return [made.name(), str(int(made.triton_dtype())), str(made.is_cpu()), again.name(),
                    repr(again.as_numpy().tolist()), str(int(again.triton_dtype())), repr(np.from_dlpack(made).tolist())]
        if how == "error":
            error = pb.TritonError("said", pb.TritonError.UNAVAILABLE)
            response = pb.InferenceResponse(error=error)
            return [error.message(), str(int(error.code())), str(response.has_error()), response.error().message(),
                    str(int(pb.TritonError("x").code()))]
        if how == "response":
            response = pb.InferenceResponse(output_tensors=[pb.Tensor("mine", np.zeros(2, np.float32))])
            found = pb.get_output_tensor_by_name(response, "mine")
            return [str(response.has_error()), str(len(response.output_tensors())), found.name(),
                    str(pb.get_output_tensor_by_name(response, "none"))]
        if how == "args":
            return [f"{key}={self.args[key]}" for key in sorted(self.args)
                    if key not in ("model_config", "model_repository")]
        if how == "folder":
            import os
            folder = os.path.join(self.args["model_repository"], self.args["model_version"])
            return [str(os.path.samefile(folder, os.path.dirname(__file__))), str(os.path.isdir(folder)),
                    os.path.basename(__file__), str(os.path.exists(os.path.join(folder, "..", "config.pbtxt")))]
        if how.startswith("config "):
            return [json.dumps(self.config.get(how[7:]), sort_keys=True)]
        if how == "config by name":
            return [json.dumps(pb.get_input_config_by_name(self.config, name), sort_keys=True) for name in ("HOW", "TEXT")]
        if how == "request":
            return [repr(request.request_id()), repr(request.correlation_id()), str(int(request.flags())),
                    repr(request.requested_output_names()), str(request.timeout()), str(request.is_cancelled()),
                    repr([(each.name(), each.is_cpu()) for each in request.inputs()]),
                    repr(pb.get_input_tensor_by_name(request, "none"))]
        if how == "parameters":
            return [json.dumps(json.loads(request.parameters() or "{}"), sort_keys=True)]
        raise LookupError(how)

    def execute(self, requests):
        answers = []
        for request in requests:
            texts = self.asked(value(request, "HOW")[0].decode(), request)
            answers.append(pb.InferenceResponse([pb.Tensor("TEXT", np.array([t.encode() for t in texts], dtype=object))]))
        return answers
"""

# --- what execute() may return

GIVES_PY = """class TritonPythonModel:
    def execute(self, requests):
        good = pb.InferenceResponse([tensor("OUT", [1], np.int32), tensor("MORE", [2], np.int32)])
        how = value(requests[0], "HOW")[0].decode()
        codes = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS",
                 "CANCELLED")
        if how in codes:
            return [pb.InferenceResponse(error=pb.TritonError("asked for", getattr(pb.TritonError, how)))]
        if how == "model exception":
            raise pb.TritonModelException("asked for")
        return {"good": [good], "none": None, "empty": [], "two": [good, good], "a number": 5, "wrong element": ["x"],
                "none in list": [None],
                "undeclared": [pb.InferenceResponse([tensor("OUT", [1], np.int32), tensor("MORE", [2], np.int32),
                                                     tensor("ELSE", [3], np.int32)])],
                "missing": [pb.InferenceResponse([tensor("OUT", [1], np.int32)])],
                "nothing": [pb.InferenceResponse([])],
                "shape": [pb.InferenceResponse([tensor("OUT", [1, 2, 3], np.int32), tensor("MORE", [2], np.int32)])],
                "not contiguous": [pb.InferenceResponse([
                    pb.Tensor("OUT", np.arange(6, dtype=np.int32)[::6]),
                    pb.Tensor("MORE", np.arange(4, dtype=np.int32).reshape(2, 2).T[1:, 1])])],
                "both": [pb.InferenceResponse([tensor("OUT", [1], np.int32), tensor("MORE", [2], np.int32)],
                                              pb.TritonError("asked for", pb.TritonError.INVALID_ARG))],
                }[how]
"""
GIVES_IO = (io("input", "HOW", "STRING", "1") + io("output", "OUT", "INT32", "-1") + io("output", "MORE", "INT32", "-1"))

# --- the rows of a call of the sequence batcher

ROWS_PY = """class TritonPythonModel:
    def execute(self, requests):
        rows = [[value(each, name).tolist() for name in ("INPUT", "START", "END", "READY", "CORRID")]
                + [repr(each.correlation_id()), int(each.flags())] for each in requests]
        text = np.array([[json.dumps(rows).encode()]], dtype=object)
        return [pb.InferenceResponse([pb.Tensor("ROWS", text)]) for _ in requests]
"""
ROWS_IO = "max_batch_size: 4\n" + io("input", "INPUT", "INT32", "1") + io("output", "ROWS", "STRING", "1")

# --- decoupled: from a thread, after execute() has returned, and as a coroutine

THREADS_PY = """import threading


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request.get_response_sender(), value(request, "IN"))).start()
        return None

    def answer(self, sender, values):
        for i, one in enumerate(values):
            sender.send(pb.InferenceResponse([tensor("OUT", [one], np.int32)]))
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
ASYNC_PY = """import asyncio


class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for one in value(request, "IN"):
                await asyncio.sleep(0.001)
                sender.send(pb.InferenceResponse([tensor("OUT", [one], np.int32)]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
LATER_IO = io("input", "IN", "INT32", "-1") + io("output", "OUT", "INT32", "1")
DECOUPLED = "model_transaction_policy { decoupled: true }\n"

MODELS = [
    Model("module", TEXT_IO + 'parameters { key: "mine" value: { string_value: "yes" } }\n', MODULE_PY, None),
    Model("gives", GIVES_IO, GIVES_PY, None),
    Model("rows", ROWS_IO + batching("direct {}", CORRID_NUMBER), ROWS_PY, None),
    Model("threads", DECOUPLED + LATER_IO, THREADS_PY, None),
    Model("coroutine", DECOUPLED + LATER_IO, ASYNC_PY, None),
]

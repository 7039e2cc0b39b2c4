"""The models of the comparison with Triton. Each has one configuration, and the same behaviour twice: as a model.py for
Triton's Python backend, and as a Lua handler for Continuo."""

import dataclasses
import pathlib

PY_HEAD = """import json
import time

import numpy as np
import triton_python_backend_utils as pb


def tensor(name, values, dtype):
    return pb.Tensor(name, np.array(values, dtype))


def value(request, name):
    found = pb.get_input_tensor_by_name(request, name)
    return None if found is None else found.as_numpy()


"""


@dataclasses.dataclass
class Model:
    name: str
    config: str  # config.pbtxt without name and backend
    py: str
    lua: str
    versions: tuple = ("1",)
    loads: bool = True


def write(folder, backend, models):
    """Writes a model repository below `folder`, for the Python backend ("python") or for Lua handlers ("lua")."""
    for model in models:
        home = pathlib.Path(folder) / model.name
        for version in model.versions:
            (home / version).mkdir(parents=True)
            if backend == "python":
                (home / version / "model.py").write_text(PY_HEAD + model.py, encoding="utf-8")
            else:
                (home / version / "handler.lua").write_text(model.lua, encoding="utf-8")
        (home / "config.pbtxt").write_text(f'name: "{model.name}"\nbackend: "{backend}"\n{model.config}', encoding="utf-8")


def io(way, name, kind, dims, more=""):
    return f"{way} [ {{ name: \"{name}\" data_type: TYPE_{kind} dims: [ {dims} ] {more} }} ]\n"


DTYPES = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64",
          "STRING")

# --- what is added and subtracted: two inputs, two outputs

ADD_PY = """class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            a, b = value(request, "A"), value(request, "B")
            answers.append(pb.InferenceResponse([pb.Tensor("SUM", a + b), pb.Tensor("DIFF", a - b)]))
        return answers
"""
ADD_LUA = """local M = { api = 1 }
function M.handle(req)
    local a, b = req.inputs.A, req.inputs.B
    local sum, diff = {}, {}
    for i = 1, #a.values do
        sum[i], diff[i] = a.values[i] + b.values[i], a.values[i] - b.values[i]
    end
    return { outputs = { SUM = { datatype = "INT32", shape = a.shape, data = sum },
                         DIFF = { datatype = "INT32", shape = a.shape, data = diff } } }
end
return M
"""
ADD_IO = (io("input", "A", "INT32", "4") + io("input", "B", "INT32", "4") + io("output", "SUM", "INT32", "4")
          + io("output", "DIFF", "INT32", "4"))

# --- each datatype comes back as it came

TYPES_PY = """class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            given = [tensor for tensor in request.inputs()]
            answers.append(pb.InferenceResponse([pb.Tensor(one.name(), one.as_numpy()) for one in given]))
        return answers
"""
SAME_LUA = """local M = { api = 1 }
function M.handle(req)
    local outputs = {}
    for name, given in pairs(req.inputs) do
        outputs[name] = { datatype = given.datatype, shape = given.shape,
                          data = given.datatype == "BYTES" and given.values or given.data }
    end
    return { outputs = outputs }
end
return M
"""

# --- what a model hears besides its tensors

TOLD_PY = """class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            told = json.loads(request.parameters() or "{}")
            text = " ".join(f"{key}={str(told[key]).lower()}" for key in sorted(told))
            text += " id=" + request.request_id()
            answers.append(pb.InferenceResponse([pb.Tensor("TOLD", np.array([text.encode()], dtype=object))]))
        return answers
"""
TOLD_LUA = """local M = { api = 1 }
function M.handle(req)
    local keys, words = {}, {}
    for key in pairs(req.parameters) do keys[#keys + 1] = key end
    table.sort(keys)
    for i, key in ipairs(keys) do words[i] = key .. "=" .. tostring(req.parameters[key]) end
    local id = #req.request_id > 8 and "" or req.request_id -- a long one is the server's own
    return { outputs = { TOLD = { datatype = "BYTES", shape = { 1 },
                                  data = { table.concat(words, " ") .. " id=" .. id } } } }
end
return M
"""

# --- a model that fails as its input says

FAILS_PY = """class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            how = value(request, "HOW")[0].decode()
            if how == "invalid":
                answers.append(pb.InferenceResponse(error=pb.TritonError("asked for", pb.TritonError.INVALID_ARG)))
            elif how == "absent":
                answers.append(pb.InferenceResponse(error=pb.TritonError("asked for", pb.TritonError.NOT_FOUND)))
            elif how == "busy":
                answers.append(pb.InferenceResponse(error=pb.TritonError("asked for", pb.TritonError.UNAVAILABLE)))
            elif how == "raises":
                raise ValueError("asked for")
            elif how == "plain":
                answers.append(pb.InferenceResponse(error=pb.TritonError("asked for")))
            else:
                answers.append(pb.InferenceResponse([tensor("OK", [1], np.int32)]))
        return answers
"""
FAILS_LUA = """local M = { api = 1 }
local status = { invalid = 400, absent = 404, busy = 503 }
function M.handle(req)
    local how = req.inputs.HOW.values[1]
    if how == "raises" then error("asked for") end
    if how == "plain" then return nil, "asked for" end
    if status[how] then return nil, "asked for", status[how] end
    return { outputs = { OK = { datatype = "INT32", shape = { 1 }, data = { 1 } } } }
end
return M
"""

# --- a running sum

SUMS_PY = """class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            key = repr(request.correlation_id())
            start, end = value(request, "START").flatten()[0], value(request, "END").flatten()[0]
            given, total = value(request, "INPUT"), 0
            if value(request, "READY") is None or value(request, "READY").flatten()[0]:
                total = int(given.flatten()[0]) + (0 if start else self.totals.get(key, 0))
                self.totals[key] = total
            out = pb.Tensor("OUTPUT", np.full(given.shape, total, np.int32))
            flags = pb.Tensor("FLAGS", np.full(given.shape, int(start) + 2 * int(end), np.int32))
            answers.append(pb.InferenceResponse([out, flags]))
        return answers
"""
SUMS_LUA = """local M = { api = 1 }
function M.init() return { total = 0 } end
function M.step(state, req)
    local given = req.inputs.INPUT
    local start, over = req.inputs.START.values[1], req.inputs.END.values[1]
    state.total = state.total + given.values[1]
    return { outputs = { OUTPUT = { datatype = "INT32", shape = given.shape, data = { state.total } },
                         FLAGS = { datatype = "INT32", shape = given.shape, data = { start + 2 * over } } } }
end
return M
"""
SUMS_IO = io("input", "INPUT", "INT32", "1") + io("output", "OUTPUT", "INT32", "1") + io("output", "FLAGS", "INT32", "1")


def control(name, kind, how="int32_false_true: [ 0, 1 ]"):
    return f'{{ name: "{name}" control [ {{ kind: {kind} {how} }} ] }}'


CONTROLS = ", ".join([control("START", "CONTROL_SEQUENCE_START"), control("END", "CONTROL_SEQUENCE_END"),
                      control("READY", "CONTROL_SEQUENCE_READY")])


def batching(strategy, more=""):
    return (f"sequence_batching {{ max_sequence_idle_microseconds: 600000000 {strategy} "
            f"control_input [ {CONTROLS}{more} ] }}\n")


CORRID_STRING = ", " + control("CORRID", "CONTROL_SEQUENCE_CORRID", "data_type: TYPE_STRING")
CORRID_NUMBER = ", " + control("CORRID", "CONTROL_SEQUENCE_CORRID", "data_type: TYPE_UINT64")

# --- decoupled: a response for each element; what ends it is in HOW

MANY_PY = """class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            values, how = value(request, "IN").flatten(), value(request, "HOW").flatten()[0].decode()
            last = len(values) - 1
            for i, one in enumerate(values):
                over = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL if how == "with" and i == last else 0
                sender.send(pb.InferenceResponse([tensor("OUT", [one], np.int32), tensor("IDX", [i], np.uint32)]), over)
            if how == "error":
                failed = pb.InferenceResponse(error=pb.TritonError("asked for", pb.TritonError.INVALID_ARG))
                sender.send(failed, pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            elif how == "alone" or last < 0:
                sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
"""
MANY_LUA = """local M = { api = 1 }
function M.handle(req)
    local values, how = req.inputs.IN.values, req.inputs.HOW.values[1]
    req:defer()
    for i = 1, #values do
        local reply = { outputs = { OUT = { datatype = "INT32", shape = { 1 }, data = { values[i] } },
                                    IDX = { datatype = "UINT32", shape = { 1 }, data = { i - 1 } } } }
        if how == "with" and i == #values then
            req:reply(reply)
            return
        end
        req:respond(reply)
    end
    if how == "error" then req:fail("asked for", 400) else req:finish() end
end
return M
"""
MANY_IO = (io("input", "IN", "INT32", "-1") + io("input", "HOW", "STRING", "1") + io("output", "OUT", "INT32", "1")
           + io("output", "IDX", "UINT32", "1"))

# --- not decoupled, yet its response and its end (and more, as HOW says) come one by one

APART_PY = MANY_PY
APART_LUA = MANY_LUA

BROKEN_PY = """class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("this model never loads")

    def execute(self, requests):
        return None
"""
BROKEN_LUA = """local M = { api = 1 }
function M.load() error("this model never loads") end
function M.handle() end
return M
"""

GENERATE_PY = """class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            text, n = value(request, "TEXT").flatten()[0].decode(), value(request, "N")
            told = json.loads(request.parameters() or "{}")
            more = " ".join(f"{key}={str(told[key]).lower()}" for key in sorted(told))
            out = [text] * (1 if n is None else int(n.flatten()[0]))
            outputs = [pb.Tensor("OUT", np.array([one.encode() for one in out], dtype=object)),
                       pb.Tensor("TOLD", np.array([more.encode()], dtype=object))]
            answers.append(pb.InferenceResponse(outputs))
        return answers
"""
GENERATE_LUA = """local M = { api = 1 }
function M.handle(req)
    local text, n = req.inputs.TEXT.values[1], req.inputs.N
    local keys, words, out = {}, {}, {}
    for key in pairs(req.parameters) do keys[#keys + 1] = key end
    table.sort(keys)
    for i, key in ipairs(keys) do words[i] = key .. "=" .. tostring(req.parameters[key]) end
    for i = 1, n and n.values[1] or 1 do out[i] = text end
    return { outputs = { OUT = { datatype = "BYTES", shape = { #out }, data = out },
                         TOLD = { datatype = "BYTES", shape = { 1 }, data = { table.concat(words, " ") } } } }
end
return M
"""

MODELS = [
    Model("add", ADD_IO, ADD_PY, ADD_LUA),
    Model("many.versions", ADD_IO + "version_policy { all {} }\n", ADD_PY, ADD_LUA, ("1", "3")),
    Model("badd", "max_batch_size: 4\n" + ADD_IO, ADD_PY, ADD_LUA),
    Model("queued", "max_batch_size: 4\ndynamic_batching { max_queue_delay_microseconds: 100 priority_levels: 3 "
          "default_priority_level: 2 }\n" + ADD_IO, ADD_PY, ADD_LUA),
    Model("types", "".join(io("input", kind, kind, "-1", "optional: true") + io("output", kind, kind, "-1")
                           for kind in DTYPES), TYPES_PY, SAME_LUA),
    Model("words", io("input", "X", "STRING", "-1") + io("output", "X", "STRING", "-1"), TYPES_PY, SAME_LUA),
    Model("scores", io("input", "X", "FP32", "-1") + io("output", "X", "FP32", "-1"), TYPES_PY, SAME_LUA),
    Model("bscores", "max_batch_size: 4\n" + io("input", "X", "FP32", "-1") + io("output", "X", "FP32", "-1"), TYPES_PY,
          SAME_LUA),
    Model("open", io("input", "X", "FP32", "-1, -1") + io("output", "X", "FP32", "-1, -1"), TYPES_PY, SAME_LUA),
    Model("told", io("input", "X", "INT32", "1", "optional: true") + io("output", "TOLD", "STRING", "1"), TOLD_PY, TOLD_LUA),
    Model("fails", io("input", "HOW", "STRING", "1") + io("output", "OK", "INT32", "1"), FAILS_PY, FAILS_LUA),
    Model("sums", "max_batch_size: 4\n" + SUMS_IO + batching("direct {}", CORRID_NUMBER), SUMS_PY, SUMS_LUA),
    Model("single", SUMS_IO + batching("oldest { max_candidate_sequences: 8 }"), SUMS_PY, SUMS_LUA),
    Model("named", SUMS_IO + batching("oldest { max_candidate_sequences: 8 }", CORRID_STRING),
          SUMS_PY, SUMS_LUA),
    Model("many", "model_transaction_policy { decoupled: true }\n" + MANY_IO, MANY_PY, MANY_LUA),
    Model("apart", MANY_IO, APART_PY, APART_LUA),
    Model("generate", io("input", "TEXT", "STRING", "1") + io("input", "N", "INT32", "1", "optional: true")
          + io("output", "OUT", "STRING", "-1") + io("output", "TOLD", "STRING", "1"), GENERATE_PY, GENERATE_LUA),
    Model("broken", ADD_IO, BROKEN_PY, BROKEN_LUA, loads=False),
    Model("spare", ADD_IO, ADD_PY, ADD_LUA, loads=False),
]

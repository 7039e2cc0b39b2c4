"""A typed model whose answers describe the batch, and a client that has many requests under way."""

import json
import threading

import requests

from models import Model
from waiting import expect, limit

# A running sum for each sequence. Each answer lists the rows of its call: the input of a real row, or "-" for padding;
# and the control tensors.
RECORDER_LUA = """
local M = { api = 1 }
local calls = 0

local function value(item, name)
    local tensor = item.req.inputs[name]
    return tensor and tensor.values[1]
end

local function text(item, name)
    local tensor = item.req.inputs[name]
    return tensor and (tensor.datatype .. ":" .. tostring(tensor.values[1]) .. ":" .. table.concat(tensor.shape, "x"))
        or "none"
end

local function is_row(item)
    local ready = value(item, "READY")
    return ready == nil or (ready ~= 0 and ready ~= false)
end

function M.batch(items)
    calls = calls + 1
    local rows = {}
    for i, item in ipairs(items) do
        rows[i] = is_row(item) and tostring(value(item, "INPUT")) or "-"
    end
    for i, item in ipairs(items) do
        local input = value(item, "INPUT")
        if item.state then
            item.state.total = (item.state.total or 0) + input
        end
        if input == 666 then
            item:fail("no such number", 400)
        else
            local says = string.format("call=%d rows=%s START=%s END=%s READY=%s CORRID=%s", calls,
                table.concat(rows, ","), text(item, "START"), text(item, "END"), text(item, "READY"),
                text(item, "CORRID"))
            local total = item.state and item.state.total or input
            item:reply({ outputs = {
                OUTPUT = { datatype = "INT32", shape = BATCHED and { 1, 1 } or { 1 }, data = { total } },
                SAYS = { datatype = "BYTES", shape = BATCHED and { 1, 1 } or { 1 }, data = { says } } } })
        end
    end
end

return M
"""

TENSORS = """input:
  - {name: INPUT, data_type: TYPE_INT32, dims: [-1]}
output:
  - {name: OUTPUT, data_type: TYPE_INT32, dims: [1]}
  - {name: SAYS, data_type: TYPE_STRING, dims: [1]}
"""

# A connection that was opened when the clock jumped must not seem slow.
PATIENT = ["--header-timeout", 3_600_000]

CONTROLS = """  control_input:
    - {name: START, control: [{kind: CONTROL_SEQUENCE_START, int32_false_true: [0, 1]}]}
    - {name: END, control: [{kind: CONTROL_SEQUENCE_END, bool_false_true: [false, true]}]}
    - {name: READY, control: [{kind: CONTROL_SEQUENCE_READY, fp32_false_true: [0.0, 1.0]}]}
"""


def recorder(name="recorder", batching="sequence_batching:\n  oldest: {}\n", max_batch_size=4, more="", stateful=True):
    lua = RECORDER_LUA.replace("BATCHED", "true" if max_batch_size else "false")
    return Model(name, lua, f"max_batch_size: {max_batch_size}\n{more}{batching}{TENSORS}", stateful=stateful)


class Reply:
    """An answer in the form in which tests compare it."""

    def __init__(self, status, body):
        self.status = status
        self.body = body
        self.error = body.get("error", "")
        outputs = {output["name"]: output["data"][0] for output in body.get("outputs", [])}
        self.total = outputs.get("OUTPUT")
        self.says = dict(word.split("=", 1) for word in outputs.get("SAYS", "").split())

    @property
    def rows(self):
        """Returns the rows of its call."""
        return self.says["rows"]

    def __repr__(self):
        return f"<{self.status} {self.body}>"


def document(value, sequence=None, start=False, end=False, batched=True, width=1, **parameters):
    data = value if isinstance(value, list) else [value] * width
    if sequence is not None:
        parameters.update(sequence_id=sequence, sequence_start=start, sequence_end=end)
    return {"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1, len(data)] if batched else [len(data)],
                        "data": data}], "parameters": parameters}


class Sender:
    """send() gives a request to a thread of its own when all earlier ones have arrived. Replies are awaited by name or
    all together."""

    def __init__(self, server, model="recorder", batched=True):
        self._server = server
        self._model = model
        self._batched = batched
        self._calls = []

    def ask(self, value, sequence=None, headers=None, batched=None, **more):
        """Sends one request and waits for its reply."""
        body = json.dumps(document(value, sequence, batched=self._batched if batched is None else batched, **more))
        answer = requests.post(f"{self._server.inference}/v2/models/{self._model}/infer", data=body, headers=headers,
                               timeout=limit(60))
        return Reply(answer.status_code, answer.json())

    def send(self, value, sequence=None, arrives=True, **more):
        """Sends a request. `arrives` waits until one more request waits or runs than before, or until replies come."""
        call = {}
        answered = self._answered()
        before = self._server.outstanding(self._model) if arrives else 0

        def run():
            call["reply"] = self.ask(value, sequence, **more)

        call["thread"] = threading.Thread(target=run, daemon=True)
        call["thread"].start()
        self._calls.append(call)
        if arrives:
            expect(lambda: self._server.outstanding(self._model) > before or self._answered() > answered,
                   f"{value} has arrived at {self._model}")
        return call

    def _answered(self):
        return sum("reply" in call for call in self._calls)

    @staticmethod
    def reply(call):
        call["thread"].join(limit(60))
        assert "reply" in call, "no answer came"
        return call["reply"]

    def replies(self):
        calls, self._calls = self._calls, []
        return [self.reply(call) for call in calls]

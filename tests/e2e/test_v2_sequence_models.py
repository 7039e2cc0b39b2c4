"""Models whose state is tensors, and decoupled models, with both strategies of the sequence batcher."""

import numpy as np
import pytest

import v2rpc
from models import Model
from recorder import CONTROLS, Sender, TENSORS
from test_v2_sequence_batcher import hooks, start_error
from test_v2_stats import stats_of

STRATEGIES = ["direct: {}", "oldest: {max_candidate_sequences: 2}",
              "oldest: {max_candidate_sequences: 2, preferred_batch_size: [2], max_queue_delay_microseconds: 1000}"]

# A running sum whose handler keeps nothing; SAYS tells the rows of the call and what state each one got.
IMPLICIT_LUA = """
return { api = 1, batch = function(items)
    local rows = {}
    for i, item in ipairs(items) do
        local inputs = item.req.inputs
        rows[i] = (inputs.READY.values[1] == 0 and "-" or tostring(inputs.INPUT.values[1])) .. "/" ..
            inputs.SUM.values[1] .. "/" .. table.concat(inputs.SUM.shape, "x")
    end
    for _, item in ipairs(items) do
        local inputs = item.req.inputs
        local value, ready = inputs.INPUT.values[1], inputs.READY.values[1] ~= 0
        local sum = inputs.SUM.values[1] + value
        if not ready then sum = 999 end
        if value == 666 then
            item:fail("no such number", 400)
        else
            local outputs = {
                OUTPUT = { datatype = "INT32", shape = { 1, 1 }, data = { sum } },
                SAYS = { datatype = "BYTES", shape = { 1, 1 }, data = { "rows=" .. table.concat(rows, ",") } } }
            if value ~= 0 then outputs.SUM_OUT = { datatype = "INT32", shape = { 1, 1 }, data = { sum } } end
            item:reply({ outputs = outputs })
        end
    end
end }
"""

# A decoupled running sum: n in REPEAT brings n responses, 0 none. -1 waits, and is answered by the next
# step of any sequence, after that one.
DECOUPLED_LUA = """
local waiting = {}

local function number(value)
    return { outputs = { OUTPUT = { datatype = "INT32", shape = { 1, 1 }, data = { value } } } }
end

return { api = 1, step = function(state, req)
    local repeats = req.inputs.REPEAT.values[1]
    if req.inputs.READY.values[1] == 0 then
        return req:finish()
    end
    state.total = (req.inputs.START.values[1] ~= 0 and 0 or state.total) + req.inputs.INPUT.values[1]
    local total = state.total
    if repeats == -1 then
        waiting[#waiting + 1] = { req = req, total = total }
        req:defer()
        return
    end
    for _ = 1, repeats do req:respond(number(total)) end
    req:finish()
    local ready = waiting
    waiting = {}
    for _, one in ipairs(ready) do one.req:reply(number(one.total)) end
end }
"""


def block(strategy, more=""):
    return ("max_batch_size: 2\nsequence_batching:\n  max_sequence_idle_microseconds: 60000000\n"
            f"{CONTROLS}  {strategy}\n{more}")


def implicit(strategy):
    state = ("  state: [{input_name: SUM, output_name: SUM_OUT, data_type: TYPE_INT32, dims: [1], "
             "initial_state: [{name: zero, data_type: TYPE_INT32, dims: [1], zero_data: true}]}]\n")
    return Model("recorder", IMPLICIT_LUA, block(strategy, state) + TENSORS)


def decoupled(strategy, more=""):
    return Model("decoupled", DECOUPLED_LUA, block(strategy) + more + "decoupled: true\n"
                 "input: [{name: INPUT, data_type: TYPE_INT32, dims: [1]}, "
                 "{name: REPEAT, data_type: TYPE_INT32, dims: [1]}]\n"
                 "output: [{name: OUTPUT, data_type: TYPE_INT32, dims: [1]}]\n")


# --- state as tensors ---


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_state_tensors_follow_the_sequence(server, strategy):
    """START begins with zeros. Failures, and steps that return no state, leave it as it is. END removes it, and kill -9
    does not."""
    s = server(implicit(strategy))
    sender = Sender(s)
    assert [sender.ask(value, 1, start=value == 1).total for value in (1, 2, 0, 4)] == [1, 3, 3, 7]
    assert sender.ask(666, 1).error == "no such number"
    assert sender.ask(100, "b", start=True).total == 100
    s.kill_worker("recorder")
    assert sender.ask(1, "b").total == 101
    assert sender.ask(8, 1).total == 15
    assert sender.ask(5, 1, start=True).total == 5
    assert sender.ask(1, 1, end=True).total == 6
    assert sender.ask(1, 1).error.startswith(start_error(1))
    assert sender.ask(3, 1, start=True).total == 3


def test_padding_has_a_state_of_its_own(server):
    """Padding gets the state of a new sequence, whatever the slot's sequence has, and the handler's result for it is
    dropped."""
    s = server(implicit("direct: {}"), env=hooks(3))
    sender = Sender(s)
    for value, sequence in [(1, 1), (10, 2), (20, 2)]:
        sender.send(value, sequence, start=value < 20)
    replies = sender.replies()
    assert [reply.rows for reply in replies] == ["1/0/1x1,10/0/1x1", "1/0/1x1,10/0/1x1", "-/0/1x1,20/10/1x1"]
    assert [reply.total for reply in replies] == [1, 10, 30]
    assert sender.ask(1, 1).total == 2


# --- decoupled ---


class Talk:
    """A gRPC stream on which steps are sent without waiting and responses are read by the id of their request."""

    def __init__(self, s):
        self._stream = v2rpc.Stream(v2rpc.channel_of(s))
        self._heard = {}

    def send(self, name, value, sequence, repeat=1, start=False, end=False):
        raw = [number.to_bytes(4, "little", signed=True) for number in (value, repeat)]
        self._stream.send(v2rpc.request(
            "decoupled", [("INPUT", "INT32", [1, 1]), ("REPEAT", "INT32", [1, 1])], raw, id=name,
            sequence_id=sequence, sequence_start=start, sequence_end=end, triton_enable_empty_final_response=True))

    def rest_of(self, name):
        """Returns all responses of the request, including the end."""
        heard = self._heard.setdefault(name, [])
        while not heard or heard[-1] is not None:
            message = self._stream.next()
            assert message.error_message == "", message
            response = message.infer_response
            of = self._heard.setdefault(response.id, [])
            of += [np.frombuffer(raw, np.int32).tolist()[0] for raw in response.raw_output_contents]
            if response.parameters["triton_final_response"].bool_param:
                of.append(None)
        return heard[:-1]

    def error(self):
        return self._stream.next().error_message


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_steps_have_any_number_of_responses(server, strategy):
    """Steps of two sequences are sent without waiting. Each gets its own responses in the order of its steps, and the
    sums are right."""
    talk = Talk(server(decoupled(strategy)))
    repeats = [3, 0, 1, 70, 2]
    for n, repeat in enumerate(repeats):
        for sequence in (1, "two"):
            talk.send(f"{sequence}-{n}", n + 1, sequence, repeat, start=n == 0, end=n == 4)
    for sequence in (1, "two"):
        for n, repeat in enumerate(repeats):
            assert talk.rest_of(f"{sequence}-{n}") == [(n + 1) * (n + 2) // 2] * repeat
    talk.send("late", 1, 1)
    assert start_error(1, "decoupled") in talk.error()


@pytest.mark.parametrize("strategy", STRATEGIES[:2])
def test_a_step_that_is_not_answered_holds_up_its_own_sequence_only(server, strategy):
    """Other slots continue. The next step of its own sequence waits until the request has ended."""
    s = server(decoupled(strategy))
    talk = Talk(s)
    talk.send("a1", 1, 1, start=True)
    assert talk.rest_of("a1") == [1]
    talk.send("waits", 10, 1, repeat=-1)
    talk.send("a3", 100, 1)
    s.expect_outstanding("decoupled", 2)
    talk.send("b1", 5, 2, start=True)
    assert talk.rest_of("b1") == [5]
    assert talk.rest_of("waits") == [11]
    assert talk.rest_of("a3") == [111]


def test_with_continuous_batching_the_next_step_does_not_wait(server):
    """The step's state is committed when the handler has returned, which is when Triton releases a request."""
    talk = Talk(server(decoupled("oldest: {max_candidate_sequences: 2}", "continuousBatching: true\n")))
    talk.send("a1", 1, 1, start=True)
    assert talk.rest_of("a1") == [1]
    talk.send("waits", 10, 1, repeat=-1)
    talk.send("a3", 100, 1)
    assert talk.rest_of("a3") == [111]
    assert talk.rest_of("waits") == [11]


def test_the_slot_is_free_when_the_last_response_has_come(server):
    """With one slot the backlog waits for an END that has not been answered yet."""
    yaml_one = decoupled("direct: {}", "batchSize: 1\n")
    s = server(yaml_one)
    talk = Talk(s)
    talk.send("a1", 1, 1, repeat=3, start=True, end=True)
    talk.send("b1", 2, 2, repeat=2, start=True, end=True)
    assert talk.rest_of("a1") == [1, 1, 1]
    assert talk.rest_of("b1") == [2, 2]
    stats = stats_of(s, "decoupled")
    assert {n: kinds["success"]["count"] for n, kinds in stats["response_stats"].items() if kinds["success"]["count"]
            } == {"0": 2, "1": 2, "2": 1}

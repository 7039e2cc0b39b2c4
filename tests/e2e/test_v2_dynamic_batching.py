"""Typed models without sequences in the terms of Triton's dynamic batcher: preferred sizes, delays, queues, priorities.
"""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from models import Model
from recorder import PATIENT, Sender, recorder
from test_v2_http import client_of
from waiting import limit

# Gives its input back, and tells how many rows each request of the call had.
ROWS_LUA = """
local M = { api = 1 }

function M.batch(items)
    local rows = {}
    for i, item in ipairs(items) do
        rows[i] = item.req.inputs.INPUT.shape[1]
    end
    for i, item in ipairs(items) do
        local n = rows[i]
        local says = {}
        for k = 1, n do
            says[k] = table.concat(rows, ",")
        end
        item:reply({ outputs = {
            OUTPUT = { datatype = "INT32", shape = { n, 1 }, data = item.req.inputs.INPUT.data },
            SAYS = { datatype = "BYTES", shape = { n, 1 }, data = says } } })
    end
end

return M
"""


def dynamic(settings="{}", **keys):
    return recorder(batching=f"dynamic_batching: {settings}\n", stateful=False, **keys)


def hooks(jobs):
    return {"TRITONSERVER_DELAY_SCHEDULER": jobs}


def batches(sender):
    """Returns each call once, in the order of their numbers."""
    return [rows for _, rows in sorted({(int(reply.says["call"]), reply.rows) for reply in sender.replies()})]


@pytest.mark.parametrize("settings, expected", [
    ("{}", ["1,2,3,4", "5,6"]),
    ("{preferred_batch_size: [2]}", ["1,2", "3,4", "5,6"]),
    ("{preferred_batch_size: [3, 2]}", ["1,2,3", "4,5,6"]),
    ("{preferred_batch_size: [4]}", ["1,2,3,4", "5,6"]),
])
def test_preferred_sizes(server, settings, expected):
    """The largest preferred batch that can be filled runs. If there is none, everything up to the maximum does."""
    sender = Sender(server(dynamic(settings), env=hooks(6)))
    for value in range(1, 7):
        sender.send(value)
    assert batches(sender) == expected


def test_an_idle_worker_waits_for_a_preferred_batch(server):
    """It waits no longer than max_queue_delay_microseconds after the oldest request came."""
    s = server(dynamic("{preferred_batch_size: [3], max_queue_delay_microseconds: 50000000}"), clock=True,
               flags=PATIENT)
    sender = Sender(s)
    for value in (1, 2, 3):
        sender.send(value)
    assert batches(sender) == ["1,2,3"]
    sender.send(4)
    s.clock.advance(30_000)
    sender.send(5)
    s.clock.advance(19_000)
    assert s.outstanding("recorder") == 2
    s.clock.advance(2_000)
    assert batches(sender) == ["4,5"]


def test_a_full_batch_does_not_wait(server):
    """Without preferred sizes the delay applies to the largest batch."""
    sender = Sender(server(dynamic("{max_queue_delay_microseconds: 50000000}", max_batch_size=2)))
    sender.send(1)
    sender.send(2)
    assert batches(sender) == ["1,2"]


def test_another_shape_ends_the_batch(server):
    """Requests keep their order."""
    sender = Sender(server(dynamic(), env=hooks(5)))
    for value, width in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 1)]:
        sender.send(value, width=width)
    assert batches(sender) == ["1,2", "3,4", "5"]


def test_a_request_counts_for_its_rows(server):
    """Two requests of three rows do not fit into a batch of four."""
    yaml = ("max_batch_size: 4\ndynamic_batching: {max_queue_delay_microseconds: 50000000}\n"
            "input: [{name: INPUT, data_type: TYPE_INT32, dims: [1]}]\n"
            "output: [{name: OUTPUT, data_type: TYPE_INT32, dims: [1]}, "
            "{name: SAYS, data_type: TYPE_STRING, dims: [1]}]\n")
    s = server(Model("rows", ROWS_LUA, yaml, stateful=False))

    def body(rows):
        return json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [rows, 1],
                                       "data": list(range(rows))}]})

    def says(rows):
        answer = requests.post(f"{s.inference}/v2/models/rows/infer", data=body(rows), timeout=limit(20)).json()
        return next(output["data"] for output in answer["outputs"] if output["name"] == "SAYS")

    assert says(4) == ["4"] * 4  # full by itself
    with ThreadPoolExecutor() as pool:
        first = pool.submit(says, 3)
        s.expect_outstanding("rows", 1)
        assert says(4) == ["4"] * 4  # does not fit, and ends the other's wait
        assert first.result() == ["3"] * 3


def test_priorities(server):
    """Lower numbers come first, then the order of arrival counts. 0, and levels that do not exist, mean the default
    level."""
    s = server(dynamic("{priority_levels: 3, default_priority_level: 2}", max_batch_size=1), env=hooks(6))
    sender = Sender(s)
    for value, priority in [(1, 3), (2, 0), (3, 9), (4, 1), (5, 2), (6, 1)]:
        sender.send(value, priority=priority)
    assert batches(sender) == ["4", "6", "2", "3", "5", "1"]


# --- timeouts and bounds of queues ---


def test_a_request_that_waits_too_long_is_refused(server):
    """The limit is the default, or the request's own timeout if that is allowed and shorter."""
    s = server(dynamic("{default_queue_policy: {default_timeout_microseconds: 10000000, "
                       "allow_timeout_override: true}}", max_batch_size=1), clock=True, flags=PATIENT)
    sender = Sender(s)
    with s.hold():
        running = sender.send(1)
        by_default = sender.send(2, timeout=20_000_000)
        own = sender.send(3, timeout=1_000_000)
        s.clock.advance(2_000)
        reply = sender.reply(own)
        assert (reply.status, reply.error) == (503, "Request timeout expired")
        assert s.outstanding("recorder") == 2
        s.clock.advance(9_000)
        assert sender.reply(by_default).error == "Request timeout expired"
    assert sender.reply(running).total == 1


def test_timeouts_that_do_not_count(server):
    """A timeout has no effect without allow_timeout_override, or without a default that it could shorten."""
    s = server(dynamic("{default_queue_policy: {default_timeout_microseconds: 10000000}}", max_batch_size=1),
               dynamic("{default_queue_policy: {allow_timeout_override: true}}", name="none", max_batch_size=1),
               clock=True)
    for model in ("recorder", "none"):
        sender = Sender(s, model)
        with s.hold():
            sender.send(1)
            sender.send(2, timeout=1_000_000)
            s.clock.advance(5_000)
        assert [reply.total for reply in sender.replies()] == [1, 2]


def test_delayed_requests_go_last(server):
    """With timeout_action DELAY they go behind all others of their priority, and are still done."""
    s = server(dynamic("{default_queue_policy: {timeout_action: DELAY, default_timeout_microseconds: 10000000, "
                       "allow_timeout_override: true}}", max_batch_size=1), clock=True)
    sender = Sender(s)
    with s.hold():
        sender.send(1)
        sender.send(2, timeout=1_000_000)
        sender.send(3)
        s.clock.advance(2_000)
        sender.send(4)
    assert batches(sender) == ["1", "3", "4", "2"]


def test_queues_are_bounded(server):
    """Each level has its own max_queue_size."""
    s = server(dynamic("{priority_levels: 2, default_priority_level: 2, default_queue_policy: {max_queue_size: 2}, "
                       "priority_queue_policy: {1: {max_queue_size: 1}}}", max_batch_size=1))
    sender = Sender(s)
    with s.hold():
        sender.send(1)
        sender.send(2)
        sender.send(3)
        reply = sender.ask(4)
        assert reply.status == 503 and "Exceeds maximum queue size" in reply.error
        sender.send(5, priority=1)
        assert "Exceeds maximum queue size" in sender.ask(6, priority=1).error
    assert batches(sender) == ["1", "5", "2", "3"]


def test_a_dead_workers_batch_is_done_again(server):
    """The rows run one by one, as always when a worker has died."""
    s = server(dynamic(), env=hooks(3))
    sender = Sender(s)
    with s.hold():
        for value in (1, 2, 3):
            sender.send(value)
        s.kill_worker("recorder")
    assert [reply.total for reply in sender.replies()] == [1, 2, 3]


def test_configuration_is_shown(server):
    """The configuration has the spelling in which it was written."""
    s = server(dynamic("{preferred_batch_size: [2, 4], max_queue_delay_microseconds: 7, priority_levels: 1, "
                       "default_priority_level: 1, default_queue_policy: {timeout_action: DELAY, max_queue_size: 3}}"))
    policy = {"timeout_action": "DELAY", "default_timeout_microseconds": 0, "allow_timeout_override": False,
              "max_queue_size": 3}
    config = client_of(s).get_model_config("recorder")
    assert "sequence_batching" not in config
    assert config["dynamic_batching"] == {
        "preferred_batch_size": [2, 4], "max_queue_delay_microseconds": 7, "preserve_ordering": False,
        "priority_levels": 1, "default_priority_level": 1, "default_queue_policy": policy,
        "priority_queue_policy": {"1": policy}}

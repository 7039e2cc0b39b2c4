"""The memory that a worker asks the system for."""

import concurrent.futures
import pathlib

import pytest

from models import Model
from resident import resident_bytes
from waiting import expect

LARGE = """
return {
    api = 1,
    init = function() return { count = 0, rest = string.rep("x", 2 * 1024 * 1024) } end,
    step = function(state)
        state.count = state.count + 1
        return { text = tostring(state.count) }
    end,
}
"""


def minor_faults(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def test_batches_of_large_states_reuse_their_memory(server):
    """The system need not clear new pages for each batch, and gets the memory back when the worker is idle."""
    rows, batches = 8, 6
    s = server(Model("large", LARGE, {"batchSize": rows, "state": {"maxBytes": 4 << 20}}), clock=True)
    [pid] = s.expect_ready("large", 1)
    try:
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    except PermissionError:
        pytest.skip("the worker is not dumpable, so only root sees its libraries")
    if "libasan" in maps or "libtsan" in maps:
        pytest.skip("a sanitizer's malloc")

    def batch(number):
        with concurrent.futures.ThreadPoolExecutor(rows) as pool, s.hold():
            answers = [pool.submit(s.client().step, "large", f"s{i}", b"") for i in range(rows)]
            s.expect_outstanding("large", rows)
        assert [answer.result().text for answer in answers] == [str(number)] * rows

    for number in range(1, 4):
        batch(number)
    before = minor_faults(pid)
    for number in range(4, 4 + batches):
        batch(number)
    # A state has 512 pages. Without reuse each of its three copies would be cleared for each step.
    assert (minor_faults(pid) - before) / (rows * batches) < 100
    busy = resident_bytes(pid)
    s.clock.advance(61_000)
    expect(lambda: resident_bytes(pid) < busy - rows * (2 << 20), "the worker gives memory back")
    batch(4 + batches)

"""What a worker asks the system for."""

import concurrent.futures
import pathlib
import re

import pytest

from models import Model, stateless
from waiting import expect

HOARDER = """
local kept = {}
return { handle = function(req)
    for i = 1, tonumber(req.text) do kept[#kept + 1] = string.rep("x", 100) .. #kept end
    return tostring(#kept)
end }
"""


def huge_bytes(pid):
    """Of its mappings, those that it wants to have in huge pages."""
    found = bytes_ = 0
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if mapping := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            bytes_ = int(mapping[2], 16) - int(mapping[1], 16)
        elif line.startswith("VmFlags:") and " hg" in line:
            found += bytes_
    return found


@pytest.mark.skipif(not pathlib.Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no huge pages")
def test_a_handler_that_keeps_much_asks_for_huge_pages(server):
    """One that doesn't has none, which would be more than all that it needs."""
    s = server(stateless("hoarder", HOARDER))
    [pid] = s.expect_ready("hoarder", 1)
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    if "libasan" in maps or "libtsan" in maps:
        pytest.skip("a sanitizer's malloc")
    client = s.client()
    assert client.post("/predictions/hoarder", body=b"1000").text == "1000"
    assert huge_bytes(pid) == 0
    assert client.post("/predictions/hoarder", body=b"400000").text == "401000"
    assert huge_bytes(pid) > 30_000_000


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


def rss_bytes(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def test_batches_of_large_states_reuse_their_memory(server):
    """The system clears no page anew for each batch, and has the memory back once the worker is idle."""
    rows, batches = 8, 6
    s = server(Model("large", LARGE, {"batchSize": rows, "state": {"maxBytes": 4 << 20}}), clock=True)
    [pid] = s.expect_ready("large", 1)
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
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
    busy = rss_bytes(pid)
    s.clock.advance(61_000)
    expect(lambda: rss_bytes(pid) < busy - rows * (2 << 20), "the worker gives memory back")
    batch(4 + batches)

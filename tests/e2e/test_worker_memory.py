"""What a worker asks the system for."""

import pathlib
import re

import pytest

from models import stateless

HOARDER = """
local kept = {}
return { handle = function(req)
    for i = 1, tonumber(req.text) do kept[#kept + 1] = string.rep("x", 1000) .. #kept end
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
def test_a_worker_that_has_grown_is_in_huge_pages(server):
    """A small one is not: there may be thousands of them."""
    s = server(stateless("hoarder", HOARDER))
    [pid] = s.expect_ready("hoarder", 1)
    if "jemalloc" not in pathlib.Path(f"/proc/{pid}/maps").read_text():
        pytest.skip("a build with the C library's malloc")
    ask = s.client()
    assert ask.post("/predictions/hoarder", body=b"100").text == "100"
    assert huge_bytes(pid) == 0
    assert ask.post("/predictions/hoarder", body=b"60000").text == "60100"
    assert huge_bytes(pid) > 30_000_000

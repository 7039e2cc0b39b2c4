"""What a worker asks the system for."""

import pathlib
import re

import pytest

from models import stateless

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

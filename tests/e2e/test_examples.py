"""What the READMEs tell people to type works as it stands there."""

import os
import re
import subprocess

import pytest

from client import curl
from models import BUILD, ROOT, Model
from waiting import limit

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(path, language):
    return [text for name, text in FENCE.findall(path.read_text()) if name == language]


def test_the_readmes_own_handler_works(server, transcript):
    """Five minutes are short: the first thing that a new user types must not fail."""
    readme = ROOT / "README.md"
    s = server(Model("average", blocks(readme, "lua")[0], blocks(readme, "yaml")[0]))
    url = s.inference + "/predictions/average"
    _, first = curl(transcript, "-H", "ts_request_sequence_id: seq_0", url, "-d", "4")
    headers, second = curl(transcript, "-H", "ts_request_sequence_id: seq_0", url, "-d", "8")
    assert headers.startswith("HTTP/1.1 200"), headers
    assert re.search(r'"mean": ?4\b', first) and re.search(r'"mean": ?6\b', second), second
    refused = s.client().step("average", "seq_0", b"many")
    assert (refused.status, refused.message) == (400, "send a number")

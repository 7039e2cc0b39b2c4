"""Runs the stateful example of TorchServe's documentation with the real curl and our counter example."""

import re

import pytest

from client import curl
from models import ROOT, archiver


@pytest.fixture
def counter_server(server, transcript):
    s = server(start=False)
    example = ROOT / "examples" / "counter"
    archiver("--model-name", "counter", "--version", "1.0", "--handler", example / "handler.lua",
             "--config-file", example / "model-config.yaml", "--export-path", s.store, transcript=transcript)
    s.models = ["counter=counter.mar"]
    return s.start()


def sequence_header(headers):
    found = re.search(r"^ts_request_sequence_id: *(\S+)\r?$", headers, re.M | re.I)
    return found and found.group(1)


def test_curl_puts_a_file_and_the_id_is_echoed(counter_server, transcript, folder):
    """curl -H "ts_request_sequence_id: seq_0" http://localhost:8080/predictions/counter -T file"""
    url = counter_server.inference.replace("127.0.0.1", "localhost") + "/predictions/counter"
    for number, total in ((5, "5"), (7, "12"), (-2, "10")):
        (folder / "file").write_text(str(number))
        headers, body = curl(transcript, "-H", "ts_request_sequence_id: seq_0", url, "-T", str(folder / "file"))
        assert headers.startswith("HTTP/1.1 200"), headers
        assert (sequence_header(headers), body.strip()) == ("seq_0", total)


def test_a_request_without_id_opens_a_sequence_and_says_its_id(counter_server, transcript):
    """A new client need not choose an id."""
    url = counter_server.inference + "/predictions/counter"
    headers, body = curl(transcript, url, "-d", "4")
    made = sequence_header(headers)
    assert made and body.strip() == "4"
    headers, body = curl(transcript, "-H", f"ts_request_sequence_id: {made}", url, "-d", "6")
    assert (sequence_header(headers), body.strip()) == (made, "10")


def test_hyphens_and_capitals_in_the_header_name_are_the_same_header(counter_server):
    """Proxies rewrite header names: some drop underscores, some change the case."""
    client = counter_server.client()
    path = "/predictions/counter"
    for name in ("ts_request_sequence_id", "TS-Request-Sequence-Id", "Ts_Request_Sequence_Id"):
        answer = client.post(path, b"1", headers={name: "one"})
        assert answer.status == 200, answer
    assert answer.text.strip() == "3"


def test_zero_ends_the_counter(counter_server):
    """In the example the body 0 returns the total and ends the sequence; then the id begins a new one."""
    client = counter_server.client()
    assert client.step("counter", "e", 8).text.strip() == "8"
    assert client.step("counter", "e", 0).text.strip() == "8"
    assert counter_server.describe("counter")["liveSequences"] == 0
    assert client.step("counter", "e", 3).text.strip() == "3"


def test_a_start_flag_begins_anew(counter_server):
    """A client that was restarted need not end a sequence that it does not remember."""
    client = counter_server.client()
    assert client.step("counter", "s", 8).text.strip() == "8"
    again = client.step("counter", "s", 3, headers={"ts_request_sequence_start": "true"})
    assert (again.status, again.text.strip()) == (200, "3")


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/json", "application/octet-stream",
                                          "application/x-www-form-urlencoded"])
def test_the_body_counts_whatever_its_content_type(counter_server, transcript, content_type):
    """curl -d sends x-www-form-urlencoded, -T sends no type, and SDKs send JSON. All mean the same integer."""
    headers = {"Content-Type": content_type} if content_type else {}
    assert counter_server.client().step("counter", None, 9, headers=headers).text.strip() == "9"

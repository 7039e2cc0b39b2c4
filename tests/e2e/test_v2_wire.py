"""The bytes of the v2 protocol over HTTP: what clients in other languages rely on and tritonclient does not show."""

import gzip
import http.client
import json
import zlib

import numpy as np
import pytest
import requests

from test_v2_http import client_of, identity, one, post

LENGTH = "Inference-Header-Content-Length"


@pytest.fixture
def same(server):
    return server(identity(), flags=["--compress-above", 1000])


def floats(n, binary=True):
    """Returns the JSON part and the binary part of a request."""
    source = {"parameters": {"binary_data_size": 4 * n}} if binary else {"data": [0.5] * n}
    document = {"inputs": [{"name": "FP32", "datatype": "FP32", "shape": [n], **source}],
                "outputs": [{"name": "FP32", "parameters": {"binary_data": True}}]}
    return json.dumps(document).encode(), np.full(n, 0.5, np.float32).tobytes() if binary else b""


def raw(s, headers, body):
    """Returns an answer without decompressing it."""
    host = s.inference.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.request("POST", "/v2/models/identity/infer", body, headers)
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    return answer, found


@pytest.mark.parametrize("coding, pack, unpack", [("gzip", gzip.compress, gzip.decompress),
                                                  ("deflate", zlib.compress, zlib.decompress)])
def test_lengths_are_those_before_compression(same, coding, pack, unpack):
    """The length is that of the JSON part, in requests and in answers."""
    head, tail = floats(50_000)
    answer, body = raw(same, {"Content-Encoding": coding, "Accept-Encoding": coding, LENGTH: len(head)}, pack(head + tail))
    assert (answer.status, answer.headers["Content-Encoding"]) == (200, coding)
    assert len(body) < len(tail) // 4
    body = unpack(body)
    split = int(answer.headers[LENGTH])
    assert json.loads(body[:split])["outputs"][0]["parameters"] == {"binary_data_size": len(tail)}
    assert body[split:] == tail


@pytest.mark.parametrize("accepted, coding", [
    ("gzip, deflate", "gzip"), ("deflate, gzip", "deflate"), ("gzip;q=0.5, deflate;q=0.9", "deflate"),
    ("identity, gzip;q=0.5", None), ("gzip;q=0", None), ("*", None), ("br", None), ("", None),
])
def test_the_answers_coding_is_the_clients_choice(same, accepted, coding):
    """The highest q wins, and the first one if several are equal. Unknown encodings are ignored."""
    head, tail = floats(50_000)
    answer, _ = raw(same, {"Accept-Encoding": accepted, LENGTH: len(head)}, head + tail)
    assert (answer.status, answer.headers["Content-Encoding"]) == (200, coding)


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", "application/octet-stream"])
def test_the_content_type_is_not_looked_at(same, content_type):
    """curl -d sends the type of a form."""
    answer = post(same, "identity", one("INT32", "INT32", [1], [5]), {"Content-Type": content_type})
    assert answer.json()["outputs"][0]["data"] == [5]


def test_chunked_bodies(same):
    head, tail = floats(1000)
    answer = requests.post(same.inference + "/v2/models/identity/infer", data=iter([head[:7], head[7:] + tail[:5], tail[5:]]),
                           headers={LENGTH: str(len(head))}, timeout=20)
    assert answer.content[int(answer.headers[LENGTH]):] == tail


def test_empty_binary_outputs(same):
    """The answer is plain JSON with a size of 0, and without the length of a JSON part."""
    head, tail = floats(0)
    answer = post(same, "identity", head + tail, {LENGTH: str(len(head))})
    assert answer.headers["Content-Type"] == "application/json" and LENGTH not in answer.headers
    assert answer.json()["outputs"] == [
        {"name": "FP32", "datatype": "FP32", "shape": [0], "parameters": {"binary_data_size": 0}}]


def test_outputs_that_are_not_listed(same):
    """binary_data_output applies only to such outputs. They have no parameter except the size, or other clients would
    fail."""
    document = one("INT32", "INT32", [1], [5], parameters={"binary_data_output": True})
    answer = post(same, "identity", document)
    split = int(answer.headers[LENGTH])
    assert json.loads(answer.content[:split])["outputs"][0]["parameters"] == {"binary_data_size": 4}
    assert answer.content[split:] == b"\5\0\0\0"
    answer = post(same, "identity", {**document, "outputs": [{"name": "INT32"}]})
    assert answer.json()["outputs"] == [{"name": "INT32", "datatype": "INT32", "shape": [1], "data": [5]}]


def test_strings_are_bytes_in_metadata_and_strings_in_the_configuration(same):
    client = client_of(same)
    assert {each["datatype"] for each in client.get_model_metadata("identity")["inputs"] if each["name"] == "BYTES"} == {
        "BYTES"}
    assert {each["data_type"] for each in client.get_model_config("identity")["input"] if each["name"] == "BYTES"} == {
        "TYPE_STRING"}

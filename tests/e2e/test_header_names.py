"""The names of the headers that say which sequence a step belongs to, on every path that takes a step.

TorchServe's names have underscores, which nginx drops, so our own examples use hyphens. Both mean the same header, and
Continuo-Sequence is a short name for the one with the id."""

import itertools
import json

import pytest
from google.protobuf import json_format

from models import counter
from rpc import Rpc
from test_v2_http import accumulator
from v2rpc import Stream as V2Stream
from v2rpc import channel_of, request, stub_of

IDS = ["ts_request_sequence_id", "ts-request-sequence-id", "Continuo-Sequence", "continuo_sequence", "Continuo-Sequence-Id"]
STARTS = ["ts_request_sequence_start", "ts-request-sequence-start"]
ENDS = ["ts_request_sequence_end", "ts-request-sequence-end"]
fresh = itertools.count()


@pytest.fixture(scope="module")
def served(shared_server):
    return shared_server(counter(), accumulator())


def over_http(path, model="counter"):
    def step(s, value, headers):
        body = str(value)
        if "/v2/" in path and path.endswith("infer"):
            body = json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [value]}]})
        elif "/v2/" in path:
            body = json.dumps({"INPUT": value})
        answer = s.client().post(path, body, headers=headers)
        assert answer.status == 200, answer
        if path.endswith("infer"):
            return answer.json["outputs"][0]["data"][0]
        return answer.json["OUTPUT"] if "/v2/" in path else int(answer.text)
    return step


def over_grpc(s, value, headers):
    client = Rpc(s.grpc)
    try:
        metadata = tuple((name.lower(), text) for name, text in headers.items())
        return int(client.predict("counter", value, metadata=metadata).prediction)
    finally:
        client.close()


def as_grpc_input(s, value, headers):
    client = Rpc(s.grpc)
    try:
        return int(client.predict("counter", value, **headers).prediction)
    finally:
        client.close()


def v2_request(value):
    return request("accumulator", [("INPUT", "INT32", [1])], [value.to_bytes(4, "little", signed=True)])


def over_v2_grpc(s, value, headers):
    channel = channel_of(s)
    try:
        metadata = tuple((name.lower(), text) for name, text in headers.items())
        answer = stub_of(channel).ModelInfer(v2_request(value), metadata=metadata, timeout=30)
        return int.from_bytes(answer.raw_output_contents[0], "little")
    finally:
        channel.close()


WAYS = {
    "predictions": over_http("/predictions/counter"),
    "version": over_http("/predictions/counter/1.0"),
    "explanations": over_http("/v1/models/counter:predict"),
    "invocations": over_http("/invocations?model_name=counter"),
    "invoke": over_http("/models/counter/invoke"),
    "old": over_http("/counter/predict"),
    "v2 infer": over_http("/v2/models/accumulator/infer"),
    "v2 generate": over_http("/v2/models/accumulator/generate"),
    "grpc metadata": over_grpc,
    "grpc input": as_grpc_input,
    "v2 grpc": over_v2_grpc,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_spelling_is_the_same_header_on_every_path(served, way):
    """Steps under all names of the id go to one sequence, and START and END work in both spellings."""
    step, name = WAYS[way], f"spelt{next(fresh)}"
    sums = [step(served, 1, {spelling: name}) for spelling in IDS]
    assert sums == list(range(1, len(IDS) + 1))
    for start in STARTS:
        assert step(served, 5, {IDS[1]: name, start: "true"}) == 5
        assert step(served, 1, {IDS[1]: name}) == 6
    for end in ENDS:
        assert step(served, 1, {IDS[1]: name, end: "true"}) == 7
        assert step(served, 6, {IDS[1]: name}) == 6


def test_the_short_name_is_echoed_and_tells_a_made_id(served):
    """A client that sends the long name gets only that one back. An id that the server makes is returned under both
    names."""
    client, name = served.client(), f"short{next(fresh)}"
    assert client.post("/predictions/counter", "1", headers={"Continuo-Sequence": name}).headers["Continuo-Sequence"] == name
    long = client.post("/predictions/counter", "1", headers={"ts-request-sequence-id": name}).headers
    assert long["ts-request-sequence-id"] == name and "Continuo-Sequence" not in long
    made = client.post("/predictions/counter", "1").headers
    assert made["Continuo-Sequence"] == made["ts_request_sequence_id"] and made["Continuo-Sequence"].startswith("ts-seq-")
    answer = client.post("/predictions/counter", "4", headers={"Continuo-Sequence": made["Continuo-Sequence"]})
    assert answer.text == "5"


@pytest.mark.parametrize("path", ["/predictions/counter", "/invocations?model_name=counter"])
def test_two_different_ids_are_refused_and_both_named(served, path):
    answer = served.client().post(path, "1", headers={"Continuo-Sequence": "a", "ts-request-sequence-id": "b"})
    assert (answer.status, answer.error) == (400, "bad_request")
    assert answer.message == ('the request names two different sequences: Continuo-Sequence is "a", and '
                              'ts-request-sequence-id is "b"; send one of them')


@pytest.mark.parametrize("header_name", ["Continuo-Sequence", "continuo-sequence-id"])
@pytest.mark.parametrize("own, header, fits", [
    ("7", "7", True), (7, "7", True), ("x", "x", True), ("x", "y", False), (7, "8", False)])
def test_a_v2_id_and_the_header_must_be_the_same(served, own, header, fits, header_name):
    """A router reads the header, and the model's protocol reads the parameter. The two must agree."""
    body = {"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [3]}],
            "parameters": {"sequence_id": own, "sequence_start": True}}
    answer = served.client().post("/v2/models/accumulator/infer", json.dumps(body), headers={header_name: header})
    if fits:
        assert answer.status == 200, answer
    else:
        assert answer.status == 400
        assert answer.json["error"] == (f'the request names two different sequences: {header_name} is "{header}", '
                                        f'and sequence_id is "{own}"; send one of them')


def test_a_stream_of_v2_messages_takes_the_short_name(served):
    """The metadata of ModelStreamInfer name the sequence of messages without an id."""
    channel, name = channel_of(served), f"stream{next(fresh)}"
    try:
        stream = V2Stream(channel, metadata=(("continuo-sequence", name),))
        stream.send(v2_request(2), v2_request(3))
        answers = [stream.next() for _ in range(2)]
        sums = [int.from_bytes(a.infer_response.raw_output_contents[0], "little") for a in answers]
        assert sums == [2, 5], [json_format.MessageToDict(a) for a in answers]
        stream.half_close()
    finally:
        channel.close()


def test_the_description_names_headers_with_hyphens(served):
    text = served.client().get("/api-description").text
    assert "ts-request-sequence-id" in text and "Continuo-Sequence" in text and "ts_request_sequence" not in text

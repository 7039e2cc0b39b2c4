"""Answers: KServe's envelope and readiness, CORS headers, compression."""

import gzip
import json
import uuid
import zlib

import pytest
import requests

from client import curl
from models import Model, counter, stateless
from server import SLOW_BUILD
from waiting import expect

SQUARE_LUA = """
return { api = 1, handle = function(req)
    local x = req.json
    if x == "bad" then return nil, "no number", 422 end
    if x == "text" then return { text = 'say "hi"' } end
    if x == "broken" then return { body = "{", content_type = "application/json" } end
    if x == "bytes" then return { body = "\\255" } end
    if x == "late" then return { json = 1, status = 202 } end
    if x == "stream" then req:send('"a') return { body = 'b"', content_type = "application/json" } end
    return { json = { x = x, explain = req.explain, type = req.parts.body.content_type } }
end }
"""

BIG_LUA = """
return { api = 1, handle = function(req)
    local n = tonumber(req.body)
    return { body = ("0123456789abcdef"):rep(n // 16), content_type = "text/x-big" }
end }
"""


def square(**yaml):
    return Model("square", SQUARE_LUA, yaml, stateful=False)


def predict(client, *instances, path="/v1/models/square:predict"):
    return client.post(path, json.dumps({"instances": instances}), headers={"Content-Type": "application/json"})


# --- what every answer has


def test_the_request_id_is_the_servers(server):
    """Each request gets a UUID, which the handler sees, too, and TorchServe's headers against caching."""
    lua = "return { api = 1, handle = function(req) return { text = req.request_id } end }"
    client = server(Model("ids", lua, {}, stateful=False)).client()
    seen = set()
    for _ in range(3):
        answer = client.post("/predictions/ids", b"", headers={"x-request-id": "mine"})
        assert answer.text == answer.headers["x-request-id"] and uuid.UUID(answer.text).version == 4
        assert answer.headers["Pragma"] == "no-cache"
        assert answer.headers["Cache-Control"] == "no-cache; no-store, must-revalidate, private"
        assert answer.headers["Expires"] == "Thu, 01 Jan 1970 00:00:00 UTC"
        assert "Content-Type" not in answer.headers or answer.headers["Content-Type"].startswith("text/plain")
        seen.add(answer.text)
    assert len(seen) == 3


def test_a_refused_client_keeps_its_connection(server):
    """Unlike with TorchServe, the connection stays open, so that the client can try again at once."""
    raw = server(stateless()).raw()
    for _ in range(3):
        raw.send("POST /predictions/nobody HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n1")
        assert raw.answer().status == 404
    raw.close()


def test_ping_tells_of_missing_workers(server):
    """/ping answers 200 Healthy, or 500 Unhealthy as soon as one worker is missing, with any method and in TorchServe's
    form. Besides TorchServe's word the answer has the reason, but not in the form that is exactly TorchServe's."""
    s = server(stateless())
    for method in ("GET", "POST"):
        answer = s.client().request(method, "/ping")
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.status == 200 and answer.text == '{\n  "status": "Healthy"\n}\n'
    broken = s.pack(stateless("broken", "return { api = 1, handle = function() end, load = function() error('no') end }"))
    s.admin().post(f"/models?url={broken.name}&initial_workers=1&synchronous=false")
    expect(lambda: s.client().get("/ping").status == 500, "ping tells of it")
    answer = s.client().get("/ping").json
    assert answer["status"] == "Unhealthy"
    assert [(each["reason"], each["count"]) for each in answer["reasons"]] == [("workers_missing", 1)]


# --- KServe


def test_instances_are_rows_and_come_back_in_order(server, transcript, folder):
    """With service_envelope=kserve each instance is a row for the handler, on every path of a prediction."""
    s = server(square(batchSize=8), flags=["--service-envelope", "kserve"])
    client = s.client()
    answer = predict(client, 1, [2, 3], {"a": None})
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/json"
    assert [each["x"] for each in answer.json["predictions"][:2]] == [1, [2, 3]]
    assert answer.json["predictions"][0]["type"] == "application/json"
    assert predict(client, path="/predictions/square").json == {"predictions": []}
    many = predict(client, *range(500), path="/predictions/square/1.0")
    assert [each["x"] for each in many.json["predictions"]] == list(range(500))
    explained = predict(client, 7, path="/v1/models/square:explain")
    assert explained.json["explanations"][0]["explain"] is True
    (folder / "input.json").write_text('{"instances": [5]}')
    head, body = curl(transcript, "-X", "POST", "-H", "Content-Type: application/json", "-d", f"@{folder}/input.json",
                      s.inference + "/v1/models/square:predict")
    assert head.startswith("HTTP/1.1 200") and json.loads(body)["predictions"][0]["x"] == 5


def test_answers_that_are_no_json_are_strings(server):
    """Text becomes a JSON string, the pieces of a streamed answer are joined, and the highest status counts."""
    client = server(square(), flags=["--service-envelope", "json"]).client()
    assert predict(client, "text", "stream").json == {"predictions": ['say "hi"', "ab"]}
    late = predict(client, 1, "late")
    assert late.status == 202 and late.json["predictions"][1] == 1
    for word in ("broken", "bytes"):
        refused = predict(client, word)
        assert refused.status == 500 and "Prediction failed" in refused.message, refused
    assert "predictions" in predict(client, 1, path="/explanations/square").json


def test_one_bad_instance_fails_the_request(server):
    """The answer has the handler's own status and message, and no row is left over."""
    s = server(square(), flags=["--service-envelope", "kserve"])
    refused = predict(s.client(), *range(20), "bad", *range(20))
    assert (refused.status, refused.message) == (422, "no number")
    assert predict(s.client(), 1).status == 200


@pytest.mark.parametrize("body, why", [
    (b"", "not valid JSON"), (b"{", "not valid JSON"), (b"[1]", "instances"), (b'{"instances": 1}', "instances"),
    (b'{"inputs": [1]}', "instances"), (b'{"instances": [1, 2, 3, 4]}', "max-request-parts"),
    (b'{"instances": [1], "instances": [2]}', "not valid JSON"),
])
def test_bad_envelopes_are_refused(server, body, why):
    """The answer is 400 with the reason."""
    client = server(square(), flags=["--service-envelope", "kserve", "--max-request-parts", "3"]).client()
    refused = client.post("/predictions/square", body)
    assert refused.status == 400 and why in refused.message, refused


def test_a_step_of_a_sequence_is_one_instance(server):
    """The id is returned as usual. Several steps in one request are refused."""
    client = server(counter(), flags=["--service-envelope", "kserve"]).client()
    headers = {"ts_request_sequence_id": "s"}
    for number, total in ((4, "4"), (5, "9")):
        answer = client.post("/predictions/counter", json.dumps({"instances": [number]}), headers=headers)
        assert answer.json == {"predictions": [total]} and answer.sequence == "s"
    refused = client.post("/predictions/counter", b'{"instances": [1, 2]}', headers=headers)
    assert refused.status == 400 and "one instance per request" in refused.message
    refused = client.post("/invocations", b'{"instances": [1]}', headers={
        "X-Amzn-SageMaker-Session-Id": "NEW_SESSION"})
    assert refused.status == 400 and "service-envelope" in refused.message


def test_a_client_that_leaves_cancels_its_instances(server):
    """Waiting instances are cancelled, and the model continues."""
    s = server(square(batchSize=1), flags=["--service-envelope", "kserve"])
    with s.hold():
        raw = s.raw()
        body = json.dumps({"instances": list(range(100))})
        raw.send(f"POST /predictions/square HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n{body}")
        s.expect_outstanding("square", 100)
        raw.reset()
    answer = predict(s.client(), 1)
    assert answer.status == 200 and answer.json["predictions"][0]["x"] == 1


def test_without_envelope_the_body_is_the_handlers(server):
    """KServe's paths alone have no effect."""
    answer = predict(server(square()).client(), 1)
    assert answer.json["x"] == {"instances": [1]}


def test_an_unknown_envelope_stops_the_start(server):
    """The message has the allowed words."""
    s = server(square(), flags=["--service-envelope", "letter"], start=False)
    s.expected_exit = 1
    assert s.launch().exit_code() == 1
    s.expect_log("--service-envelope", "none, body, json, kserve or kservev2", "letter")


def test_readiness_of_a_model(server):
    """GET /v1/models/{m} also works on the inference port, where KServe's clients ask."""
    s = server(square())
    client = s.client()
    assert client.get("/v1/models/square").text == '{\n  "name": "square",\n  "ready": true\n}\n'
    s.admin().put("/models/square?min_worker=0&synchronous=true")
    assert client.get("/v1/models/square").json == {"name": "square", "ready": False}
    assert client.get("/v1/models/nobody").json["type"] == "ModelNotFoundException"
    refused = client.post("/v1/models/square", b"")
    assert refused.status == 405 and refused.headers["Allow"] == "GET, HEAD"


# --- other sites' scripts

CORS = ["--cors-allowed-origin", "https://app.example", "--cors-allowed-methods", "GET, POST",
        "--cors-allowed-headers", "content-type, ts_request_sequence_id"]


def test_every_answer_allows_the_other_site(server):
    """As in TorchServe, successes and errors have the header, whatever the request's Origin is."""
    s = server(stateless(), flags=CORS)
    for answer in (s.client().post("/predictions/echo", b"x"), s.client().get("/nowhere"), s.client().get("/ping"),
                   s.admin().get("/models")):
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert answer.headers["Access-Control-Allow-Methods"] == "GET, POST"
        assert answer.headers["Access-Control-Allow-Headers"] == "content-type, ts_request_sequence_id"
        exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
        assert all(name in exposed for name in answer.headers if name.startswith(("Continuo-", "ts-", "x-")))


def test_preflights_are_answered(server):
    """A browser sends a preflight request first. No handler runs for it, whatever the path is."""
    client = server(stateless(), flags=CORS).client()
    asked = client.request("OPTIONS", "/predictions/echo", headers={
        "Origin": "https://app.example", "Access-Control-Request-Method": "POST"})
    assert (asked.status, asked.body) == (204, b"")
    assert asked.headers["Access-Control-Allow-Methods"] == "GET, POST"
    assert client.post("/predictions/echo", b"x").body == b"x"


def test_without_the_option_no_site_is_allowed(server):
    """There is no header, and a preflight request gets no permission."""
    client = server(stateless()).client()
    assert "Access-Control-Allow-Origin" not in client.post("/predictions/echo", b"x").headers
    asked = client.request("OPTIONS", "/predictions/echo", headers={
        "Origin": "https://app.example", "Access-Control-Request-Method": "POST"})
    assert asked.status != 204 and "Access-Control-Allow-Origin" not in asked.headers


def test_a_header_value_that_is_none_stops_the_start(server):
    """A line end in the value could forge headers."""
    s = server(stateless(), flags=["--cors-allowed-origin", "*\r\nX: y"], start=False)
    s.expected_exit = 1
    assert s.launch().exit_code() == 1
    s.expect_log("--cors-allowed-origin", "without control characters")


# --- compression


@pytest.fixture
def big(server):
    return server(Model("big", BIG_LUA, {}, stateful=False), flags=["--compress-above", "1000"])


@pytest.mark.parametrize("accepts, coding", [
    ("gzip", "gzip"), ("deflate", "deflate"), ("deflate;q=0.3, gzip;q=0.4", "gzip"), ("br", None), ("gzip;q=0", None),
])
def test_large_answers_are_compressed_as_the_client_asks(big, accepts, coding):
    """The uncompressed body and its type are the same, and a header informs caches."""
    client = big.client()
    for size in (1008, 5_000_000):
        answer = client.post("/predictions/big", str(size), headers={"Accept-Encoding": accepts})
        assert answer.headers["Content-Encoding"] == coding and answer.headers["Content-Type"] == "text/x-big"
        plain = answer.body
        if coding:
            assert answer.headers["Vary"] == "Accept-Encoding" and len(answer.body) < size / 4
            plain = (gzip.decompress if coding == "gzip" else zlib.decompress)(answer.body)
        assert plain == b"0123456789abcdef" * (size // 16)


def test_small_answers_and_others_stay_as_they_are(big, server):
    """Answers are not compressed below the size, without the client's header, and by default."""
    asks = {"Accept-Encoding": "gzip"}
    assert "Content-Encoding" not in big.client().post("/predictions/big", b"992", headers=asks).headers
    assert "Content-Encoding" not in big.client().post("/predictions/big", b"5000", headers={}).headers
    s = server(Model("big", BIG_LUA, {}, stateful=False))
    assert "Content-Encoding" not in s.client().post("/predictions/big", b"5000", headers=asks).headers


def test_real_clients_see_through_it(big, transcript):
    """The Python package requests asks for compression by itself, and curl does with --compressed."""
    url = big.inference + "/predictions/big"
    answer = requests.post(url, data=b"160000", timeout=30)
    assert answer.headers["Content-Encoding"] == "gzip" and answer.text == "0123456789abcdef" * 10000
    head, body = curl(transcript, "--compressed", "-d", "16000", url)
    assert "Content-Encoding" in head and body == "0123456789abcdef" * 1000


def test_many_compressed_answers_at_once(big):
    """Compressed answers are made in small steps, in turn with each other, while other requests wait for workers."""
    with requests.Session() as session:
        for _ in range(20):
            assert len(session.post(big.inference + "/predictions/big", data=b"1600000", timeout=30).content) == 1600000


def test_a_client_that_leaves_in_the_middle_of_a_compressed_answer(big):
    """Other clients are not affected."""
    size = "10000000" if SLOW_BUILD else "60000000"  # takes long enough to compress
    for _ in range(5):
        raw = big.raw(receive_buffer=4096)
        raw.send("POST /predictions/big HTTP/1.1\r\nHost: t\r\nAccept-Encoding: gzip\r\nContent-Length: 8\r\n\r\n"
                 f"{size}")
        raw.socket.recv(100)
        raw.reset()
    assert big.client().post("/predictions/big", b"16").body == b"0123456789abcdef"

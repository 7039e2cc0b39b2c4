"""Other names for sequences: Inference-Session-Id and SageMaker's sessions; and the ways in which a sequence ends."""

import datetime
import re
import threading
from urllib.parse import quote

import pytest

from models import counter, stateless
from waiting import expect

SESSION = "X-Amzn-SageMaker-Session-Id"
NEW = "X-Amzn-SageMaker-New-Session-Id"
CLOSED = "X-Amzn-SageMaker-Closed-Session-Id"
END = {"ts_request_sequence_end": "true"}
START = {"ts_request_sequence_start": "true"}

# The pattern of NewSessionResponseHeader in SageMaker's runtime API.
NEW_PATTERN = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*; Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def invoke(client, body, session=None, path="/invocations", **headers):
    if session is not None:
        headers[SESSION] = session
    return client.post(path, str(body), headers=headers)


# --- Inference-Session-Id


def test_inference_session_id_names_a_sequence_and_is_echoed(server):
    """It names the same sequence as TorchServe's header, and the answer uses the request's header."""
    client = server(counter()).client()
    first = client.step("counter", None, 5, headers={"Inference-Session-Id": "a"})
    assert (first.status, first.text) == (200, "5")
    assert first.headers["Inference-Session-Id"] == "a" and first.sequence is None
    assert client.step("counter", "a", 2).text == "7"


def test_two_ids_in_two_headers_are_refused(server):
    """If the server guessed, it could mix the states of two clients. The same id twice is accepted."""
    client = server(counter()).client()
    both = client.step("counter", "b", 1, headers={"Inference-Session-Id": "a"})
    assert (both.status, both.error) == (400, "bad_request"), both
    assert client.step("counter", "a", 1, headers={"Inference-Session-Id": "a"}).text == "1"


# --- SageMaker


def test_a_sagemaker_session_from_its_opening_to_its_end(server):
    """The headers of NEW_SESSION, of steps with the id, and of the end are exactly SageMaker's."""
    s = server(counter(sequenceMaxIdleMSec=600_000))
    client = s.client()
    first = invoke(client, 4, "NEW_SESSION")
    assert (first.status, first.text) == (200, "4"), first
    assert NEW_PATTERN.fullmatch(first.headers[NEW]), first.headers[NEW]
    session, _, expires = first.headers[NEW].partition("; Expires=")
    left = datetime.datetime.fromisoformat(expires.replace("Z", "+00:00")) - datetime.datetime.now(datetime.timezone.utc)
    assert 500 < left.total_seconds() <= 600
    assert CLOSED not in first.headers
    second = invoke(client, 6, session)
    assert second.text == "10" and NEW not in second.headers and CLOSED not in second.headers
    last = invoke(client, 1, session, **END)
    assert (last.text, last.headers[CLOSED]) == ("11", session)
    late = invoke(client, 1, session)
    assert (late.status, late.error, late.headers[CLOSED]) == (404, "sequence_unknown", session), late
    assert s.describe("counter")["liveSequences"] == 0


def test_each_new_session_is_another_one(server):
    """This also works if the model requires an id from all other clients."""
    client = server(counter(sequence={"implicitStart": False})).client()
    ids = {invoke(client, 1, "NEW_SESSION").headers[NEW] for _ in range(5)}
    assert len(ids) == 5 and not any("Expires" in each for each in ids)


def test_an_expired_session_is_told_to_be_closed(server):
    """The header tells a router to forget the session."""
    s = server(counter(sequenceMaxIdleMSec=60_000), clock=True)
    client = s.client()
    session = invoke(client, 4, "NEW_SESSION").headers[NEW].split(";")[0]
    s.clock.advance(61_000)
    late = invoke(client, 1, session)
    assert (late.status, late.error, late.headers[CLOSED]) == (410, "sequence_expired", session), late


def test_what_is_no_session_is_refused(server):
    """Refused are an id that was never given out, an id beside NEW_SESSION, and a model without state."""
    client = server(counter(), stateless()).client()
    path = "/models/counter/invoke"
    unknown = invoke(client, 1, "invented", path)
    assert (unknown.status, unknown.error) == (404, "sequence_unknown"), unknown
    both = invoke(client, 1, "NEW_SESSION", path, ts_request_sequence_id="a")
    assert (both.status, both.error) == (400, "bad_request"), both
    none = invoke(client, 1, "NEW_SESSION", "/models/echo/invoke")
    assert (none.status, none.error) == (400, "bad_request"), none
    long = invoke(client, 1, "x" * 257, path)
    assert (long.status, long.error) == (400, "bad_request"), long


def test_invocations_finds_its_model(server):
    """If the command line names a single model, no name is needed. With several models the query names one."""
    s = server(counter())
    client = s.client()
    assert invoke(client, 3).text == "3"
    s.register(stateless())
    assert invoke(client, 3, ts_request_sequence_id="a").text == "3"  # that one came later
    assert invoke(client, "hi", path="/invocations?model_name=echo").text == "hi"
    assert client.post("/models/echo/invoke", b"hi").text == "hi"
    unknown = invoke(client, 3, path="/invocations?model_name=nobody")
    assert (unknown.status, unknown.message) == (404, "Model not found: nobody")
    assert client.post("/invocations?model_name=%0", b"1").status == 400
    assert client.request("GET", "/invocations", body=b"0").status == 200, "any method, as in TorchServe"


def test_invocations_needs_a_name_among_several(server):
    """The message is TorchServe's."""
    client = server(counter(), stateless()).client()
    answer = invoke(client, 3)
    assert (answer.status, answer.json["type"]) == (400, "BadRequestException")
    assert answer.message == "Parameter model_name is required."


# --- who may begin and end


def test_an_end_flag_ends_a_sequence_and_the_id_begins_anew(server):
    """TorchServe's clients use an id again."""
    s = server(counter())
    client = s.client()
    assert client.step("counter", "a", 5).text == "5"
    assert client.step("counter", "a", 2, headers=END).text == "7"
    assert s.describe("counter")["liveSequences"] == 0
    assert client.step("counter", "a", 3).text == "3"


def test_an_end_flag_alone_is_a_sequence_of_one_step(server):
    """END without START: the step runs, and no sequence remains."""
    s = server(counter())
    client = s.client()
    assert client.step("counter", "b", 5, headers=END).text == "5"
    assert s.describe("counter")["liveSequences"] == 0
    assert client.step("counter", "b", 5, headers={**START, **END}).text == "5"
    assert client.step("counter", "b", 5).text == "5"


def test_strict_models_refuse_unknown_ids(server):
    """A misspelt id must not open a sequence, also after a restart of the server."""
    s = server(counter(sequence={"strict": True}))
    client = s.client()
    unknown = client.step("counter", "a", 1)
    assert (unknown.status, unknown.error) == (404, "sequence_unknown"), unknown
    assert client.step("counter", "a", 1, headers=END).status == 404
    assert client.step("counter", "a", 1, headers=START).text == "1"
    s.stop()
    s.restart()
    client = s.client()
    assert client.step("counter", "a", 1).text == "2"
    assert client.step("counter", "b", 1).status == 404
    assert s.describe("counter")["liveSequences"] == 1


def test_without_implicit_start_each_request_needs_an_id(server):
    """The message names the setting."""
    client = server(counter(sequence={"implicitStart": False})).client()
    answer = client.step("counter", None, 1)
    assert (answer.status, answer.error) == (400, "bad_request"), answer
    assert "sequence.implicitStart" in answer.message
    assert client.step("counter", "a", 1).text == "1"


# --- DELETE


@pytest.mark.parametrize("path", ["/models/counter/sequences/", "/models/counter/1.0/sequences/"])
def test_a_live_sequence_is_deleted_and_a_late_step_learns_why(server, path):
    """Another sequence is not affected, a START begins anew, and deleting it again is not an error."""
    s = server(counter())
    client, admin = s.client(), s.admin()
    client.step("counter", "a", 5)
    client.step("counter", "b", 5)
    answer = admin.delete(path + "a")
    assert answer.status == 200 and answer.json == {
        "status": "deleted", "modelName": "counter", "modelVersion": "1.0", "sequence": "a", "wasLive": True}
    assert admin.delete(path + "a").json["wasLive"] is False
    late = client.step("counter", "a", 1)
    assert (late.status, late.error) == (410, "sequence_ended") and "deleted" in late.message, late
    assert client.step("counter", "b", 1).text == "6"
    assert client.step("counter", "a", 3, headers=START).text == "3"


def test_a_stored_sequence_is_deleted_though_the_server_does_not_know_it(server):
    """After a restart only the store has the sequence."""
    s = server(counter())
    s.client().step("counter", "a", 5)
    s.stop()
    s.restart()
    assert s.admin().delete("/models/counter/sequences/a").status == 200
    late = s.client().step("counter", "a", 1)
    assert (late.status, late.error) == (410, "sequence_ended"), late
    assert s.describe("counter")["liveSequences"] == 0


def test_a_deletion_waits_for_the_running_step(server):
    """The client of that step gets its answer. The deletion is reported after it, when the state is gone."""
    s = server(counter())
    client, admin = s.client(), s.admin()
    client.step("counter", "a", 5)
    with s.hold():
        raw = s.raw()
        raw.send("POST /predictions/counter HTTP/1.1\r\nHost: x\r\nts_request_sequence_id: a\r\n"
                 "Content-Length: 1\r\n\r\n2")
        s.expect_outstanding("counter", 1)
        answers = []
        deleter = threading.Thread(target=lambda: answers.append(admin.delete("/models/counter/sequences/a")))
        deleter.start()
        assert not answers
    assert raw.answer().text == "7"
    deleter.join(30)
    assert answers and answers[0].status == 200
    expect(lambda: s.describe("counter")["liveSequences"] == 0, "no live sequence")
    assert client.step("counter", "a", 1).status == 410


@pytest.mark.parametrize("sequence", ["with space", "caf\u00e9", "a/b", "?", "100%"])
def test_any_id_can_be_deleted(server, sequence):
    """An id of a header can also be used in a path, if it is escaped."""
    s = server(counter())
    client = s.client()
    raw = sequence.encode().decode("latin-1")
    client.step("counter", raw, 5)
    answer = s.admin().delete("/models/counter/sequences/" + quote(sequence, safe=""))
    assert (answer.status, answer.json["sequence"], answer.json["wasLive"]) == (200, sequence, True), answer
    assert client.step("counter", raw, 1).status == 410


def test_what_can_not_be_deleted(server):
    """Unknown models, models without sequences, impossible ids, and a model without workers."""
    s = server(counter(), stateless())
    admin = s.admin()
    assert admin.delete("/models/nobody/sequences/a").status == 404
    assert admin.delete("/models/counter/9.9/sequences/a").status == 404
    assert admin.delete("/models/echo/sequences/a").status == 400
    assert admin.delete("/models/counter/sequences/" + "x" * 257).status == 400
    assert admin.request("PATCH", "/models/counter/1.0/sequences/a").status == 405
    assert admin.post("/models/counter/sequences/a").status == 400
    assert admin.put("/models/counter?min_worker=0&max_worker=0&synchronous=true").status == 200
    answer = admin.delete("/models/counter/sequences/a")
    assert answer.status == 503 and "no worker" in answer.message, answer

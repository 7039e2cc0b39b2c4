"""Limits of named keys: how fast, how many at once, how many sequences, and how much state; over each API."""

import concurrent.futures
import json
import os
import signal

import grpc
import pytest
import requests

import v2rpc
from client import SEQUENCE
from models import BIN, counter, stateless
from rpc import Rpc, refused, request
from test_grpc_stream import reason
from test_named_keys import Keys, ctl, hang_up
from test_v2_http import accumulator
from waiting import expect, limit
from websocketing import Stream, body_of


@pytest.fixture
def keys(folder):
    return Keys(folder).add("ops", "manage,observe")


def serving(server, keys, *models, flags=(), **more):
    return server(*(models or (counter(),)), flags=["--keys", keys.path, *flags], **more)


def use(s, keys, name):
    """What the server says that the key uses."""
    answer = s.admin().get("/keys", headers=keys.http("ops"))
    assert answer.status == 200, answer
    return next(key for key in answer.json["keys"] if key["name"] == name)


def uses(s, keys, name, **expected):
    expect(lambda: expected.items() <= use(s, keys, name).items(), f"{name} uses {expected}", 30)


def step(s, keys, name, sequence, number="1", **headers):
    return s.client(name).post("/predictions/counter", number, headers={SEQUENCE: sequence, **keys.http(name), **headers})


START = {"ts_request_sequence_start": "true"}
END = {"ts_request_sequence_end": "true"}


def until_refused(call):
    """A busy machine may give the bucket the time for a new token between two requests, so this asks again."""
    return expect(lambda: (lambda answer: answer if answer is not None and answer.status == 429 else None)(call()),
                  "a request that is refused", 60)


def test_a_rate_refuses_what_comes_too_early(server, keys):
    """The answer names the key, the limit and the wait; other keys and the health check are not concerned."""
    keys.add("slow", "infer", "--rate", 1, "--burst", 2).add("free", "infer")
    s = serving(server, keys, clock=True)
    answer = until_refused(lambda: step(s, keys, "slow", "a"))
    assert answer.error == "key_limit", answer
    assert answer.message.startswith("the key slow may send 1 requests a second, and 2 at once (rate, burst); the next "
                                     "one in ")
    assert answer.headers["Retry-After"] == "1"
    assert use(s, keys, "slow")["refused"]["rate"] >= 1 and use(s, keys, "slow")["limits"] == {"rate": 1, "burst": 2}
    assert step(s, keys, "free", "a").status == 200
    assert s.client().get("/ping", headers=keys.http("slow")).status == 200
    s.clock.advance(1000)
    assert step(s, keys, "slow", "a").status == 200


def test_each_api_says_that_a_limit_is_used_up(server, keys):
    """429 over HTTP and WebSockets, RESOURCE_EXHAUSTED over gRPC, each in the form that the API's clients expect."""
    keys.add("full", "infer", "--max-num-sequence", 1)
    s = serving(server, keys, counter(), accumulator())
    assert step(s, keys, "full", "a").text == "1"
    tensor = {"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [4]}],
              "parameters": {"sequence_id": "b", "sequence_start": True}}
    answer = requests.post(s.inference + "/v2/models/accumulator/infer", data=json.dumps(tensor), headers=keys.http("full"),
                           timeout=limit(20))
    said = "the key full has 1 sequences open or about to open, and its limit is 1 (maxNumSequence); end one before you begin another"
    assert (answer.status_code, answer.json()) == (429, {"error": said})
    with Rpc(s.grpc) as client:
        error = refused(client.predict, "counter", 1, "b", metadata=keys.rpc("full"))
        assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, said)
        answers = client.inference.StreamPredictions2(iter([request("counter", b"1", "b")]), timeout=limit(30),
                                                      metadata=keys.rpc("full"))
        assert reason(next(answers)) == "key_limit"
        assert client.predict("counter", 1, "a", metadata=keys.rpc("full")).prediction == b"2"
    with v2rpc.channel_of(s) as channel:
        begin = v2rpc.step("accumulator", 3, "b", sequence_start=True)
        error = refused(lambda: v2rpc.stub_of(channel).ModelInfer(begin, metadata=keys.rpc("full"), timeout=limit(30)))
        assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, said)
    with Stream(s, "counter", "b", headers=keys.http("full")) as stream:
        answer = stream.step(1)
        assert (answer["status"], answer["error"], answer["message"]) == (429, "key_limit", said), answer
    with Stream(s, "counter", "a", headers=keys.http("full")) as stream:
        assert body_of(stream.step(1)) == "3"
    assert use(s, keys, "full")["refused"]["maxNumSequence"] == 5


def test_requests_under_way_are_limited(server, keys):
    """A place is free again when its request was answered, also when its worker died."""
    keys.add("narrow", "infer", "--concurrency", 1).add("free", "infer")
    s = serving(server, keys, counter(minWorkers=1, maxWorkers=1), stateless())
    pids = [w["pid"] for w in s.admin().get("/models/counter", headers=keys.http("ops")).json[0]["workers"]]
    assert step(s, keys, "narrow", "a").text == "1"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with s.hold():
            first = pool.submit(step, s, keys, "narrow", "a")
            uses(s, keys, "narrow", inFlight=1)
            answer = s.client().post("/predictions/echo", "x", headers=keys.http("narrow"))
            assert (answer.status, answer.error) == (429, "key_limit")
            assert answer.message == ("the key narrow has 1 requests under way, which is its limit (concurrency); send "
                                      "the next one after an answer")
            assert answer.headers["Retry-After"] == "1"
            os.kill(pids[0], signal.SIGKILL)
        assert first.result(limit(60)).text == "2"
    assert s.client().post("/predictions/echo", "x", headers=keys.http("free")).text == "x"
    uses(s, keys, "narrow", inFlight=0)
    assert s.client().post("/predictions/echo", "x", headers=keys.http("narrow")).text == "x"


def test_sequences_are_limited_across_restarts_and_deaths(server, keys):
    """A sequence counts until it ends, also while it is only on the disk, and can be continued at the limit."""
    keys.add("two", "infer", "--max-num-sequence", 2).add("free", "infer")
    s = serving(server, keys)
    assert [step(s, keys, "two", i).status for i in "abc"] == [200, 200, 429]
    assert step(s, keys, "free", "c").status == 200
    assert step(s, keys, "two", "a", **END).status == 200
    assert [step(s, keys, "two", i).status for i in "cdb"] == [200, 429, 200]
    uses(s, keys, "two", sequences=2)
    s.stop()
    s.start()
    uses(s, keys, "two", sequences=2)
    for headers in ({}, START):
        answer = step(s, keys, "two", "d", **headers)
        assert (answer.status, answer.error) == (429, "key_limit"), answer
    assert step(s, keys, "two", "b").text == "3"
    pid = s.admin().get("/models/counter", headers=keys.http("ops")).json[0]["workers"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    assert step(s, keys, "two", "c").text == "2"
    assert step(s, keys, "two", "d").status == 429
    assert step(s, keys, "two", "b", **END).text == "4"
    assert step(s, keys, "two", "d").status == 200
    assert s.admin().delete("/models/counter/sequences/two/c", headers=keys.http("ops")).status == 200
    uses(s, keys, "two", sequences=1)


def test_a_start_takes_the_place_of_what_is_in_the_store(server, keys):
    """After a restart the server knows the sequences of the store only by their number."""
    keys.add("shop", "infer", "--max-num-sequence", 3)
    s = serving(server, keys)
    assert all(step(s, keys, "shop", name).status == 200 for name in ("a", "b"))
    s.stop()
    s.restart()
    uses(s, keys, "shop", sequences=2)
    assert step(s, keys, "shop", "a", **START).text == "1"
    assert use(s, keys, "shop")["sequences"] == 2  # at once, and not after the next count
    assert step(s, keys, "shop", "c").status == 200
    assert step(s, keys, "shop", "d").error == "key_limit"


@pytest.mark.parametrize("policy", ["pin", "migrate"])
def test_a_swap_of_versions_changes_no_count(server, keys, policy):
    """A sequence that stays in the old version, or moves to the new one, is counted once."""
    keys.add("three", "infer", "--max-num-sequence", 3)
    versions = [counter(version=version, sequence={"swapPolicy": policy}) for version in ("1.0", "2.0")]
    s = serving(server, keys, *versions)
    for version in ("1.0", "2.0"):
        assert s.admin().put(f"/models/counter/{version}/set-default", headers=keys.http("ops")).status == 200
        for sequence in "ab":
            assert step(s, keys, "three", sequence).status == 200
    assert [step(s, keys, "three", sequence).text for sequence in "ab"] == ["3", "3"]
    assert step(s, keys, "three", "c").text == "1"
    uses(s, keys, "three", sequences=3)
    assert step(s, keys, "three", "d").status == 429
    assert step(s, keys, "three", "a", **END).text == "4"
    uses(s, keys, "three", sequences=2)


def test_a_sequence_of_the_operator_may_come_before_its_key(server, keys):
    """It is imported before its owner has a key. Then the owner goes on with it, also after its end."""
    keys.add("first", "infer", "--max-num-sequence", 2)
    s = serving(server, keys)
    assert step(s, keys, "first", "x").text == "1"
    envelope = s.admin().get("/models/counter/sequences/first/x?export=true", headers=keys.http("ops"))
    url = "/models/counter/sequences/second/x"
    assert s.admin().put(url, body=envelope.body, headers=keys.http("ops")).status == 200, envelope
    keys.add("second", "infer", "--max-num-sequence", 2)
    hang_up(s, "event=keys_reloaded")
    assert step(s, keys, "second", "x").text == "2"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        with s.hold():
            gone = pool.submit(s.admin().delete, url, headers=keys.http("ops"))
            expect(lambda: use(s, keys, "second")["requests"] == 1, "the first step is counted")
            next_step = pool.submit(step, s, keys, "second", "x", **START)
            expect(lambda: use(s, keys, "second")["requests"] == 2, "the next step waits")
        assert gone.result().status == 200 and next_step.result().status == 200
    assert step(s, keys, "second", "y").text == "1"
    uses(s, keys, "second", sequences=2)


def test_stored_bytes_are_limited(server, keys):
    """At the limit a client can still end sequences. The number is what the store has, also after a restart."""
    keys.add("small", "infer", "--stored-bytes", 1).add("free", "infer")
    s = serving(server, keys)
    for name in ("small", "free"):
        assert step(s, keys, name, "a").status == 200
    assert step(s, keys, "free", "b").status == 200

    def stored(name):
        listed = s.admin().get(f"/models/counter/sequences?state=open&prefix={name}/", headers=keys.http("ops")).json["sequences"]
        return {"sequences": len(listed), "storedBytes": sum(one["stateBytes"] for one in listed)}

    assert stored("small")["storedBytes"] > 1
    for _ in range(2):
        uses(s, keys, "small", **stored("small"))
        uses(s, keys, "free", **stored("free"))
        for sequence in "ab":
            answer = step(s, keys, "small", sequence)
            assert (answer.status, answer.error) == (429, "key_limit"), answer
            assert answer.message == (f"the sequences of the key small hold {stored('small')['storedBytes']} bytes of "
                                      "state, and its limit is 1 (storedBytes); end some of them")
        assert answer.headers["Retry-After"] == "10"
        assert step(s, keys, "free", "a").status == 200
        s.kill()
        s.restart()
    uses(s, keys, "small", sequences=1)
    assert step(s, keys, "small", "a", **END).status == 200
    uses(s, keys, "small", sequences=0, storedBytes=0)
    assert step(s, keys, "small", "b").status == 200


def test_many_clients_get_no_sequence_too_many(server, keys, any_loops):
    """Clients on several loops want the last places of two models at once."""
    keys.add("ten", "infer", "--max-num-sequence", 10)
    s = serving(server, keys, counter(), counter("other"))

    def begin(i):
        url = f"{s.inference}/predictions/{('counter', 'other')[i % 2]}"
        return requests.post(url, data="1", headers={SEQUENCE: f"s{i}", **keys.http("ten")}, timeout=limit(60)).status_code

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(begin, range(30)))
    assert sorted(codes) == [200] * 10 + [429] * 20
    uses(s, keys, "ten", sequences=10, inFlight=0)


def test_limits_follow_the_file(server, keys):
    """SIGHUP takes new limits over. A wrong one leaves the old ones in use."""
    keys.add("shop", "infer")
    s = serving(server, keys)
    assert [step(s, keys, "shop", i).status for i in "abc"] == [200] * 3
    before = keys.path.read_text()

    def write(member):
        keys.path.write_text(before.replace('"scopes": ["infer"]', f'"scopes": ["infer"], {member}'))

    write('"maxNumSequence": 2')
    hang_up(s, "event=keys_reloaded", "keys=2")
    assert step(s, keys, "shop", "d").error == "key_limit"
    assert step(s, keys, "shop", "c").status == 200
    write('"maxNumSequence": -1')
    hang_up(s, "event=keys_reload_failed", "keys.json:3:", "maxNumSequence: expected a number of sequences from 1")
    assert step(s, keys, "shop", "d").error == "key_limit"
    keys.path.write_text(before)
    hang_up(s, "event=keys_reloaded", "keys=2")
    assert step(s, keys, "shop", "d").status == 200


@pytest.mark.parametrize("member, message", [
    ('"rate": 0', "rate: expected a number of requests a second from 1 to 1000000"), ('"concurrency": 1.5', "concurrency:"),
    ('"maxNumSequence": "many"', "maxNumSequence:"), ('"storedBytes": 99999999999999999999', "storedBytes:"),
    ('"burst": 5', "the key has a burst without a rate"), ('"maxSequences": 5', "a key has no member")])
def test_a_wrong_limit_stops_the_start(server, keys, member, message):
    keys.path.write_text(keys.path.read_text().replace('"scopes"', f'{member}, "scopes"'))
    s = serving(server, keys, start=False).launch()
    assert s.exit_code() == 1
    assert any("keys.json:2:" in line and message in line for line in s.lines), s.lines


def test_limits_of_sequences_need_owners(server, keys):
    keys.add("shop", "infer", "--stored-bytes", 5)
    s = serving(server, keys, flags=["--sequence-ownership=false"], start=False).launch()
    assert s.exit_code() == 1
    assert any("the key shop has storedBytes, but with sequence-ownership=false" in line for line in s.lines), s.lines


def test_the_use_of_keys_is_shown(server, keys):
    """To whoever may observe everything: as JSON, as metrics, as a table. The log has few lines about refusals."""
    keys.add("shop", "infer", "--rate", 1000, "--max-num-sequence", 1).add("part", "observe", "--models", "counter")
    s = serving(server, keys)
    assert step(s, keys, "shop", "a").status == 200
    for _ in range(50):
        assert step(s, keys, "shop", "b").status == 429
    assert s.admin().get("/keys").status == 401
    for name in ("shop", "part"):
        assert s.admin().get("/keys", headers=keys.http(name)).status == 403
    assert s.admin().post("/keys", headers=keys.http("ops")).status == 405
    page = requests.get(s.metrics + "/metrics", headers=keys.http("ops"), timeout=limit(20)).text
    assert 'continuo_key_requests_total{key="shop"} 51' in page
    assert 'continuo_key_sequences{key="shop"} 1' in page
    assert 'continuo_key_refused_total{key="shop",limit="maxNumSequence"} 50' in page
    assert 'key="part"' not in page
    env = {"CONTINUO_TOKEN": keys.texts["ops"]}
    table = [line.split() for line in ctl("use", "--server", s.management, env=env).stdout.splitlines()]
    assert ["shop", "51", "1000/s", "0", "1/1"] == next(row for row in table if row[0] == "shop")[:5]
    assert json.loads(ctl("use", "--json", "--server", s.management, env=env).stdout)["keys"]
    told = [line for line in s.lines if "event=audit key=shop refused=" in line]
    assert told and len(told) < 10, told
    assert "rate 1000, burst" not in ctl("ls", "--keys", keys.path).stdout
    assert "rate 1000, maxNumSequence 1" in ctl("ls", "--keys", keys.path).stdout


@pytest.mark.parametrize("words, message", [
    (["--rate", "0"], '--rate is "0"; it must be a number of requests a second'), (["--stored-bytes", "1GB"], "--stored-bytes"),
    (["--burst", "5"], "the key has a burst without a rate")])
def test_the_command_refuses_wrong_limits(folder, words, message):
    run = ctl("add", "x", *words, "--keys", folder / "keys.json", check=False)
    assert run.returncode == 2 and message in run.stderr, run
    assert not (folder / "keys.json").exists()

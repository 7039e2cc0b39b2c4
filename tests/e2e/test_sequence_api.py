"""The management API shows sequences: list, show, export, import, copy, delete."""

import pathlib
import signal
import subprocess
import threading
from urllib.parse import quote

import pytest

from models import Model, counter
from waiting import expect, limit

KEY = "Idempotency-Key"


def url(sequence, model="counter", **query):
    more = "&".join(f"{k}={quote(str(v), safe='')}" for k, v in query.items())
    return f"/models/{model}/sequences/{quote(sequence)}" + (f"?{more}" if more else "")


def listed(s, model="counter", **query):
    """Returns the ids on all pages of a list, and the number of pages."""
    ids, pages, token = [], 0, None
    while True:
        more = "&".join(f"{k}={quote(str(v), safe='')}" for k, v in ({**query, "next_page_token": token} if token
                                                                      else query).items())
        answer = s.admin().get(f"/models/{model}/sequences" + (f"?{more}" if more else ""))
        assert answer.status == 200, answer
        ids += [q["sequence"] for q in answer.json["sequences"]]
        pages += 1
        token = answer.json.get("nextPageToken")
        if not token:
            return ids, pages


def export(s, sequence, model="counter"):
    answer = s.admin().get(url(sequence, model, export="true"))
    assert answer.status == 200, answer
    return answer.body


def test_a_sequence_is_shown(server):
    """It shows generation, step, size, times, worker and clocks; a sequence that is only on disk after a restart; and
    the reason of a closed one."""
    s = server(counter(sequenceMaxIdleMSec=60000, sequenceTimeoutMSec=600000), clock=True)
    client = s.client()
    client.step("counter", "s/1 x", 5, headers={KEY: "k"})
    s.clock.advance(1000)
    shown = s.admin().get(url("s/1 x")).json
    assert (shown["sequence"], shown["state"], shown["step"]) == ("s/1 x", "live", 1)
    assert shown["worker"] == 1 and shown["backlog"] == 0 and shown["inFlight"] is False
    assert shown["stateBytes"] > 0 and shown["generation"] > 0
    assert shown["idempotencyKey"] is True and shown["answerKept"] is True
    assert 1000 <= shown["idleMSec"] < 40000 and shown["idleLeftMSec"] <= 59000
    assert 500000 < shown["totalLeftMSec"] <= 599000
    assert shown["opened"] <= shown["lastStep"] < shown["expires"]
    assert (shown["modelName"], shown["modelVersion"]) == ("counter", "1.0")
    s.stop()
    s.start()
    assert s.admin().get(url("s/1 x")).json["state"] == "stored"
    s.client().step("counter", "s/1 x", 1, headers={"ts_request_sequence_end": "true"})
    closed = s.admin().get(url("s/1 x")).json
    assert (closed["state"], closed["reason"]) == ("closed", "ended") and closed["closed"] < closed["forgotten"]
    unknown = s.admin().get(url("never"))
    assert (unknown.status, unknown.error) == (404, "sequence_unknown") and "never" in unknown.message


def test_lists_in_pages(server):
    """Sequences come in order, each once, selected by prefix, idle time and state, including those that are only on
    disk."""
    s = server(counter(batchSize=8), clock=True)
    client = s.client()
    for i in range(25):
        client.step("counter", f"a{i:02}", 1)
    s.clock.advance(50_000)
    for i in range(3):
        client.step("counter", f"b{i}", 1)
    client.step("counter", "b2", 1, headers={"ts_request_sequence_end": "true"})
    everything = [f"a{i:02}" for i in range(25)] + ["b0", "b1"]
    assert listed(s) == (everything, 1)
    assert listed(s, limit=10) == (everything, 3)
    assert listed(s, prefix="b") == (["b0", "b1"], 1)
    assert listed(s, state="closed") == (["b2"], 1)
    assert listed(s, state="all", prefix="b", limit=2)[0] == ["b0", "b1", "b2"]
    assert listed(s, min_idle_ms=50_000, limit=7)[0] == everything[:25]
    s.stop()
    s.start()
    s.client().step("counter", "a03", 1)
    assert listed(s)[0] == ["a03"]
    assert listed(s, state="open", limit=5)[0] == everything
    assert s.admin().get("/models/counter/1.0/sequences").json["modelVersion"] == "1.0"


def test_lists_of_sequences_in_memory(server):
    """With durability none each worker has its own sequences. A list asks all workers, while steps continue."""
    s = server(counter(minWorkers=3, maxWorkers=3, state={"durability": "none"}))
    s.expect_ready("counter", 3)
    clients = [s.client(f"c{i}") for i in range(6)]
    ids = sorted(f"s{i:02}" for i in range(30))
    with s.hold():  # so that they spread over the workers
        threads = [threading.Thread(target=clients[i % 6].step, args=("counter", name, 1))
                   for i, name in enumerate(ids[:6])]
        for thread in threads:
            thread.start()
        s.expect_outstanding("counter", 6)
    for thread in threads:
        thread.join()
    for name in ids[6:]:
        clients[0].step("counter", name, 1)
    found, pages = listed(s, limit=4)
    assert sorted(found) == ids and pages >= 8
    assert {s.admin().get(url(name)).json["state"] for name in ids} == {"live"}
    for name in ids:  # wherever it lives, it can be copied, and the copy is where its worker is
        assert s.admin().post(url(name, fork_to=f"copy-{name}")).status == 200
        assert clients[0].step("counter", f"copy-{name}", 1).text == "2"


@pytest.mark.parametrize("query, words", [
    ("limit=0", "limit is 0; it must be 1 to 1000 (--max-page-size)"),
    ("limit=1001", "--max-page-size"),
    ("limit=x", "must be a number"),
    ("min_idle_ms=-1", "min_idle_ms"),
    ("state=dead", "live, open, closed or all"),
    ("next_page_token=zz", "which did not come from an earlier page"),
    ("prefix=" + "x" * 257, "the prefix has 257 bytes"),
])
def test_wrong_questions(server_of_all, query, words):
    """The answer is 400 with the wrong value and the allowed ones."""
    answer = server_of_all.admin().get(f"/models/counter/sequences?{query}")
    assert answer.status == 400 and words in answer.message, answer


@pytest.fixture
def server_of_all(server):
    return server(counter())


def test_export_in_the_middle_and_import_into_another_server(server):
    """The sequence continues there as it would have here, and a retry of its last step is answered there, too."""
    here, there = server(counter()), server(counter(), name="other")
    for number in (5, 6):
        here.client().step("counter", "s", number, headers={KEY: f"k{number}"})
    answer = here.admin().get(url("s", export="true"))
    assert answer.headers["Content-Type"] == "application/vnd.continuo.sequence"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="s.cnseq"'
    imported = there.admin().put(url("s"), body=answer.body)
    assert imported.status == 200, imported
    assert (imported.json["status"], imported.json["step"], imported.json["state"]) == ("imported", 2, "live")
    assert imported.json["from"] == {"modelName": "counter", "modelVersion": "1.0", "sequence": "s", "step": 2}
    again = there.client().step("counter", "s", 6, headers={KEY: "k6"})
    assert (again.text, again.headers["Continuo-Replayed"]) == ("11", "true")
    for number in (1, 2, 3):
        answers = {x.client().step("counter", "s", number, headers={KEY: f"n{number}"}).text for x in (here, there)}
        assert len(answers) == 1, "both go on equal"
    assert here.admin().get(url("s")).json["step"] == there.admin().get(url("s")).json["step"] == 5


def test_export_sees_whole_steps_only(server):
    """While steps come as fast as possible, each export is the state after some step: its sum fits its step number."""
    s = server(counter())
    done = threading.Event()
    s.client().step("counter", "s", 1)

    def steps():
        client = s.client("steps")
        while not done.is_set():
            client.step("counter", "s", 1)
    thread = threading.Thread(target=steps)
    thread.start()
    try:
        admin, seen = s.admin(), []
        for i in range(30):
            imported = admin.put(url(f"copy{i}"), body=export(s, "s"))
            assert imported.status == 200, imported
            seen.append(imported.json["step"])
            assert s.client().step("counter", f"copy{i}", 0).text == str(imported.json["step"])
    finally:
        done.set()
        thread.join()
    assert seen == sorted(seen) and seen[-1] > seen[0]


def test_import_survives_kill_9_right_after(server):
    """The answer means that the sequence is stored."""
    s = server(counter())
    s.client().step("counter", "s", 41)
    assert s.admin().put(url("t"), body=export(s, "s")).status == 200
    s.kill()
    s.restart()
    assert s.client().step("counter", "t", 1).text == "42"


def test_import_meets_what_is_there(server):
    """A live sequence is not replaced by mistake. One that has ended or expired does not prevent an import."""
    s = server(counter(sequenceMaxIdleMSec=60000), clock=True)
    client = s.client()
    client.step("counter", "s", 5)
    client.step("counter", "live", 100)
    envelope = export(s, "s")
    refused = s.admin().put(url("live"), body=envelope)
    assert (refused.status, refused.error) == (409, "conflict") and "live" in refused.message
    assert client.step("counter", "live", 1).text == "101"
    assert s.admin().put(url("live", replace="true"), body=envelope).status == 200
    assert client.step("counter", "live", 1).text == "6"
    client.step("counter", "live", 1, headers={"ts_request_sequence_end": "true"})
    assert s.admin().put(url("live"), body=envelope).status == 200
    s.clock.advance(61_000)
    expect(lambda: client.step("counter", "live", 1).error == "sequence_expired", "it has expired")
    assert s.admin().put(url("live"), body=envelope).status == 200
    assert client.step("counter", "live", 1).text == "6"


def test_a_live_sequence_is_replaced_between_two_steps(server):
    """Some steps end with the old state, and those behind them continue with the new one. None is lost or mixed."""
    s = server(counter())
    client = s.client()
    client.step("counter", "old", 100)
    client.step("counter", "new", 1)
    envelope, answers = export(s, "new"), []
    with s.hold():
        threads = []
        for i in range(3):
            threads.append(threading.Thread(target=lambda: answers.append(s.client().step("counter", "old", 1))))
            threads[-1].start()
            s.expect_outstanding("counter", i + 1)
        threads.append(threading.Thread(
            target=lambda: answers.append(s.admin().put(url("old", replace="true"), body=envelope))))
        threads[-1].start()
        expect(lambda: s.admin().get("/models/counter").json[0]["jobQueueStatus"], "the server answers meanwhile")
    for thread in threads:
        thread.join()
    assert all(a.status == 200 for a in answers), answers
    steps = sorted(int(a.text) for a in answers if not a.body.startswith(b"{"))
    before = sum(step > 100 for step in steps)
    assert steps == list(range(2, 5 - before)) + list(range(101, 101 + before)), steps


def damaged(envelope):
    middle = len(envelope) // 2
    return {
        "truncated": envelope[:-10],
        "not an exported sequence": b'{"state": 1}',
        "changed after the export": envelope[:middle] + bytes([envelope[middle] ^ 1]) + envelope[middle + 1:],
        "which a newer Continuo wrote": envelope[:8] + b"\2" + envelope[9:],
        "is followed by 1 more bytes": envelope + b"x",
    }


def test_damaged_envelopes_are_refused(server_of_all):
    """The answer is 400 and names the kind of damage. Nothing is opened."""
    s = server_of_all
    s.client().step("counter", "s", 5)
    for words, body in damaged(export(s, "s")).items():
        answer = s.admin().put(url("t"), body=body)
        assert (answer.status, answer.error) == (400, "bad_request") and words in answer.message, answer
    empty = s.admin().put(url("t"), body=b"")
    assert empty.status == 400 and "not an exported sequence" in empty.message
    assert s.admin().get(url("t")).status == 404


def test_what_is_no_open_sequence_cannot_be_exported_or_copied(server):
    """Each gets the reason that a step would get."""
    s = server(counter(sequenceMaxIdleMSec=60000), clock=True)
    client, admin = s.client(), s.admin()
    for name in ("ended", "deleted", "silent"):
        client.step("counter", name, 1)
    client.step("counter", "ended", 1, headers={"ts_request_sequence_end": "true"})
    assert admin.delete(url("deleted")).status == 200
    s.clock.advance(61_000)
    wanted = {"never": (404, "sequence_unknown"), "ended": (410, "sequence_ended"),
              "deleted": (410, "sequence_ended"), "silent": (410, "sequence_expired")}
    for name, said in wanted.items():
        for answer in (admin.get(url(name, export="true")), admin.post(url(name, fork_to="x"))):
            assert (answer.status, answer.error) == said, answer
            assert name in answer.message


def test_ids_that_can_be_none(server_of_all):
    """An id with control characters or broken UTF-8, or one that is too long, gets 400. Nothing is stored under it."""
    s = server_of_all
    s.client().step("counter", "s", 5)
    envelope, admin = export(s, "s"), s.admin()
    for wrong in ("a%0Ab", "%ff", "x" * 257, "%c2%85"):
        path = f"/models/counter/sequences/{wrong}"
        assert admin.put(path, body=envelope).status == 400
        assert admin.get(path).status == 400
        assert admin.post(f"/models/counter/sequences/s?fork_to={wrong}").status == 400
    assert listed(s, state="all")[0] == ["s"]
    assert admin.post("/models/counter/sequences/s").status == 400, "fork_to is missing"


def test_copies(server_of_all):
    """Both sequences begin with the same state and then differ. A key of the original does not count in the copy."""
    s = server_of_all
    client = s.client()
    client.step("counter", "s", 5, headers={KEY: "k"})
    forked = s.admin().post(url("s", fork_to="a/b"))
    assert (forked.status, forked.json["status"], forked.json["sequence"]) == (200, "forked", "a/b")
    assert forked.json["from"]["sequence"] == "s" and forked.json["step"] == 1
    assert client.step("counter", "a/b", 5, headers={KEY: "k"}).text == "10"
    assert client.step("counter", "s", 1).text == "6"
    onto_live = s.admin().post(url("s", fork_to="a/b"))
    assert (onto_live.status, onto_live.error) == (409, "conflict") and "a/b" in onto_live.message
    assert client.step("counter", "a/b", 1).text == "11"
    assert s.admin().post(url("s", fork_to="s")).status == 409


def test_other_models_and_versions(server):
    """Another version accepts the state if its handler can read it. Another model accepts it only if the request asks
    for that. An unknown model or version gets 404."""
    s = server(counter(), counter("tally"), counter("broken"))
    assert s.register(counter(version="2.0")).status == 200
    client, admin = s.client(), s.admin()
    client.step("counter", "s", 5)
    envelope = export(s, "s")
    assert admin.put("/models/counter/2.0/sequences/s", body=envelope).json["modelVersion"] == "2.0"
    answer = client.request("POST", "/predictions/counter/2.0", b"1", {"ts_request_sequence_id": "s"})
    assert answer.text == "6"
    refused = admin.put(url("s", "tally"), body=envelope)
    assert (refused.status, refused.error) == (409, "conflict")
    assert "counter" in refused.message and "any_model=true" in refused.message
    assert admin.put(url("s", "tally", any_model="true"), body=envelope).status == 200
    assert client.step("tally", "s", 1).text == "6"
    assert admin.put(url("s", "nosuch"), body=envelope).status == 404
    assert admin.get("/models/counter/9.9/sequences").status == 404


PICKY = """
local M = { api = 1, state_schema = 2 }
function M.init() return { n = 0 } end
function M.migrate(state, from) error("I know no schema " .. tostring(from)) end
function M.step(state, req) return { text = tostring(state.n) } end
return M
"""


def test_a_state_that_the_handler_cannot_read_is_refused_at_import(server):
    """The handler's own message comes now and not at the next step."""
    s = server(counter(), Model("picky", PICKY))
    s.client().step("counter", "s", 5)
    refused = s.admin().put(url("s", "picky", any_model="true"), body=export(s, "s"))
    assert refused.status >= 400 and "picky" in refused.message and "schema" in refused.message, refused
    assert s.admin().get(url("s", "picky")).status == 404


def test_sizes_are_bounded(server):
    """An export or an import over --max-envelope-size is refused. The target's state.maxBytes applies."""
    keeper = """
    local M = { api = 1 }
    function M.init() return { kept = "" } end
    function M.step(state, req) state.kept = state.kept .. req.body; return { text = "ok" } end
    return M
    """
    s = server(Model("keeper", keeper), Model("small", keeper, {"state": {"maxBytes": 1000}}),
               flags=["--max-envelope-size", "20000"])
    client, admin = s.client(), s.admin()
    client.step("keeper", "s", b"x" * 5000)
    refused = admin.put(url("s", "small", any_model="true"), body=export(s, "s", "keeper"))
    assert (refused.status, refused.error) == (507, "state_too_large") and "state.maxBytes" in refused.message
    client.step("keeper", "s", b"x" * 20000)
    refused = admin.get(url("s", "keeper", export="true"))
    assert (refused.status, refused.error) == (413, "too_large") and "--max-envelope-size" in refused.message


def test_a_large_envelope_goes_through(server):
    """This includes one over --max-request-size, which only bounds steps."""
    keeper = """
    local M = { api = 1 }
    function M.init() return { kept = "" } end
    function M.step(state, req)
        for _ = 1, 100 do state.kept = state.kept .. req.body end
        return { text = tostring(#state.kept) }
    end
    return M
    """
    s = server(Model("keeper", keeper, {"state": {"maxBytes": 20_000_000}}), flags=["--max-request-size", "100000"])
    assert s.client().step("keeper", "s", b"x" * 50_000).text == "5000000"
    envelope = export(s, "s", "keeper")
    assert len(envelope) > 5_000_000
    assert s.admin().put(url("t", "keeper"), body=envelope).status == 200
    assert s.client().step("keeper", "t", b"").text == "5000000"


def test_stateless_models_have_none(server):
    """The answer is 400 with the reason."""
    from models import stateless
    s = server(stateless())
    for answer in (s.admin().get("/models/echo/sequences"), s.admin().get(url("s", "echo"))):
        assert answer.status == 400 and "no sequences" in answer.message


def test_a_worker_that_dies_meanwhile(server, folder):
    """The caller gets an error, nothing hangs, and the sequence is as it was."""
    s = server(counter())
    client = s.client()
    client.step("counter", "s", 5)
    answers = []
    pid = s.ready_pids("counter")[0]
    subprocess.run(["kill", "-STOP", str(pid)], check=True)
    threads = [threading.Thread(target=lambda path=path: answers.append(s.admin().get(path)))
               for path in (url("s"), url("s", export="true"), "/models/counter/sequences")]
    for thread in threads:
        thread.start()
    expect(lambda: s.admin().get("/ping").status, "the server answers meanwhile")
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    for thread in threads:
        thread.join(limit(30))
    assert len(answers) == 3 and all(a.status in (200, 503) for a in answers), answers
    s.expect_ready("counter", 1)
    assert client.step("counter", "s", 1).text == "6"


def test_deletions_go_through_on_a_full_disk(server, small_disk):
    """Requests that need room are refused. A deletion, which makes room, finds pages that the store keeps for it."""
    s = server(counter(), start=False)
    s.state_dir = pathlib.Path(small_disk) / "state"
    s.start()
    client, admin = s.client(), s.admin()
    for i in range(50):
        assert client.step("counter", f"s{i}", 5).status == 200
    with open(pathlib.Path(small_disk) / "filler", "wb", buffering=0) as file:
        with pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)
    for i in range(50):
        assert client.step("counter", f"s{i}", 1).text == "6"
        assert admin.delete(url(f"s{i}")).json["status"] == "deleted"
        assert admin.get(url(f"s{i}")).json["state"] == "closed"


def test_curl(server_of_all, folder, transcript):
    """Downloads and uploads a file as docs/sequences.md shows it."""
    s = server_of_all
    s.client().step("counter", "s1", 5)
    base = f"{s.management}/models/counter/sequences"
    subprocess.run(["curl", "-sSfOJ", f"{base}/s1?export=true"], cwd=folder, check=True, timeout=limit(20))
    subprocess.run(["curl", "-sSf", "-T", "s1.cnseq", f"{base}/s2"], cwd=folder, check=True, timeout=limit(20),
                   stdout=subprocess.DEVNULL)
    assert s.client().step("counter", "s2", 1).text == "6"

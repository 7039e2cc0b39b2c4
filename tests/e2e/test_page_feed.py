"""The feed of the page: one stream of events with what changed, at a bounded cost."""

import signal

import pytest

from client import RawClient
from events import Events
from models import counter, stateless
from server import address_of
from waiting import expect

FAST = ["--page-interval", "250"]
BROKEN_LUA = "error('broken on purpose')"


def test_the_first_event_is_complete_and_the_next_ones_are_not(server):
    """So a page that watches for hours costs the server little."""
    s = server(counter(), stateless(), flags=FAST)
    feed = Events(s)
    assert feed.response.headers["Content-Type"].startswith("text/event-stream")
    first = feed.next()
    assert first["full"] and set(first["models"]) == {"counter/1.0", "echo/1.0"}
    about = first["models"]["counter/1.0"]
    assert about["default"] and about["workersReady"] == 1 and about["workers"][0]["state"] == "ready"
    assert first["server"]["readOnly"] is False and first["totals"]["models"] == 2
    assert any("event=worker_ready" in line[2] for line in first["log"])
    sizes = []
    for _ in range(6):
        event = feed.next()
        assert "full" not in event and "server" not in event
        sizes.append(len(str(event.get("models", {}))))
    assert min(sizes) * 4 < len(str(first["models"])), sizes


def test_steps_become_rates_and_gauges(server):
    s = server(counter(), flags=FAST)
    feed = Events(s)
    feed.next()
    client = s.client()
    for i in range(30):
        client.step("counter", f"s{i}", "1")
    feed.until(lambda: feed.models["counter/1.0"]["liveSequences"] == 30, "30 live sequences")
    feed.until(lambda: feed.models["counter/1.0"]["steps"] == 30, "30 steps")
    rates = [feed.models["counter/1.0"]["rates"]]
    for i in range(300):
        client.step("counter", "s0", "1")
        if i % 50 == 0:
            feed.next()
            rates.append(feed.models["counter/1.0"]["rates"])
    assert max(each["stepsPerS"] or 0 for each in rates) > 0
    assert any(each["p50MSec"] and each["p99MSec"] >= each["p50MSec"] for each in rates)
    assert any(each["batchRows"] == 1 for each in rates)


def test_errors_are_counted_by_their_word_and_logged(server):
    s = server(counter(), flags=FAST)
    feed = Events(s)
    feed.next()
    assert s.client().step("counter", "a", "x").status == 500
    feed.until(lambda: feed.models["counter/1.0"]["errors"], "an error")
    assert sum(feed.models["counter/1.0"]["errors"].values()) == 1


def test_the_doctor_speaks_in_the_feed(server):
    """It says the same as continuo-ctl doctor, because both use the same rules."""
    s = server(counter(), stateless("broken", BROKEN_LUA), flags=[*FAST, "--exit-on-model-failure=false"])
    feed = Events(s)
    feed.until(lambda: any("broken" in each["what"] and each["do"] for each in feed.state.get("findings", [])
                           if each["severity"] == "problem") or "broken/1.0" not in feed.models, "a finding")


def test_a_model_comes_and_goes(server):
    s = server(counter(), flags=FAST)
    feed = Events(s)
    feed.next()
    s.register(stateless("late"), initial_workers=1)
    feed.until(lambda: "late/1.0" in feed.models, "the new model")
    assert s.admin().delete("/models/counter").status == 200
    feed.until(lambda: "counter/1.0" not in feed.models, "the model is gone")


def test_only_some_models_are_shown_and_the_one_that_is_asked_for(server):
    """A server may have 10,000 models; the others are in GET /models."""
    s = server(*(stateless(f"m{i}") for i in range(4)), flags=[*FAST, "--page-models", "2"])
    feed = Events(s)
    assert len(feed.next()["models"]) == 2
    asked = Events(s, "/events?model=m3")
    assert "m3/1.0" in asked.next()["models"] and len(asked.models) == 2
    assert asked.state["totals"]["versions"] == 4
    busy = s.client()
    asked.close()

    def steps():
        for _ in range(20):
            busy.post("/predictions/m2", "x")
        return "m2/1.0" in feed.models

    feed.until(steps, "the busiest model is shown")


def test_too_many_pages_are_told_so(server):
    s = server(counter(), flags=[*FAST, "--page-clients", "2"])
    feeds = [Events(s) for _ in range(2)]
    refused = s.admin().get("/events")
    assert refused.status == 503 and "page-clients" in refused.message and refused.headers["Retry-After"]
    feeds[0].close()

    def is_served():
        again = Events(s)
        again.close()
        return again.response.status == 200

    expect(is_served, "the place of the page that left is free")


def test_a_client_that_does_not_read_gets_a_complete_event_later(server):
    """The server keeps at most one event for it, and serves the others meanwhile."""
    s = server(counter(), flags=FAST)
    slow = RawClient(address_of(s.management), s.transcript, "slow", receive_buffer=4096)
    slow.send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    feed = Events(s)
    for _ in range(8):
        feed.next()
    assert s.admin().get("/models").status == 200
    slow.close()
    feed.until(lambda: feed.state["totals"]["pages"] == 1, "the slow page is gone")


def test_the_feed_ends_when_the_server_stops(server):
    """An open page must not hold up the stop."""
    s = server(counter(), flags=FAST)
    feed = Events(s)
    feed.next()
    s.process.send_signal(signal.SIGTERM)
    feed.rest()
    assert s.exit_code() == 0


def test_a_client_that_leaves_at_once_does_no_harm(server):
    s = server(counter(), flags=FAST)
    for _ in range(20):
        raw = RawClient(address_of(s.management), s.transcript, "hasty")
        raw.send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        raw.reset()
    feed = Events(s)
    feed.until(lambda: feed.state.get("totals", {}).get("pages") == 1, "only this page is left")


def test_the_feed_needs_the_management_key(server):
    """The page's files need none, because they ask for it."""
    s = server(counter(), flags=["--token-auth", *FAST])
    assert s.admin().get("/events").error == "token_refused"
    for path in ("/", "/page", "/page/app.js", "/page/page.css"):
        assert s.admin().get(path).status == 200, path
    assert s.admin().post("/page/app.js").error == "token_refused"
    assert s.admin().get("/pages").error == "token_refused"


def test_files_may_load_nothing_from_elsewhere(server):
    s = server(counter())
    page = s.admin().get("/")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert "<script type=\"module\" src=" in page.text and "http://" not in page.text.replace("http://www.w3.org", "")
    assert s.admin().get("/page/app.js").headers["Content-Type"].startswith("text/javascript")
    assert s.admin().get("/page/nothing.js").status == 404
    packed = s.admin().get("/page/page.css", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip" and len(packed.body) * 2 < len(s.admin().get("/page/page.css").body)


@pytest.mark.parametrize("path", ["/page", "/page/app.js", "/events"])
def test_the_page_can_be_switched_off(server, path):
    s = server(counter(), flags=["--page", "off"])
    assert s.admin().get(path).status == 404
    assert s.admin().get("/").status == 405


def test_a_read_only_page_changes_nothing_but_programs_do(server):
    """A browser says what it is by headers that a script cannot leave out."""
    s = server(counter(), flags=["--page", "read-only"])
    browser = {"Sec-Fetch-Site": "same-origin"}
    for method, path in (("PUT", "/models/counter?min_worker=1"), ("DELETE", "/models/counter"),
                         ("DELETE", "/models/counter/1.0/workers/1")):
        refused = s.admin().request(method, path, headers=browser)
        assert (refused.status, refused.error) == (403, "read_only"), refused
    assert s.admin().get("/models", headers=browser).status == 200
    assert Events(s).next()["server"]["readOnly"] is True
    assert s.admin().put("/models/counter?min_worker=1").status == 202


def test_a_worker_can_be_killed_and_its_sequences_go_on(server):
    s = server(counter())
    client = s.client()
    assert client.step("counter", "a", "5").text == "5"
    worker = s.admin().get("/models/counter").json[0]["workers"][0]
    killed = s.admin().delete(f"/models/counter/1.0/workers/{worker['index']}")
    assert killed.status == 200 and str(worker["pid"]) in killed.json["status"]
    assert client.step("counter", "a", "6").text == "11"
    now = expect(lambda: [w for w in s.admin().get("/models/counter").json[0]["workers"]
                          if w["state"] == "ready"], "a new worker")[0]
    assert now["pid"] != worker["pid"] and "operator" in now["lastExit"]


def test_a_worker_that_is_not_there_can_not_be_killed(server):
    s = server(counter())
    admin = s.admin()
    for path, status in (("/models/counter/1.0/workers/7", 404), ("/models/counter/1.0/workers/x", 400),
                         ("/models/counter/1.0/workers/0", 400), ("/models/nobody/1.0/workers/1", 404),
                         ("/models/counter/9/workers/1", 404), ("/stores/a/b/c/d", 404), ("/nodes/1/2/3/4", 404)):
        assert admin.delete(path).status == status, path
    assert admin.get("/models/counter/1.0/workers/1").status == 404

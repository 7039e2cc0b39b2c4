"""The page of the management address in a headless browser, as an operator uses it."""

import json
import threading

import pytest

from browsing import browser, low_contrasts, page_of
from models import counter, stateless
from waiting import expect, limit

FAST = ["--page-interval", "250"]
VIEWS = ["overview", "models", "sequences", "doctor", "log"]


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture
def load():
    """load(server, ids) sends steps to the counter until the test ends."""
    stop, threads = threading.Event(), []

    def send(server, ids):
        client = server.client()
        while not stop.is_set():
            for each in ids:
                if stop.wait(0.002):
                    break
                client.step("counter", each, "1")

    def begin(server, ids):
        threads.append(threading.Thread(target=send, args=(server, ids)))
        threads[-1].start()

    yield begin
    stop.set()
    for thread in threads:
        thread.join()


def goto(page, server, view):
    page.goto(f"{server.management}/#{view}")
    page.wait_for_selector("body[data-link=live]")


def confirm(page, **fields):
    """Fills in the dialog that is open and presses its last button."""
    for name, value in fields.items():
        place = page.locator(f"dialog [name={name}]")
        if place.evaluate("element => element.tagName") == "SELECT":
            place.select_option(value)
        else:
            place.fill(value)
    page.locator("dialog form button:not([type=button])").click()
    page.locator("dialog").wait_for(state="detached")


def test_it_shows_a_busy_server_and_its_charts_move(server, chromium, load):
    """1,000 sequences, and neither an error on the console nor a request to another host."""
    s = server(counter(), stateless(), flags=FAST)
    client = s.client()
    for i in range(1000):
        client.step("counter", f"user-{i:04d}", "1")
    load(s, [f"user-{i:04d}" for i in range(1000)])
    with page_of(chromium, s.management) as page:
        goto(page, s, "overview")
        page.get_by_text("healthy", exact=True).wait_for()
        line = page.locator(".chart .line").first
        before = line.get_attribute("d")
        page.wait_for_function("before => document.querySelector('.chart .line').getAttribute('d') !== before", arg=before)
        page.wait_for_function("() => continuoFeed.points('').some(point => point.stepsPerS > 20 && point.p99MSec > 0)")
        page.wait_for_function("() => [...document.querySelectorAll('.figure')].some(each => each.textContent === 'live sequences1,000')")
        assert "highest" in page.locator(".chart svg").first.get_attribute("aria-label")
        for view in VIEWS:
            page.locator(f"nav a[href='#{view}']").click()
            page.locator("main h2").first.wait_for()
            assert page.locator(f"nav a[href='#{view}']").get_attribute("aria-current") == "page"
        page.locator(".lines li", has_text="event=worker_ready").first.wait_for()
        page.watch.is_clean()


def test_sequences_are_found_sorted_and_paged(server, chromium):
    s = server(counter(), flags=FAST)
    client = s.client()
    for i in range(150):
        client.step("counter", f"user-{i:04d}", "1")
    for _ in range(4):
        client.step("counter", "user-0042", "1")
    with page_of(chromium, s.management) as page:
        goto(page, s, "sequences/counter/1.0")
        page.get_by_text("page 1, 100 sequences").wait_for()
        page.get_by_role("button", name="Next page").click()
        page.get_by_text("page 2, 50 sequences").wait_for()
        page.get_by_label("Search").fill("user-004")
        page.locator("main form button.main").click()
        page.get_by_text("page 1, 10 sequences").wait_for()
        for _ in range(2):
            page.locator("th button.sort", has_text="Steps").click()
        assert page.locator("tbody tr").first.locator("a").text_content() == "user-0042"
        assert page.locator("th[aria-sort=descending]").text_content() == "Steps"
        page.locator("tbody tr a").first.click()
        page.locator(".facts dd", has_text="live").wait_for()
        for _ in range(2):
            row = page.locator("table tbody tr").count()
            client.step("counter", "user-0042", "1")
            expect(lambda n=row: page.locator("table tbody tr").count() > n or page.wait_for_timeout(50), "the step is shown")
        page.watch.is_clean()


def test_a_search_among_very_many_goes_on_until_it_finds_something(server, chromium):
    """The server looks at 2000 sequences for each page. Five thousand are open, and the last one has ended."""
    s = server(counter(batchSize=64, maxNumSequence=10000), flags=FAST)
    opening = s.bench("--open-only", 5000, "--prefix", "a", "--connections", 32)
    assert opening.wait(limit(120)) == 0, opening.stderr.read()
    s.client().step("counter", "z", "1", headers={"ts_request_sequence_end": "true"})
    with page_of(chromium, s.management) as page:
        goto(page, s, "sequences/counter/1.0")
        page.get_by_text("page 1, 100 sequences").wait_for()
        page.get_by_label("State").select_option("closed")
        page.get_by_text("page 1, 1 sequences").wait_for()
        assert page.locator("tbody tr").first.locator("a").text_content() == "z"
        assert 3 <= sum("state=closed" in url for url in page.watch.requests) <= 4


def test_sequences_are_forked_exported_and_deleted(server, chromium):
    s = server(counter(), flags=FAST)
    client = s.client()
    client.step("counter", "a/b c", "5")
    with page_of(chromium, s.management) as page:
        goto(page, s, "sequences/counter/1.0/a%2Fb%20c")
        with page.expect_download() as download:
            page.get_by_role("button", name="Export").click()
        assert download.value.suggested_filename == "a_b_c.cnseq"
        page.get_by_role("button", name="Fork").click()
        confirm(page, fork_to="copy")
        page.locator("main h2", has_text="copy").wait_for()
        assert client.step("counter", "copy", "1").text == "6"
        page.get_by_role("button", name="Fork").click()
        page.locator("dialog [name=fork_to]").fill("a/b c")
        page.locator("dialog button.main").click()
        page.locator("dialog .error", has_text="a/b c").wait_for()  # the server's words, in the dialog
        page.keyboard.press("Escape")
        page.get_by_role("button", name="End and delete").click()
        confirm(page)
        page.locator("#notices", has_text="copy was ended").wait_for()
        assert s.admin().get("/models/counter/sequences/copy").json["state"] == "closed"
        assert [text for text in page.watch.errors if "409" not in text and "404" not in text] == []


def test_models_are_scaled_swapped_and_unregistered(server, chromium):
    """Each change is asked back, and the feed shows what becomes of it."""
    s = server(counter(sequenceMaxIdleMSec=600000), flags=FAST)
    s.register(counter(version="2.0"), initial_workers=1)
    for i in range(5):
        s.client().step("counter", f"s{i}", "1")
    with page_of(chromium, s.management) as page:
        goto(page, s, "models/counter/1.0")
        page.get_by_role("button", name="Scale").click()
        confirm(page, min_worker="2", max_worker="2")
        page.locator(".facts dd", has_text="2 of 2 ready").wait_for()
        page.get_by_role("button", name="Kill").first.click()
        confirm(page)
        page.locator("#notices", has_text="was killed").wait_for()
        page.locator("td", has_text="an operator asked for it").first.wait_for()
        goto(page, s, "models/counter/2.0")
        page.get_by_role("button", name="Set default").click()
        confirm(page, swap_policy="pin")
        page.locator("h2", has_text="counter 2.0 (default)").wait_for()
        goto(page, s, "models/counter/1.0")
        page.get_by_text("5 sequences are left here").wait_for()
        assert page.locator("progress").is_visible()
        page.get_by_role("button", name="Unregister").click()
        page.get_by_role("button", name="Cancel").click()
        assert s.admin().get("/models/counter/1.0").status == 200
        page.get_by_role("button", name="Unregister").click()
        confirm(page)
        page.get_by_text("There is no model counter 1.0").wait_for()
        expect(lambda: s.admin().get("/models/counter/1.0").status == 404, "the version is gone")
        page.watch.is_clean()


def test_the_doctor_says_what_to_do(server, chromium):
    s = server(stateless("broken", "error('broken on purpose')"), counter(),
               flags=[*FAST, "--exit-on-model-failure=false"])
    with page_of(chromium, s.management) as page:
        goto(page, s, "doctor")
        page.locator(".findings li.problem", has_text="broken on purpose").wait_for()
        assert "What to do:" in page.locator(".findings li.problem").first.text_content()
        goto(page, s, "log")
        page.get_by_label("Show").select_option("errors and warnings")
        page.locator(".lines li", has_text="broken on purpose").first.wait_for()


def test_the_key_is_asked_for_and_kept_out_of_the_address(server, chromium):
    s = server(counter(), flags=["--token-auth", *FAST])
    key = json.loads((s.folder / "key_file.json").read_text())["management"]["key"]
    with page_of(chromium, s.management) as page:
        page.goto(s.management + "/")
        page.locator("dialog [name=key]").fill("wrong")
        page.locator("dialog button.main").click()
        page.locator("dialog .error", has_text="refused").wait_for()
        page.locator("dialog [name=key]").fill(key)
        page.locator("dialog button.main").click()
        page.wait_for_selector("body[data-link=live]")
        page.get_by_text("healthy", exact=True).wait_for()
        assert not any(key in url for url in page.watch.requests)
        assert page.evaluate("() => [sessionStorage.length, document.cookie]") == [0, ""]
        page.reload()
        page.locator("dialog [name=key]").wait_for()


def test_a_read_only_page_offers_no_change(server, chromium):
    s = server(counter(), flags=[*FAST, "--page", "read-only"])
    s.client().step("counter", "a", "1")
    with page_of(chromium, s.management) as page:
        goto(page, s, "models/counter/1.0")
        page.locator("#read-only").wait_for()
        page.locator(".facts dd", has_text="1 of 1 ready").wait_for()
        assert page.locator("main button", has_text="Scale").count() == 0
        assert page.locator("main button", has_text="Kill").count() == 0
        status = page.evaluate("() => fetch('models/counter/1.0/workers/1', {method: 'DELETE'}).then(answer => answer.status)")
        assert status == 403


def test_the_keyboard_reaches_everything(server, chromium):
    """Tab goes through links and buttons in their order, each with a visible focus; Escape closes a dialog."""
    s = server(counter(), flags=FAST)
    with page_of(chromium, s.management) as page:
        goto(page, s, "models/counter/1.0")
        page.get_by_role("button", name="Scale").wait_for()
        seen = []
        for _ in range(30):
            page.keyboard.press("Tab")
            seen.append(page.evaluate("() => { const e = document.activeElement; return [e.tagName, e.textContent.trim() || e.getAttribute('aria-label'), getComputedStyle(e).outlineStyle] }"))
            if seen[-1][1] == "Unregister":
                break
        names = [name for _, name, _ in seen]
        assert names[0] == "Skip to the content"
        assert [name for name in names if name in ("Overview", "Models", "Sequences", "Log", "Scale", "Unregister")] \
            == ["Overview", "Models", "Sequences", "Log", "Models", "Scale", "Unregister"], names
        assert all(outline != "none" for _, _, outline in seen), seen
        page.keyboard.press("Enter")
        page.locator("dialog").wait_for()
        assert page.evaluate("() => document.activeElement.textContent") == "Cancel"  # the safe choice of a dangerous one
        page.keyboard.press("Escape")
        page.locator("dialog").wait_for(state="detached")
        for tag, label in (("img", "alt"), ("svg", "aria-label")):
            assert page.locator(f"{tag}:not([{label}]):not([aria-hidden])").count() == 0
        assert page.evaluate("() => [...document.querySelectorAll('input, select')].filter(e => !e.labels.length && !e.ariaLabel).length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast_in_both_themes(server, chromium, scheme):
    s = server(counter(), stateless("broken", "error('broken on purpose')"), flags=[*FAST, "--exit-on-model-failure=false"])
    s.client().step("counter", "a", "1")
    grounds = set()
    with page_of(chromium, s.management, color_scheme=scheme) as page:
        for view in [*VIEWS, "models/counter/1.0", "sequences/counter/1.0/a"]:
            goto(page, s, view)
            page.wait_for_timeout(400)
            assert low_contrasts(page) == [], view
            grounds.add(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    assert grounds == {"rgb(245, 247, 249)" if scheme == "light" else "rgb(17, 22, 27)"}


def about(i):
    """A description as the feed has it."""
    return {"modelName": f"model-{i:05d}", "modelVersion": "1.0", "default": True, "stateful": True, "workersReady": 1,
            "workersAll": 1, "minWorkers": 1, "liveSequences": 1000 + i, "jobQueueStatus": {"pendingRequests": i, "inFlight": 1},
            "rates": {"stepsPerS": i, "p50MSec": 1, "p99MSec": 2, "batchRows": 3, "callsPerS": 4}, "workerBytes": 1 << 20}


def test_ten_thousand_models_leave_the_page_quick(server, chromium):
    """Even if a server sent them all, the page would show a bounded number of them."""
    s = server(counter(), flags=FAST)
    event = {"full": True, "at": 1795447796336, "server": {"version": "0"}, "findings": [],
             "totals": {"models": 10000, "versions": 10000, "healthy": True, "shown": 10000},
             "models": {f"model-{i:05d}/1.0": about(i) for i in range(10000)}}
    with page_of(chromium, s.management) as page:
        page.route("**/events*", lambda route: route.fulfill(
            status=200, content_type="text/event-stream", body=f"data: {json.dumps(event)}\n\n"))
        page.goto(f"{s.management}/#models")
        page.locator("tbody a", has_text="model-00000").first.wait_for()
        assert page.evaluate("() => document.querySelectorAll('*').length") < 5000
        page.locator("th button.sort", has_text="Steps/s").first.click()
        page.locator("th button.sort", has_text="Steps/s").first.click()
        page.locator("tbody a", has_text="model-09999").first.wait_for()
        took = page.evaluate("() => { const from = performance.now(); continuoFeed.onChange({}); return performance.now() - from }")
        assert took < limit(1) * 1000


def test_a_model_of_ten_thousand_is_opened_by_its_name(server, chromium):
    """A model that the feed does not show is asked for, and then shown."""
    s = server(*(stateless(f"m{i}") for i in range(3)), flags=[*FAST, "--page-models", "1"])
    with page_of(chromium, s.management) as page:
        goto(page, s, "models")
        page.get_by_label("Open a model by its name").fill("m2")
        page.get_by_role("button", name="Open").click()
        page.locator("h2", has_text="m2 1.0 (default)").wait_for()


def test_the_page_comes_back_after_a_restart(server, chromium):
    s = server(counter(), flags=FAST)
    with page_of(chromium, s.management) as page:
        goto(page, s, "overview")
        s.kill()
        page.wait_for_selector("body[data-link=lost]")
        assert "again" in page.locator("#link").text_content()

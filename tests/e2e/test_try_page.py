"""The page /try/{model} of the inference address: steps from a form and sound from a file, over a stream that goes on."""

import io
import json
import struct
import urllib.parse
import wave

import pytest

from browsing import browser, page_of
from models import Model, counter

# Says where a sound begins and ends; the time is counted in windows, so it survives a kill.
EAR_LUA = """
local M = { api = 1 }

function M.init()
    return { windows = 0, loud = false }
end

function M.step(state, req)
    local samples, sum = continuo.array(req.body, "f32"):table(), 0
    for i = 1, #samples do
        sum = sum + samples[i] * samples[i]
    end
    local loud = sum / #samples > 0.001
    local event = loud ~= state.loud and (loud and "begin" or "end") or nil
    local at = state.windows * #samples / 16000
    state.loud, state.windows = loud, state.windows + 1
    return { json = { at = at, event = event } }
end

return M
"""

DOUBLE_LUA = """
local M = { api = 1 }

function M.step(_, req)
    local out = {}
    for i, value in ipairs(req.inputs.x.values) do
        out[i] = 2 * value
    end
    return { outputs = { y = { datatype = "FP32", data = out } } }
end

return M
"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


def sound(rate=16000):
    """A second of silence, a second of noise, and a second of silence as a WAV file."""
    samples = [0] * rate + [12000 if i // 20 % 2 else -12000 for i in range(rate)] + [0] * rate
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, rate, 0, "NONE", ""))
        out.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return file.getvalue()


def lines(page):
    return page.locator(".lines li").all_text_contents()


def test_steps_from_the_form_go_on_after_a_kill(server, chromium):
    s = server(counter())
    with page_of(chromium, s.inference) as page:
        page.goto(s.inference + "/try/counter")
        page.get_by_label("Sequence").fill("me")
        page.get_by_label("Body").fill("5")
        assert "ts-request-sequence-id: me" in page.locator("pre").text_content()
        page.get_by_role("button", name="Send step").click()
        page.locator(".lines li", has_text="1 5").wait_for()
        assert s.admin().delete("/models/counter/1.0/workers/1").status == 200
        page.get_by_role("button", name="Send step").click()
        page.locator(".lines li", has_text="2 10").wait_for()
        page.get_by_label("Body").fill("x")
        page.get_by_role("button", name="Send step").click()
        page.locator(".lines li.error", has_text="decimal integer").wait_for()
        assert page.watch.foreign == []


def test_sound_from_a_file_has_its_events_at_the_right_time(server, chromium):
    """A worker is killed in the middle, and the events are where they would be without."""
    s = server(Model("ear", EAR_LUA, {"batchSize": 4, "stream": {"input": "audio", "window": 512, "rate": 16000}}))
    with page_of(chromium, s.inference) as page:
        page.goto(s.inference + "/try/ear")
        page.get_by_label("or a WAV file").set_input_files({"name": "a.wav", "mimeType": "audio/wav", "buffer": sound()})
        page.locator(".lines li", has_text="begin").wait_for()
        assert s.admin().delete("/models/ear/1.0/workers/1").status == 200
        page.locator(".lines li", has_text='"end"').wait_for()
        events = [json.loads(text[text.index("{"):]) for text in lines(page)]
        assert [each["event"] for each in events] == ["begin", "end"]
        assert abs(events[0]["at"] - 1) < 0.1 and abs(events[1]["at"] - 2) < 0.1, events
        assert page.evaluate("() => { const c = document.querySelector('canvas'); return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v) }")


def test_a_model_with_tensors_has_a_field_for_each(server, chromium):
    s = server(Model("double", DOUBLE_LUA, {"inputs": "[{name: x, dataType: FP32, dims: [-1]}]",
                                            "outputs": "[{name: y, dataType: FP32, dims: [-1]}]"}, stateful=False))
    with page_of(chromium, s.inference) as page:
        page.goto(s.inference + "/try/double")
        page.get_by_label("Shape").fill("2")
        page.get_by_label("Values").fill("1.5, 4")
        assert '"data":[1.5,4]' in page.locator("pre").text_content()
        page.get_by_role("button", name="Send step").click()
        page.locator(".lines li", has_text="[3,8]").wait_for()
        page.watch.is_clean()


def test_the_button_opens_the_models_workers(server, chromium):
    s = server(counter())
    with page_of(chromium, s.inference, s.management) as page:
        page.goto(s.inference + "/try/counter")
        page.get_by_label("Management address").fill(s.management + "/")
        with page.context.expect_page() as opened:
            page.get_by_role("button", name="Open its workers").click()
        opened.value.get_by_role("button", name="Kill").first.wait_for()
        assert urllib.parse.urlsplit(opened.value.url).fragment == "models/counter"


def test_it_asks_for_the_key_itself(server):
    s = server(counter(), flags=["--token-auth"])
    assert s.client().get("/try/counter").status == 200
    assert s.client().get("/page/try.js").status == 200
    assert s.client().post("/try/counter").error == "token_refused"
    assert s.client().get("/ping").error == "token_refused"

"""Sound and series come in pieces of any size, and models get windows (stream.input)."""

import base64
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import wave

import numpy as np
import pytest

import v2rpc
import websocketing
from models import BIN, BUILD, ROOT, Model, archiver, python
from onnxing import example, library, model as onnx_model, packages
from rpc import Rpc, request
from shared_store import shared_store_in
from test_examples import PYTHON_LIBRARY, blocks
from v2request import request as v2request
from waiting import expect, limit

RATE, WINDOW = 16000, 512
SOUND = "audio/x-pcm"

# Where sound begins and ends, by the power of each window.
SPEECH_LUA = """
local M = { api = 1 }

function M.init()
    return { n = 0, loud = false }
end

function M.step(state, req)
    if req.headers["x-fail"] == req.headers["ts-stream-window"] then
        return nil, "no", 422
    end
    local samples, sum = continuo.array(req.body, "f32"):table(), 0
    for i = 1, #samples do
        sum = sum + samples[i] * samples[i]
    end
    local power, event = sum / #samples, nil
    if power > 0.01 and not state.loud then
        state.loud, event = true, "begin"
    elseif power < 0.001 and state.loud then
        state.loud, event = false, "end"
    end
    state.n = state.n + 1
    return { json = { n = state.n, samples = #samples, power = power, event = event,
                      window = req.headers["ts-stream-window"], padding = req.headers["ts-stream-padding"],
                      last = req["end"] } }
end

return M
"""


def speech(name="speech", lua=SPEECH_LUA, stream=None, **yaml):
    return Model(name, lua, {"batchSize": 8, **yaml,
                             "stream": {"input": "audio", "window": WINDOW, "rate": RATE, **(stream or {})}})


def sound(rate, seconds=3.0):
    """Two bursts of a voice-like sound, with silence around them, as it would be recorded at this rate."""
    t = np.arange(int(rate * seconds)) / rate
    voice = sum(np.sin(2 * np.pi * 140 * k * t) / k for k in range(1, 20)) * 0.3
    voice *= 0.6 + 0.4 * np.sin(2 * np.pi * 4 * t)
    return (voice * (((t > 0.5) & (t < 1.2)) | ((t > 1.9) & (t < 2.6)))).astype(np.float32)


def s16(samples):
    return np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2").tobytes()


def wav(samples, rate, channels=1, size=None):
    data = s16(samples)
    head = struct.pack("<4sI4s4sIHHIIHH4sI4s4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, channels, rate,
                       rate * 2 * channels, 2 * channels, 16, b"LIST", 4, b"abcd", b"data",
                       len(data) if size is None else size)
    return head + data


def pieces_of(samples, size):
    """`size` is a number, or a generator of numbers."""
    at = 0
    while at < len(samples):
        take = size if isinstance(size, int) else next(size)
        yield samples[at:at + take]
        at += take


def listen(client, model, pieces, headers=None, sequence="mic", end=True):
    """Streams the pieces, and returns the answers to all windows."""
    heard = []
    pieces = list(pieces)
    for i, piece in enumerate(pieces):
        more = {"ts-request-sequence-end": "true"} if end and i == len(pieces) - 1 else {}
        answer = client.step(model, sequence, piece, {"Content-Type": SOUND, **(headers or {}), **more})
        assert answer.status == 200, answer
        heard += json.loads(answer.text)
    return heard


def segments(heard):
    """The windows at which sound begins and ends."""
    return [(i, window["event"]) for i, window in enumerate(heard) if window.get("event")]


def some_sizes(seed):
    chance = random.Random(seed)
    while True:
        yield int(math.exp(chance.uniform(0, math.log(10000))))


@pytest.fixture(scope="module")
def vad(shared_server):
    return shared_server(speech())


def test_the_settings_are_shown(vad):
    """A page or a client can see what to send."""
    assert vad.describe("speech")["streamInput"] == {
        "input": "audio", "encoding": "pcm_s16le", "rate": RATE, "resample": True, "window": WINDOW, "hop": WINDOW,
        "maxChunkSamples": 1048576, "answers": "list"}


@pytest.mark.parametrize("size", [160, 512, 999, 10000, "any"])
def test_pieces_of_any_size_give_the_same_answers(vad, size):
    """A microphone, a telephone line and a file come in different pieces, and the model must not notice."""
    client, samples = vad.client(), sound(RATE)
    want = listen(client, "speech", [s16(samples[i:i + 8192]) for i in range(0, len(samples), 8192)], sequence="a")
    size = some_sizes(7) if size == "any" else size
    got = listen(client, "speech", map(s16, pieces_of(samples, size)), sequence="b")
    assert got == want
    assert len(want) == math.ceil(len(samples) / WINDOW)
    assert [window["window"] for window in want] == [str(i) for i in range(len(want))]
    assert [word for _, word in segments(want)] == ["begin", "end", "begin", "end"]
    assert all(window["samples"] == WINDOW for window in want)


def test_pieces_of_one_sample(vad):
    """A piece need not complete a window: its answer is an empty list, and its sample is not lost."""
    client, samples = vad.client(), sound(RATE)[8000:8000 + 2 * WINDOW + 3]
    got = listen(client, "speech", map(s16, pieces_of(samples, 1)), sequence="one")
    assert got == listen(client, "speech", [s16(samples)], sequence="whole")
    assert (len(got), got[2]["padding"], got[2]["last"]) == (3, str(WINDOW - 3), True)


@pytest.mark.parametrize("rate", [8000, 44100, 48000, 22050, 44101])
@pytest.mark.parametrize("size", [1777, "any"])
def test_each_sampling_rate_gives_the_same_segments(vad, rate, size):
    """The same sound, recorded at another rate: it begins and ends in the same windows, give or take one."""
    client = vad.client()
    want = segments(listen(client, "speech", [s16(sound(RATE))], sequence="w"))
    heard = listen(client, "speech", map(s16, pieces_of(sound(rate), some_sizes(3) if size == "any" else size)),
                   {"Content-Type": f"{SOUND}; rate={rate}"}, sequence="r")
    got = segments(heard)
    assert [word for _, word in got] == [word for _, word in want]
    assert all(abs(a - b) <= 1 for (a, _), (b, _) in zip(got, want)), (got, want)
    whole = listen(client, "speech", [s16(sound(rate))], {"Content-Type": f"{SOUND}; rate={rate}"}, sequence="all")
    assert heard == whole, "to the last bit"


@pytest.mark.parametrize("name", ["f32", "mulaw", "wav", "wav in pieces", "stereo", "multipart"])
def test_each_form_of_sound(vad, name):
    """Whatever says how the samples are written: content type, WAV header, or the fields of a form."""
    client, rate = vad.client(), 48000
    samples = sound(rate)
    want = segments(listen(client, "speech", [s16(samples)], {"Content-Type": f"{SOUND}; rate={rate}"}, sequence="w"))
    if name == "f32":
        made, kind = [samples.tobytes()], f'{SOUND}; rate="{rate}"; encoding=pcm_f32le'
    elif name == "mulaw":
        made, kind = [mulaw(sound(8000))], "audio/basic"
    elif name == "stereo":
        made, kind = [wav(np.repeat(samples, 2), rate, 2)], "application/octet-stream"
    elif name == "multipart":
        made = [b"--x\r\nContent-Disposition: form-data; name=rate\r\n\r\n48000\r\n--x\r\nContent-Disposition: "
                b"form-data; name=body\r\n\r\n" + s16(samples) + b"\r\n--x--\r\n"]
        kind = "multipart/form-data; boundary=x"
    else:
        made, kind = [wav(samples, rate)], "audio/wav"
    if name == "wav in pieces":
        whole = made[0] + b"LIST\4\0\0\0junk"  # what comes behind the samples is not sound
        made = [whole[i:i + 20000] for i in range(0, len(whole), 20000)]
    got = segments(listen(client, "speech", made, {"Content-Type": kind}, sequence="f"))
    assert [word for _, word in got] == [word for _, word in want]
    assert all(abs(a - b) <= 1 for (a, _), (b, _) in zip(got, want)), (got, want)


def mulaw(samples):
    """G.711, written from its definition."""
    out = bytearray()
    for value in samples:
        magnitude = min(abs(int(round(float(value) * 32768))), 32635) + 132
        exponent = magnitude.bit_length() - 8
        code = (0x80 if value < 0 else 0) | exponent << 4 | (magnitude >> (exponent + 3)) & 15
        out.append(~code & 0xFF)
    return bytes(out)


def test_windows_that_overlap(server):
    """Each window begins a hop after the one before, and the samples that they share are not lost between requests."""
    s = server(speech(stream={"hop": 160}))
    client, samples = s.client(), sound(RATE, 0.7)
    got = listen(client, "speech", map(s16, pieces_of(samples, some_sizes(11))))
    for i, window in enumerate(got):
        part = samples[160 * i:160 * i + WINDOW]
        power = float(np.sum(np.round(part * 32768).astype(np.float64) ** 2)) / 32768**2 / WINDOW
        assert window["power"] == pytest.approx(power, abs=1e-6), i
    assert len(got) == math.ceil((len(samples) - WINDOW) / 160) + 1


@pytest.mark.parametrize("what", ["worker", "server"])
def test_kills_between_pieces_change_nothing(server, what):
    """What is left of a piece is committed with the step, so a new worker goes on with the very next sample."""
    s = server(speech())
    rate = 44100
    pieces = [s16(piece) for piece in pieces_of(sound(rate), some_sizes(5))]
    kind = {"Content-Type": f"{SOUND}; rate={rate}"}
    want = listen(s.client(), "speech", pieces, kind, sequence="calm")
    got = []
    for i, piece in enumerate(pieces):
        got += listen(s.client(), "speech", [piece], kind, sequence="killed", end=i == len(pieces) - 1)
        if what == "worker" and i % 5 == 1:
            s.kill_worker("speech")
        elif what == "server" and i in (3, 9):
            s.kill()
            s.restart()
    assert got == want


def test_kills_in_the_middle_of_steps(server):
    """A worker that dies while it works on a piece has changed nothing: the piece is cut again, and not twice."""
    s = server(speech(maxWorkers=2, minWorkers=2))
    pieces = [s16(piece) for piece in pieces_of(sound(48000), some_sizes(8))]
    kind = {"Content-Type": f"{SOUND}; rate=48000"}
    want = listen(s.client(), "speech", pieces, kind, sequence="calm")
    with s.killing("speech", 0.2):
        for i in range(5):
            assert listen(s.client(), "speech", pieces, kind, sequence=f"k{i}") == want


def test_a_repeated_piece_is_not_heard_twice(vad):
    """A client that did not get its answer sends the piece again, and gets the same windows."""
    client, samples = vad.client(), sound(RATE, 0.3)
    key = {"Content-Type": SOUND, "Idempotency-Key": "one"}
    first = client.step("speech", "again", s16(samples[:1300]), key)
    assert client.step("speech", "again", s16(samples[:1300]), key).text == first.text
    rest = listen(client, "speech", [s16(samples[1300:])], sequence="again")
    assert json.loads(first.text) + rest == listen(client, "speech", [s16(samples)], sequence="whole2")


def test_a_window_that_fails_undoes_its_request(vad):
    """All windows of a request are one step: the client can send it again, and nothing of it was done."""
    client, samples = vad.client(), sound(RATE, 1.0)
    pieces = [s16(piece) for piece in pieces_of(samples, 3000)]
    want = listen(client, "speech", pieces, sequence="well")
    got = listen(client, "speech", pieces[:2], sequence="ill", end=False)
    answer = client.step("speech", "ill", pieces[2], {"Content-Type": SOUND, "x-fail": "14"})
    assert answer.status == 422 and "window 3 of the request's 6: no" in answer.text, answer
    assert got + listen(client, "speech", pieces[2:], sequence="ill") == want


def test_sequences_do_not_mix(server):
    """Windows of many microphones run together, in the batches of one worker."""
    s = server(speech(batchSize=32))
    import concurrent.futures  # pylint: disable=import-outside-toplevel

    def one(i):
        kind = {"Content-Type": f"{SOUND}; rate={(8000, 16000, 44100)[i % 3]}"}
        samples = sound((8000, 16000, 44100)[i % 3])
        return listen(s.client(f"c{i}"), "speech", map(s16, pieces_of(samples, some_sizes(i))), kind, sequence=f"s{i}")

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        got = list(pool.map(one, range(12)))
    assert got == [got[i % 3] for i in range(12)]


def refused(answer, status, *words):
    assert answer.status == status, answer
    for word in words:
        assert word in answer.text, answer


def test_the_client_of_the_docs(server, folder):
    """The page's handler and its client, as they stand there."""
    page = ROOT / "docs" / "audio.md"
    s = server(Model("ear", blocks(page, "lua")[0], blocks(page, "yaml")[0]))
    (folder / "client.py").write_text(blocks(page, "python")[1])
    (folder / "sound.wav").write_bytes(wav(np.repeat(sound(44100), 2), 44100, 2).replace(b"LIST\4\0\0\0abcd", b""))
    run = subprocess.run([sys.executable, folder / "client.py", s.inference.split("//")[1], folder / "sound.wav"],
                         capture_output=True, text=True, timeout=limit(60), check=True)
    assert [line.split()[0] for line in run.stdout.splitlines()] == ["begin", "end"] * 2, run
    for line, at in zip(run.stdout.splitlines(), (0.5, 1.2, 1.9, 2.6)):
        assert float(line.split()[1]) == pytest.approx(at, abs=0.04), run.stdout


def test_grpc(server):
    """TorchServe's gRPC names rate and encoding beside the sound."""
    s = server(speech())
    want = listen(s.client(), "speech", [s16(sound(8000))], {"Content-Type": f"{SOUND}; rate=8000"}, sequence="h")
    heard, pieces = [], list(pieces_of(sound(8000), 3333))
    with Rpc(s.grpc) as rpc:
        for i, piece in enumerate(pieces):
            end = [("ts-request-sequence-end", "true")] if i == len(pieces) - 1 else []
            answer = rpc.predict("speech", s16(piece), "g", rate=8000, encoding="pcm_s16le", metadata=end)
            heard += json.loads(answer.prediction)
        with pytest.raises(Exception, match="rate is '7'"):
            rpc.predict("speech", b"", "g2", rate=7)
    assert heard == want


def test_streams_of_grpc(server):
    """Many pieces on one call, over TorchServe's stream and over the v2 stream."""
    yaml = ("sequenceBatching: true\nbatchSize: 4\ninputs: [{name: audio, dataType: FP32, dims: [512]}]\n"
            "outputs: [{name: n, dataType: INT32, dims: [1]}, {name: power, dataType: FP32, dims: [1]}]\n"
            "stream: {input: audio, window: 512}\n")
    s = server(speech(), Model("typed", TYPED_LUA, yaml))
    kind = {"Content-Type": f"{SOUND}; rate=8000"}
    pieces = [s16(piece) for piece in pieces_of(sound(8000), some_sizes(4))]
    want = listen(s.client(), "speech", pieces, kind, sequence="h", end=False)
    with Rpc(s.grpc) as rpc:
        answers = rpc.inference.StreamPredictions2(
            iter([request("speech", piece, "g", rate=8000) for piece in pieces]), timeout=limit(60))
        assert [window for answer in answers for window in json.loads(answer.prediction)] == want
    with v2rpc.channel_of(s) as channel:
        stream, ns = v2rpc.Stream(channel), []
        for i, piece in enumerate(pieces):
            answer = stream.ask(v2request("typed", [("audio", "INT16", [len(piece) // 2])], [piece], sequence_id=5,
                                          sequence_start=i == 0, rate=8000))
            assert not answer.error_message, answer
            shapes = {out.name: list(out.shape) for out in answer.infer_response.outputs}
            raw = dict(zip(shapes, answer.infer_response.raw_output_contents))
            ns += np.frombuffer(raw["n"], "<i4").tolist()
            assert shapes["power"] == [len(raw["power"]) // 4, 1]
        stream.half_close()
    assert ns == list(range(1, len(want) + 1))


def test_websockets(server):
    """A microphone on a WebSocket: the WAV header comes first, then its samples, and the connection is cut once."""
    s = server(speech())
    whole = wav(sound(48000), 48000, size=0)
    pieces = [whole[i:i + 9600] for i in range(0, len(whole), 9600)]
    want = listen(s.client(), "speech", pieces, {"Content-Type": "application/octet-stream"}, sequence="h")
    heard = []
    for half in pieces[:10], pieces[10:]:
        with websocketing.Stream(s, "speech", "w") as stream:
            for piece in half:
                stream.send(piece)
                heard += websocketing.body_of(stream.get())
            if half[-1] is pieces[-1]:
                stream.put(type="end")
                heard += websocketing.body_of(stream.get())
    assert heard == want
    piece = base64.b64encode(s16(sound(8000))).decode()
    with websocketing.Stream(s, "speech", "j") as stream:
        stream.put(type="step", base64=piece, content_type=f"{SOUND}; rate=8000", end=True)
        words = [word for _, word in segments(websocketing.body_of(stream.get()))]
    assert words == ["begin", "end", "begin", "end"]


def test_wrong_sound_is_refused(vad):
    """Each error says which value was wrong and what to send instead, and the sequence goes on unharmed."""
    client, samples = vad.client(), sound(RATE, 0.2)
    want = listen(client, "speech", [s16(samples)], sequence="ref")

    def send(body, kind=SOUND):
        return client.step("speech", "bad", body, {"Content-Type": kind})

    got = listen(client, "speech", [s16(samples[:700])], sequence="bad", end=False)
    refused(send(b"abc"), 400, "3 bytes", "not a multiple of 2", "whole samples")
    refused(send(b"abcdef", f"{SOUND}; channels=2"), 400, "6 bytes", "multiple of 4")
    for rate in ("0", "999", "384001", "x", "", "99999999999"):
        refused(send(b"ab", f"{SOUND}; rate={rate}"), 400, f"rate is '{rate}'", "1000 to 384000")
    refused(send(b"ab", f"{SOUND}; channels=9"), 400, "channels is '9'", "1 to 8")
    refused(send(b"ab", f"{SOUND}; encoding=opus"), 400, "encoding is 'opus'", "pcm_s16le, pcm_f32le or mulaw")
    refused(send(b"ab", "audio/ogg"), 400, "audio/ogg is not supported", "WAV")
    refused(send(b"[1]", "application/json"), 400, "JSON")
    refused(send(struct.pack("<3f", 0.1, math.nan, 0), f"{SOUND}; encoding=pcm_f32le"), 400, "sample 1 is", "nanPolicy")
    refused(send(bytes(2 * 1048576 + 2)), 413, "1048577 samples", "1048576", "stream.maxChunkSamples")
    refused(send(bytes(200000), f"{SOUND}; rate=1000"), 413, "100000 samples of 1000 Hz", "1600000")
    refused(send(wav(samples, RATE)[:30], "audio/wav"), 400, "WAV header is not complete")
    refused(send(wav(samples, 500)), 400, "500 Hz", "1000 to 384000")
    refused(send(wav(samples, RATE, 9)), 400, "9 channels")
    refused(send(wav(samples, RATE).replace(b"\x10\0LIST", b"\x18\0LIST")), 400, "format 1 with 24 bits")
    assert got + listen(client, "speech", [s16(samples[700:])], sequence="bad") == want


@pytest.mark.parametrize("stream, words", [
    ({"input": "video"}, ["stream.input", "none, audio or series", "video"]),
    ({"window": 0}, ["stream.window", "1 to 1048576", "0"]),
    ({"hop": 0}, ["stream.hop", "1 to 1048576", "0"]),
    ({"hop": 513}, ["stream.hop 513", "stream.window 512"]),
    ({"rate": 0}, ["stream.rate", "1000 to 384000", "0"]),
    ({"encoding": "opus"}, ["stream.encoding", "pcm_s16le, pcm_f32le or mulaw", "opus"]),
    ({"maxChunkSamples": 100}, ["stream.maxChunkSamples 100", "stream.window 512"]),
    ({"input": "none"}, ["stream.window has no effect without stream.input"]),
])
def test_wrong_settings_are_refused(server, stream, words):
    """The archiver says what is wrong before anybody serves it."""
    s = server()
    with pytest.raises(AssertionError) as refusal:
        s.pack(speech("wrong", stream=stream))
    assert all(word in str(refusal.value) for word in words), refusal.value


@pytest.mark.parametrize("more, words", [
    ("inputs: [{name: X, dataType: FP32, dims: [400]}]", ["stream.window 512", "'X'", "dims: [512]"]),
    ("inputs: [{name: X, dataType: INT32, dims: [512]}]", ["'X' is INT32", "FP32 or INT16"]),
    ("inputs: [{name: X, dataType: FP32, dims: [512]}]\ndecoupled: true", ["decoupled", "remove"]),
    ("inputs: [{name: X, dataType: FP32, dims: [512]}]\ncontinuousBatching: true", ["continuousBatching"]),
])
def test_settings_that_do_not_fit_the_tensors_are_refused(server, more, words):
    yaml = (f"sequenceBatching: true\n{more}\noutputs: [{{name: Y, dataType: FP32, dims: [1]}}]\n"
            "stream: {input: audio, window: 512}\n")
    try:
        text = server().register(Model("wrong", SPEECH_LUA, yaml)).text
    except AssertionError as refusal:  # the archiver has seen it
        text = str(refusal)
    assert all(word in text for word in words), text


def test_series_of_numbers(server):
    """Numbers as JSON or as 32-bit floats; a window of 4 begins 2 numbers after the one before."""
    lua = """
return { api = 1, step = function(state, req)
    return { text = table.concat(continuo.array(req.body, "f32"):table(), " ") }
end }
"""
    s = server(Model("series", lua, {"stream": {"input": "series", "window": 4, "hop": 2}}))
    client = s.client()

    def send(body, kind="application/json", **headers):
        return client.step("series", "s", body, {"Content-Type": kind, **headers})

    assert json.loads(send("[1, 2, 3]").text) == []
    assert json.loads(send("[4, 5e0, -6]").text) == ["1.0 2.0 3.0 4.0", "3.0 4.0 5.0 -6.0"]
    assert json.loads(send(struct.pack("<2f", 7, 8.5), "application/octet-stream").text) == ["5.0 -6.0 7.0 8.5"]
    refused(send("[1, 2"), 400, "JSON list of numbers")
    refused(send("[1, [2]]"), 400, "JSON list of numbers")
    refused(send("[1e99]"), 400, "too large")
    assert json.loads(send("[9]", **{"ts-request-sequence-end": "true"}).text) == ["7.0 8.5 9.0 0.0"]


def test_sound_in_sound_out(server):
    """A model that answers with sound: the answers to the windows follow each other."""
    lua = """
return { api = 1, step = function(state, req) return { body = req.body, content_type = "audio/x-pcm" } end }
"""
    s = server(Model("echo", lua, {"stream": {"input": "audio", "window": 100, "answers": "bytes"}}))
    samples, client, got = sound(RATE, 0.6), s.client(), b""
    for i, piece in enumerate(pieces_of(samples, 333)):
        answer = client.step("echo", "e", piece.tobytes(), {"Content-Type": f"{SOUND}; encoding=pcm_f32le"})
        assert answer.status == 200, answer
        got += answer.body
    got = np.frombuffer(got, np.float32)
    assert len(got) == len(samples) and (got == samples).all()


TYPED_LUA = """
local M = { api = 1 }

function M.step(state, req)
    local sum = 0
    for _, sample in ipairs(req.inputs.audio.values:table()) do
        sum = sum + sample * sample
    end
    state.n = (state.n or 0) + 1
    local shape = req.inputs.audio.shape[2] and { 1, 1 } or { 1 }
    return { outputs = { n = { datatype = "INT32", shape = shape, data = { state.n } },
                         power = { datatype = "FP32", shape = shape, data = { sum } } } }
end

return M
"""


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("kind", ["FP32", "INT16"])
def test_a_typed_model_over_v2(server, batched, kind):
    """Its tensor takes samples of any number and encoding; its outputs get the windows as first dimension."""
    size = "maxBatchSize: 4\n" if batched else ""
    yaml = (f"sequenceBatching: true\nbatchSize: 4\n{size}"
            f"inputs: [{{name: audio, dataType: {kind}, dims: [256]}}]\n"
            "outputs: [{name: n, dataType: INT32, dims: [1]}, {name: power, dataType: FP32, dims: [1]}]\n"
            "stream: {input: audio, window: 256, rate: 8000}\n")
    s = server(Model("typed", TYPED_LUA, yaml))
    client, samples = s.client(), sound(8000, 0.7)
    want = client.step("typed", "p", s16(samples), {"Content-Type": SOUND})
    assert want.status == 200, want
    want = json.loads(want.text)
    assert want["n"] == [[i + 1] for i in range(len(samples) // 256)]

    def infer(number, datatype, data, **parameters):
        tensor = {"name": "audio", "datatype": datatype, "shape": [len(data)], "data": data}
        answer = client.post("/v2/models/typed/infer", json.dumps(
            {"inputs": [tensor], "parameters": {"sequence_id": number, "sequence_start": True, **parameters}}))
        assert answer.status == 200, answer
        return {out["name"]: (out["shape"], out["data"]) for out in json.loads(answer.text)["outputs"]}

    integers = np.frombuffer(s16(samples), "<i2")
    for number, (datatype, data) in enumerate([("INT16", integers.tolist()),
                                               ("FP32", (integers / 32768).tolist()),
                                               ("UINT8", list(s16(samples)))], 1):
        got = infer(number, datatype, data)
        assert got["n"] == ([len(want["n"]), 1], [n for [n] in want["n"]]), datatype
        assert got["power"][1] == pytest.approx([p for [p] in want["power"]]), datatype
    got = infer(9, "INT16", np.frombuffer(s16(sound(48000, 0.7)), "<i2").tolist(), rate=48000)
    assert got["n"][0] == [len(want["n"]), 1]
    stereo = list(np.repeat(integers, 2).tobytes())  # bytes have as many channels as the request says
    got = infer(11, "UINT8", stereo, channels=2)
    assert got["n"][0] == [len(want["n"]), 1]
    assert got["power"][1] == pytest.approx([p for [p] in want["power"]])
    assert infer(10, "INT16", [])["n"] == ([0, 1], [])
    declared = json.loads(client.get("/v2/models/typed").text)
    assert declared["inputs"][0]["shape"] == ([-1, -1] if batched else [-1])
    assert declared["outputs"][0]["shape"] == [-1, 1]
    answer = client.post("/v2/models/typed/infer", json.dumps(
        {"inputs": [{"name": "audio", "datatype": "INT64", "shape": [1], "data": [1]}]}))
    refused(answer, 400, "'INT64'", "'INT16', 'FP32', 'UINT8' or 'BYTES'")


# --- other runtimes

SPEECH_PY = """
import asyncio
from array import array

from continuo import Refuse


def init(req):
    return {"n": 0}


def answer(state, req):
    samples = array("f", req.body)
    state["n"] += 1
    return {"n": state["n"], "power": sum(s * s for s in samples) / len(samples)}


def plain(state, req):
    return answer(state, req)


def pieces(state, req):
    yield "n "
    yield None, 0.001
    req.send("is ")
    yield str(answer(state, req)["n"])


async def waits(state, req):
    await asyncio.sleep(0.001)
    return answer(state, req)


step = STEP
"""


@pytest.mark.parametrize("way", ["plain", "pieces", "waits"])
def test_python_handlers(server, way):
    """A step that streams or awaits within a window goes on with the next window when it is done."""
    if not PYTHON_LIBRARY.exists():
        pytest.skip("this build has no Python (python3-dev)")
    stream = {"stream": {"input": "audio", "window": WINDOW}}
    s = server(python("ear", SPEECH_PY.replace("STEP", way), batchSize=8, **stream))
    client, samples = s.client(), sound(8000, 0.8)
    kind = {"Content-Type": f"{SOUND}; rate=8000"}
    want = listen(client, "ear", [s16(samples)], kind, sequence="a")
    if way == "pieces":
        assert want == [f"n is {i + 1}" for i in range(len(want))]
    else:
        assert [window["n"] for window in want] == list(range(1, len(want) + 1))
    assert len(want) == math.ceil(2 * len(samples) / WINDOW)
    pieces = [s16(piece) for piece in pieces_of(samples, some_sizes(2))]
    got = []
    for i, piece in enumerate(pieces):
        got += listen(client, "ear", [piece], kind, sequence="b", end=i == len(pieces) - 1)
        if i == 2:
            s.kill_worker("ear")
    assert got == want


def test_a_handler_in_c(server):
    """examples/v2/square gets the windows as tensors, and its answers are joined."""
    s = server()
    s.stop()
    yaml = (ROOT / "examples" / "v2" / "square" / "model-config.yaml").read_text()
    (s.folder / "square.yaml").write_text(yaml + "sequenceBatching: true\nstream: {input: series, window: 5, hop: 2}\n")
    archiver("--model-name", "square", "--version", "1.0", "--handler", BUILD / "examples" / "square.so",
             "--config-file", s.folder / "square.yaml", "--export-path", s.store)
    s.models = ["square=square.mar"]
    s.restart()
    client = s.client()
    for at, n in ((0, 3), (3, 4), (7, 2)):
        answer = client.step("square", "c", np.arange(at, at + n, dtype="<f4").tobytes(),
                             {"Content-Type": "application/octet-stream"})
        want = [[i * i for i in range(begin, begin + 5)]
                for begin in range(0, at + n - 4, 2) if begin + 5 > at]
        assert json.loads(answer.text)["OUT"] == want, answer


def test_silero_vad_hears_the_same_segments(server):
    """The example's network finds the same speech in real recordings, whichever rate and pieces they come in."""
    _, onnx = packages("silero_vad")
    sys.path.insert(0, str(ROOT / "examples" / "vad"))
    import vad as vad_example  # pylint: disable=import-outside-toplevel,import-error
    exported = example("onnx-vad")
    yaml = (ROOT / "examples" / "onnx-vad" / "model-config.yaml").read_text()
    made = exported.with_context(onnx.load(exported.source()))
    s = server(onnx_model("vad", made, yaml + "\nstream: {input: audio, window: 512, rate: 16000}\n"),
               flags=["--onnxruntime", library()])
    client = s.client()
    path = pathlib.Path("/usr/share/sounds/alsa/Front_Center.wav")
    if not path.exists():
        pytest.skip("the recordings of alsa-utils are not installed")
    with wave.open(str(path)) as file:
        rate, samples = file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), "<i2")
    wanted = np.fft.rfft(samples.astype(np.float64) / 32768)

    def recorded(new, band):
        """The recording as a device with this rate would have made it, if its microphone ends at 0.45 * band."""
        count = int(len(samples) * new / rate)
        bins = np.zeros(count // 2 + 1, complex)
        low = min(len(bins), len(wanted), int(0.45 * band * len(samples) / rate))
        bins[:low] = wanted[:low]
        return s16(np.fft.irfft(bins, count) * count / len(samples))

    def speaks(sequence, pieces, kind):
        """Where speech begins and ends, in windows, as examples/vad says it."""
        probs = []
        for i, piece in enumerate(pieces):
            end = {"ts-request-sequence-end": "true"} if i == len(pieces) - 1 else {}
            answer = client.step("vad", sequence, piece, {"Content-Type": kind, **end})
            assert answer.status == 200, answer
            probs += [prob for [prob] in json.loads(answer.text)["output"]]
        return [at * RATE / WINDOW for segment in vad_example.segments(probs) for at in segment]

    for number, (new, seed) in enumerate([(16000, 1), (8000, 2), (44100, 3), (48000, 4)]):
        band = min(new, RATE)  # what 8 kHz cannot carry, such as an s, is not in the other recording either
        want = speaks(f"w{number}", list(pieces_of(recorded(RATE, band), 2 * WINDOW)), SOUND)
        pieces = list(pieces_of(recorded(new, band), (2 * size for size in some_sizes(seed))))
        got = speaks(f"s{number}", pieces, f"{SOUND}; rate={new}")
        assert len(want) >= 2, "the recording has speech"
        assert len(got) == len(want) and all(abs(a - b) <= 1 for a, b in zip(got, want)), (new, got, want)


# --- the rest goes where the state goes


def halves(rate=44100):
    pieces = [s16(piece) for piece in pieces_of(sound(rate), some_sizes(6))]
    return pieces[:4], pieces[4:], {"Content-Type": f"{SOUND}; rate={rate}"}


def test_the_rest_moves_with_its_sequence(server, folder):
    """A fork, an exported sequence and one that moves to the next version go on with the very next sample."""
    s, there = server(speech()), server(speech(), name="other")
    before, after, kind = halves()
    want = listen(s.client(), "speech", before + after, kind, sequence="calm")
    got = listen(s.client(), "speech", before, kind, sequence="s", end=False)

    def ctl(at, *words):
        done = subprocess.run([BIN / "continuo-ctl", "--server", at.management, "seq", *words], capture_output=True,
                              text=True, check=False, cwd=folder, timeout=limit(30))
        assert done.returncode == 0, done

    ctl(s, "fork", "speech", "s", "copy")
    ctl(s, "export", "speech", "s", "file")
    ctl(there, "import", "speech", "s", "file")
    assert got + listen(s.client(), "speech", after, kind, sequence="copy") == want
    assert got + listen(there.client(), "speech", after, kind, sequence="s") == want
    second = speech(sequence={"swapPolicy": "migrate"})
    second.version = "2.0"
    assert s.register(second).status == 200
    assert s.admin().put("/models/speech/2.0/set-default").status == 200
    assert got + listen(s.client(), "speech", after, kind, sequence="s") == want


def test_a_version_without_stream_takes_the_state(server):
    """The rest is of no use to it; the handler's state stays."""
    s = server(speech())
    before, _, kind = halves()
    n = len(listen(s.client(), "speech", before, kind, sequence="s", end=False))
    lua = SPEECH_LUA.replace("function M.step", "function M.step(state) return { text = tostring(state.n) } end\n"
                                                "function M.old")
    assert s.register(Model("speech", lua, {"sequence": {"swapPolicy": "migrate"}}, "2.0")).status == 200
    assert s.admin().put("/models/speech/2.0/set-default").status == 200
    assert s.client().step("speech", "s", "").text == str(n)


def test_nodes_that_share_a_store(server, folder, transcript):
    """Each piece may come to another node."""
    before, after, kind = halves()
    with shared_store_in(folder, transcript) as store:
        nodes = [server(speech(), flags=["--state-store", store.url], name=name) for name in "ab"]
        want = listen(nodes[0].client(), "speech", before + after, kind, sequence="calm")
        got, pieces = [], before + after
        for i, piece in enumerate(pieces):
            got += listen(nodes[i % 2].client(), "speech", [piece], kind, sequence="s", end=i == len(pieces) - 1)
    assert got == want


ENDLESS_PY = """
def init(req):
    return {"n": 0}


def step(state, req):
    state["n"] += 1
    if req.headers.get("x-endless"):
        while not (yield "...", 0.005):
            pass
        raise ValueError("stopped")
    yield str(state["n"])
"""


def test_a_client_that_leaves_in_the_middle_of_a_window(server):
    """The handler waits within the second window when its client goes: nothing of the request counts."""
    if not PYTHON_LIBRARY.exists():
        pytest.skip("this build has no Python (python3-dev)")
    s = server(python("ear", ENDLESS_PY, stream={"input": "series", "window": 2}))
    client, body = s.client(), struct.pack("<5f", *range(5))
    kind = {"Content-Type": "application/octet-stream"}
    assert listen(client, "ear", [body], kind, sequence="a", end=False) == ["1", "2"]
    for _ in range(3):
        leaves = s.raw("leaves")
        leaves.send("POST /predictions/ear HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: a\r\nx-endless: 1\r\n"
                    "Content-Type: application/octet-stream\r\nContent-Length: 12\r\n\r\n" + "\0" * 12)
        s.expect_outstanding("ear", 1)
        leaves.close()
        expect(lambda: s.outstanding("ear") == 0, "the step has ended")
    assert listen(client, "ear", [body], kind, sequence="a") == ["3", "4", "5"]
    leaves = s.raw("at the end")  # this one still waits when the worker ends
    leaves.send("POST /predictions/ear HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: b\r\nx-endless: 1\r\n"
                "Content-Type: application/octet-stream\r\nContent-Length: 8\r\n\r\n" + "\0" * 8)
    s.expect_outstanding("ear", 1)
    leaves.close()

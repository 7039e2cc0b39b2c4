#!/usr/bin/env python3
"""Streams WAV files (16-bit PCM, 16 or 48 kHz) as sequences, all at once, in chunks of 512 samples at
16 kHz, and prints when somebody speaks.

    .venv/bin/python examples/vad/vad.py http://localhost:8080 /usr/share/sounds/alsa/Front_Center.wav ...

With --v2 before the address it speaks the v2 protocol instead of /predictions.
"""

import concurrent.futures
import http.client
import json
import pathlib
import sys
import urllib.parse
import uuid
import wave

import numpy as np

RATE = 16000
CHUNK = 512


def samples(path):
    """The first channel at 16 kHz, from -1 to 1."""
    with wave.open(str(path), "rb") as sound:
        if sound.getsampwidth() != 2 or sound.getframerate() not in (RATE, 3 * RATE):
            sys.exit(f"{path}: the example takes 16 bits a sample at 16 or 48 kHz")
        pcm = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")[::sound.getnchannels()]
        wide = sound.getframerate() != RATE
    audio = pcm.astype(np.float32) / 32768
    if wide:  # a low pass at 7.5 kHz, then each third sample
        at = np.arange(-48, 49)
        taps = np.sinc(at * 2 * 7500 / 48000) * np.hamming(len(at))
        audio = np.convolve(audio, taps / taps.sum(), "same")[::3].astype(np.float32)
    return audio


def chunks(path):
    audio = samples(path)
    for at in range(0, len(audio) - CHUNK + 1, CHUNK):
        yield audio[at:at + CHUNK]


def predictions(connection, sequence, chunk, _first):
    connection.request("POST", "/predictions/vad", chunk.tobytes(),
                       {"Content-Type": "application/octet-stream", "ts-request-sequence-id": sequence})
    return json.loads(body_of(connection))["prob"][0][0]


def v2(connection, sequence, chunk, first):
    head = json.dumps({"parameters": {"sequence_id": sequence, "sequence_start": first},
                       "inputs": [{"name": "audio", "datatype": "FP32", "shape": [1, CHUNK],
                                   "parameters": {"binary_data_size": 4 * CHUNK}}]}).encode()
    connection.request("POST", "/v2/models/vad/infer", head + chunk.tobytes(),
                       {"Inference-Header-Content-Length": str(len(head))})
    return json.loads(body_of(connection))["outputs"][0]["data"][0]


def body_of(connection):
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        sys.exit(f"{response.status} {body.decode()}")
    return body


def probabilities(address, path, ask=predictions):
    """One stream: its chunks one by one, each as a step of its sequence."""
    connection = http.client.HTTPConnection(address.hostname, address.port)
    sequence = uuid.uuid4().hex
    given = [ask(connection, sequence, chunk, i == 0) for i, chunk in enumerate(chunks(path))]
    connection.close()
    return given


def segments(probs):
    """Begin and end of speech, in seconds: it begins over 0.5, and ends after 0.2 s below 0.35."""
    found, begun, quiet = [], None, 0
    for i, prob in enumerate(probs):
        if prob >= 0.5:
            begun, quiet = i if begun is None else begun, 0
        elif begun is not None and prob < 0.35:
            quiet += 1
            if quiet * CHUNK >= 0.2 * RATE:
                found.append((begun * CHUNK / RATE, (i + 1 - quiet) * CHUNK / RATE))
                begun, quiet = None, 0
    if begun is not None:
        found.append((begun * CHUNK / RATE, len(probs) * CHUNK / RATE))
    return found


def main():
    words = sys.argv[1:]
    ask = predictions
    if words[:1] == ["--v2"]:
        ask, words = v2, words[1:]
    if len(words) < 2:
        sys.exit(__doc__)
    address, paths = urllib.parse.urlsplit(words[0]), [pathlib.Path(word) for word in words[1:]]
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        for path, probs in zip(paths, pool.map(lambda path: probabilities(address, path, ask), paths)):
            spoken = ", ".join(f"{begin:.2f} to {end:.2f} s" for begin, end in segments(probs))
            print(f"{path.name}: {len(probs)} chunks, speech: {spoken or 'none'}")


if __name__ == "__main__":
    main()

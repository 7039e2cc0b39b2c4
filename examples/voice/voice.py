#!/usr/bin/env python3
"""Streams WAV files (16-bit PCM, 16 or 48 kHz) as raw sound, all at once, in pieces of 100 ms, and prints
where speech begins and ends.

    .venv/bin/python examples/voice/voice.py http://localhost:8080 /usr/share/sounds/alsa/Front_Center.wav ...
"""

import concurrent.futures
import http.client
import json
import pathlib
import sys
import urllib.parse
import uuid

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "vad"))
import vad  # noqa: E402  pylint: disable=wrong-import-position

PIECE = 2 * vad.RATE // 10


def pcm(path):
    """The file as 16-bit samples at 16 kHz."""
    return np.clip(np.round(vad.samples(path) * 32768), -32768, 32767).astype("<i2").tobytes()


def listen(address, path, piece=PIECE):
    """One stream: all that was answered, probabilities and events."""
    connection = http.client.HTTPConnection(address.hostname, address.port)
    sequence, sound, probs, events = uuid.uuid4().hex, pcm(path), [], []
    for at in range(0, len(sound), piece):
        connection.request("POST", "/predictions/voice", sound[at:at + piece],
                           {"Content-Type": "application/octet-stream", "ts-request-sequence-id": sequence})
        answer = json.loads(vad.body_of(connection))
        probs += answer["probs"]
        events += answer["events"]
    connection.close()
    return probs, events


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    address, paths = urllib.parse.urlsplit(sys.argv[1]), [pathlib.Path(word) for word in sys.argv[2:]]
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        for path, (probs, events) in zip(paths, pool.map(lambda path: listen(address, path), paths)):
            heard = ", ".join(f"{event['speech']} {event['at']:.2f} s" for event in events)
            print(f"{path.name}: {len(probs)} windows, speech: {heard or 'none'}")


if __name__ == "__main__":
    main()

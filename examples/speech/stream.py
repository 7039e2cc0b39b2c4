#!/usr/bin/env python3
"""Streams a WAV file (16-bit PCM) in chunks of 20 ms, as one sequence, and prints when somebody
speaks. Python's standard library only.

    examples/speech/stream.py /usr/share/sounds/alsa/Front_Center.wav [http://localhost:8080]
"""

import http.client
import json
import pathlib
import sys
import urllib.parse
import wave

CHUNK_MS = 20


def chunks(path):
    """The first channel of the file, in pieces of CHUNK_MS."""
    with wave.open(str(path), "rb") as sound:
        if sound.getsampwidth() != 2:
            sys.exit(f"{path}: {8 * sound.getsampwidth()} bits a sample, the model takes 16")
        frames, channels = sound.getframerate() * CHUNK_MS // 1000, sound.getnchannels()
        while len(pcm := sound.readframes(frames)) == 2 * channels * frames:
            yield b"".join(pcm[i:i + 2] for i in range(0, len(pcm), 2 * channels))


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    path = pathlib.Path(sys.argv[1])
    address = urllib.parse.urlsplit(sys.argv[2] if len(sys.argv) > 2 else "http://localhost:8080")
    connection = http.client.HTTPConnection(address.hostname, address.port)
    sequence, answer = None, None
    for number, pcm in enumerate(chunks(path)):
        headers = {"Content-Type": "application/octet-stream"}
        if sequence:
            headers["Continuo-Sequence"] = sequence
        connection.request("POST", "/predictions/speech", pcm, headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            sys.exit(f"chunk {number}: {response.status} {body.decode()}")
        # The first answer brings the id that the server made for this stream.
        sequence = response.getheader("Continuo-Sequence")
        answer = json.loads(body)
        if answer["change"]:
            print(f"{number * CHUNK_MS / 1000:6.2f} s  speech {answer['change']:5}  "
                  f"level {answer['level_db']:6.1f} dB, noise {answer['noise_db']:6.1f} dB")
    if answer is None:
        sys.exit(f"{path} is shorter than {CHUNK_MS} ms")
    print(f"{path.name}: {answer['chunk']} chunks, {answer['speech_chunks']} with speech, "
          f"{answer['segments']} segments (sequence {sequence})")


if __name__ == "__main__":
    main()

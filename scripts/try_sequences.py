#!/usr/bin/env python3
"""Sends steps to the counters of scripts/try_packages.sh upgrade, and compares the answers. It needs only Python.
    try_sequences.py FIRST LAST [MODEL...]    these steps of each of 100 sequences of each model
Step k of sequence n adds n + k, so an answer is right only if each step before it was done once, and in this sequence."""

import http.client
import sys

SEQUENCES = 100


def total(n, k):
    return n * k + k * (k + 1) // 2


def step(connection, model, n, k):
    connection.request("POST", f"/predictions/{model}", str(n + k), {"ts-request-sequence-id": f"sequence-{n}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status != 200 or text != str(total(n, k)):
        sys.exit(f"{model}: step {k} of sequence {n} has the answer {answer.status} {text}, and not {total(n, k)}")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    first, last, models = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or ["counter"]
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    for k in range(first, last + 1):
        for model in models:
            for n in range(1, SEQUENCES + 1):
                step(connection, model, n, k)


if __name__ == "__main__":
    main()

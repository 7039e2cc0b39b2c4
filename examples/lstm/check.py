#!/usr/bin/env python3
"""Streams a year as several sequences at once, over /predictions and over the v2 protocol, and compares
each answer with what PyTorch makes of that sequence alone.

    .venv/bin/python examples/lstm/check.py lstm.pt [http://localhost:8080]
"""

import concurrent.futures
import http.client
import json
import sys
import urllib.parse
import uuid

import torch

from weather import days, nothing_yet

SEQUENCES = 8
DAYS = 120


def predictions(connection, sequence, day, _first):
    connection.request("POST", "/predictions/lstm", json.dumps({"day": [day]}),
                       {"Content-Type": "application/json", "ts-request-sequence-id": sequence})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        sys.exit(f"{response.status} {body.decode()}")
    return json.loads(body)["tomorrow"][0][0]


def v2(connection, sequence, day, first):
    connection.request("POST", "/v2/models/lstm/infer", json.dumps({
        "parameters": {"sequence_id": sequence, "sequence_start": first},
        "inputs": [{"name": "day", "datatype": "FP32", "shape": [1, 4], "data": day}]}))
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        sys.exit(f"{response.status} {body.decode()}")
    return json.loads(body)["outputs"][0]["data"][0]


def stream(address, model, start, ask):
    """The largest difference of one sequence, which begins on its own day of the year."""
    connection = http.client.HTTPConnection(address.hostname, address.port)
    sequence, (h, c), worst = uuid.uuid4().hex, nothing_yet(), 0.0
    for i, day in enumerate(days()[start:start + DAYS]):
        with torch.inference_mode():
            want, h, c = model(day[None], h, c)
        worst = max(worst, abs(ask(connection, sequence, day.tolist(), i == 0) - want.item()))
    connection.close()
    return worst


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    torch.set_num_threads(1)
    model = torch.jit.load(sys.argv[1])
    address = urllib.parse.urlsplit(sys.argv[2] if len(sys.argv) > 2 else "http://localhost:8080")
    for name, ask in (("/predictions", predictions), ("v2", v2)):
        with concurrent.futures.ThreadPoolExecutor(SEQUENCES) as pool:
            worst = max(pool.map(lambda i, ask=ask: stream(address, model, 30 * i, ask), range(SEQUENCES)))
        print(f"{name}: {SEQUENCES} sequences of {DAYS} days, at most {worst:.1e} degrees from PyTorch")
        if worst > 1e-4:
            sys.exit("that is too much")


if __name__ == "__main__":
    main()

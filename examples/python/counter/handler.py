"""A running sum for each sequence.

A request is a decimal integer, as plain text or as JSON: {"input": 5}. The answer is the sum so
far, as text. 0 ends the sequence: the answer is its last total, and the next request with the same
id begins a new one.

With continuousBatching in the model's YAML, an odd number streams the new total, at once and then
once a second, ten more times (not the first request of a sequence, which gets a plain answer), and
-1 cancels the streams of its sequence.
"""

from continuo import Refuse, Reply

streams = False
pieces, seconds = 11, 1.0


def load(model):
    global streams, pieces, seconds
    stream = model.config.get("handler", {}).get("stream", {})
    streams = model.config.get("continuousBatching", False)
    pieces = stream.get("pieces", pieces)
    seconds = stream.get("seconds", seconds)


def init(req):
    return {"total": 0}


def read_number(req):
    text = req.text
    try:
        return int(text)
    except ValueError:
        pass
    number = req.json.get("input") if text.lstrip().startswith("{") else None
    if type(number) is not int:
        raise Refuse('send a decimal integer, as text or as {"input": 5}')
    return number


def stream_total(total):
    """The total in pieces, until all are out or the stream is to end: its client has gone, -1 or 0
    came, or its time is up. The step was committed with the first piece."""
    for _ in range(pieces - 1):
        if (yield str(total), seconds):
            return
    yield str(total)


def step(state, req):
    number = read_number(req)
    if number == 0:
        return Reply(text=str(state["total"]), end_sequence=True)
    if number == -1 and streams:
        return Reply(text="-1", stop_streams=True)
    state["total"] += number
    if streams and number % 2 == 1 and not req.start:
        return stream_total(state["total"])
    return str(state["total"])

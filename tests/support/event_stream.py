"""A reader of server-sent events."""


def read_events(text):
    """Reads a stream of events as the standard says: a list of (id, event, data)."""
    events, fields, last = [], {"event": "message", "data": []}, None
    assert text.endswith("\n\n") or text == ""
    for line in text.split("\n")[:-1]:
        name, _, value = line.partition(": ")
        if line == "":
            events.append((last, fields["event"], "\n".join(fields["data"])))
            fields = {"event": "message", "data": []}
        elif name == "data":
            fields["data"].append(value)
        elif name == "id":
            last = value
        else:
            assert name == "event", line
            fields["event"] = value
    return events

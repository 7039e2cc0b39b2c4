"""Reads the feed of the page (GET /events on the management address)."""

import json
from http.client import HTTPConnection

from server import address_of
from waiting import limit


class Events:
    """A client of the feed that merges the events as the page does."""

    def __init__(self, server, path="/events", headers=None):
        self._connection = HTTPConnection(*address_of(server.management), timeout=limit(30))
        self._connection.request("GET", path, headers=headers or {})
        self.response = self._connection.getresponse()
        self._text = b""
        self.models = {}
        self.state = {}
        self.log = []

    def next(self):
        """Waits for the next event and returns it."""
        while b"\n\n" not in self._text:
            got = self.response.read1(1 << 20)
            if not got:
                raise EOFError("the feed has ended")
            self._text += got
        event, self._text = self._text.split(b"\n\n", 1)
        assert event.startswith(b"data: "), event
        value = json.loads(event[6:])
        if value.get("full"):
            self.models = {}
        for key, changes in value.get("models", {}).items():
            self.models.setdefault(key, {}).update(changes)
        for key in value.get("gone", []):
            self.models.pop(key, None)
        self.state.update({k: v for k, v in value.items() if k in ("server", "totals", "findings")})
        self.log += value.get("log", [])
        return value

    def until(self, condition, what, most=60):
        """Reads events until `condition()` is true."""
        for _ in range(most):
            if condition():
                return
            self.next()
        raise AssertionError(f"not within {most} events: {what}")

    def rest(self):
        """Reads to the end of the stream."""
        return self.response.read()

    def close(self):
        self.response.close()
        self._connection.close()

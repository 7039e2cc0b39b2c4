"""A list of everything that the actors of a test said or did, with times. It is shown if the test fails."""

import threading
import time


class Transcript:
    MAX_LINES = 4000

    def __init__(self):
        self._started = time.monotonic()
        self._lines = []
        self._dropped = 0
        self._lock = threading.Lock()

    def log(self, actor, text):
        line = f"{time.monotonic() - self._started:8.3f} {actor:<10} {text}"
        with self._lock:
            if len(self._lines) >= self.MAX_LINES:
                # The beginning shows the setup, and the end shows what went wrong.
                del self._lines[self.MAX_LINES // 4]
                self._dropped += 1
            self._lines.append(line)

    def __str__(self):
        with self._lock:
            note = [f"({self._dropped} lines left out)"] if self._dropped else []
            return "\n".join(self._lines[: self.MAX_LINES // 4] + note + self._lines[self.MAX_LINES // 4 :])


def shorten(data, limit=200):
    """Turns bytes or text into one line of the transcript."""
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, (bytes, bytearray)) else str(data)
    text = text.replace("\r", "\\r").replace("\n", "\\n")
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} in all)"

"""The process of a worker: sets up its output, and then serves the server's socket."""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import sys
import threading

from continuo import _worker  # type: ignore[attr-defined]

#: Python's levels as those of the server's log.
LEVELS = ((logging.ERROR, 0), (logging.WARNING, 1), (logging.INFO, 2))
DEBUG = 3


class LogHandler(logging.Handler):
    """Writes records of the module logging to the server's log, with their level."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record).encode("utf-8", "backslashreplace").decode()
            text = text.replace("\0", "\\0")
            level = next((ours for python, ours in LEVELS if record.levelno >= python), DEBUG)
            _worker.log(level, text)
        except Exception:
            self.handleError(record)


def set_up() -> None:
    """Sends output line by line. A crash in C then shows where in Python it happened."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        faulthandler.enable(all_threads=False)
    except (AttributeError, OSError, RuntimeError, ValueError):
        pass
    os.register_at_fork(after_in_child=_worker.forked)
    handler = LogHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)


def main() -> int:
    set_up()
    status = _worker.serve()
    # The handler's threads may still run, and exit() would wait for them. Nobody needs their results any more.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    if threading.active_count() > 1:
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())

"""Waits for conditions instead of sleeping. CONTINUO_TEST_FACTOR multiplies every limit (for sanitizers)."""

import os
import time

FACTOR = float(os.environ.get("CONTINUO_TEST_FACTOR", "1"))


def limit(seconds):
    """Returns a time limit for something that should be quick, longer for slow builds."""
    return seconds * FACTOR


def expect(condition, what, timeout=10):
    """Polls until `condition()` is true and returns its value. Fails the test after `timeout`."""
    deadline = time.monotonic() + limit(timeout)
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit(timeout):g} s: {what} (last value: {value!r})")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)

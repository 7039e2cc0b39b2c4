"""Tells pytest where tests/support is. Declares the mark `load`, too, for runs of this folder without tests/e2e."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))


def pytest_configure(config):
    config.addinivalue_line("markers", "load: heavy load; shortened under sanitizers")

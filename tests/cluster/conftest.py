"""Where pytest finds tests/support; alone, this folder also knows the mark that tests/e2e declares."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))


def pytest_configure(config):
    config.addinivalue_line("markers", "load: heavy load; shortened under sanitizers")

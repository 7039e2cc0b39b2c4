"""What the worker refuses before it imports a handler."""

import json

import pytest
from continuo import _entry, _python_version
from continuo.types import Model


@pytest.mark.parametrize("constraint, version, met", [
    (">=3.9", (3, 9, 0), True), (">=3.9", (3, 8, 19), False), (">3.9", (3, 9, 0), False),
    (">3.9", (3, 9, 1), True), ("<3.14", (3, 13, 9), True), ("<3.14", (3, 14, 0), False),
    ("<=3.11", (3, 11, 0), True), ("<=3.11", (3, 11, 1), False), (">=3.9, <3.12", (3, 12, 0), False),
    ("==3.11.*", (3, 11, 7), True), ("==3.11", (3, 11, 7), False), ("!=3.11.7", (3, 11, 7), False),
    ("!=3.11.*", (3, 12, 7), True), ("~=3.9", (3, 13, 0), True), ("~=3.9.2", (3, 10, 0), False),
    ("~=3.9.2", (3, 9, 5), True)])
def test_a_constraint_is_met_or_not(constraint, version, met):
    assert _python_version.accepts(constraint, version) is met


def test_an_archive_for_another_python_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "handler.py").write_text("def step(state, req): pass\n")
    (tmp_path / "MAR-INF").mkdir()
    manifest = tmp_path / "MAR-INF" / "MANIFEST.json"
    manifest.write_text(json.dumps({"python": ">=3.9"}))
    _entry.open(Model(dir=str(tmp_path)))
    manifest.write_text(json.dumps({"python": "<3.9"}))
    with pytest.raises(_entry.HandlerError, match="needs Python <3.9, and .* is Python 3.*python of"):
        _entry.open(Model(dir=str(tmp_path)))


@pytest.mark.parametrize("text, told", [
    ("def step(req): pass\n", r"handler.py: the server calls step\(state, req\), but the handler has step\(req\)"),
    ("def init(): pass\ndef step(state, req): pass\n",
     r"handler.py: the server calls init\(req\), but the handler has init\(\)"),
    ("class H:\n    def step(state, req): pass\n",
     r"handler.py: the server calls step\(state, req\), but the handler has step\(req\)"),
], ids=["state", "request", "self"])
def test_parameters_are_counted_when_the_handler_is_imported(tmp_path, text, told):
    """Otherwise each step fails, and the message of Python names neither file nor line."""
    (tmp_path / "handler.py").write_text(text)
    with pytest.raises(_entry.HandlerError, match=told):
        _entry.open(Model(dir=str(tmp_path), stateful=True))


@pytest.mark.parametrize("text", [
    "def step(state, req, more=1): pass\n", "def step(*args): pass\n", "import functools\n\n\n"
    "def any_step(name, state, req): pass\n\n\nstep = functools.partial(any_step, 'x')\n", "step = max\n"])
def test_any_function_that_takes_them_is_a_step(tmp_path, text):
    (tmp_path / "handler.py").write_text(text)
    _entry.open(Model(dir=str(tmp_path), stateful=True))


CLASS = """
class Handler:
    def initialize(self, context): pass
    def handle(self, data, context): return data
"""
FUNCTION = "def handle(data, context): return data\n"
NATIVE = "def step(state, req): return req.text\n"


@pytest.mark.parametrize("text, kind", [
    ("def batch(items, size=2): pass\n" + CLASS, "TorchServeProgram"),
    ("def step(x): pass\n" + FUNCTION, "TorchServeProgram"),
    ("class Net:\n    def step(self, x, h): pass\n" + FUNCTION, "TorchServeProgram"),
    (NATIVE + CLASS, "NativeProgram"), (NATIVE + FUNCTION, "NativeProgram"),
    ("def batch(states, requests): pass\n" + CLASS, "NativeProgram"),
    ("class Mine:\n    def step(self, _, request): pass\n" + FUNCTION, "NativeProgram"),
    ("def step(s, r): pass\n", "NativeProgram"), ("def handle(req): pass\n" + CLASS, "NativeProgram"),
])
def test_a_helper_named_step_or_batch_makes_no_native_handler(tmp_path, text, kind):
    """A handler of TorchServe may have one, whose parameters are not a state and a request."""
    (tmp_path / "handler.py").write_text(text)
    assert type(_entry.open(Model(dir=str(tmp_path)))).__name__ == kind

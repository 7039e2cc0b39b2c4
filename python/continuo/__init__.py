"""Continuo: handlers in Python for stateful inference.

A handler is a file handler.py with functions (or a class with methods): load(model), init(req),
step(state, req) or batch(states, reqs), close(sequence_id, state, reason),
migrate(state, from_schema, version), describe(). docs/handlers-python.md describes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from continuo.types import Headers, Model, Part, Program, Refuse, Reply, Request, Tensor

if TYPE_CHECKING:
    from continuo.sequence_state import SequenceState as SequenceState

__all__ = ["Headers", "Model", "Part", "Program", "Refuse", "Reply", "Request", "SequenceState",
           "Tensor", "metrics"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # These are imported when they are used: most handlers need neither.
    if name == "SequenceState":
        from continuo.sequence_state import SequenceState

        return SequenceState
    if name == "metrics":
        import importlib

        return importlib.import_module("continuo.metrics")
    raise AttributeError(f"module 'continuo' has no attribute '{name}'")

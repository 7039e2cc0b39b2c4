"""Handlers that were written for TorchServe, run without a change.

The worker asks is_handler(module), and then runs program(module, model). The files here:

entry_points.py    finds the function that TorchServe would call
rows.py            makes a request's parameters and headers from a continuo.Request
context.py         what a handler gets as its second argument
runner.py          calls the handler with a batch and turns what it returns into answers
continuous.py      calls it again and again, for rows whose streams go on (continuousBatching)
envelopes.py       service envelopes
metrics.py         context.metrics
frames.py          answers that a handler sends in the middle of a batch
stand_in/          a package `ts` for environments without the pip package torchserve
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from continuo.sequence_state import SequenceState

if TYPE_CHECKING:
    from continuo.torchserve.runner import TorchServeProgram
    from continuo.types import Model

__all__ = ["BUILT_IN", "SequenceState", "import_built_in", "is_handler", "program"]

#: Handlers that are part of TorchServe. An archive names them instead of a file.
BUILT_IN = ("base_handler", "text_classifier", "image_classifier", "object_detector",
            "image_segmenter", "dali_image_classifier", "vllm_handler", "trt_llm_handler")


def import_built_in(name: str) -> ModuleType:
    """Imports one of TorchServe's own handlers by its name, for example image_classifier."""
    from continuo.torchserve import entry_points

    return entry_points.import_built_in(name)


def is_handler(module: ModuleType, entry: str = "") -> bool:
    """Returns whether the module has an entry point of TorchServe. `entry` is what follows ":" in its name."""
    from continuo.torchserve import entry_points

    return entry_points.has_entry_point(module, entry)


def program(module: ModuleType, model: Model, **options: Any) -> TorchServeProgram:
    """Makes the program that serves this module, which is_handler() accepts."""
    from continuo.torchserve.runner import TorchServeProgram

    return TorchServeProgram(module, model, **options)

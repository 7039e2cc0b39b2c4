"""Models that were written for Triton's Python backend, run without a change.

The worker asks is_model(module), and then runs program(module, model). The files here:

model_config.py    the model's configuration as Triton's JSON
tensor.py          Tensor, and the names and numbers of datatypes
messages.py        InferenceRequest, InferenceResponse and TritonError
sender.py          responses that a model sends by itself, one or many, also from threads
log.py, metrics.py Logger and MetricFamily
runner.py          calls execute(requests) with a batch and turns what it returns into replies
stand_in/          the module triton_python_backend_utils, which such models import
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from continuo.triton.runner import TritonProgram
    from continuo.types import Model

__all__ = ["CLASS", "is_model", "program"]

#: The class that a model.py must have.
CLASS = "TritonPythonModel"


def is_model(module: ModuleType) -> bool:
    """Does the module have the class of a model for Triton's Python backend?"""
    return isinstance(getattr(module, CLASS, None), type)


def program(module: ModuleType, model: Model) -> TritonProgram:
    """Makes the program that serves this module, which is_model() accepts."""
    from continuo.triton.runner import TritonProgram

    return TritonProgram(module, model)

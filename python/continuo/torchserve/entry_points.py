"""Finds the function that TorchServe would call in a handler's module.

`handler.py:name` names a function. Otherwise it is the module's function `handle`, or the method
`handle` of the only class that the module defines. A function is also called once at the start,
with None in place of the data; a class has `initialize` for that.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any, Callable, List, NamedTuple, Optional

class EntryPoint(NamedTuple):
    #: handle(data, context), called for each batch.
    handle: Callable[[Any, Any], Any]
    #: initialize(context), called once before the first batch.
    initialize: Callable[[Any], Any]


class HandlerShapeError(Exception):
    """The module has no entry point, or more than one."""


def import_built_in(name: str) -> ModuleType:
    """Imports ts.torch_handler.NAME. Raises ImportError with what has to be installed."""
    try:
        return importlib.import_module(f"ts.torch_handler.{name}")
    except ImportError as error:
        missing = error.name or "a package"
        if missing.startswith("ts"):
            missing = "torchserve"
        raise ImportError(
            f"the handler '{name}' is part of TorchServe, and its package '{missing}' is missing "
            f"here: install it for {sys.executable} (pip install torchserve, and what the handler "
            f"needs: torch, and for images torchvision, captum and pillow), or name it in the "
            f"archive's requirements.txt ({error})", name=error.name) from error


def classes_of(module: ModuleType) -> List[type]:
    """The classes that the module itself defines, by name."""
    return [value for _, value in sorted(vars(module).items())
            if inspect.isclass(value) and value.__module__ == module.__name__]


def has_entry_point(module: ModuleType, entry: str = "") -> bool:
    if callable(getattr(module, entry or "handle", None)):
        return True
    return any(callable(getattr(each, "handle", None)) for each in classes_of(module))


def find(module: ModuleType, entry: str = "") -> EntryPoint:
    """Returns what to call. Makes the handler's object if the handler is a class."""
    function = getattr(module, entry or "handle", None)
    if inspect.isclass(function):
        return _of_class(function)
    if function is not None:
        return EntryPoint(function, lambda context: function(None, context))
    found = classes_of(module)
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise HandlerShapeError(
            f"a TorchServe handler has a function handle(data, context), or exactly one class; "
            f"{module.__name__} has no function '{entry or 'handle'}', and its classes are: "
            f"{names}. Move other classes into a file of their own, which goes into the archive "
            f"with --extra-files")
    return _of_class(found[0])


def _of_class(handler_class: Any) -> EntryPoint:
    handler = handler_class()
    handle: Optional[Any] = getattr(handler, "handle", None)
    if not callable(handle):
        raise HandlerShapeError(f"the class {handler_class.__name__} has no method "
                                f"handle(self, data, context)")
    initialize = getattr(handler, "initialize", None)
    if not callable(initialize):
        raise HandlerShapeError(f"the class {handler_class.__name__} has no method "
                                f"initialize(self, context)")
    return EntryPoint(handle, initialize)

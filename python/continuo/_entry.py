"""Opens a model: imports its handler and makes a program of it. Called by the worker.

A module with the class TritonPythonModel is a model of Triton's, which continuo.triton makes a
program of. A handler.py is native if it has step, batch or handle, or names a class that has one of
them. Else it is TorchServe's kind, which continuo.torchserve makes a program of. It is so, too, if
it has TorchServe's entry point beside a step or batch whose parameters are not those of ours: then
that is a helper of the handler.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Optional

from continuo import _python_version
from continuo.types import Model, Program


#: The version of the interface for native handlers (docs/compatibility.md).
API = 1


class HandlerError(Exception):
    """A handler that cannot be used. The message says all that the operator needs to know."""


def open(model: Model) -> Program:  # noqa: A001 (the worker's name for it)
    """Imports the model's handler, and returns its program, whose load() was not called yet."""
    problem = _python_version.problem(model.dir)
    if problem:
        raise HandlerError(problem)
    file, _, entry = model.file.partition(":")
    offer("torchserve")
    offer("triton")
    module = import_handler(model, file)
    program = triton_program(module, model)
    if program is None:
        program = native_program(module, model, file, entry)
    if program is None:
        program = torchserve_program(module, model, entry)
    if program is None:
        raise HandlerError(f"{file}: the handler has neither step(state, req) nor "
                           f"batch(states, reqs) nor handle(req), and none of the entry points of "
                           f"TorchServe: a function handle(data, context), or a class with "
                           f"initialize and handle. A model of Triton has the class "
                           f"TritonPythonModel")
    return program


def offer(server: str) -> None:
    """Lets handlers import our stand-in for what this server has: the package `ts` of TorchServe,
    or Triton's module triton_python_backend_utils. If this interpreter has that package itself, it
    comes first on sys.path and counts."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), server, "stand_in")
    if folder not in sys.path:
        sys.path.append(folder)


def import_handler(model: Model, file: str) -> ModuleType:
    """Imports a file of the model's folder, whose name may lack ".py", or a handler that is part of
    TorchServe."""
    if os.path.isfile(os.path.join(model.dir, file)) or file.endswith(".py"):
        return import_file(model, file)
    if os.path.isfile(os.path.join(model.dir, file + ".py")):
        return import_file(model, file + ".py")
    from continuo import torchserve

    if file not in torchserve.BUILT_IN:
        raise HandlerError(f"{file}: the model's folder has neither {file} nor {file}.py, and "
                           f"TorchServe has no handler of this name; it has "
                           f"{', '.join(torchserve.BUILT_IN)}")
    return torchserve.import_built_in(file)


def import_file(model: Model, file: str) -> ModuleType:
    """Imports the file of the model's folder, which is first on sys.path from now on."""
    path = os.path.join(model.dir, file)
    if not os.path.isfile(path):
        raise HandlerError(f"{file}: the model's folder has no such file")
    for folder in (model.dir, os.path.dirname(path)):  # the folder of the file itself comes first
        if folder not in sys.path:
            sys.path.insert(0, folder)
    name = os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def triton_program(module: ModuleType, model: Model) -> Optional[Program]:
    from continuo import triton

    return triton.program(module, model) if triton.is_model(module) else None


def torchserve_program(module: ModuleType, model: Model, entry: str) -> Optional[Program]:
    from continuo import torchserve

    return torchserve.program(module, model) if torchserve.is_handler(module, entry) else None


def native_program(module: ModuleType, model: Model, file: str, entry: str) -> Optional[Program]:
    source: Any = module
    if entry:
        source = getattr(module, entry, None)
        if source is None:
            raise HandlerError(f"{file}: the handler's file has no '{entry}'")
    if not isinstance(source, type) and not has_entry(source):
        source = find_class(module)
    if not entry and is_torchserves(module) and has_helpers_only(source):
        return None
    if isinstance(source, type) and has_entry(source):
        source = source()
    if source is None or not has_entry(source):
        return None
    return NativeProgram(source, model, file)


def has_entry(source: Any) -> bool:
    # handle(data, context) is TorchServe's
    if any(callable(getattr(source, name, None)) for name in ("step", "batch")):
        return not callable(getattr(source, "initialize", None))
    handle = getattr(source, "handle", None)
    return callable(handle) and n_positional(handle) == (2 if isinstance(source, type) else 1)


#: How the parameters of step(state, req) and batch(states, reqs) are called.
PARAMETERS = {"state", "states", "req", "reqs", "request", "requests", "_", "_state", "_states"}


def has_helpers_only(source: Any) -> bool:
    """Returns whether it has a step or batch, and none with a parameter of the server's."""
    functions = [each for each in (getattr(source, name, None) for name in ("step", "batch"))
                 if callable(each)]
    codes = [getattr(each, "__code__", None) for each in functions]
    return bool(codes) and all(
        code is not None and PARAMETERS.isdisjoint(code.co_varnames[:code.co_argcount])
        for code in codes)


def is_torchserves(module: ModuleType) -> bool:
    """Returns whether the module has handle(data, context), or a class with initialize and handle."""
    handle = getattr(module, "handle", None)
    return (callable(handle) and n_positional(handle) == 2) or any(
        isinstance(value, type) and value.__module__ == module.__name__ and
        callable(getattr(value, "initialize", None)) and callable(getattr(value, "handle", None))
        for value in vars(module).values())


def find_class(module: ModuleType) -> Optional[type]:
    """Returns the one class of the module that has an entry point."""
    found = [value for value in vars(module).values()
             if isinstance(value, type) and value.__module__ == module.__name__ and has_entry(value)]
    return found[0] if len(found) == 1 else None


def n_positional(function: Any) -> int:
    bound = getattr(function, "__self__", None) is not None
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return -1 if code is None else code.co_argcount - bound


# The functions that the server calls, as their authors write them.
SIGNATURES = {"load": "load(model)", "forked": "forked(model)", "init": "init(req)",
              "step": "step(state, req)", "batch": "batch(states, reqs)", "handle": "handle(req)",
              "migrate": "migrate(state, from_schema)",
              "close": "close(sequence_id, state, reason)", "describe": "describe()"}


class NativeProgram(Program):
    """Makes a program from a module's functions, or from an object's methods."""

    def __init__(self, source: Any, model: Model, file: str) -> None:
        self.source = source
        self.model = model
        self.file = file
        self.check_api()
        for name in ("init", "step", "batch", "close", "migrate", "describe"):
            setattr(self, name, self.take_function(name))
        self.check_parameters()
        handle = self.take_function("handle")
        if self.step is None and self.batch is None:
            if model.stateful:
                raise HandlerError(f"{file}: handle(req) gets no state, but the model has "
                                   f"sequenceBatching: define step(state, req)")
            self.step = lambda state, req: handle(req)
        self.check_names()
        self.state_schema = self.take_schema()
        self.state_format = getattr(source, "state_format", "safe")
        if self.state_format not in ("safe", "pickle"):
            raise HandlerError(f"{file}: state_format must be \"safe\" or \"pickle\", got "
                               f"{self.state_format!r}")
        self.preload = getattr(source, "preload", True) is not False

    def take_function(self, name: str) -> Any:
        function = getattr(self.source, name, None)
        if function is not None and not callable(function):
            raise HandlerError(f"{self.file}: {name} must be a function, got "
                               f"{type(function).__name__}")
        return function

    def check_parameters(self) -> None:
        """Finds a step(req) without its state before the first request does."""
        import inspect

        for name, n in (("init", 1), ("step", 2), ("batch", 2), ("close", 3)):
            function = getattr(self, name)
            try:
                signature = inspect.signature(function) if function else None
            except (TypeError, ValueError):  # a function of a C extension may hide its parameters
                continue
            try:
                if signature:
                    signature.bind(*[None] * n)
            except TypeError:
                raise HandlerError(f"{self.file}: the server calls {SIGNATURES[name]}, but the "
                                   f"handler has {name}{signature}") from None

    def check_names(self) -> None:
        """Tells about functions of the handler that are never called because of their names.
        proto/handler_names.def has the same rule for Lua."""
        import difflib

        missing = {name: signature for name, signature in SIGNATURES.items()
                   if getattr(self.source, name, None) is None}
        is_module = isinstance(self.source, ModuleType)
        home = self.source.__name__ if is_module else type(self.source).__module__
        for name, function in vars(self.source if is_module else type(self.source)).items():
            if name.startswith("__") or getattr(function, "__module__", None) != home:
                continue
            certain = name[3:] if name.startswith("on_") else ""
            near = difflib.get_close_matches(name, missing, 1, 0.8)
            meant = certain if certain in missing else near[0] if near else None
            if meant is None or not callable(function) or name in SIGNATURES:
                continue
            text = f"{self.file}: {name} is never called: the server calls {missing[meant]}"
            if certain in missing:
                raise HandlerError(text)
            print(f"warning: {text}", file=sys.stderr)

    def check_api(self) -> None:
        """Refuses a handler for another version of the interface. `api` may be something else than
        a number: then it is the handler's own."""
        api = getattr(self.source, "api", API)
        if type(api) is int and api != API:
            raise HandlerError(f"{self.file}: the handler has api = {api}, and this version of "
                               f"Continuo runs Python handlers with api = {API}: install a version "
                               f"that runs it, or change the handler")

    def take_schema(self) -> int:
        schema = getattr(self.source, "state_schema", 1)
        if type(schema) is not int or not 0 <= schema < 1 << 32:
            raise HandlerError(f"{self.file}: state_schema must be a whole number, got {schema!r}")
        return schema

    def load(self) -> Any:  # type: ignore[override]
        function = self.take_function("load")
        return None if function is None else function(self.model)

    def forked(self) -> Any:  # type: ignore[override]
        function = self.take_function("forked")
        return None if function is None else function(self.model)

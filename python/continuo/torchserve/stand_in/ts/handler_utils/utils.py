"""Helpers that handlers import from ts.handler_utils.utils."""

import importlib

from ts.protocol.otf_message_handler import (create_predict_response,  # noqa: F401
                                             send_intermediate_predict_response)


def import_class(class_name, module_prefix=None):
    """The class of the name "package.module.Class"."""
    module_name, _, name = (class_name or "").rpartition(".")
    path = ".".join(part for part in (module_prefix, module_name) if part)
    if not name or not path:
        raise ImportError(f"a class is named \"module.Class\", got {class_name!r}")
    found = getattr(importlib.import_module(path), name, None)
    if found is None:
        raise ImportError(f"the module {path} has no class {name}")
    return found

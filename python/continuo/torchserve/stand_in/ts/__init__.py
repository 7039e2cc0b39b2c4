"""Stands in for TorchServe's Python package, which handlers import.

The worker puts it at the end of sys.path if the interpreter has no package torchserve. It has what
handlers use: context, metrics, exceptions, intermediate answers and the base class of handlers.
TorchServe's handlers for images and texts are in the pip package torchserve only.
"""

from continuo.torchserve.context import API_VERSION

__version__ = API_VERSION

"""What the state codec (handlers/python/py_state_*.c) asks about NumPy's and PyTorch's objects.

Neither package is imported here: an object of theirs exists only where its package is imported, and
a stored one is made only where the handler's earlier steps had the package.
"""

from __future__ import annotations

import collections
import math
import pickle
import re
import sys
from typing import Any, List, Tuple, Union

#: Types of NumPy's elements that are stored: no objects, whose bytes would be addresses.
ELEMENT = re.compile(r"[<>|=](?:[biufc]\d{1,2}|[SU]\d{1,9}|[mM]8(?:\[[0-9a-zA-Z]{1,12}\])?)\Z")

#: The largest maxlen of a deque that a state has room for.
MAXLEN_MAX = 2**32 - 2

TENSOR_TYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "uint8",
                "int8", "int16", "int32", "int64", "bool", "uint16", "uint32", "uint64",
                "float8_e4m3fn", "float8_e5m2")


class StateError(TypeError):
    """A state that cannot be stored. The message names the place."""


def path(keys: List[Any], what: str) -> str:
    """'state["users"][3]: what', where a long path loses its middle."""
    text = "state" + "".join(f"[{key if isinstance(key, int) else _key(key[0])}]" for key in keys)
    if len(text) > 300:
        text = text[:150] + " ... " + text[-140:]
    return f"{text}: {what}"


def _key(key: Any) -> str:
    text = f'"{key}"' if isinstance(key, str) else repr(key)
    return text if len(text) <= 80 else text[:78] + ".."


def describe(value: Any) -> Union[str, Tuple[Any, ...]]:
    """How the value is stored, or a str that says why it cannot be."""
    kind = type(value)
    if kind is collections.deque:
        if value.maxlen is not None and value.maxlen > MAXLEN_MAX:
            return f"a deque with maxlen={value.maxlen} cannot be stored; at most {MAXLEN_MAX} can"
        return ("D", -1 if value.maxlen is None else value.maxlen, list(value))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if kind is numpy.ndarray:
            return _describe_array(numpy, value)
        if isinstance(value, numpy.generic):
            if not ELEMENT.match(value.dtype.str):
                return f"a NumPy scalar of type {value.dtype} cannot be stored"
            return ("g", value.dtype.str, value.tobytes())
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _describe_tensor(torch, value)
    article = "an" if kind.__name__[:1].lower() in "aeiou" else "a"
    return (f"{article} {kind.__module__}.{kind.__qualname__} cannot be stored; a state may have "
            f"None, bool, int, float, str, bytes, list, tuple, dict, set, deque, NumPy arrays and "
            f"PyTorch tensors" if kind.__module__ != "builtins" else
            f"{article} {kind.__qualname__} cannot be stored")


def _describe_array(numpy: Any, array: Any) -> Union[str, Tuple[Any, ...]]:
    if not ELEMENT.match(array.dtype.str):
        return f"a NumPy array of type {array.dtype} cannot be stored"
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    if not fortran and not array.flags.c_contiguous:
        array = numpy.ascontiguousarray(array)
    return ("a", array.dtype.str, int(fortran), array.shape,
            array.__array_interface__["data"][0], array.nbytes, array)


def _describe_tensor(torch: Any, tensor: Any) -> Union[str, Tuple[Any, ...]]:
    if type(tensor) is not torch.Tensor:
        return f"a {type(tensor).__name__} cannot be stored; store a plain tensor"
    if tensor.device.type != "cpu":
        return f"a tensor on {tensor.device} cannot be stored; store tensor.cpu()"
    if tensor.requires_grad:
        return "a tensor that requires grad cannot be stored; store tensor.detach()"
    name = str(tensor.dtype).rpartition(".")[2]
    if tensor.layout is not torch.strided or name not in TENSOR_TYPES:
        return f"a tensor of type {name} and layout {tensor.layout} cannot be stored"
    tensor = tensor.contiguous()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return ("x", name, 0, tuple(tensor.shape), tensor.data_ptr(),
            tensor.numel() * tensor.element_size(), tensor)


def _check_size(name: str, shape: Tuple[int, ...], element: int, size: int) -> None:
    if math.prod(shape) * element != size:
        raise ValueError(f"a stored array of type {name} and shape {shape} has {size} bytes")


def make_array(name: str, fortran: int, shape: Tuple[int, ...], size: int) -> Tuple[Any, int]:
    """An array whose elements the caller fills in, and their address."""
    if not ELEMENT.match(name):
        raise ValueError(f"a stored array has the unknown type {name!r}")
    import numpy

    dtype = numpy.dtype(name)
    _check_size(name, shape, dtype.itemsize, size)
    array = numpy.empty(shape, dtype, order="F" if fortran else "C")
    return array, array.__array_interface__["data"][0]


def make_tensor(name: str, flag: int, shape: Tuple[int, ...], size: int) -> Tuple[Any, int]:
    """A tensor whose elements the caller fills in, and their address."""
    del flag
    if name not in TENSOR_TYPES:
        raise ValueError(f"a stored tensor has the unknown type {name!r}")
    import torch

    dtype = getattr(torch, name)
    _check_size(name, shape, torch.empty(0, dtype=dtype).element_size(), size)
    tensor = torch.empty(shape, dtype=dtype)
    return tensor, tensor.data_ptr()


def make_scalar(name: str, data: bytes) -> Any:
    if not ELEMENT.match(name):
        raise ValueError(f"a stored scalar has the unknown type {name!r}")
    import numpy

    if numpy.dtype(name).itemsize != len(data):
        raise ValueError(f"a stored scalar of type {name} has {len(data)} bytes")
    return numpy.frombuffer(data, name)[0]


def make_deque(values: List[Any], maxlen: int) -> Any:
    return collections.deque(values, None if maxlen < 0 else maxlen)


def int_to_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def int_from_bytes(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def to_pickle(state: Any) -> bytes:
    return pickle.dumps(state, protocol=5)


def from_pickle(data: bytes) -> Any:
    return pickle.loads(data)

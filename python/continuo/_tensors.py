"""Tensors of typed models: the v2 protocol's datatypes as NumPy arrays, and back."""

from __future__ import annotations

import struct
import sys
from typing import Any, Dict, List, Optional, Tuple

from continuo.types import Tensor

#: v2 datatype -> NumPy's name. BF16 has none: it is a Tensor, or PyTorch's.
NUMPY = {"BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
         "INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2",
         "FP32": "<f4", "FP64": "<f8"}
OF_NUMPY = {"|b1": "BOOL", "|u1": "UINT8", "|i1": "INT8",
            **{name: word for word, name in NUMPY.items()}}
OF_TORCH = {"bool": "BOOL", "uint8": "UINT8", "int8": "INT8", "int16": "INT16", "int32": "INT32",
            "int64": "INT64", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32",
            "float64": "FP64"}
#: The formats of the standard library's struct, for lists without NumPy.
STRUCT = {"BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b",
          "INT16": "h", "INT32": "i", "INT64": "q", "FP32": "f", "FP64": "d"}

#: The module numpy, once it is needed, and the same types as its objects.
_numpy: Any = None
_dtypes: Dict[str, Any] = {}

_length = struct.Struct("<I").pack

#: What the worker packs: datatype, shape, bytes; or an address and a size instead of bytes, and the
#: object that keeps them.
Packed = Tuple[str, Tuple[int, ...], Any]


def numpy_or_none() -> Any:
    """The module numpy, which is imported when it is needed."""
    global _numpy
    if _numpy is None:
        try:
            import numpy
        except ImportError:
            return None
        _dtypes.update({word: numpy.dtype(name) for word, name in NUMPY.items()})
        _numpy = numpy
    return _numpy


def to_array(datatype: str, shape: Tuple[int, ...], data: Any) -> Any:
    """An input as a NumPy array; BYTES as an array of bytes objects. A Tensor without NumPy."""
    numpy = _numpy or numpy_or_none()
    if numpy is None:
        return Tensor(datatype, shape, data if isinstance(data, list) else bytes(data))
    dtype = _dtypes.get(datatype)
    if dtype is not None:
        return numpy.ndarray(shape, dtype, data)
    if datatype == "BYTES":
        array = numpy.empty(len(data), object)
        array[:] = data
        return array.reshape(shape)
    return Tensor(datatype, shape, bytes(data))


def datatype_of(array: Any) -> Optional[str]:
    """The v2 datatype of a NumPy array; None if there is none."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    return OF_NUMPY.get(array.dtype.newbyteorder("<").str if array.dtype.itemsize > 1
                        else array.dtype.str)


def convert(name: str, value: Any, declared: Optional[str]) -> Any:
    """An output as the worker can pack it: an array of little-endian numbers, or a Packed.

    The worker asks for everything else than such an array. `declared` is the datatype in the
    model's configuration, for values that have none of their own.
    """
    if isinstance(value, Tensor):
        return (value.datatype, tuple(value.shape),
                join_bytes(value.data) if value.datatype == "BYTES" else bytes(value.data))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _pack_torch(name, value, declared)
    numpy = numpy_or_none()
    if numpy is None:
        return _pack_list(name, value, declared)
    return _convert_array(numpy, name, value, declared)


def _pack_torch(name: str, value: Any, declared: Optional[str]) -> Packed:
    word = OF_TORCH.get(str(value.dtype).rpartition(".")[2])
    if word is None:
        raise TypeError(f"output '{name}': a tensor of type {value.dtype} has no datatype of v2")
    if declared not in (None, word):
        raise TypeError(f"output '{name}' is a tensor of {word}, but the model declares {declared}")
    value = value.detach().cpu().contiguous()
    return (word, tuple(value.shape),
            (value.data_ptr(), value.numel() * value.element_size(), value))


def _convert_array(numpy: Any, name: str, value: Any, declared: Optional[str]) -> Any:
    array = value if isinstance(value, numpy.ndarray) else numpy.asarray(
        value, dtype=NUMPY.get(declared or "") if declared != "BYTES" else object)
    word = datatype_of(array)
    if word == "BYTES":
        return word, array.shape, join_bytes(array.reshape(-1).tolist())
    if word is None:
        raise TypeError(f"output '{name}': an array of type {array.dtype} has no datatype of v2")
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)


def join_bytes(elements: Any) -> bytes:
    """The elements of a BYTES tensor as the protocol has them: each behind its length (u32)."""
    parts = []
    for element in elements:
        if isinstance(element, str):
            element = element.encode()
        if not isinstance(element, bytes):
            raise TypeError(f"an element of BYTES must be bytes or a str, got "
                            f"{type(element).__name__}")
        parts.append(_length(len(element)))
        parts.append(element)
    return b"".join(parts)


def _pack_list(name: str, value: Any, declared: Optional[str]) -> Packed:
    """Numbers and nested lists, where NumPy is missing."""
    shape: List[int] = []
    flat = [value]
    while flat and isinstance(flat[0], (list, tuple)):
        if any(not isinstance(row, (list, tuple)) or len(row) != len(flat[0]) for row in flat):
            raise TypeError(f"output '{name}': the rows of a list must have one length")
        shape.append(len(flat[0]))
        flat = [element for row in flat for element in row]
    if declared is None:
        declared = ("BYTES" if flat and isinstance(flat[0], (str, bytes)) else
                    "BOOL" if flat and isinstance(flat[0], bool) else
                    "INT64" if all(isinstance(element, int) for element in flat) else "FP64")
    if declared == "BYTES":
        return declared, tuple(shape), join_bytes(flat)
    if declared not in STRUCT:
        raise TypeError(f"output '{name}': {declared} needs NumPy, a Tensor or a PyTorch tensor")
    try:
        data = struct.pack(f"<{len(flat)}{STRUCT[declared]}", *flat)
    except struct.error as error:
        raise TypeError(f"output '{name}' as {declared}: {error}") from None
    return declared, tuple(shape), data

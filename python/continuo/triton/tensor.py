"""Tensor: an input or output of a Triton model, and the names and numbers of its datatypes.

A tensor's elements are in NumPy's memory or in PyTorch's. NumPy has no BF16, so an input of that
type stays bytes until a model asks for it by DLPack, which needs PyTorch.
"""

from __future__ import annotations

import struct
import sys
from typing import Any, List, Tuple

import numpy

from continuo import _tensors, types
from continuo.triton.errors import TritonModelException
from continuo.triton.fields import TensorFields

#: (name in a configuration, number, datatype of the protocol, NumPy's type)
DATATYPES: Tuple[Tuple[str, int, str, Any], ...] = (
    ("TYPE_BOOL", 1, "BOOL", numpy.bool_), ("TYPE_UINT8", 2, "UINT8", numpy.uint8),
    ("TYPE_UINT16", 3, "UINT16", numpy.uint16), ("TYPE_UINT32", 4, "UINT32", numpy.uint32),
    ("TYPE_UINT64", 5, "UINT64", numpy.uint64), ("TYPE_INT8", 6, "INT8", numpy.int8),
    ("TYPE_INT16", 7, "INT16", numpy.int16), ("TYPE_INT32", 8, "INT32", numpy.int32),
    ("TYPE_INT64", 9, "INT64", numpy.int64), ("TYPE_FP16", 10, "FP16", numpy.float16),
    ("TYPE_FP32", 11, "FP32", numpy.float32), ("TYPE_FP64", 12, "FP64", numpy.float64),
    ("TYPE_STRING", 13, "BYTES", numpy.object_))

TRITON_STRING_TO_NUMPY = {name: kind for name, _, _, kind in DATATYPES}
TRITON_TO_NUMPY_TYPE = {number: kind for _, number, _, kind in DATATYPES}
NUMPY_TO_TRITON_TYPE = {kind: number for _, number, _, kind in DATATYPES}
NUMPY_TO_TRITON_TYPE[numpy.bytes_] = 13

#: NumPy's types, as its objects, that have a datatype. Others, such as texts of a certain length and
#: numbers in another byte order, may have one, too.
_PLAIN = frozenset(numpy.dtype(kind) for _, _, _, kind in DATATYPES)

_NUMBERS = {word: number for _, number, word, _ in DATATYPES}
_NUMBERS["BF16"] = 14


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """NumPy's type of a datatype in a configuration: "TYPE_FP32" gives numpy.float32."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Any:
    """NumPy's type of a datatype's number, which Tensor.triton_dtype() returns."""
    return TRITON_TO_NUMPY_TYPE[data_type]


def numpy_to_triton_type(data_type: Any) -> int:
    """The number of a datatype, of NumPy's type."""
    return NUMPY_TO_TRITON_TYPE[data_type]


def serialize_byte_tensor(input_tensor: Any) -> Any:
    """An array of bytes or str as one object of bytes: each element behind its length (u32)."""
    if input_tensor.size == 0:
        return None
    if input_tensor.dtype.kind not in "OSU":
        raise TritonModelException("serialize_byte_tensor: an array of bytes or str is needed, "
                                   f"got {input_tensor.dtype}")
    return _tensors.join_bytes([each if isinstance(each, (bytes, str)) else str(each)
                                for each in input_tensor.flatten().tolist()])


def deserialize_bytes_tensor(encoded_tensor: bytes) -> Any:
    """The array that serialize_byte_tensor() has written, with one dimension."""
    found: List[bytes] = []
    at = 0
    while at < len(encoded_tensor):
        (size,) = struct.unpack_from("<I", encoded_tensor, at)
        found.append(encoded_tensor[at + 4:at + 4 + size])
        at += 4 + size
    return numpy.array(found, dtype=object)


class _Capsule:
    """A DLPack capsule as an object that NumPy and PyTorch take."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> Tuple[int, int]:
        return 1, 0  # the CPU


def _torch_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class Tensor(TensorFields):
    """A named tensor: Tensor(name, numpy_array)."""

    #: _value is an array or a tensor of PyTorch. Without one, _raw is an input: datatype, shape and
    #: elements as the worker has them.
    __slots__ = ()

    def _begin(self, name: str, tensor: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"Tensor(name, array): the name must be a str, got "
                            f"{type(name).__name__}")
        if not isinstance(tensor, numpy.ndarray):
            raise TypeError(f"Tensor(\"{name}\", array): a NumPy array is needed, got "
                            f"{type(tensor).__name__}. Tensor.from_dlpack(name, tensor) takes "
                            f"tensors of PyTorch and others")
        self._name = name
        self._value: Any = tensor
        if tensor.dtype not in _PLAIN:
            self.triton_dtype()  # refuses an array that has no datatype

    @classmethod
    def _received(cls, name: str, *raw: Any) -> Tensor:
        """An input, whose array is made when the model asks for it."""
        self = cls.__new__(cls)
        self._name = name
        self._value = None
        self._raw = raw
        return self

    @classmethod
    def _of_torch(cls, name: str, value: Any) -> Tensor:
        self = cls.__new__(cls)
        self._name = name
        self._value = value
        self.triton_dtype()
        return self

    def name(self) -> str:
        return self._name

    def shape(self) -> List[int]:
        return list(self._raw[1] if self._value is None else self._value.shape)

    def triton_dtype(self) -> int:
        """The number of the datatype (TRITON_TO_NUMPY_TYPE)."""
        return _NUMBERS[self._datatype()]

    def _datatype(self) -> str:
        """The datatype's word in the protocol, such as "FP32"."""
        if self._value is None:
            return self._raw[0]
        if _torch_tensor(self._value):
            word = _tensors.OF_TORCH.get(str(self._value.dtype).rpartition(".")[2])
        else:
            word = _tensors.datatype_of(self._value)
        if word is None:
            raise TritonModelException(f"tensor \"{self._name}\": the type {self._value.dtype} has "
                                       f"no datatype of Triton")
        return word

    def is_cpu(self) -> bool:
        return not _torch_tensor(self._value) or self._value.device.type == "cpu"

    def _as_numpy(self) -> Any:
        """The elements as a NumPy array; strings are bytes objects in an array of objects."""
        if type(self._value) is numpy.ndarray:
            return self._value
        if self._value is None:
            if self._raw[0] == "BF16":
                raise TritonModelException(
                    f"tensor \"{self._name}\": NumPy has no BF16. torch.from_dlpack(tensor) works")
            self._value = _tensors.to_array(*self._raw)
        if not _torch_tensor(self._value):
            return self._value
        if not self.is_cpu():
            raise TritonModelException(f"tensor \"{self._name}\" is on {self._value.device}, and "
                                       f"NumPy has only the CPU's memory: use to_dlpack()")
        return self._value.detach().numpy()

    # --- DLPack

    def _exchanged(self) -> Any:
        """The object whose __dlpack__ is used."""
        if self._value is None and self._raw[0] == "BF16":
            try:
                import torch
            except ImportError:
                raise TritonModelException(f"tensor \"{self._name}\": BF16 needs PyTorch, which "
                                           f"{sys.executable} does not have") from None
            self._value = torch.frombuffer(self._raw[2], dtype=torch.bfloat16).reshape(
                self._raw[1])
        if _torch_tensor(self._value):
            return self._value
        array = self.as_numpy()
        if array.dtype.kind in "OSU":
            raise TritonModelException(f"tensor \"{self._name}\": DLPack has no strings; "
                                       f"as_numpy() gives them")
        if not array.flags.writeable:  # NumPy exports only what may be written
            array = array.copy()
        return array

    def to_dlpack(self) -> Any:
        """A DLPack capsule of the elements, which are not copied."""
        value = self._exchanged()
        if _torch_tensor(value):
            from torch.utils.dlpack import to_dlpack

            return to_dlpack(value)
        return value.__dlpack__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._exchanged().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._exchanged().__dlpack_device__()

    @classmethod
    def from_dlpack(cls, name: str, tensor: Any) -> Tensor:
        """A tensor that shares the memory of an object with __dlpack__, or of a DLPack capsule."""
        if not isinstance(name, str):
            raise TypeError(f"Tensor.from_dlpack(name, tensor): the name must be a str, got "
                            f"{type(name).__name__}")
        if _torch_tensor(tensor):
            return cls._of_torch(name, tensor)
        if type(tensor).__name__ == "PyCapsule":
            torch = sys.modules.get("torch")
            if torch is not None:  # it takes every datatype and device
                return cls._of_torch(name, torch.utils.dlpack.from_dlpack(tensor))
            tensor = _Capsule(tensor)
        elif not hasattr(tensor, "__dlpack__"):
            raise TritonModelException(f"Tensor.from_dlpack(\"{name}\", ...): a DLPack capsule or "
                                       f"an object with __dlpack__ is needed, got "
                                       f"{type(tensor).__name__}")
        return cls(name, numpy.from_dlpack(tensor))

    def _packable(self) -> Any:
        """What the worker can send: an array, a PyTorch tensor, or bytes."""
        if self._value is None:
            return types.Tensor(*self._raw) if self._raw[0] == "BF16" else self.as_numpy()
        return self._value

    def __repr__(self) -> str:
        return f"Tensor({self._name!r}, {self._datatype()}, {self.shape()})"

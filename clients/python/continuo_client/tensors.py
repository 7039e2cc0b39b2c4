"""Tensors of NumPy and PyTorch as the binary tensors of the v2 protocol and of streams."""

from __future__ import annotations

import json
import struct
import sys
from typing import Any, Dict, List, Mapping, Tuple

Tensor = Tuple[str, str, List[int], bytes]  # name, datatype, shape, data

_NUMPY = {"bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32",
          "uint64": "UINT64", "int8": "INT8", "int16": "INT16", "int32": "INT32",
          "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
          "bfloat16": "BF16"}
_NAMES = {datatype: name for name, datatype in _NUMPY.items()}
_CODES = {"BOOL": 1, "UINT8": 2, "UINT16": 3, "UINT32": 4, "UINT64": 5, "INT8": 6, "INT16": 7,
          "INT32": 8, "INT64": 9, "FP16": 10, "FP32": 11, "FP64": 12, "BYTES": 13, "BF16": 14}
_WORDS = {code: word for word, code in _CODES.items()}
_HEAD = struct.Struct("<BBHIQ")
START, END, FINAL, REPLAYED, BYTES = 1, 2, 4, 8, 16


def is_torch(value: Any) -> bool:
    """Says whether the value is a tensor of PyTorch, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_tensor(value: Any) -> bool:
    """Says whether the value is a NumPy array or scalar, or a tensor of PyTorch."""
    if is_torch(value):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def are_tensors(value: Any) -> bool:
    """Says whether a step's value goes as binary tensors: a tensor, or a dict of tensors."""
    if isinstance(value, dict):
        return bool(value) and all(is_tensor(each) for each in value.values())
    return is_tensor(value)


def encode(name: str, value: Any) -> Tensor:
    """Turns an array into name, datatype, shape and bytes."""
    import numpy

    if is_torch(value):
        value = value.detach().cpu().contiguous()
        if str(value.dtype) == "torch.bfloat16":
            torch = sys.modules["torch"]
            return name, "BF16", list(value.shape), value.view(torch.int16).numpy().tobytes()
        value = value.numpy()
    shape = list(numpy.shape(value))
    array = numpy.ascontiguousarray(value)
    if array.dtype.kind in "OSU":
        parts = [each.encode() if isinstance(each, str) else bytes(each) for each in array.flat]
        data = b"".join(struct.pack("<I", len(part)) + part for part in parts)
        return name, "BYTES", shape, data
    if array.dtype.name not in _NUMPY:
        raise TypeError(f"input {name!r}: the server has no datatype for {array.dtype}")
    return name, _NUMPY[array.dtype.name], shape, array.astype(
        array.dtype.newbyteorder("<"), copy=False).tobytes()


def decode(datatype: str, shape: List[int], data: bytes, torch: bool = False) -> Any:
    """Turns the bytes of a tensor into an array, or into a tensor of PyTorch."""
    import numpy

    if datatype == "BYTES":
        parts, at = [], 0
        while at < len(data):
            size, = struct.unpack_from("<I", data, at)
            parts.append(data[at + 4:at + 4 + size])
            at += 4 + size
        array = numpy.empty(len(parts), dtype=object)
        array[:] = parts
        return array.reshape(shape)
    if datatype == "BF16":  # NumPy has no such type; FP32 has all of its values
        wide = numpy.frombuffer(data, "<u2").astype("<u4") << 16
        array = wide.view("<f4").reshape(shape)
    else:
        dtype = numpy.dtype(_NAMES[datatype]).newbyteorder("<")
        array = numpy.frombuffer(data, dtype).reshape(shape)
    if not torch:
        return array
    module = sys.modules["torch"]
    made = module.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    return made.to(module.bfloat16) if datatype == "BF16" else made


def infer_request(tensors: List[Tensor], parameters: Mapping[str, Any]) -> Tuple[bytes, int]:
    """Makes the body of a v2 request, and says how long its JSON is."""
    inputs = [{"name": name, "datatype": datatype, "shape": shape,
               "parameters": {"binary_data_size": len(data)}}
              for name, datatype, shape, data in tensors]
    head = json.dumps({"parameters": {**parameters, "binary_data_output": True},
                       "inputs": inputs}).encode()
    return head + b"".join(data for _, _, _, data in tensors), len(head)


def infer_answer(body: bytes, head_size: int, torch: bool) -> Dict[str, Any]:
    """Reads the outputs of a v2 answer, whose JSON is `head_size` bytes long."""
    outputs, at = {}, head_size
    for output in json.loads(body[:head_size]).get("outputs", []):
        size = output.get("parameters", {}).get("binary_data_size", 0)
        data = body[at:at + size]
        outputs[output["name"]] = decode(output["datatype"], output["shape"], data, torch)
        at += size
    return outputs


def _padding(data: bytes) -> bytes:
    return bytes(-len(data) % 8)


def stream_step(tensors: List[Tensor], number: int, start: bool, end: bool) -> bytes:
    """Makes a step of the subprotocol continuo.v1.binary."""
    message = bytearray(_HEAD.pack(1, START * start | END * end, len(tensors), 0, number))
    for name, datatype, shape, data in tensors:
        word = name.encode()
        message += _HEAD.pack(_CODES[datatype], len(shape), len(word), 0, len(data))
        message += struct.pack(f"<{len(shape)}Q", *shape) + word + _padding(word)
        message += data + _padding(data)
    return bytes(message)


def stream_bytes(body: bytes, number: int, start: bool, end: bool) -> bytes:
    """Makes a step of the subprotocol continuo.v1.binary whose body is bytes."""
    return _HEAD.pack(1, START * start | END * end | BYTES, 0, 0, number) + body


def stream_answer(message: bytes, torch: bool) -> Tuple[int, int, int, Any]:
    """Reads an answer of that subprotocol: flags, status, number, and bytes or tensors by name."""
    _, flags, count, status, number = _HEAD.unpack_from(message)
    if flags & BYTES:
        return flags, status, number, message[_HEAD.size:]
    outputs, at = {}, _HEAD.size
    for _ in range(count):
        datatype, rank, name_size, _, size = _HEAD.unpack_from(message, at)
        at += _HEAD.size
        shape = list(struct.unpack_from(f"<{rank}Q", message, at))
        at += 8 * rank
        name = message[at:at + name_size].decode()
        at += name_size + -name_size % 8
        outputs[name] = decode(_WORDS[datatype], shape, message[at:at + size], torch)
        at += size + -size % 8
    return flags, status, number, outputs

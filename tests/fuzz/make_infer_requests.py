#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus/infer_request: what tritonclient's messages look like. Run from the root."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from v2rpc import request  # noqa: E402

OUT = pathlib.Path(__file__).parent / "corpus" / "infer_request"
I, F, S = ("I", "INT32", [2]), ("F", "FP32", [1]), ("S", "BYTES", [2])
RAW = [b"\1\0\0\0\xfe\xff\xff\xff", b"\0\0\xc0?", b"\1\0\0\0a\0\0\0\0"]

SEEDS = {
    "raw": request("m", [I, F, S], RAW, id="7", version="1"),
    "typed": request("m", [(*I, {"int_contents": [1, -2]}), (*F, {"fp32_contents": [1.5]}),
                           (*S, {"bytes_contents": [b"a", b""]})]),
    "empty-contents": request("m", [("I", "INT32", [0], {})]),
    "mixed": request("m", [(*I, {"int_contents": [1, -2]})], RAW),
    "two-fields": request("m", [(*I, {"int_contents": [1], "fp64_contents": [2]})]),
    "sequence": request("m", [I], RAW, sequence_id=42, sequence_start=True, sequence_end=False),
    "string-id": request("m", [I], RAW, sequence_id="forty-two", priority=("uint64_param", 3), timeout=5,
                         triton_enable_empty_final_response=True),
    "custom": request("m", [I], RAW, a=1, b="x", c=True, d=("double_param", 0.5)),
    "reserved": request("m", [I], RAW, triton_x=1),
    "outputs": request("m", [I, F], RAW, [("I", {"classification": 1}), ("F",)]),
    "shared": request("m", [(*I, None, {"shared_memory_region": "r", "shared_memory_byte_size": 8})]),
    "negative-shape": request("m", [("I", "INT32", [-1])], RAW),
    "other-types": request("m", [("A", "BOOL", [2], {"bool_contents": [True, False]}),
                                 ("B", "UINT64", [1], {"uint64_contents": [2**64 - 1]}),
                                 ("C", "UINT8", [1], {"uint_contents": [200]}),
                                 ("D", "INT64", [1], {"int64_contents": [-5]}),
                                 ("E", "FP64", [1], {"fp64_contents": [0.1]})]),
}
FILES = {name: message.SerializeToString() for name, message in SEEDS.items()}
FILES["one-by-one"] = (request("m").SerializeToString() + b"\x2a\x18" + b"\x0a\x01I\x12\x05INT32\x18\x02"
                       + b"\x2a\x02\x10\x05" + b"\x2a\x05\x12\x03\x06\xac\x02")
FILES["cut"] = FILES["raw"][:-3]

OUT.mkdir(parents=True, exist_ok=True)
for name, data in FILES.items():
    (OUT / name).write_bytes(data)

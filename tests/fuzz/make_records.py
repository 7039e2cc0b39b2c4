#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus/record: whole records and damaged ones. Run from the root."""
import ctypes
import pathlib
import struct

OUT = pathlib.Path(__file__).parent / "corpus" / "record"
sodium = ctypes.CDLL("libsodium.so.23")
xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_64bits.restype = ctypes.c_uint64
TOMBSTONE, HAS_STATE, HAS_ANSWER, TOO_LARGE = 1, 2, 4, 8


def record(flags, reason=0, closed=0, content_type=b"", headers=(), chunks=(), body=b"", state=b"",
           key=b"", old=False):
    packed_headers = b"".join(struct.pack("<H", len(n)) + n + struct.pack("<I", len(v)) + v for n, v in headers)
    packed_chunks = b"".join(struct.pack("<I", len(c)) + c for c in chunks)
    head = struct.pack("<4sHHQQQQQQQIBBHQIIIIIIII", b"CNR1", (2 if key else 1) + (0 if old else 2), flags, 7, 41, 99, 1700000000000, 1700000001000,
                       closed, 1700000061000, 3, reason, 0, 200, 9, 4, len(content_type), len(headers),
                       len(packed_headers), len(chunks), len(packed_chunks), len(body), len(state))
    assert len(head) == 112
    data = head + key + content_type + packed_headers + packed_chunks + body + state
    if not old:
        return data + struct.pack("<Q", xxhash.XXH3_64bits(data, ctypes.c_size_t(len(data))))
    checksum = ctypes.create_string_buffer(8)
    sodium.crypto_shorthash(checksum, data, ctypes.c_ulonglong(len(data)), b"continuo-record\0")
    return data + checksum.raw


SEEDS = {
    "live": record(HAS_STATE | HAS_ANSWER, content_type=b"text/plain", body=b"12", state=b"\x81\xa3sum\x0c"),
    "chunks": record(HAS_STATE | HAS_ANSWER, headers=[(b"X-A", b"hi"), (b"X-B", b"")], chunks=[b"ab", b""],
                     body=b"c", state=b"s"),
    "too-large": record(HAS_STATE | TOO_LARGE, state=b"s"),
    "tombstone": record(TOMBSTONE, reason=2, closed=1700000002000),
    "ended": record(TOMBSTONE | HAS_ANSWER, reason=1, closed=1700000002000, body=b"last"),
    "keyed": record(HAS_STATE | HAS_ANSWER, body=b"12", state=b"s", key=b"0123456789abcdef" + b"\x01" * 8),
    "key-of-zeros": record(HAS_STATE | HAS_ANSWER, body=b"12", state=b"s", key=b"\0" * 24),
    "old": record(HAS_STATE | HAS_ANSWER, body=b"12", state=b"s", old=True),
    "old-keyed": record(HAS_STATE | HAS_ANSWER, body=b"12", state=b"s", key=b"0123456789abcdef" + b"\x01" * 8, old=True),
    "stateless": record(HAS_ANSWER, body=b"x"),
    "contradiction": record(TOMBSTONE | HAS_STATE, reason=1, state=b"s"),
    "no-answer-but-body": record(HAS_STATE, body=b"x"),
}
SEEDS["torn"] = SEEDS["live"][:60]
SEEDS["wrong-checksum"] = SEEDS["live"][:-1] + b"\0"
SEEDS["empty"] = b""

OUT.mkdir(parents=True, exist_ok=True)
for name, data in SEEDS.items():
    (OUT / name).write_bytes(data)

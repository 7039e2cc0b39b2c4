#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus/record: whole records and damaged ones. Run from the root."""
import ctypes
import pathlib
import struct

OUT = pathlib.Path(__file__).parent / "corpus" / "record"
xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_64bits.restype = ctypes.c_uint64
TOMBSTONE, HAS_STATE, HAS_ANSWER, TOO_LARGE, KEYED, ASKED, HAS_KEYS = 1, 2, 4, 8, 64, 128, 0x4000
HAS_EARLIER = 0x2000


def varint(number, least=1):
    out = b""
    while number >= 0x80 or least > 1:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
        least -= 1
    return out + bytes([number])


def fold(difference):
    return difference * 2 if difference >= 0 else -difference * 2 - 1


def head(form, flags, key, numbers, lengths, wide):
    """Makes a record. Four numbers have their final width from the beginning. The flags say what `key` contains."""
    generation, step, job, opened, last, closed, expires, schema, reason, status, size, answer_flags = numbers
    content_type = lengths[0] * 2 if lengths[0] >= 0 else -lengths[0] * 2 - 1
    packed = struct.pack("<4sHHQI", b"CNR1", form, flags, job, lengths[-1])
    for i, number in enumerate((fold(generation - opened), step, opened, fold(last - opened), closed, fold(expires - last), schema,
                                reason, status, answer_flags, size, content_type, *lengths[1:-1])):
        packed += varint(number, {1: 4, 3: 5, 4: 6, 5: 6}.get(i, 1) if wide else 1)
    return packed + key


def record(flags, reason=0, closed=0, content_type=b"", headers=(), chunks=(), body=b"", state=b"", key=b"", form=6,
           last=1700000001000, known=0, wide=True, earlier=0):
    packed_headers = b"".join(struct.pack("<H", len(n)) + n + struct.pack("<I", len(v)) + v for n, v in headers)
    packed_chunks = b"".join(struct.pack("<I", len(c)) + c for c in chunks)
    numbers = (7, 41, 99, 1700000000000, last, closed, 1700000061000, 3, reason, 200, 9, 4)
    lengths = (-known or len(content_type), len(headers), len(packed_headers), len(chunks), len(packed_chunks), len(body) - earlier, len(state))
    data = head(form, flags, key, numbers, lengths, wide) + content_type + packed_headers + packed_chunks + body + state
    return data + struct.pack("<Q", xxhash.XXH3_64bits(data, ctypes.c_size_t(len(data))))


SEEDS = {
    "live": record(HAS_STATE | HAS_ANSWER, content_type=b"text/plain", body=b"12", state=b"\x81\xa3sum\x0c"),
    "chunks": record(HAS_STATE | HAS_ANSWER, headers=[(b"X-A", b"hi"), (b"X-B", b"")], chunks=[b"ab", b""],
                     body=b"c", state=b"s"),
    "too-large": record(HAS_STATE | TOO_LARGE, state=b"s"),
    "tombstone": record(TOMBSTONE, reason=2, closed=1700000002000),
    "ended": record(TOMBSTONE | HAS_ANSWER, reason=1, closed=1700000002000, body=b"last"),
    "keyed": record(HAS_STATE | HAS_ANSWER | KEYED | ASKED | HAS_KEYS, body=b"12", state=b"s", key=b"request.\x02firstkeysecond.."),
    "earlier-keys": record(HAS_STATE | HAS_ANSWER | HAS_KEYS, body=b"12", state=b"s", key=b"\x01firstkey"),
    "numbered": record(HAS_STATE | HAS_ANSWER | ASKED, body=b"12", state=b"s", key=b"request."),
    "earlier-answers": record(HAS_STATE | HAS_ANSWER | ASKED | HAS_EARLIER, body=b"12\x03\0\0\0one\0\0\0\0", state=b"s",
                              key=b"request.\x0b\0\0\0", earlier=11),
    "earlier-torn": record(HAS_STATE | HAS_ANSWER | ASKED | HAS_EARLIER, body=b"12\x09\0\0\0one", state=b"s",
                           key=b"request.\x07\0\0\0", earlier=7),
    "earlier-none": record(HAS_STATE | HAS_ANSWER | ASKED | HAS_EARLIER, body=b"12", state=b"s", key=b"request.\0\0\0\0"),
    "no-keys": record(HAS_STATE | HAS_ANSWER | HAS_KEYS, body=b"12", state=b"s", key=b"\0"),
    "many-keys": record(HAS_STATE | HAS_ANSWER | HAS_KEYS, body=b"12", state=b"s", key=b"\xff" + b"k" * 2040),
    "keys-torn": record(HAS_STATE | HAS_ANSWER | HAS_KEYS, body=b"12", state=b"s", key=b"\xff" + b"k" * 1040),
    "keyed-without-key": record(HAS_STATE | HAS_ANSWER | KEYED | ASKED, body=b"12", state=b"s", key=b"request."),
    "format-5": record(HAS_STATE | HAS_ANSWER, body=b"12", state=b"s", form=5),
    "known-type": record(HAS_STATE | HAS_ANSWER, body=b"12", state=b"s", known=2),
    "known-type-in-bytes": record(HAS_STATE | HAS_ANSWER, content_type=b"application/json", body=b"12", state=b"s"),
    "narrow": record(HAS_STATE | HAS_ANSWER, body=b"12", state=b"s", known=2, wide=False),
    "backwards": record(HAS_STATE | HAS_ANSWER, body=b"12", state=b"s", last=1699999999000),
    "stateless": record(HAS_ANSWER, body=b"x"),
    "contradiction": record(TOMBSTONE | HAS_STATE, reason=1, state=b"s"),
    "no-answer-but-body": record(HAS_STATE, body=b"x"),
}
SEEDS["torn"] = SEEDS["live"][:40]
SEEDS["wrong-checksum"] = SEEDS["live"][:-1] + b"\0"
SEEDS["empty"] = b""

OUT.mkdir(parents=True, exist_ok=True)
for name, data in SEEDS.items():
    (OUT / name).write_bytes(data)

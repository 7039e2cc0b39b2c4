#!/usr/bin/env python3
"""Writes the corpus of the envelope target. The files are packed by hand, so this is also a second reading of the
layout in management/api/exported_sequence.h. Run it after a change: tests/fuzz/make_envelopes.py"""
import hashlib
import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus" / "envelope"


def str16(text):
    return struct.pack("<H", len(text)) + text


def envelope(record=b"record", sequence=b"seq/0", model=b"counter", form=1, cut=0):
    rest = struct.pack("<Q", 1700000000000) + str16(model) + str16(b"1.0") + str16(sequence)
    rest += struct.pack("<4QI", 9, 3, 1600000000000, 1650000000000, 2) + struct.pack("<I", len(record)) + record
    head = b"CNSEQ\r\n\x1a" + struct.pack("<HHQ", form, 0, 20 + len(rest) + 32)
    whole = head + rest
    whole += hashlib.blake2b(whole, digest_size=32).digest()
    return whole[:len(whole) - cut]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "whole.bin").write_bytes(envelope())
    (FOLDER / "empty-record.bin").write_bytes(envelope(b""))
    (FOLDER / "newer.bin").write_bytes(envelope(form=2))
    (FOLDER / "cut.bin").write_bytes(envelope(cut=20))
    (FOLDER / "without-id.bin").write_bytes(envelope(sequence=b""))
    (FOLDER / "long-id.bin").write_bytes(envelope(sequence=b"s" * 257))


if __name__ == "__main__":
    main()

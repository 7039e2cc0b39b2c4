#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus/lmdb_check: small files of LMDB 0.9 with pages of 512 bytes. Run from the root.
"""
import ctypes
import pathlib
import struct

OUT = pathlib.Path(__file__).parent / "corpus" / "lmdb_check"
PAGE = 512
NONE = (1 << 64) - 1
BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8
BIG, DATABASE = 1, 2
xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64


def checksum(data, seed=0):
    return xxhash.XXH3_64bits_withSeed(data, ctypes.c_size_t(len(data)), ctypes.c_uint64(seed))


def sealed(key, value):
    of_key = checksum(key)
    return value + struct.pack("<II", of_key & 0xFFFFFFFF, checksum(value, of_key) & 0xFFFFFFFF)


def page(number, kind, nodes):
    """Makes a page. `nodes` are the bytes of its entries, in the order of keys."""
    upper, pointers, body = PAGE, b"", b""
    for node in nodes:
        node += b"\0" * (len(node) % 2)
        upper -= len(node)
        pointers += struct.pack("<H", upper)
        body = node + body
    head = struct.pack("<QHHHH", number, 0, kind, 16 + len(pointers), upper) + pointers
    return head + b"\0" * (upper - len(head)) + body


def leaf(key, value, flags=0, size=None):
    return struct.pack("<IHH", len(value) if size is None else size, flags, len(key)) + key + value


def branch(key, child):
    return struct.pack("<IHH", child, 0, len(key)) + key


def database(flags, depth, entries, root, pad=0):
    return struct.pack("<IHHQQQQQ", pad, flags, depth, 0, 1, 0, entries, root)


def meta(number, txn, free, main, last):
    body = struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 20) + free + main + struct.pack("<QQ", last, txn)
    return (struct.pack("<QHHHH", number, 0, META, 0, 0) + body).ljust(PAGE, b"\0")


def entry(key, value=b""):
    return leaf(key, sealed(key, value))


FORMAT = entry(b"\0format", struct.pack("<I", 6))
NO_FREE = database(8, 0, 0, NONE, PAGE)


def small():
    main = [FORMAT, entry(b"\1a", b"value of a"), entry(b"\1b"), leaf(b"\2pieces", database(0, 0, 0, NONE), DATABASE)]
    return [meta(0, 2, NO_FREE, database(0, 1, 4, 2), 2), meta(1, 1, NO_FREE, database(0, 0, 0, NONE), 1),
            page(2, LEAF, main)]


def large():
    """Makes two leaves under a branch, an overflow page, pieces, and free pages."""
    value = sealed(b"\1big", b"x" * 400)
    pieces = [entry(b"\2" + struct.pack(">H", 1) + b"a" + struct.pack(">I", i), b"p" * 40) for i in (1, 2)]
    first = [FORMAT, entry(b"\1a", b"v" * 60), leaf(b"\1big", struct.pack("<Q", 6), BIG, len(value))]
    second = [entry(b"\1c", b"w" * 90), leaf(b"\2pieces", database(0, 1, 2, 5), DATABASE)]
    free = [leaf(struct.pack("<Q", 2), struct.pack("<QQ", 1, 8)), leaf(struct.pack("<Q", 3), struct.pack("<QQQ", 2, 10, 9))]
    stale = [entry(b"\1a", b"an older value")]
    return [meta(0, 2, NO_FREE, database(0, 0, 0, NONE), 10),
            meta(1, 3, database(8, 1, 2, 7, PAGE), database(0, 2, 5, 2), 10),
            page(2, BRANCH, [branch(b"", 3), branch(b"\1c", 4)]), page(3, LEAF, first), page(4, LEAF, second),
            page(5, LEAF, pieces), (struct.pack("<QHHI", 6, 0, OVERFLOW, 1) + value).ljust(PAGE, b"\0"),
            page(7, LEAF, free), page(8, LEAF, stale)]


def joined(pages):
    return b"".join(pages)


def with_page(pages, number, other):
    return joined(pages[:number] + [other] + pages[number + 1:])


SEEDS = {
    "small": joined(small()),
    "large": joined(large()),
    "empty": b"",
    "no-first-meta": with_page(large(), 0, b"\0" * PAGE),
    "no-second-meta": with_page(large(), 1, b"\0" * PAGE),
    "no-branch": with_page(large(), 2, b"\0" * PAGE),
    "no-leaf": with_page(large(), 3, b"\0" * PAGE),
    "no-free-list": with_page(large(), 7, b"\0" * PAGE),
    "no-overflow": with_page(large(), 6, b"\0" * PAGE),
    "stale-child": with_page(large(), 2, page(2, BRANCH, [branch(b"", 8), branch(b"\1c", 4)])),
    "own-child": with_page(large(), 2, page(2, BRANCH, [branch(b"", 2), branch(b"\1c", 4)])),
    "cut": joined(large())[:4 * PAGE + 100],
    "older-format": with_page(small(), 2, page(2, LEAF, [leaf(b"\0format", struct.pack("<I", 5))])),
    "another-database": with_page(small(), 2, page(2, LEAF, [leaf(k, b"value") for k in (b"a", b"b", b"c", b"d")])),
}

OUT.mkdir(parents=True, exist_ok=True)
for name, data in SEEDS.items():
    (OUT / (name + ".bin" if name in ("small", "large") else name)).write_bytes(data)

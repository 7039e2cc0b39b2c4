#!/usr/bin/env python3
"""Writes the corpus of the frame targets: one valid stream in each file.

It packs the layouts of proto/frame_*.c by hand, so it is also a second reading of them. Run it after a change of a
layout: tests/fuzz/make_frames.py

With --check it writes nothing and says what is outdated (lint.frames). The targets themselves check that each stream is
accepted as a whole."""
import pathlib
import re
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
LOAD, BATCH, CLOSE, CANCEL, STOP, CREDIT, QUERY, FORK, MEMORY = range(1, 10)
LOADED, ANSWER, STATS, CLOSED, RESULT, REPORT, FORKED, PROGRESS = range(65, 73)
STATEFUL, START, END, NUMBERED = 1, 2, 4, 1 << 11
ASK, ANY_VERSION, MOVE = 1 << 16, 1 << 17, 1 << 18


def frame(kind, payload=b"", count=0):
    return struct.pack("<IBBHI", len(payload), kind, 1, 0, count) + payload


def str16(text):
    return struct.pack("<H", len(text)) + text


def str32(text):
    return struct.pack("<I", len(text)) + text


def placed(slot, number, at, size):
    """A text that lies in the body memory."""
    return struct.pack("<IIIQI", 2**32 - 1, slot, number, at, size)


def headers(pairs):
    return struct.pack("<I", len(pairs)) + b"".join(str16(n) + str32(v) for n, v in pairs)


def row(job, flags, sequence, parts, head=(), generation=0, deadline=0, request=b"", key=b"", step=0):
    out = struct.pack("<QIIQ", job, flags, deadline, generation) + str16(sequence)
    out += str16(request) + str16(key) + (struct.pack("<Q", step) if flags & NUMBERED else b"")
    out += headers(head) + struct.pack("<I", len(parts))
    return out + b"".join(str16(n) + str16(t) + str32(d) for n, t, d in parts)


def moved(op, reason, record=b""):
    return struct.pack("<BBQQ", op, reason, 5, 6) + str16(b"1.0") + str16(b"lua") + str32(record)


def answer(job, flags, body, head=(), error=0, status=0, generation=0, step=0, opened=0, stored=2**64 - 1, kind=b"text/plain"):
    return (struct.pack("<QIiHQQQQ", job, flags, error, status, generation, step, opened, stored)
            + str16(kind) + headers(head) + str32(body))


def loaded(message, device=b"", error=0, warning=b"", walls=b"not_dumpable no_new_privs", lacking=b""):
    texts = (message, device, warning, walls, lacking)
    return frame(LOADED, struct.pack("<i", error) + b"".join(map(str32, texts)))


def query(op, flags=0, limit=0, idle=0, most=0, sequence=b"", prefix=b"", record=b""):
    return (struct.pack("<QBIIQQ", 9, op, flags, limit, idle, most) + str16(sequence) + str16(prefix)
            + str32(record))


def info(sequence, flags, reason=0):
    return str16(sequence) + struct.pack("<II8QB", flags, 1, 7, 3, 10, 20, 30, 40, 50, 60, reason)


def sample(kind, name, unit, value, dims=()):
    return struct.pack("<B", kind) + str16(name) + str16(unit) + struct.pack("<d", value) + headers(dims)


def report(rows, us, jobs, samples):
    body = struct.pack("<IIQQQI", rows, rows, 3, us, 7, len(jobs)) + b"".join(struct.pack("<Q", j) for j in jobs)
    return frame(REPORT, body + b"".join(samples), len(samples))


def load():
    # The fields are in the order of proto/frame.h.
    text = (HERE / "../../proto/frame.h").read_text()
    fields = re.search(r"#define CN_LOAD_FIELDS.*?\n\n", text, re.S).group(0)
    out = b""
    for kind, name in re.findall(r"\b(STR|NUM)\((\w+)\)", fields):
        out += str32(name.encode()) if kind == "STR" else struct.pack("<Q", len(name))
    return out


def streams():
    """(target, file, bytes)"""
    made = []

    def write(*stream):
        made.append(stream)

    body = (b"body", b"text/plain", b"42")
    first = row(1, STATEFUL | START, b"seq_0", [body], [(b"Accept", b"*/*"), (b"X", b"")], 3, 120000, b"r-1")
    plain = row(2, 0, b"", [])
    two = row(3, STATEFUL | END, b"s" * 256, [body, (b"data", b"", b"\0\xff" * 40)], generation=1 << 63,
              key=b"k" * 256)
    numbered = row(8, STATEFUL | NUMBERED, b"seq_0", [body], key=b"k", step=7)
    write("frame_to_worker", "load.bin", frame(LOAD, load()))
    write("frame_to_worker", "batch.bin", frame(BATCH, first + plain + two + numbered, 4))
    swaps = [row(4, STATEFUL | ASK, b"a", [body]), row(5, STATEFUL | MOVE, b"b", []) + moved(3, 8),
             row(6, STATEFUL | MOVE, b"c", []) + moved(4, 0, b"CNR1" * 30),
             row(7, STATEFUL | ANY_VERSION | MOVE, b"d", [body]) + moved(5, 9)]
    write("frame_to_worker", "swap.bin", frame(BATCH, b"".join(swaps), 4))
    close = struct.pack("<QB", 7, 1) + str16(b"seq_0") + struct.pack("<QB", 0, 7) + str16(b"x")
    write("frame_to_worker", "close.bin", frame(CLOSE, close, 2))
    write("frame_to_worker", "cancel.bin", frame(CANCEL, struct.pack("<QBQB", 1, 1, 1 << 40, 4), 2))
    write("frame_to_worker", "credit.bin", frame(CREDIT, struct.pack("<4Q", 1, 4096, 1 << 40, 1), 2))
    write("frame_to_worker", "query.bin",
          frame(QUERY, query(1, 3, 100, 5000, 1 << 20, b"s1", b"s")) + frame(QUERY, query(2, 4, sequence=b"s1"))
          + frame(QUERY, query(3, 8, sequence=b"s2", record=b"\0\1")))
    write("frame_to_server", "result.bin",
          frame(RESULT, struct.pack("<Qi", 9, 0) + str32(b"") + str16(b"s2") + str32(b"")
                + info(b"s1", 4) + info(b"s2", 1, 2), 2)
          + frame(RESULT, struct.pack("<Qi", 9, -980) + str32(b"no such sequence") + str16(b"") + str32(b"")))
    write("frame_to_server", "closed.bin", frame(CLOSED, struct.pack("<Ii", 1, -974) + str32(b"disk full"), 2))
    write("frame_to_worker", "session.bin", frame(LOAD, load()) + frame(BATCH, plain, 1) + frame(STOP))
    write("frame_to_worker", "memory.bin",
          frame(MEMORY, struct.pack("<Q", 65536)) + frame(BATCH, row(9, 0, b"", [])[:-4] + struct.pack("<I", 2)
                + str16(b"a") + str16(b"") + placed(0, 1, 0, 1000) + str16(b"b") + str16(b"") + placed(63, 2, 64512, 1024), 1))
    write("frame_to_worker", "fork.bin", frame(FORK, str32(b"counter 1.0 #2")) + frame(STOP))
    write("frame_to_server", "loaded.bin", loaded(b"Lua 5.4.4", b"cuda:1"))
    write("frame_to_server", "progress.bin",
          frame(PROGRESS, struct.pack("<II", 2, 6) + str32(b"warming up")) + loaded(b"no", error=-960))
    write("frame_to_server", "forked.bin",
          frame(FORKED, struct.pack("<I", 4711) + str32(b"")) + frame(FORKED, struct.pack("<I", 0) + str32(b"no memory")))
    write("frame_to_server", "answer.bin",
          frame(ANSWER, answer(1, 1, b"42", [(b"X-Step", b"7")], status=200, generation=3, step=2, opened=1700000000000,
                             stored=120)))
    write("frame_to_server", "answer_shared.bin",
          frame(ANSWER, answer(1, 1, b"")[:-4] + placed(3, 7, 4096, 60000)))
    write("frame_to_server", "refused.bin", frame(ANSWER, answer(2, 1, b"too late", error=-990, kind=b"")))
    write("frame_to_server", "stats.bin", frame(STATS, struct.pack("<9QB", 1, 2, 3, 4, 5, 6, 7, 8, 9, 0)))
    write("frame_to_server", "stats_shared.bin",
          frame(STATS, struct.pack("<9QBB3Q32Q", *range(9), 1, 1, 10, 11, 12, *range(32)) + str32(b"it is full")))
    write("frame_to_server", "report.bin",
          report(2, 1500, [1, 2], [sample(0, b"tokens", b"Count", 2.5, [(b"Kind", b"prompt")]),
                                   sample(2, b"size", b"Bytes", 1e300)]))
    write("frame_to_server", "session.bin",
          loaded(b"C") + frame(ANSWER, answer(1, 0, b"a"))
          + frame(ANSWER, answer(1, 1, b"")) + frame(CLOSED, b"", 2))
    return made


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for target, name, data in streams():
        path = HERE / "corpus" / target / name
        if check and (not path.exists() or path.read_bytes() != data):
            stale.append(f"{target}/{name}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    if stale:
        sys.exit(f"not what tests/fuzz/make_frames.py writes: {' '.join(stale)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares Continuo with Triton's server (the one inside pip's nvidia-pytriton) over HTTP and gRPC.

    tests/differential/triton.py [CASES]    a pattern of cases' names; all of them without it

They get the same calls (triton_*_cases.py). Continuo runs twice: with the very repository that Triton
has, whose models are model.py files, and with an equivalent one whose handlers are in Lua
(triton_models.py: one configuration, a model.py, a Lua handler). The rule: status or code, the headers of
triton_wire.HEADERS, bodies and messages must be the same, letter by letter, once RULES below has
made equal what rightly differs; but a message of ours may say more than theirs, if it has theirs in
it, since clients look for words in a message. The order of an object's members and of the index's
entries does not matter. Any other difference must be listed in triton_differences.toml with a reason,
or in triton_python_differences.toml if only models in Python have it.
No text of the peer is kept here: both are asked each time.
"""

import pathlib
import sys
import tempfile

import common
import triton_grpc_cases
import triton_http_cases
import triton_models
import triton_operator_cases
import triton_peer
import triton_python_cases
import triton_python_models

HERE = pathlib.Path(__file__).resolve().parent
TITLE = "v2 (Triton)"
PYTHON_TITLE = "v2, the same model.py"
# These texts differ by nature: they are a JSON parser's own words.
RULES = [(r"(failed to parse the request JSON buffer: )[^\n]*", r"\1...")]
# In cases whose names begin like this, Triton's process ends (an uncaught bad_alloc, a fault). So only our server is
# asked, and must answer.
FATAL = ("json shape [1099511627776]", "json batch shape [1099511627776]", "json shape [2147483648, 2147483648, 4]",
         "json batch shape [2147483648, 2147483648, 4]", "json shape [4611686018427387904]",
         "json batch shape [4611686018427387904]", "classification of BYTES", "grpc classification of BYTES",
         "classification of nothing", "grpc strict stream failing ", "grpc strict stream many error ")
# To these requests Triton gives no answer at all, because the model has not given one.
SILENT = tuple(f"python {way}gives {what}none" for way in ("", "grpc ") for what in ("", "OUT of ", "MORE of "))
UNANSWERED = {"status": "no answer"}
ENDED = {"status": "its process ends"}


def ask_theirs(side, case, ask):
    return ENDED if case.startswith(FATAL) else ask(side)


def shared_object(size):
    """Makes an object in /dev/shm that both servers may open, and returns its key."""
    handle = tempfile.NamedTemporaryFile(prefix="continuo-diff-", dir="/dev/shm")
    handle.write(bytes(range(256)))
    handle.truncate(size)
    handle.flush()
    return handle, "/" + pathlib.Path(handle.name).name


def more_words(theirs, ours):
    """Returns the peer's text if ours contains it: clients look for words in a message, not for all of it."""
    made = dict(ours)
    for part, text in theirs.items():
        said = str(text).strip().strip('"').strip()
        if part.endswith(("error", "details", "error_message")) and said and said in str(ours.get(part, "")):
            made[part] = text
    return made


def compare(comparison, same_files, folder):
    both, python = triton_models.MODELS, triton_models.MODELS + triton_python_models.MODELS
    names = [model.name for model in both if model.loads]
    python_names = [model.name for model in python if model.loads]
    for side in ("theirs", "ours", "same"):
        (folder / side).mkdir()
    triton_models.write(folder / "theirs-models", "python", python)
    triton_models.write(folder / "ours-models", "lua", both)
    theirs = triton_peer.start_triton(folder / "theirs", folder / "theirs-models", python_names)
    try:
        ours = triton_peer.start_ours(folder / "ours", folder / "ours-models", names)
        try:
            same = triton_peer.start_ours(folder / "same", folder / "theirs-models", python_names)
            try:
                ask_all(comparison, same_files, theirs, ours, same)
            finally:
                same.stop()
        finally:
            ours.stop()
    finally:
        theirs.stop()


def ask_all(comparison, same_files, theirs, ours, same):
    handle, key = shared_object(8192)
    with handle:
        for module in (triton_http_cases, triton_operator_cases, triton_grpc_cases):
            for case, ask in module.all_cases(key):
                if comparison.wants(case):
                    wanted = ask_theirs(theirs, case, ask)
                    comparison.compare(case, wanted, more_words(wanted, ask(ours)))
                    same_files.compare(case, wanted, more_words(wanted, ask(same)))
    for case, ask in triton_python_cases.all_cases(key):
        if same_files.wants(case):
            wanted = UNANSWERED if case.startswith(SILENT) else ask(theirs)
            same_files.compare(case, wanted, more_words(wanted, ask(same)))


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else "*"
    comparison = common.Comparison(TITLE, "Triton", HERE / "triton_differences.toml", RULES, only)
    same_files = common.Comparison(PYTHON_TITLE, "Triton", HERE / "triton_differences.toml", RULES, only,
                                   HERE / "triton_python_differences.toml")
    with tempfile.TemporaryDirectory(prefix="continuo-triton-") as folder:
        try:
            compare(comparison, same_files, pathlib.Path(folder))
        except common.Unavailable as why:
            return common.skip(TITLE, str(why))
    failed = comparison.close()
    return same_files.close() or failed


if __name__ == "__main__":
    sys.exit(main())

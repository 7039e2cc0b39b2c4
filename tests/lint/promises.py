#!/usr/bin/env python3
"""Finds names that a release has promised and that are gone: options, keys, metrics, errors, paths, RPCs, fields of
messages, log events, commands and functions of handlers (docs/compatibility.md).

tests/lint/promises.txt lists them, each as the words `kind name`. A new name needs no line until the next release.

  promises.py          checks that each name of the list is still there, and that the page has the numbers of formats
                       that the sources have and names tests that exist; exit status 1 when one of this is wrong
  promises.py --add    adds the names that are new to the list, as for a release
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "lint" / "promises.txt"
PAGE = "docs/compatibility.md"
# Tables whose rows begin with a name, and where it is in the row: (kind, file, row, pattern of what is before it).
ANY = r"[^,]*,\s*"
TABLES = [
    ("option", "config/server/server_options.def", "CN_OPTION", ANY * 3),
    ("model-key", "config/model/model_options.def", "CN_MODEL_OPTION", ANY * 3),
    ("model-key", "config/model/model_keys.def", "CN_KEY_LIST", ""),
    ("onnx-key", "config/model/onnx_keys.def", "CN_MODULE_KEY", ""),
    ("torch-key", "config/model/torch_keys.def", "CN_MODULE_KEY", ""),
    ("archiver-flag", "archiver/program/archiver_options.def", "CN_ARCHIVER_OPTION", ANY),
    ("ctl-flag", "ctl/verbs/verb_flags.def", "CN_CTL_VERB_FLAG", ANY),
    ("unready-reason", "metrics/counters/unready.def", "CN_UNREADY", ANY),
    ("handler-function", "proto/handler_names.def", "CN_HANDLER_FUNCTION", ""),
]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def of_tables():
    for kind, name, row, before in TABLES:
        for found in re.findall(rf'\b{row}\(\s*{before}"([^"]+)"', without_comments(read(name))):
            yield kind, found


def of_metrics_and_errors():
    text = without_comments(read("metrics/counters/metrics.def"))
    rows = re.findall(r'CN_METRIC\(\s*\w+,\s*\w+,\s*(\w+),\s*"(\w+)"', text)
    for shape, name in rows:
        if shape not in ("HIDDEN", "NAMED"):  # they are shown under TorchServe's names
            yield "metric", name
    for word, status, grpc in re.findall(r'CN_ERROR\(\s*\w+,\s*"(\w+)",\s*(\d+),\s*(\d+)',
                                         without_comments(read("core/errors/errors.def"))):
        yield "error", f"{word} {status} {grpc}"


def of_routes():
    text = re.sub(r"/\*.*?\*/", " ", read("frontend/endpoints/routes.c"), flags=re.S)
    for methods, path in re.findall(r'\{\s*(?:\.methods = )?([A-Z| ]+),\s*(?:\.pattern = )?"(/[^"]*)"', text):
        for method in re.findall(r"[A-Z]+", methods) if path != "/page/{file}" else ():
            yield "path", f"{method} {path}"


def of_messages():
    """RPCs, and the numbers of the fields by which clients know them."""
    names = [*(ROOT / "proto").glob("*.proto"), *(ROOT / "proto" / "grpc").rglob("*.proto")]
    for path in sorted(names):
        if path.name == "otlp.proto":  # what the server sends to a collector, with names of our own
            continue
        text = without_comments(path.read_text(encoding="utf-8"))
        package = re.search(r"^package ([\w.]+);", text, re.M)[1]
        blocks = []
        for match in re.finditer(r"\b(message|service|oneof|enum)\s+(\w+)\s*\{|\brpc\s+(\w+)\s*\(|"
                                 r"(\w+)\s*=\s*(\d+)\s*(?:\[[^]]*\])?;|(\{)|(\})", text):
            what, name, rpc, field, number, opened, closed = match.groups()
            if what:
                blocks.append(None if what == "oneof" else name)
            elif opened:
                blocks.append(None)
            elif closed:
                blocks.pop()
            else:
                inside = ".".join([package, *filter(None, blocks)])
                yield ("rpc", f"{inside}/{rpc}") if rpc else ("field", f"{inside}.{field} {number}")


def of_programs():
    for verb in re.findall(r'^    \{"([a-z-]+)", CN_CTL_\w+', read("ctl/ctl_options.c"), re.M):
        yield "ctl-command", verb
    header = without_comments(read("include/continuo/handler.h"))
    for name in re.findall(r"^(?:static inline .*\b)?(continuo_\w+)\(", header, re.M):
        yield "c-function", name
    for name in re.findall(r"\b(CONTINUO_[A-Z0-9_]+) = (\d+)", header):
        yield "c-constant", " ".join(name)
    exported = re.search(r"__all__ = \[(.*?)\]", read("python/continuo/__init__.py"), re.S)[1]
    for name in re.findall(r'"(\w+)"', exported):
        yield "python-name", f"continuo.{name}"


def of_events():
    """The log events that the documentation names; others may change."""
    names = subprocess.run(["git", "ls-files", "docs/*.md"], cwd=ROOT, check=True, text=True,
                           capture_output=True).stdout.split()
    documented = {event for name in names for event in re.findall(r"\bevent=([a-z][a-z0-9_]*)\b", read(name))}
    sources = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.def", "python/*.py"], cwd=ROOT, check=True, text=True,
                             capture_output=True).stdout.split()
    logged = {event for name in sources if not name.endswith("_test.c") and not name.startswith("tests/")
              for event in re.findall(r"\bevent=([a-z][a-z0-9_]*)\b", read(name))}
    for event in documented & logged:
        yield "event", event


def names_of_today():
    found = set()
    for source in (of_tables, of_metrics_and_errors, of_routes, of_messages, of_programs, of_events):
        made = {f"{kind} {name}" for kind, name in source()}
        if not made:
            sys.exit(f"tests/lint/promises.py: {source.__name__} finds nothing, so it no longer fits the sources")
        found |= made
    return found


def wrong_on_the_page():
    page = read(PAGE)
    for number, name, path in re.findall(r"(\d+)[^|:]*: `(\w+)` in `([\w./]+)`", page):
        if not re.search(rf"^#define {name} {number}\b", read(path), re.M):
            yield f"{name} is not {number} in {path}"
    for path, test in re.findall(r"`([\w.-]+/[\w./-]+\.(?:py|c|sh|txt))(?:::(\w+))?`", page):
        if not (ROOT / path).is_file():
            yield f"there is no file {path}"
        elif test and not re.search(rf"^(?:def )?{test}\(", read(path), re.M):
            yield f"{path} has no test {test}"


def main():
    today = names_of_today()
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    head = [line for line in lines if line.startswith("#")]
    promised = {line for line in lines if line and not line.startswith("#")}
    if sys.argv[1:] == ["--add"]:
        LIST.write_text("\n".join([*head, *sorted(promised | today)]) + "\n", encoding="utf-8")
        print(f"{len(today - promised)} names added")
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    gone = sorted(promised - today)
    for name in gone:
        print(f"{name}: it was promised and is gone. Only a MAJOR release removes it (docs/compatibility.md)")
    wrong = list(wrong_on_the_page())
    for what in wrong:
        print(f"{PAGE}: {what}")
    print(f"{len(promised)} promised names, {len(gone)} of them gone; {len(today - promised)} are new")
    return 1 if gone or wrong else 0


if __name__ == "__main__":
    sys.exit(main())

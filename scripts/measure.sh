#!/usr/bin/env bash
# Counts what makes the source easy or hard to read and prints a table: the figure now, the bound
# and how it was counted. It needs nothing but git and python3, and takes a few seconds.
#   scripts/measure.sh            the table; exits with 0
#   scripts/measure.sh --list     also names the files and lines behind each figure
#   scripts/measure.sh --check    exits with 1 when a figure is outside its bound
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
'' | --list | --check) ;;
-h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
*) echo "scripts/measure.sh: unknown option $1 (--help lists the options)" >&2; exit 2 ;;
esac
exec python3 - "$@" <<'PYTHON'
import collections
import pathlib
import re
import subprocess
import sys

# Words of our own that stand for a thing with a known name, as parts of identifiers. The words of
# the second list are plain English inside a function; only public names (cn_...) may not have them.
PRIVATE_WORDS = {
    "detour": "a step that is away in another version",
    "former": "batch builder", "lent": "borrowed output", "lents": "borrowed output", "loose": "unowned",
    "tend": "maintain", "visitor": "a step of another version", "visitors": "steps of another version",
}
PRIVATE_IN_PUBLIC = {
    "customized": "self-description of a handler",
    "beside": "the path of a program's own files", "fetch": "prefetch, or read over HTTP",
    "whole": "complete, or write a file atomically", "front": "the newest part",
}
KNOWN_NAMES = re.compile(r"cn_list_(pop|push)_front")  # the field's own words
# Prefixes that must belong to one library only.
PREFIXES = ("cn_pool_", "cn_envelope_", "cn_sequence_delete")

listing = "--list" in sys.argv
rows, details = [], []


def tracked():
    names = subprocess.run(["git", "ls-files"], check=True, text=True, capture_output=True).stdout.split()
    return [n for n in names if pathlib.Path(n).is_file()]


def is_product(name):
    return not (name.startswith(("tests/", "examples/", "bench/", "develop/templates/")) or name.endswith("_test.c")
                or "/testdata/" in name or re.search(r"/test_\w+\.[ch]$", name))


files = tracked()
text = {n: pathlib.Path(n).read_text(errors="replace") for n in files if n.endswith((".c", ".h", ".def", ".cpp"))}
product = [n for n in text if is_product(n)]
code = [n for n in product if n.endswith(".c")]
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])*'", re.S)
bare = {n: NOISE.sub(lambda m: "\n" * m.group(0).count("\n") or " ", text[n]) for n in text}


def row(what, value, shown, bound, good, how, behind=()):
    rows.append((what, shown, bound, "" if good else "over", how))
    details.append((what, list(behind)))


# No base name twice: x.c, x.h and x.def of one folder are one.
homes = collections.defaultdict(set)
for n in product:
    path = pathlib.PurePath(n)
    homes[path.name.partition(".")[0]].add(str(path.parent))
twice = {stem: sorted(folders) for stem, folders in homes.items() if len(folders) > 1}
row("base names twice", len(twice), str(len(twice)), "0", not twice,
    "names of product files (.c .h .def .cpp) in more than one folder",
    (f"{stem}: {' '.join(folders)}" for stem, folders in sorted(twice.items())))

# One name for two things.
tags, functions, prefixes = collections.defaultdict(set), collections.defaultdict(set), collections.defaultdict(set)
for n in product:
    for kind, tag in re.findall(r"^(struct|enum|union) (cn_\w+)\s*\{", bare[n], re.M):
        tags[tag].add(f"{kind} in {n}")
    for name in re.findall(r"^(cn_\w+)\(", bare[n], re.M):
        functions[name].add(f"function in {n}")
    for name in re.findall(r"\b(cn_\w+)\(", bare[n]) if n.endswith(".h") else ():
        for prefix in PREFIXES:
            if name.startswith(prefix):
                prefixes[prefix].add(n)
clashes = []
for tag in sorted(set(tags) | set(functions)):
    owners = {where.split(" in ")[1].split("/")[0] for where in tags[tag] | functions[tag]}
    if len(tags[tag]) > 1 or (tags[tag] and functions[tag] and len(owners) > 1):
        clashes.append(f"{tag}: " + ", ".join(sorted(tags[tag] | functions[tag])))
for prefix, where in sorted(prefixes.items()):
    if len(where) > 1:
        clashes.append(f"{prefix}*: " + ", ".join(sorted(where)))
words = collections.defaultdict(set)
for n in product:
    for name in set(re.findall(r"\b[a-zA-Z_]\w*\b", bare[n])):
        for part in name.lower().split("_"):
            public = name.lower().startswith("cn_") and not KNOWN_NAMES.match(name)
            if part in PRIVATE_WORDS or (part in PRIVATE_IN_PUBLIC and public):
                words[part].add(name)
for word, names in sorted(words.items()):
    clashes.append(f"{word} (say: {({**PRIVATE_WORDS, **PRIVATE_IN_PUBLIC})[word]}): " + " ".join(sorted(names)))
row("names for two things, private words", len(clashes), str(len(clashes)), "0", not clashes,
    "a tag defined twice, or shared with another folder's function; a prefix in two headers; the script's words", clashes)

# Long lines.
long = [f"{n}:{i}" for n in text if n.endswith((".c", ".h")) for i, line in enumerate(text[n].split("\n"), 1)
        if len(line.expandtabs(8)) > 100]
row("lines over 100 columns", len(long), str(len(long)), "0", not long, "in all .c and .h, tests too", long)

# Comments.
lines = comments = 0
for n in code:
    inside = False
    for line in text[n].split("\n")[:-1]:
        stripped = line.strip()
        lines += 1
        if inside or stripped.startswith(("/*", "//")):
            comments += 1
            if not inside and stripped.startswith("/*") or inside:
                end = stripped.find("*/")
                inside = end < 0
                if end >= 0 and stripped[end + 2:].strip():
                    comments -= 1
share = 100 * comments / max(lines, 1)
row("comment share of .c files", share, f"{share:.1f} %", "7 %", share >= 7,
    f"lines that are only comment, of {lines} lines in {len(code)} product .c files")

# Functions: the name at column 0, the brace on a line of its own.
DEFINED = re.compile(r"^([a-z_]\w*)\([^;{}]*?\)\s*\n\{\n(.*?)^\}", re.M | re.S)
sizes = []
for n in code:
    for m in DEFINED.finditer(bare[n]):
        sizes.append((m.group(2).count("\n") + 2, f"{n}: {m.group(1)}"))
within = 100 * sum(size <= 60 for size, _ in sizes) / max(len(sizes), 1)
row("functions of at most 60 lines", within, f"{within:.2f} %", "99.9 %", within >= 99.9,
    f"from brace to brace, of {len(sizes)} functions in product .c files",
    (f"{size} lines, {name}" for size, name in sorted(sizes, reverse=True) if size > 60))

# Call circles: files whose public functions use each other.
owner = {}
for n in code:
    for m in re.finditer(r"^(.*)\n([a-z_]\w*)\([^;{}]*?\)\s*\n\{\n", bare[n], re.M):
        if "static" not in m.group(1).split():
            owner.setdefault(m.group(2), n)
calls = {n: {owner[w] for w in set(re.findall(r"(?<!struct )(?<!enum )\b[a-z_]\w*\b", bare[n])) if w in owner} - {n} for n in code}


def circles(graph):
    """Tarjan's strongly connected components, without recursion."""
    index, low, on, stack, out, count = {}, {}, set(), [], [], 0
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = count
        count += 1
        stack.append(root)
        on.add(root)
        while work:
            node, rest = work[-1]
            for nxt in rest:
                if nxt not in index:
                    index[nxt] = low[nxt] = count
                    count += 1
                    stack.append(nxt)
                    on.add(nxt)
                    work.append((nxt, iter(graph[nxt])))
                    break
                if nxt in on:
                    low[node] = min(low[node], index[nxt])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while True:
                        part.append(stack.pop())
                        on.discard(part[-1])
                        if part[-1] == node:
                            break
                    if len(part) > 1:
                        out.append(sorted(part))
    return sorted(out, key=len, reverse=True)


found = circles(calls)
in_circles = 100 * sum(map(len, found)) / max(len(code), 1)
largest = max(map(len, found), default=0)
row("files in call circles", in_circles, f"{in_circles:.0f} %", "20 %", in_circles <= 20,
    "product .c files that use each other's public functions by name, directly or through others",
    (f"{len(c)}: {' '.join(c)}" for c in found))
row("largest call circle", largest, f"{largest} files", "8 files", largest <= 8, "counted in the same way")

# Folders.
sources = collections.Counter(str(pathlib.PurePath(n).parent) for n in text
                              if n.endswith(".c") and not n.startswith(("tests/", "examples/")))
folder, most = sources.most_common(1)[0]
row("largest folder", most, f"{most} .c", "20 .c", most <= 20,
    f"{folder}; .c files that lie in it directly, unit tests too; without tests/ and examples/",
    (f"{n} {f}" for f, n in sources.most_common() if n > 20))

print(f"{'what':38}{'now':>10}{'bound':>10}        counted as")
for (what, shown, bound, mark, how), (_, behind) in zip(rows, details):
    print(f"{what:38}{shown:>10}{bound:>10}  {mark:4}  {how}")
    for line in behind if listing else ():
        print(f"    {line}")
sys.exit(1 if "--check" in sys.argv and any(r[3] for r in rows) else 0)
PYTHON

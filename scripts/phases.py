#!/usr/bin/env python3
"""Prints the tables of phases (*_phases.def) into docs/architecture.md, and checks them.

  scripts/phases.py            writes the tables into the page, between its two markers
  scripts/phases.py --check    writes nothing; exits with 1 when a table is wrong or the page is stale

A table is wrong when a row cannot be read, a phase stands there twice, a follower is not a phase, a
phase cannot be reached from the first one, or a phase cannot reach an end although the table has
ends. core/containers/phase.h says how C code uses these tables.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- phases: scripts/phases.py writes what follows, up to the end marker -->\n"
END = "<!-- phases: end -->\n"
SKIP = {"build", ".git", ".venv", "node_modules"}

TEXT = r'"(?:\\.|[^"\\\n])*"'
TEXTS = rf"{TEXT}(?:\s*{TEXT})*"
ROW = re.compile(rf"CN_PHASE\(\s*([A-Z][A-Z0-9_]*)\s*,\s*({TEXTS})\s*,\s*\(([^()]*)\)\s*,\s*({TEXTS})\s*\)")
HEAD = re.compile(r"\A/\*\s*(\S+) - (.*?)\*/", re.S)
MAX_PHASES, MAX_FOLLOWERS = 31, 8  # CN_PHASE_NONE and CN_PHASE_SET in core/containers/phase.h


class Wrong(Exception):
    """Says what is wrong with a table, as a sentence."""


def joined(texts):
    return "".join(part.replace('\\"', '"') for part in re.findall(r'"((?:\\.|[^"\\\n])*)"', texts))


def read(name, text):
    """Returns the table's title, its explanation and its rows: (phase, waits for, followers, mover)."""
    head = HEAD.match(text)
    if not head or head.group(1) != name:
        raise Wrong(f'the file must begin with the comment "/* {name} - TITLE."')
    prose = re.sub(r"\n \* ?", "\n", head.group(2)).strip()
    title, _, rest = prose.partition(".\n")
    if not rest:
        title, rest = prose.rstrip("."), ""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    rows = [(phase, joined(waits), re.findall(r"\w+", followers), joined(mover))
            for phase, waits, followers, mover in ROW.findall(text)]
    left = ROW.sub("", text).split()
    if left:
        raise Wrong(f"this is not a row CN_PHASE(NAME, \"text\", (FOLLOWERS), \"text\"): {' '.join(left)[:60]}")
    if not rows:
        raise Wrong("the table has no rows")
    return " ".join(title.split()), rest.strip(), rows


def reached(start, arrows):
    seen, left = set(start), list(start)
    while left:
        for phase in arrows[left.pop()]:
            if phase not in seen:
                seen.add(phase)
                left.append(phase)
    return seen


def check(rows):
    names = [row[0] for row in rows]
    arrows = {name: followers for name, _, followers, _ in rows}
    for name, _, followers, _ in rows:
        if names.count(name) > 1:
            raise Wrong(f"the phase {name} stands there twice")
        if len(followers) > MAX_FOLLOWERS:
            raise Wrong(f"the phase {name} has {len(followers)} followers; {MAX_FOLLOWERS} are allowed")
        for follower in followers:
            if follower not in arrows:
                raise Wrong(f"{follower}, which may follow {name}, is not a phase")
            if followers.count(follower) > 1:
                raise Wrong(f"{follower} is listed twice among the followers of {name}")
    if len(names) > MAX_PHASES:
        raise Wrong(f"there are {len(names)} phases; {MAX_PHASES} are allowed")
    for name in names:
        if name not in reached(names[:1], arrows):
            raise Wrong(f"the phase {name} cannot be reached from {names[0]}, in which a life begins")
    ends = [name for name in names if not arrows[name]]
    for name in names if ends else ():
        if not reached([name], arrows) & set(ends):
            raise Wrong(f"from the phase {name} no end can be reached")


def section(name, title, rest, rows):
    out = [f"### {title[0].upper()}{title[1:]}\n", f"`{name}`\n"]
    if rest:
        out.append("\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", rest)) + "\n")
    table = ["| phase | what it waits for | what may follow | who moves it |", "|---|---|---|---|"]
    for phase, waits, followers, mover in rows:
        cells = (phase, waits, ", ".join(followers) or "nothing: this is an end", mover)
        table.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    graph = ["```mermaid", "stateDiagram-v2", f"    [*] --> {rows[0][0]}"]
    for phase, _, followers, _ in rows:
        graph += [f"    {phase} --> {follower}" for follower in followers] or [f"    {phase} --> [*]"]
    return "\n".join(out + table + [""] + graph + ["```", ""])


def tables(root):
    names = [path.relative_to(root) for path in root.rglob("*_phases.def")]
    return sorted(str(name) for name in names if not SKIP & set(name.parts))


def printed(root):
    """Returns the text between the markers. Raises Wrong with the name of the file."""
    sections = []
    for name in tables(root):
        try:
            title, rest, rows = read(name, (root / name).read_text())
            check(rows)
        except Wrong as wrong:
            raise Wrong(f"{name}: {wrong}") from None
        sections.append(section(name, title, rest, rows))
    return "\n".join(sections)


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__ if arguments in (["-h"], ["--help"]) else
              f"scripts/phases.py: unknown option {' '.join(arguments)} (--help lists the options)")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    page = PAGE.read_text()
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"docs/architecture.md: one of these two lines is missing:\n{BEGIN}{END}", end="")
        return 1
    try:
        wanted = before + BEGIN + "\n" + printed(ROOT) + "\n" + END + after
    except Wrong as wrong:
        print(wrong)
        return 1
    if page == wanted:
        return 0
    if arguments:
        print("docs/architecture.md: the tables of phases are stale; scripts/phases.py writes them anew")
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

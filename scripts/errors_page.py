#!/usr/bin/env python3
"""Keeps docs/troubleshooting.md in step with the table of errors, core/errors/errors.def.

  scripts/errors_page.py            writes what the page has from the table: the list of all words, and
                                    the line of statuses below each word's heading
  scripts/errors_page.py --check    writes nothing; exits with 1 when the page is stale or incomplete

The text of a section is written by hand, and only there. The page is incomplete when a word has no
section or two of them, when a section's word is not in the table, or when a section lacks one of the
three parts: what happened, why, what to do.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "core" / "errors" / "errors.def"
DIALECT = ROOT / "torchserve" / "errors" / "torchserve_errors.def"
PAGE = ROOT / "docs" / "troubleshooting.md"
BEGIN = "<!-- errors: scripts/errors_page.py writes what follows, up to the end marker -->\n"
END = "<!-- errors: end -->\n"

ROW = re.compile(r'CN_ERROR\(\s*(CN_E_\w+)\s*,\s*"(\w+)"\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*"(\w+)"\s*\)')
DIALECT_ROW = re.compile(r"CN_TORCHSERVE_ERROR\(\s*(CN_E_\w+)\s*,\s*(\d+)\s*,")
GRPC_NAME = re.compile(r"\b(\d+) ([A-Z][A-Z_]+)\b")
SECTION = re.compile(r"^### `(\w+)`\n(.*?)(?=^#|\Z)", re.S | re.M)
FACTS = re.compile(r"\A\n*(?:HTTP \d+, gRPC [^\n]*\n)?\n*")
PARTS = ("What happened.", "Why.", "What to do.")
SHORTEST_PART = 30  # characters; a shorter text cannot explain anything
# http_error.c adds Retry-After to these statuses and to one more error.
REPEATED_STATUSES, REPEATED_CODES = (429, 503), ("CN_E_CONTENDED",)


class Wrong(Exception):
    """Says what is wrong with the table or the page, as a sentence."""


def read_table(text, dialect=""):
    """Returns the rows of the table: dictionaries with code, word, http, grpc, type, repeat, torchserve."""
    comment = re.sub(r"\n \* ?", " ", text[:text.find("*/")])
    names = {int(number): name for number, name in GRPC_NAME.findall(comment)}
    other = {code: int(status) for code, status in DIALECT_ROW.findall(dialect)}
    rows = []
    for code, word, http, grpc, kind in ROW.findall(text):
        if int(grpc) not in names:
            raise Wrong(f"{TABLE.name}: the comment at the top does not name the gRPC status {grpc}")
        rows.append({"code": code, "word": word, "http": int(http), "grpc": names[int(grpc)], "type": kind,
                     "repeat": int(http) in REPEATED_STATUSES or code in REPEATED_CODES,
                     "torchserve": other.get(code, int(http))})
    if len(rows) != len(re.findall(r"^CN_ERROR\(", text, re.M)):
        raise Wrong(f"{TABLE.name}: a row cannot be read")
    return rows


def facts(row):
    """Returns the line below the heading of a word."""
    dialect = f" ({row['torchserve']} with `--torchserve-errors`)" if row["torchserve"] != row["http"] else ""
    repeat = "The same request may succeed after `Retry-After`." if row["repeat"] else "There is no `Retry-After`."
    return f"HTTP {row['http']}, gRPC {row['grpc']}, type `{row['type']}`{dialect}. {repeat}"


def listed(rows):
    """Returns the list of all words."""
    lines = ["| word | HTTP | gRPC | repeat it? |", "|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: row["word"]):
        lines.append(f"| [`{row['word']}`](#{row['word']}) | {row['http']} | {row['grpc']} | "
                     f"{'yes' if row['repeat'] else ''} |")
    return "\n".join(lines) + "\n"


def check_sections(page, rows):
    words = [word for word, _ in SECTION.findall(page)]
    known = {row["word"] for row in rows}
    for word in words:
        if word not in known:
            raise Wrong(f"the word {word} has a section, but is not in {TABLE.name}")
        if words.count(word) > 1:
            raise Wrong(f"the word {word} has two sections")
    for row in rows:
        if row["word"] not in words:
            raise Wrong(f"the word {row['word']} has no section: write one, with the heading ### `{row['word']}` and "
                        f"the parts {', '.join(f'**{part}**' for part in PARTS)}")
    for word, body in SECTION.findall(page):
        for part in PARTS:
            found = re.search(rf"^\*\*{re.escape(part)}\*\* (.*)$", body, re.M)
            if not found or len(found.group(1).strip()) < SHORTEST_PART:
                raise Wrong(f"the section of {word} says nothing after **{part}**")


def written(page, rows):
    """Returns the page with everything that comes from the table."""
    check_sections(page, rows)
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Wrong(f"one of these two lines is missing:\n{BEGIN}{END}")
    by_word = {row["word"]: row for row in rows}

    def renewed(match):
        return f"### `{match.group(1)}`\n\n{facts(by_word[match.group(1)])}\n\n" + FACTS.sub("", match.group(2))
    return before + begin + "\n" + listed(rows) + "\n" + end + SECTION.sub(renewed, after)


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__ if arguments in (["-h"], ["--help"]) else
              f"scripts/errors_page.py: unknown option {' '.join(arguments)} (--help lists the options)")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    page = PAGE.read_text()
    try:
        wanted = written(page, read_table(TABLE.read_text(), DIALECT.read_text()))
    except Wrong as wrong:
        print(f"docs/troubleshooting.md: {wrong}")
        return 1
    if page == wanted:
        return 0
    if arguments:
        print("docs/troubleshooting.md is stale; scripts/errors_page.py writes it anew")
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

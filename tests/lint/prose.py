#!/usr/bin/env python3
"""Finds sentences that a stranger has to read twice, in the files that prose.txt lists as clean.

Read are the comments and strings of C files and tables, the comments of Python, shell and Lua, and the text of
Markdown pages without their code. The patterns below are what our first texts had too much of: fragments without a
verb, word order and idioms of another language, lines that do not fit. A text that copies another server's word for
word is exempt: write `prose: keep` into a comment on its line.

  prose.py             checks what prose.txt lists; exit status 1 when something is found
  prose.py PATH ...    checks these files and folders instead, so that they can be cleaned and listed
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "lint" / "prose.txt"
WIDTH = 100

THINGS = ("archive batch cache call client connection file frame handler job journal kernel library loop machine "
          "message metric model module peer process program proxy queue record request row runtime script sequence "
          "server slot socket state step store stream task thread version worker zygote").split()

# (what is wrong and what to write instead, pattern). EVERYWHERE applies to every sentence, AT_START to the beginning
# of a comment, of a paragraph or of a list item.
EVERYWHERE = [
    ('"is no X": write "is not an X"',
     re.compile(r"(?<!there )(?<!here )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|fewer\b|later\b|other\b)", re.I)),
    ('"are none": say what there is not', re.compile(r"(?<!there )(?<!where there )\b(?:[Ii]s|[Aa]re|[Ww]as|[Ww]ere) none\b(?! of)")),
    ('"so many": write "this many", or say how many',
     re.compile(r"\bso (?:many|much|long|often|few)\b(?! (?:that|as)\b)", re.I)),
    ('"who" for a thing: write "which" or "that"', re.compile(rf"\b(?:{'|'.join(THINGS)})s?,? who\b", re.I)),
    ('an inverted condition: write "if"',
     re.compile(r"(?:^|[.;:] )(?:Died|Came|Failed|Went|Has|Had|Is|Was|Does|Did) "
                r"(?:it|they|he|she|this|that|one|nobody|everybody|(?:the|a|an|its) \w+)\b[^.?;]*, [^.?]*(?:[.;]|$)")),
    ('"told of", "hears of": write "reported", "is informed"', re.compile(r"\b(?:told|tells|hears?|heard) of\b", re.I)),
]
AT_START = [
    ('a fragment that begins with "Of": write a sentence', re.compile(r"Of ")),
    ('a fragment that begins with "As": write a sentence', re.compile(r"As (?!soon |long |well |(?:in|with) [\w' ]+, )")),
    ('a fragment that begins with "The same": write a sentence', re.compile(r"The same (?:of|for|as|with|in|over|at)\b")),
    ('"Who" without a person: name the thing', re.compile(r"Who(?:ever)? (?!are |is |was )")),
]

COMMENT = re.compile(r'/\*(.*?)\*/|//([^\n]*)|"((?:\\.|[^"\\\n])*)"' r"|'(?:\\.|[^'\\\n])*'", re.S)


def of_c(text):
    """Yields (line number, text, whether it is a comment) for a C file's comments and strings. Neighbouring strings are
    joined."""
    last_end, strings = None, None
    for match in COMMENT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match.group(3) is not None:
            if strings and not text[last_end:match.start()].strip():
                strings[1] += match.group(3)
            else:
                if strings:
                    yield strings[0], strings[1], False
                strings = [line, match.group(3)]
            last_end = match.end()
        elif match.group(1) is not None or match.group(2) is not None:
            body = match.group(1) or match.group(2) or ""
            yield line, "\n".join(re.sub(r"^\s*\* ?", "", each) for each in body.split("\n")).strip(), True
    if strings:
        yield strings[0], strings[1], False


def of_script(text):
    """Yields the comments of a script, with neighbouring lines joined, and its docstrings."""
    block, start = [], 0
    for number, line in enumerate(text.split("\n") + [""], 1):
        match = re.match(r"\s*(?:#(?!!)|--) ?(.*)", line)
        if match:
            start = start if block else number
            block.append(match.group(1))
        elif block:
            yield start, "\n".join(block), True
            block = []
    for match in re.finditer(r'"""(.*?)"""', text, re.S):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), True


def of_markdown(text):
    """Yields the paragraphs, list items and table cells of a page, without code."""
    text = re.sub(r"(?ms)^ *```.*?^ *```[^\n]*$", lambda m: "\n" * m.group(0).count("\n"), text)
    text = re.sub(r"`[^`\n]*`", "CODE", text)
    for number, line in enumerate(text.split("\n"), 1):
        for cell in line.split("|") if line.startswith("|") else [line]:
            yield number, re.sub(r"^\s*(?:[-*#>]+|\d+\.)\s+", "", cell).strip(), True


READERS = {".c": of_c, ".h": of_c, ".def": of_c, ".cpp": of_c, ".py": of_script, ".sh": of_script, ".lua": of_script,
           ".md": of_markdown}


def problems(path):
    text = path.read_text(errors="replace")
    lines = text.split("\n")
    if path.suffix in (".c", ".h", ".def", ".cpp"):
        for number, line in enumerate(lines, 1):
            if len(line) > WIDTH and "prose: keep" not in line:
                yield number, f"{len(line)} columns; {WIDTH} are allowed", line.strip()
    for start, block, at_start in READERS[path.suffix](text):
        if "prose: keep" in block or "prose: keep" in lines[start - 1]:
            continue
        flat = re.sub(r"\s+", " ", block)
        for what, pattern in AT_START if at_start else ():
            if pattern.match(flat):
                yield start, what, flat
        for what, pattern in EVERYWHERE:
            for match in pattern.finditer(flat):
                yield start, what, flat[max(0, match.start() - 30):match.end() + 40]


def files_of(names):
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, text=True, capture_output=True).stdout.split()
    for name in names:
        name = name.rstrip("/")
        found = [t for t in tracked if t == name or t.startswith(name + "/")]
        if not found:
            sys.exit(f"tests/lint/prose.txt: there is no {name}")
        yield from (ROOT / t for t in found if pathlib.Path(t).suffix in READERS and (ROOT / t).is_file())


def main():
    names = sys.argv[1:] or [line.strip() for line in LIST.read_text().split("\n")
                             if line.strip() and not line.startswith("#")]
    files, found = sorted(set(files_of(names))), 0
    for path in files:
        for number, what, where in sorted(problems(path)):
            found += 1
            print(f"{path.relative_to(ROOT)}:{number}: {what}: {where[:110]}")
    print(f"{len(files)} files, {found} sentences to write again")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

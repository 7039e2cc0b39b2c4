#!/usr/bin/env python3
"""Holds docs/from-torchserve.md against the code: nothing of the tables is missing, tests exist.

Each flag of torchserve_flags.def and of the archiver and each key of properties.def stands in the first column of a
table row. A row whose second column is "works" or "differs" names a test; every test that is named
exists. A key that sets one of our options isn't "n/a", a key without effect is.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "from-torchserve.md"


def rows():
    """(line number, words of the first column, verdict, tests) of each table row."""
    found = []
    for number, line in enumerate(PAGE.read_text().split("\n"), 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] if line.startswith("|") else []
        if len(cells) < 3 or set(cells[0]) <= set("-: ") or cells[1] == "":
            continue
        words = re.findall(r"`([^`]+)`", cells[0])
        tests = re.findall(r"`([\w/.-]+::\w+)`", cells[-1]) if len(cells) >= 4 else []
        found.append((number, words, cells[1], tests))
    return found


def strings(path, macro):
    """The string arguments of each row of a .def file."""
    for line in path.read_text().split("\n"):
        if line.startswith(macro + "("):
            yield line, re.findall(r'"((?:[^"\\]|\\.)*)"', line)


def test_exists(name):
    path, _, function = name.partition("::")
    file = ROOT / "tests" / "e2e" / path if path.endswith(".py") else ROOT / path
    if not file.exists():
        return False
    pattern = rf"^def {function}\(" if path.endswith(".py") else rf"^{function}\("
    return re.search(pattern, file.read_text(), re.M) is not None


def main():
    problems, verdicts = [], {}
    for number, words, verdict, tests in rows():
        where = f"docs/from-torchserve.md:{number}"
        if verdict not in ("works", "differs", "n/a"):
            problems.append(f'{where}: "{verdict}" is none of works, differs, n/a')
        if verdict in ("works", "differs") and not tests:
            problems.append(f"{where}: {verdict}, but no test is named")
        problems += [f"{where}: there is no test {test}" for test in tests if not test_exists(test)]
        for word in words:
            verdicts.setdefault(word, verdict)
    for _, args in strings(ROOT / "config" / "torchserve_flags.def", "CN_TORCHSERVE_FLAG"):
        problems += [f"config/torchserve_flags.def: {flag} is not in the page"
                     for flag in args[:2] if flag and flag not in verdicts]
    for _, args in strings(ROOT / "archiver" / "options.def", "CN_ARCHIVER_OPTION"):
        if f"--{args[0]}" not in verdicts:
            problems.append(f"archiver/options.def: --{args[0]} is not in the page")
    for line, args in strings(ROOT / "config" / "properties.def", "CN_PROPERTY"):
        key, verdict = args[0], verdicts.get(args[0])
        is_note = re.match(r'CN_PROPERTY\("[^"]*", NOTE,', line) is not None
        if verdict is None:
            problems.append(f"config/properties.def: {key} is not in the page")
        elif is_note != (verdict == "n/a"):
            problems.append(f"config/properties.def: {key} is {'a NOTE' if is_note else 'read'}, "
                            f"the page says {verdict}")
    for problem in problems:
        print(problem)
    print(f"{len(verdicts)} entries, {len(problems)} problems")
    return 1 if problems or len(verdicts) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())

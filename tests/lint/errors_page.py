#!/usr/bin/env python3
"""Checks that docs/troubleshooting.md explains every word of the table of errors.

First it tries scripts/errors_page.py on pages with one mistake each, because a check that finds nothing protects
nothing. Then it checks the real page."""
import importlib.util
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "errors_page.py"
TABLE = ('/* errors.def - errors.\n *\n * gRPC: 3 INVALID_ARGUMENT, 8 RESOURCE_EXHAUSTED. */\n'
         'CN_ERROR(CN_E_BAD, "bad", 400, 3, "Bad")\nCN_ERROR(CN_E_FULL, "full", 429, 8,\n    "Full")\n')
TEXT = "**What happened.** {0}\n\n**Why.** {0}\n\n**What to do.** {0}\n".format("A whole sentence for a newcomer.")
WRONG = [
    (lambda page: page.replace("### `full`", "### Full"), "the word full has no section"),
    (lambda page: page + "### `fool`\n\n" + TEXT, "the word fool has a section, but is not in"),
    (lambda page: page + "### `full`\n\n" + TEXT, "the word full has two sections"),
    (lambda page: page.replace("**Why.**", "Why.", 1), "the section of bad says nothing after **Why.**"),
    (lambda page: page.replace(" A whole sentence for a newcomer.", "", 1), "nothing after **What happened.**"),
    (lambda page: page.replace("<!-- errors: end", "<!-- end"), "one of these two lines is missing"),
]


def load():
    spec = importlib.util.spec_from_file_location("errors_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


def main():
    tool = load()
    rows = tool.read_table(TABLE)
    page = f"{tool.BEGIN}{tool.END}\n### `bad`\n\n{TEXT}\n### `full`\n\n{TEXT}"
    good = tool.written(page, rows)
    if tool.written(good, rows) != good:
        sys.exit(f"scripts/errors_page.py changes what it has just written:\n{good}")
    for wanted in ("| [`full`](#full) | 429 | RESOURCE_EXHAUSTED | yes |", "HTTP 400, gRPC INVALID_ARGUMENT, type `Bad`."):
        if wanted not in good:
            sys.exit(f"scripts/errors_page.py should write {wanted!r}, but writes:\n{good}")
    if tool.written(good, tool.read_table(TABLE.replace("400", "422"))) == good:
        sys.exit("scripts/errors_page.py does not notice that a status has changed")
    for spoil, expected in WRONG:
        try:
            said = f"nothing, but writes:\n{tool.written(spoil(good), rows)}"
        except tool.Wrong as wrong:
            said = str(wrong)
        if expected not in said:
            sys.exit(f"scripts/errors_page.py should say {expected!r}, but says {said}")
    sys.exit(subprocess.run([sys.executable, SCRIPT, "--check"], check=False).returncode)


if __name__ == "__main__":
    main()

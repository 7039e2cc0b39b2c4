#!/usr/bin/env python3
"""Checks the tables of phases (*_phases.def) and what docs/architecture.md shows of them.

First it tries scripts/phases.py on tables with one mistake each, because a check that finds nothing protects nothing.
Then it checks the real tables."""
import importlib.util
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "phases.py"
HEAD = "/* t_phases.def - the life of a test. */\n"
GOOD = HEAD + 'CN_PHASE(A, "x", (B), "y")\nCN_PHASE(B, "x " "y", (A, C), "z")\nCN_PHASE(C, "", (), "")\n'
WRONG = [
    (GOOD.replace("t_phases", "u_phases"), "must begin with the comment"),
    (HEAD, "has no rows"),
    (GOOD + "CN_PHASE(D, x, (), y)\n", "is not a row"),
    (GOOD.replace("(A, C)", "(A, C, D)"), "D, which may follow B, is not a phase"),
    (GOOD.replace("(A, C)", "(A, C, A)"), "A is listed twice"),
    (GOOD + 'CN_PHASE(B, "x", (), "y")\n', "B stands there twice"),
    (GOOD + 'CN_PHASE(D, "x", (C), "y")\n', "D cannot be reached from A"),
    (GOOD.replace("(A, C)", "(A, C, D)") + 'CN_PHASE(D, "x", (D), "y")\n', "from the phase D no end"),
    (GOOD.replace("(A, C)", "(A, C, D, E, F, G, H, I, J)"), "has 9 followers"),
]


def load():
    spec = importlib.util.spec_from_file_location("phases", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


def verdict(phases, text):
    try:
        phases.check(phases.read("t_phases.def", text)[2])
    except phases.Wrong as wrong:
        return str(wrong)
    return ""


def main():
    phases = load()
    if verdict(phases, GOOD):
        sys.exit(f"scripts/phases.py refuses a good table: {verdict(phases, GOOD)}")
    for text, expected in WRONG:
        if expected not in verdict(phases, text):
            sys.exit(f"scripts/phases.py should say '{expected}', but says '{verdict(phases, text)}', of:\n{text}")
    sys.exit(subprocess.run([sys.executable, SCRIPT, "--check"], check=False).returncode)


if __name__ == "__main__":
    main()

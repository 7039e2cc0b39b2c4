#!/usr/bin/env python3
"""Records `continuo demo` as a picture that moves, docs/demo.svg, which README.md shows first:
    scripts/recording.py [continuo]
The program is build/release/bin/continuo by default. The lines are those that the demo prints, and they appear one after
the other, slower than they are printed, so that they can be read. The picture needs no script: a viewer that shows no
animation, or whose user wants none, shows all lines at once. A test compares its lines with those of the demo."""

import html
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "demo.svg"
LINE, WIDTH, EDGE = 18, 8.43, 16  # of one line and of one character of the font's 14 pixels; around the text
# How long the reader waits for a line, by its beginning: for the model's code little, for what happens longer.
PAUSES = [("   sent", 0.8), ("    ", 0.08), ("", 0.5)]
COLOURS = [("$ ", "prompt"), ("   sent", "answer"), ("3. ", "kill"), ("    ", "code")]

STYLE = """
    text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #e6edf3;
           white-space: pre; animation: show 1ms backwards }
    .prompt { fill: #7ee787 } .answer { fill: #79c0ff } .kill { fill: #ffa198 } .code { fill: #9da7b3 }
    @keyframes show { from { visibility: hidden } to { visibility: visible } }
    @media (prefers-reduced-motion: reduce) { text { animation: none } }
"""


def first(table, line, otherwise=None):
    return next((value for beginning, value in table if line.startswith(beginning)), otherwise)


def picture(lines):
    """Returns the picture of the terminal's lines."""
    width, height = round(max(map(len, lines)) * WIDTH) + 2 * EDGE, len(lines) * LINE + 2 * EDGE
    out, at = [], 0.3
    for i, line in enumerate(lines):
        if line:
            colour = first(COLOURS, line)
            named = f' class="{colour}"' if colour else ""
            out.append(f'  <text x="{EDGE}" y="{EDGE + i * LINE + 13}"{named} style="animation-delay:{at:.2f}s" '
                       f'xml:space="preserve">{html.escape(line, quote=False)}</text>')
        at += first(PAUSES, line) if line else 0.2
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="What continuo demo prints">\n  <style>{STYLE}  </style>\n'
            f'  <rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n' + "\n".join(out) + "\n</svg>\n")


def main(arguments):
    if arguments[:1] in (["-h"], ["--help"]) or len(arguments) > 1:
        print(__doc__)
        return 0
    program = arguments[0] if arguments else ROOT / "build" / "release" / "bin" / "continuo"
    shown = subprocess.run([program, "demo"], stdout=subprocess.PIPE, text=True, check=True).stdout
    PICTURE.write_text(picture(["$ continuo demo", *shown.rstrip("\n").split("\n")]))
    print(f"recording: {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

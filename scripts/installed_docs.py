#!/usr/bin/env python3
"""Writes the pages of the documentation as they are installed: scripts/installed_docs.py FOLDER

FOLDER gets what belongs into share/ of an installation: the documentation, and the pages of the examples. In the repository
a page may link to any file. What is installed lies elsewhere, or is not installed at all, such as the sources. So each link
to an installed file leads to its place there, and of each other link only the text is left."""

import pathlib
import posixpath
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Where the files of the repository are in an installation. The first row that fits counts.
PLACES = [("docs/", "share/doc/continuo/docs/"), ("README.md", "share/doc/continuo/README.md"),
          ("CHANGELOG.md", "share/doc/continuo/CHANGELOG.md"), ("SECURITY.md", "share/doc/continuo/SECURITY.md"),
          ("LICENSE", "share/doc/continuo/copyright"), ("examples/", "share/continuo/examples/"),
          ("packaging/grafana/", "share/continuo/grafana/"), ("proto/", "share/continuo/proto/"),
          ("include/", "include/")]
LEFT_OUT = re.compile(r"CMakeLists\.txt$|^proto/.*(?<!\.proto)$")  # cmake/ContinuoInstall.cmake leaves them out, too
CODE = re.compile(r"(?ms)^ *```.*?^ *```[^\n]*$|`[^`\n]*`")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def place_of(name):
    """Returns where a file or folder of the repository is installed; "" if it is not."""
    if LEFT_OUT.search(name):
        return ""
    return next((there + name[len(here):] for here, there in PLACES
                 if name == here or (here.endswith("/") and name.startswith(here))), "")


def names():
    """Returns the files of the repository. An unpacked source without git has them all below the places, too."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                            check=False)
    if listed.returncode == 0 and listed.stdout:
        found = listed.stdout.split("\n")
    else:
        found = [path.relative_to(ROOT).as_posix() for here, _ in PLACES
                 for path in ([ROOT / here] if not here.endswith("/") else (ROOT / here).rglob("*"))]
    return sorted(name for name in found if name and (ROOT / name).is_file() and place_of(name))


def linked(name, text, installed):
    """Returns the page's text with the links of an installation."""
    here = posixpath.dirname(place_of(name))
    kept = []

    def hide(code):
        kept.append(code.group())
        return f"\0{len(kept) - 1}\0"

    def link(found):
        label, target, anchor = found.group(1), found.group(2), found.group(3) or ""
        if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
            return found.group()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        folder = any(each.startswith(f"{path}/") for each in installed)
        there = place_of(f"{path}/") if folder else place_of(path) if path in installed else ""
        if not there:
            return label
        mark = "!" if found.group().startswith("!") else ""
        return f"{mark}[{label}]({posixpath.relpath(there, here)}{anchor})"
    plain = LINK.sub(link, CODE.sub(hide, text))
    return re.sub(r"\0(\d+)\0", lambda mark: kept[int(mark.group(1))], plain)


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    to = pathlib.Path(arguments[0])
    installed = set(names())
    for name in sorted(installed):
        page = name.endswith(".md")
        place = place_of(name)
        if not (page or place.startswith("share/doc/")):
            continue  # cmake installs it as it is
        out = to / place[len("share/"):]
        out.parent.mkdir(parents=True, exist_ok=True)
        content = (ROOT / name).read_bytes()
        out.write_bytes(linked(name, content.decode(), installed).encode() if page else content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

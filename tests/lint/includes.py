#!/usr/bin/env python3
"""Holds every #include line against the tables of docs/architecture.md.

The block ```arrows says which library may include which; CMakeLists.txt must
link the same, and there is no circle. The block ```rooms says which folders of
one library include which others of it. An arrow that is not used is an error,
too. The block ```libraries says in how many files an outside library's header
may appear, so that each library can be replaced.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOC = ROOT / "docs" / "architecture.md"
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def block(name):
    text = DOC.read_text() if DOC.exists() else ""
    found = re.search(r"^```%s\n(.*?)^```" % name, text, re.S | re.M)
    if not found:
        sys.exit(f"docs/architecture.md: the block ```{name} is missing; includes.py reads its rules there")
    return found.group(1).split("\n")


def arrows(name):
    table = {}
    for line in block(name):
        if line.strip():
            source, _, deps = line.partition(":")
            table[source.strip()] = set(deps.split())
    return table


def limits():
    return {word[0]: int(word[1]) for word in (line.split() for line in block("libraries")) if word}


def find_cycle(table):
    done = set()

    def walk(node, path):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        for dep in sorted(table.get(node, ())):
            cycle = walk(dep, path + [node])
            if cycle:
                return cycle
        done.add(node)
        return None

    for node in table:
        cycle = walk(node, [])
        if cycle:
            return cycle
    return None


class Libraries:
    """Returns name -> folders of the libraries in CMakeLists.txt, and of bench."""

    def __init__(self):
        self.folders, self.links = {"bench": None}, {}
        text = (ROOT / "CMakeLists.txt").read_text()
        for name, args in re.findall(r"^cn_library\(([\w/]+)([^)]*)\)", text, re.M):
            found = dict(re.findall(r"(FOLDERS|DEPS|LIBS)\s+((?:(?!FOLDERS|DEPS|LIBS)\S+\s*)+)", args))
            self.folders[name] = found["FOLDERS"].split() if "FOLDERS" in found else None
            self.links[name] = set(found.get("DEPS", "").split())

    def of(self, folder):
        if folder.split("/")[0] == "continuo":
            return "include"
        for name in sorted(self.folders, key=len, reverse=True):
            listed = self.folders[name]
            if folder in listed if listed else folder == name or folder.startswith(name + "/"):
                return name
        return None


def sources(libraries):
    for path in sorted(ROOT.glob("*/**/*")):
        relative = str(path.relative_to(ROOT))
        if path.suffix in (".c", ".h", ".def") and "/testdata/" not in relative:
            library = libraries.of(relative.rpartition("/")[0])
            if library:
                yield path, relative, library


def check_file(path, relative, library, libraries, users, used, problems):
    folder = relative.rpartition("/")[0]
    for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        if name in users and library != "bench":  # it measures a library by itself
            users[name].add(relative)
        if quote == "<" or "/testdata/" in name:
            continue
        target = libraries.of(name.rpartition("/")[0])
        if target != "include" and not ((ROOT / name).exists() or name.endswith(".inc")):
            problems.append(f'{relative}:{number}: "{name}" is no path from the root')
        elif target != library:
            used.setdefault(library, {}).setdefault(target, f"{relative}:{number}")
            if name.endswith("_priv.h"):
                problems.append(f'{relative}:{number}: "{name}" is for {target} only')
        elif name.rpartition("/")[0] != folder:
            used.setdefault(folder, {}).setdefault(name.rpartition("/")[0], f"{relative}:{number}")


def compare(said, used, problems):
    """`said` is a table of the page, and `used` is source -> target -> where."""
    for source, deps in said.items():
        for target in sorted(deps - set(used.get(source, {}))):
            problems.append(f"docs/architecture.md: {source} does not include {target} any more")
        for target, where in sorted(used.get(source, {}).items(), key=str):
            if target not in deps:
                problems.append(f"{where}: {source} may not include {target} (docs/architecture.md)")


def check_cmake(table, libraries, problems):
    for name in sorted(set(table) - {"bench"} | set(libraries.links)):
        if name not in table or name not in libraries.links:
            problems.append(f"{name} is a library of CMakeLists.txt or of docs/architecture.md only")
        elif libraries.links[name] != table[name] - {"include"}:
            problems.append(f"CMakeLists.txt: {name} links {' '.join(sorted(libraries.links[name]))}, "
                            f"the table says {' '.join(sorted(table[name]))}")


def main():
    libraries, table, rooms = Libraries(), arrows("arrows"), arrows("rooms")
    most = limits()
    users = {header: set() for header in most}
    used, problems, count = {}, [], 0
    cycle = find_cycle(table)
    if cycle:
        problems.append("docs/architecture.md: the arrows run in a circle: " + " -> ".join(cycle))
    folders = set()
    for path, relative, library in sources(libraries):
        check_file(path, relative, library, libraries, users, used, problems)
        folders.add(relative.rpartition("/")[0])
        count += 1
    # A room may have the name of its library (worker, worker/batch). The targets of its arrows tell the two apart.
    inner = {f: {t: w for t, w in used.get(f, {}).items() if libraries.of(f) == libraries.of(t)} for f in folders}
    outer = {n: {t: w for t, w in used.get(n, {}).items() if libraries.of(n) != libraries.of(t)} for n in table}
    compare(table, outer, problems)
    compare({folder: rooms.get(folder, set()) for folder in sorted(folders | set(rooms))}, inner, problems)
    for path in sorted((ROOT / "tests").rglob("*.c")):
        for line in path.read_text(errors="replace").split("\n"):
            match = INCLUDE.match(line)
            if match and match.group(2) in users:
                users[match.group(2)].add(str(path.relative_to(ROOT)))
    for header, files in users.items():
        if len(files) > most[header]:
            problems.append(f"<{header}> appears in {len(files)} files, {most[header]} are allowed: "
                            + " ".join(sorted(files)))
    check_cmake(table, libraries, problems)
    for problem in problems:
        print(problem)
    print(f"{count} files, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())

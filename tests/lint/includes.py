#!/usr/bin/env python3
"""Holds every #include line against the tables of docs/architecture.md.

The block ```arrows says which folder may include which; CMakeLists.txt must
link the same. The block ```libraries says in how many files an outside
library's header may appear, so that each library can be replaced.
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


def arrows():
    table = {}
    for line in block("arrows"):
        if line.strip():
            folder, _, deps = line.partition(":")
            table[folder.strip()] = set(deps.split())
    for folder, deps in table.items():
        for unknown in deps - set(table) - {"include"}:
            sys.exit(f"docs/architecture.md: {folder} may include {unknown}, which is no folder of the table")
    return table


def libraries():
    return {word[0]: int(word[1]) for word in (line.split() for line in block("libraries")) if word}


def find_cycle(table):
    done = set()

    def walk(folder, path):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return None
        for dep in sorted(table.get(folder, ())):
            cycle = walk(dep, path + [folder])
            if cycle:
                return cycle
        done.add(folder)
        return None

    for folder in table:
        cycle = walk(folder, [])
        if cycle:
            return cycle
    return None


def check_file(path, folder, allowed, users, problems):
    relative = path.relative_to(ROOT)
    for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        top = name.split("/")[0]
        if name in users and folder != "bench":  # it measures a library by itself
            users[name].add(str(relative))
        if quote == "<":
            continue
        if top == "continuo":
            top = "include"
        elif "/" not in name or not ((ROOT / name).exists() or name.endswith(".inc")):
            problems.append(f'{relative}:{number}: "{name}" is no path from the root')
            continue
        if top != folder and top not in allowed:
            problems.append(f"{relative}:{number}: {folder} may not include {top} (docs/architecture.md)")
        if name.endswith("_priv.h") and top != folder:
            problems.append(f'{relative}:{number}: "{name}" is for {top} only')


def check_cmake(table, problems):
    text = (ROOT / "CMakeLists.txt").read_text()
    for folder, args in re.findall(r"^cn_library\((\w+)([^)]*)\)", text, re.M):
        deps = re.search(r"DEPS\s+(.*?)(?:\s+LIBS|$)", args, re.S)
        linked = set(deps.group(1).split()) if deps else set()
        if folder not in table:
            problems.append(f"CMakeLists.txt: {folder} is not in the table of docs/architecture.md")
        elif linked != table[folder] - {"include"}:
            wanted = " ".join(sorted(table[folder] - {"include"})) or "nothing"
            problems.append(f"CMakeLists.txt: {folder} links {' '.join(sorted(linked)) or 'nothing'}, "
                            f"the table says {wanted}")


def main():
    table, limits = arrows(), libraries()
    users = {header: set() for header in limits}
    problems, count = [], 0
    cycle = find_cycle(table)
    if cycle:
        problems.append("docs/architecture.md: the arrows run in a circle: " + " -> ".join(cycle))
    for folder in sorted(table):
        for path in sorted((ROOT / folder).glob("*.[ch]")) + sorted((ROOT / folder).glob("*.def")):
            check_file(path, folder, table[folder], users, problems)
            count += 1
    for path in sorted((ROOT / "tests").rglob("*.c")):
        for line in path.read_text(errors="replace").split("\n"):
            match = INCLUDE.match(line)
            if match and match.group(2) in users:
                users[match.group(2)].add(str(path.relative_to(ROOT)))
    for header, files in users.items():
        if len(files) > limits[header]:
            problems.append(f"<{header}> appears in {len(files)} files, {limits[header]} are allowed: "
                            + " ".join(sorted(files)))
    check_cmake(table, problems)
    for problem in problems:
        print(problem)
    print(f"{count} files, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())

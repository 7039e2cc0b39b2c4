#!/usr/bin/env python3
"""Makes the wheel of the server, for `pip install` on a machine that has Python and nothing else of ours:
    scripts/server_wheel.py [folder of a release build]
and two small ones: continuo-torch, with the library for TorchScript models, if the build has that library, and
continuo-torchserve, with the program torchserve under TorchServe's own name:
    scripts/server_wheel.py --torch [folder of a release build]
    scripts/server_wheel.py --torchserve [folder of a release build]

The first wheel has what the Debian package has, apart from the service: the programs, the worker, the package for
Python handlers, manual pages, completions, examples and documentation. It also brings every library that these need,
apart from the C library, with its licence; the list of them is inside as well (scripts/sbom.py).

Where pip puts what, below the folder of the environment:
    bin/                   the programs themselves, so that one starts as quickly as a compiled program does
    libexec/continuo/      what the programs open: the worker, the package for handlers
    libexec/continuo/libraries/    the libraries
    share/, include/       manual pages, completions, examples, documentation; the header for C handlers
    lib/pythonX.Y/site-packages/continuo/    the package for handlers once more, for their tests
continuo-torch puts its library into libexec/continuo, too, or several if the build has them (scripts/torch_versions.sh): a
worker opens that which fits the PyTorch of the same environment. A library needs the version against which it was built,
or a later one that was tried. pip installs continuo-torchserve for
`continuo[torchserve]`; it takes the place of the package torchserve, whose program has the same name.

No file has an absolute path in it. Each program looks for libraries beside itself (RUNPATH with $ORIGIN), so an
environment may be moved. What a handler or a model loads by itself does not look there.

The libraries are those of the Debian on which the wheel is made, and so the wheel needs at least the C library that is
installed here. Its tag says which: manylinux_2_36 on Debian 12. Equal builds give equal bytes. The script needs
patchelf, readelf, ldd and dpkg."""

import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import sbom
import wheel

LIBRARIES = "libexec/continuo/libraries"
# Another package may bring a program with the name; pip would write one over the other without a word.
RENAMED = {"torchserve": "continuo-torchserve", "torchserve.1": "continuo-torchserve.1"}
LEFT_OUT = ("bin/torch-model-archiver", "share/man/man1/torch-model-archiver.1", "lib/systemd/")
# Where a file looks for libraries, by the beginning of its path in the wheel. For site-packages: in an environment, and
# in a folder that pip --target names.
RUNPATHS = {
    "{data}/scripts/": "$ORIGIN/../" + LIBRARIES,
    "{data}/data/" + LIBRARIES + "/": "$ORIGIN",
    "{data}/data/libexec/continuo/python/": "$ORIGIN/../../libraries",
    "{data}/data/libexec/continuo/": "$ORIGIN/libraries",
    "continuo/": "$ORIGIN/../../../../" + LIBRARIES + ":$ORIGIN/../" + LIBRARIES,
}
# Where the library for TorchScript models finds PyTorch: in an environment of any of these, or beside pip --target's.
PYTHONS = range(9, 15)  # 3.9 to 3.14; PyTorch has no stable ABI, so its own wheels say for which it is
TORCH_RUNPATH = ":".join([*(f"$ORIGIN/../../lib/python3.{minor}/site-packages/torch/lib" for minor in PYTHONS),
                          "$ORIGIN/../../torch/lib"])
TORCH_BEFORE = (2, 15)  # tests/e2e/test_torch_portability.py passed with 2.14 and the library for 2.13
TORCH_FROM = (2, 13)  # a library that was built against 2.12 does not open with 2.13
OPENED = "libhiredis.so.0.14"  # no file names it: workers open it when states are in a shared store
METADATA = """Metadata-Version: 2.1
Name: continuo
Version: {version}
Summary: Continuo, a model server for stateful inference, and its package for handlers in Python
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: torch
Requires-Dist: continuo-torch=={version}; extra == "torch"
Provides-Extra: torchserve
Requires-Dist: continuo-torchserve=={version}; extra == "torchserve"
Description-Content-Type: text/markdown

Continuo serves models that remember: it keeps the state of each sequence between its steps, and commits it before an
answer leaves. `continuo demo` shows it in a second; `continuo --help` lists the options of the server, and
`share/doc/continuo` in the environment has the documentation.

The programs are `continuo` (the server), `continuo-ctl`, `continuo-archiver` and `continuo-torchserve`, which takes the
command line of TorchServe. They are compiled for Linux with glibc {glibc} or newer. `share/doc/continuo` has the
licence of Continuo, and the folder `licenses` beside this file has those of all libraries that come with it.
"""

TORCH_METADATA = """Metadata-Version: 2.1
Name: continuo-torch
Version: {version}
Summary: TorchScript models for Continuo, a model server for stateful inference
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: continuo=={version}
Requires-Dist: torch{torch}
"""

TORCHSERVE_METADATA = """Metadata-Version: 2.1
Name: continuo-torchserve
Version: {version}
Summary: The command torchserve, run by Continuo; it replaces that of the package torchserve
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: continuo=={version}
"""


def run(*command):
    try:
        return sbom.output_of(*command)
    except FileNotFoundError:
        raise sbom.Failure(f"there is no {command[0]} here; scripts/setup.sh installs it") from None


def glibc():
    return os.confstr("CS_GNU_LIBC_VERSION").split()[1]


# ---- what is in the wheel


def path_in_wheel(path, data):
    """Returns where a file of an installed tree goes; "" if it stays out."""
    if path.startswith(LEFT_OUT):
        return ""
    folder, _, rest = path.partition("/")
    parts = rest.split("/")
    rest = "/".join(parts[:-1] + [RENAMED.get(parts[-1], parts[-1])])
    if folder == "bin":
        return f"{data}/scripts/{rest}"
    return f"{data}/data/libexec/{rest}" if folder == "lib" else f"{data}/data/{folder}/{rest}"


def libraries_of(programs):
    """Returns the paths of all libraries that the programs load, by name, apart from those of the C library."""
    opened = re.search(rf"^\s*{re.escape(OPENED)} .*=> (/\S+)$", run("/sbin/ldconfig", "-p"), re.M)
    if not opened:
        raise sbom.Failure(f"there is no {OPENED} here; scripts/setup.sh installs it")
    found = {OPENED: opened[1]}
    for program in [*programs, opened[1]]:
        found.update(re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", program), re.M))
    packages = sbom.packages_of(sorted(found.values()))
    unknown = sorted(path for path in found.values() if path not in packages)
    if unknown:
        raise sbom.Failure(f"{unknown[0]} belongs to no Debian package, so its licence is not known")
    return {name: (path, packages[path]) for name, path in found.items()
            if sbom.facts_of_package(packages[path])[2] != "glibc"}


def licences_of(packages):
    """Yields the licence of each package, and the texts of licences that these refer to."""
    common = set()
    for package in packages:
        text = (sbom.DOC / package / "copyright").read_bytes()
        common.update(re.findall(rb"/usr/share/common-licenses/([A-Za-z]+(?:-[0-9]+(?:\.[0-9]+)*)?)", text))
        yield f"{package}.txt", text
    for name in sorted(each.decode() for each in common):
        text = pathlib.Path("/usr/share/common-licenses", name)
        if text.is_file():
            yield f"common/{name}", text.read_bytes()


def lay_out(tree, stage, data):
    """Puts the files of the installed tree into the folder `stage` as the wheel has them, with the libraries that they
    need. Returns these: the package of each name."""
    files = [path for path in sorted(tree.rglob("*")) if path.is_file()]
    found = libraries_of([path for path in files if is_elf(path)])
    for path in files:
        inside = path.relative_to(tree).as_posix()
        places = [path_in_wheel(inside, data)]
        if inside.startswith("lib/continuo/python/continuo/"):
            places.append(inside.removeprefix("lib/continuo/python/"))
        for place in filter(None, places):
            copy(path, stage / place)
    for name, (path, _) in found.items():
        copy(path, stage / data / "data" / LIBRARIES / name)
    return {name: package for name, (_, package) in found.items()}


def copy(path, to):
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)
    to.chmod(0o755 if os.access(path, os.X_OK) else 0o644)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def set_runpath(path, inside, data):
    runpath = next(value for start, value in RUNPATHS.items() if inside.startswith(start.format(data=data)))
    run("patchelf", "--set-rpath", runpath, path)


# ---- the list of libraries


def bill(tree, version, file, bundled, stage, data):
    """The list for the wheel; what comes with it has the name of its file, and that file's digest."""
    made, needs = sbom.components(tree, [sbom.facts_of_package(package) and package for package in sbom.OPENED])
    for name in sorted(bundled):
        component = made[bundled[name]]
        place = stage / data / "data" / LIBRARIES / name
        component["properties"].append({"name": "continuo:bundled", "value": f"{LIBRARIES}/{name}"})
        component["properties"].append({"name": "continuo:bundled-sha256",
                                        "value": hashlib.sha256(place.read_bytes()).hexdigest()})
    content = hashlib.sha256()
    for path in sorted(stage.rglob("*")):
        if path.is_file():
            content.update(f"{path.relative_to(stage)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return sbom.text_of(sbom.bill_of("continuo", version, file, content.hexdigest(), made, needs)).encode()


# ---- the wheel


def build_wheel(build, folder):
    tree, stage = folder / "tree", folder / "stage"
    package = build / "bin" / "python" / "continuo"
    if not (package / "_worker.abi3.so").exists():
        raise sbom.Failure(f"no package in {package}: build it with Python's headers (python3-dev)")
    version = wheel.version_of(package)
    data, info = f"continuo-{version}.data", f"continuo-{version}.dist-info"
    tag = f"cp39-abi3-manylinux_{glibc().replace('.', '_')}_{platform.machine()}"
    run("cmake", "--install", build, "--prefix", tree, "--strip")
    bundled = lay_out(tree, stage, data)
    programs = []
    for path in sorted(stage.rglob("*")):
        inside = path.relative_to(stage).as_posix()
        if not path.is_file() or path.suffix in (".pyc", ".pyo"):
            continue
        if is_elf(path):
            set_runpath(path, inside, data)
        if os.access(path, os.X_OK):
            programs.append(inside)
    for name, text in [("LICENSE", (wheel.ROOT / "LICENSE").read_bytes()), *licences_of(sorted({*bundled.values()}))]:
        place = stage / info / "licenses" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)
    place = stage / info / sbom.INSIDE
    place.parent.mkdir(parents=True)
    place.write_bytes(bill(tree, version, f"continuo-{version}-{tag}.whl", bundled, stage, data))
    files = [(path.relative_to(stage).as_posix(), path.read_bytes()) for path in sorted(stage.rglob("*"))
             if path.is_file() and "__pycache__" not in path.parts]
    wheel.make("continuo", version, tag, METADATA.replace("{glibc}", glibc()), files, programs)


def minor_of(version):
    return tuple(int(number) for number in version.split(".")[:2])


def torch_versions(known):
    """Returns the versions that pip may install beside libraries that were built against these, the newest first."""
    newest, oldest = minor_of(known[0]), minor_of(known[-1])
    if not TORCH_FROM <= newest < TORCH_BEFORE:
        return f"=={known[0]}"
    if newest[1] - oldest[1] >= len(known):
        raise sbom.Failure(f"there are libraries for PyTorch {', '.join(known)} only, and not for those between")
    return f">={oldest[0]}.{oldest[1]},<{TORCH_BEFORE[0]}.{TORCH_BEFORE[1]}"


def torch_libraries(build):
    """Returns the build's libraries, by the version of PyTorch against which each was built, the newest first."""
    found = {}
    # The one without a version in its name is the build's own, so it comes first: of two for the same PyTorch, the
    # message names the other one.
    for library in sorted((build / "bin").glob("libcontinuo_torch*.so"), key=lambda path: path.stem):
        torch = pathlib.Path(run("patchelf", "--print-rpath", library).strip().split(":")[0]).parent
        if not (torch / "version.py").exists():
            raise sbom.Failure(f"{torch} is no Python package of PyTorch, so pip could not install what {library.name} "
                               "needs")
        version = re.search(r"^__version__ = '([0-9.]+)", (torch / "version.py").read_text(), re.M)[1]
        if minor_of(version) in [minor_of(each) for each in found]:
            raise sbom.Failure(f"there are two libraries for PyTorch {version}: remove {library}")
        found[version] = library
    if not found:
        raise sbom.Failure(f"no libcontinuo_torch.so in {build / 'bin'}: scripts/setup.sh --torch installs PyTorch, and "
                           "the next build makes it")
    return dict(sorted(found.items(), key=lambda item: minor_of(item[0]), reverse=True))


def build_torch_wheel(build, folder):
    """A worker opens libcontinuo_torch.so first, so that has to be the newest; then those with a version in the name."""
    known = torch_libraries(build)
    version = wheel.version_of(build / "bin" / "python" / "continuo")
    files = [(f"continuo_torch-{version}.dist-info/licenses/LICENSE", (wheel.ROOT / "LICENSE").read_bytes())]
    programs = []
    for i, (against, library) in enumerate(known.items()):
        end = "" if i == 0 else "-{}.{}".format(*minor_of(against))
        made = folder / f"libcontinuo_torch{end}.so"
        run("strip", "-o", made, library)
        run("patchelf", "--set-rpath", TORCH_RUNPATH, made)
        programs.append(f"continuo_torch-{version}.data/data/libexec/continuo/{made.name}")
        files.append((programs[-1], made.read_bytes()))
    wheel.make("continuo_torch", version, f"py3-none-manylinux_{glibc().replace('.', '_')}_{platform.machine()}",
               TORCH_METADATA.replace("{torch}", torch_versions(list(known))), files, programs)


def build_torchserve_wheel(build, folder):
    program, made = build / "bin" / "torchserve", folder / "torchserve"
    if not program.exists():
        raise sbom.Failure(f"no {program}: build it first (scripts/build.sh)")
    version = wheel.version_of(build / "bin" / "python" / "continuo")
    run("strip", "-o", made, program)
    data, info = f"continuo_torchserve-{version}.data", f"continuo_torchserve-{version}.dist-info"
    run("patchelf", "--set-rpath", RUNPATHS["{data}/scripts/"], made)
    inside = f"{data}/scripts/torchserve"
    wheel.make("continuo_torchserve", version, f"py3-none-manylinux_{glibc().replace('.', '_')}_{platform.machine()}",
               TORCHSERVE_METADATA, [(inside, made.read_bytes()),
                                     (f"{info}/licenses/LICENSE", (wheel.ROOT / "LICENSE").read_bytes())], [inside])


KINDS = {"--torch": build_torch_wheel, "--torchserve": build_torchserve_wheel}


def main():
    words = [word for word in sys.argv[1:] if word not in KINDS]
    if len(words) > 1 or words[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0 if len(words) == 1 else 2
    make = next((KINDS[word] for word in sys.argv[1:] if word in KINDS), build_wheel)
    with tempfile.TemporaryDirectory() as folder:
        try:
            make(wheel.ROOT / (words[0] if words else "build/release"), pathlib.Path(folder))
        except (sbom.Failure, subprocess.SubprocessError) as failure:
            print(f"scripts/server_wheel.py: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

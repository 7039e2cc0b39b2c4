#!/usr/bin/env python3
"""Writes a software bill of materials beside each Debian package or wheel: the libraries that its programs link, with
the version and the licence of each, as CycloneDX 1.6 in JSON:
    scripts/sbom.py build/continuo_1.0.0_amd64.deb    writes build/continuo_1.0.0_amd64.deb.cdx.json

A wheel of the server brings its libraries, and has their list inside (scripts/server_wheel.py). The list beside such a
wheel is the same, with the digest of the wheel.

Everything comes from the file itself and from the Debian packages that are installed here, so run it where the file was
built. Equal files give equal bytes: the time in the file is that of SOURCE_DATE_EPOCH, or of the last commit.

The licence of a library is the one that its Debian package states for the files of the library. It needs readelf, ldd
and dpkg, which the build has installed. docs/decisions/0053 says why this is a script of our own."""

import datetime
import email
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse
import uuid
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOC = pathlib.Path("/usr/share/doc")
OWN_LICENCE = "Apache-2.0"
INSIDE = "sboms/continuo.cdx.json"  # in a wheel's folder of metadata, where PEP 770 has such files

# What a program opens by its name while it runs, if an operator has installed it. No file needs it.
OPENED = {"libhiredis0.14": "workers open it when states are in a shared store"}
# Code of these packages is compiled into the files in which the text is.
COMPILED_IN = {"libprotobuf-dev": (b"google/protobuf/any.proto",
                                   "descriptors of google/protobuf/*.proto are compiled in")}

# The licences of libraries whose Debian package says it in prose, or says another one for its programs than for the
# library. The key is the source package; the text beside each is where its `copyright` says so.
STATED = {
    "acl": "LGPL-2.1-or-later",  # Files: libacl/*.c
    "bzip2": "bzip2-1.0.6",  # it is called BSD-variant there
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",  # Runtime Library Exception
    "glibc": "LGPL-2.1-or-later",
    "gnutls28": "LGPL-2.1-or-later",  # "The main library is licensed under [...] version 2.1+"
    "keyutils": "LGPL-2.0-or-later",  # Files: keyutils.*
    "krb5": "MIT",
    "libidn2": "LGPL-3.0-or-later OR GPL-2.0-or-later",  # Files: *.c *.h
    "libtasn1-6": "LGPL-2.1-or-later",
    "protobuf": "BSD-3-Clause",  # it is called BSD-3-Clause~Google there
    "rtmpdump": "LGPL-2.1-or-later",
}
# Debian's short names of licences, and SPDX's.
SPDX = {
    "Apache-2.0": "Apache-2.0", "BSD-2-clause": "BSD-2-Clause", "BSD-3-clause": "BSD-3-Clause", "BSD3": "BSD-3-Clause",
    "BSD-4-clause": "BSD-4-Clause", "Boost-1": "BSL-1.0", "Expat": "MIT",
    "GPL-2": "GPL-2.0-only", "GPL-2+": "GPL-2.0-or-later", "GPL-3": "GPL-3.0-only", "GPL-3+": "GPL-3.0-or-later",
    "ISC": "ISC", "LGPL-2+": "LGPL-2.0-or-later", "LGPL-2.1+": "LGPL-2.1-or-later", "LGPL-3+": "LGPL-3.0-or-later",
    "MIT": "MIT", "OpenLDAP-2.8": "OLDAP-2.8", "Zlib": "Zlib", "curl": "curl",
}
SPDX_OF = {name.lower(): spdx for name, spdx in SPDX.items()}


class Failure(Exception):
    """The file cannot be described; the message says why."""


def output_of(*command):
    environment = {**os.environ, "LC_ALL": "C", "LD_LIBRARY_PATH": ""}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise Failure(f"{command[0]} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


# ---- libraries and their packages


@functools.lru_cache(maxsize=None)
def linked(path):
    """Returns the names of the libraries that a program or library names itself."""
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^]]+)\]", output_of("readelf", "-dW", path))


def packages_of(paths):
    """Returns the Debian package of each file. Some packages of Debian 12 know a file as /lib/..., others as
    /usr/lib/..., so dpkg is asked for both; it scans all its lists once for all names."""
    names = {name: path for path in paths for real in [os.path.realpath(path)]
             for name in (real, real.removeprefix("/usr"), "/usr" + real)}
    if not names:
        return {}
    done = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True, check=False)
    found = re.findall(r"^([^:\n]+):.*? (/\S+)$", done.stdout, re.M)
    return {names[name]: package for package, name in found if name in names}


@functools.lru_cache(maxsize=None)
def facts_of_package(name):
    form = r"${db:Status-Status}\n${Version}\n${Architecture}\n${source:Package}\n${Homepage}\n"
    done = subprocess.run(["dpkg-query", "-W", "-f", form, name], capture_output=True, text=True, check=False)
    facts = done.stdout.split("\n")
    return facts[1:5] if done.returncode == 0 and facts[0] == "installed" else None


class Libraries:
    """The packages that some programs need, directly or through another library."""

    def __init__(self):
        self.sonames = {}  # package: the names of its libraries
        self.needs = {}  # package, or None for the described file: packages
        self.package_of = {}  # a library's path: its package

    def add(self, path):
        """Adds what a program links."""
        places = dict(re.findall(r"^\s*(\S+) => (/\S+)", output_of("ldd", path), re.M))
        self.package_of.update(packages_of(sorted(set(places.values()) - self.package_of.keys())))
        self._follow(None, path, places, set())

    def _follow(self, owner, path, places, seen):
        for soname in linked(path):
            place = places.get(soname)
            if place is None:
                if soname.startswith("ld-linux"):  # the loader belongs to the C library, which is there as well
                    continue
                raise Failure(f"{path} needs {soname}, which is not installed here")
            package = self.package_of.get(place)
            if package is None:
                raise Failure(f"{place} belongs to no Debian package, so its version and licence are not known")
            self.sonames.setdefault(package, set()).add(soname)
            if package != owner:
                self.needs.setdefault(owner, set()).add(package)
            if soname not in seen:
                seen.add(soname)
                self._follow(package, place, places, seen)


# ---- licences


def in_spdx(name):
    """Returns an SPDX expression for Debian's name of a licence, or None."""
    words = re.split(r"\s+(or|and)\s+", name.strip())
    spdx = [word.upper() if i % 2 else SPDX_OF.get(word.lower()) for i, word in enumerate(words)]
    return None if None in spdx else " ".join(spdx)


def licence_of(package, source):
    """Returns CycloneDX's list of licences. A `copyright` in Debian's format has paragraphs, and that of `Files: *`
    says what holds for all that no other paragraph names."""
    if source in STATED:
        return [{"expression": STATED[source]}]
    path = DOC / package / "copyright"
    text = path.read_text(errors="replace") if path.exists() else ""
    for paragraph in re.split(r"\n\s*\n", text):
        files = re.search(r"^Files:\s*(\S+)", paragraph, re.M)
        said = re.search(r"^License:[ \t]*(\S.*)", paragraph, re.M)
        if files and files[1] == "*" and said:
            spdx = in_spdx(said[1])
            return [{"expression": spdx}] if spdx else [{"license": {"name": said[1].strip()}}]
    raise Failure(f"{path} does not say the licence of the library in Debian's format; read it, and add the source "
                  f"package {source} to the table STATED in scripts/sbom.py")


# ---- the file


def quoted(text):
    return urllib.parse.quote(text, safe="")


def component_of(package, linkage, properties):
    version, architecture, source, homepage = facts_of_package(package)
    url = f"pkg:deb/debian/{quoted(package)}@{quoted(version)}?arch={architecture}"
    made = {"type": "library", "bom-ref": url, "name": package, "version": version,
            "scope": "optional" if linkage == "opened while running" else "required",
            "licenses": licence_of(package, source), "purl": url}
    if homepage:
        made["externalReferences"] = [{"type": "website", "url": homepage}]
    made["properties"] = [{"name": f"continuo:{name}", "value": value} for name, value in
                          sorted([("linkage", linkage), ("source-package", source), *properties])]
    return made


def unpack(path, folder):
    """Unpacks a package or wheel, and returns its name, version and other packages that it suggests."""
    if path.suffix == ".deb":
        output_of("dpkg-deb", "-x", path, folder)
        control = email.message_from_string(output_of("dpkg-deb", "-f", path))
        return control["Package"], control["Version"], re.findall(r"[^\s,]+", control["Suggests"] or "")
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)
        metadata, = folder.glob("*.dist-info/METADATA")
        about = email.message_from_string(metadata.read_text())
        return about["Name"], about["Version"], []
    raise Failure(f"{path} is neither a Debian package (.deb) nor a wheel (.whl)")


def programs_in(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def time_of_release():
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or output_of("git", "-C", ROOT, "log", "-1", "--format=%ct")
    when = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def components(folder, suggested):
    """Returns the components and which of them needs which, for the unpacked files in a folder."""
    libraries, made = Libraries(), {}
    for program in programs_in(folder):
        libraries.add(program)
        for package, (text, why) in COMPILED_IN.items():
            if text in program.read_bytes() and facts_of_package(package):
                made[package] = component_of(package, "compiled in", [("note", why)])
    direct = libraries.needs.get(None, set())
    for package, sonames in libraries.sonames.items():
        made[package] = component_of(package, "linked" if package in direct else "linked by a library",
                                     [("soname", soname) for soname in sonames])
    for package in suggested:
        if package in OPENED and facts_of_package(package):
            made[package] = component_of(package, "opened while running", [("note", OPENED[package])])
    return made, libraries.needs


def serial_number(digest):
    return uuid.uuid5(uuid.NAMESPACE_URL, digest).urn


def describe(path):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        name, version, suggested = unpack(path, pathlib.Path(folder))
        inside = list(pathlib.Path(folder).glob(f"*.dist-info/{INSIDE}"))
        if inside:
            bill = json.loads(inside[0].read_text())
        else:
            made, needs = components(pathlib.Path(folder), suggested)
            bill = bill_of(name, version, path.name, digest, made, needs)
    bill["serialNumber"] = serial_number(digest)
    bill["metadata"]["component"]["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return bill


def bill_of(name, version, file, digest, made, needs):
    """Returns the whole list for a file, whose content the digest stands for."""
    own = f"pkg:generic/{quoted(name)}@{quoted(version)}?file={quoted(file)}"
    refs = {package: component["bom-ref"] for package, component in made.items()}
    indirect = set().union(*(needs[owner] for owner in needs if owner)) - needs.get(None, set())
    graph = [{"ref": own, "dependsOn": sorted(refs[package] for package in made.keys() - indirect)}] + [
        {"ref": refs[package], "dependsOn": sorted(refs[need] for need in needs.get(package, ()))}
        for package in sorted(made)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
        "serialNumber": serial_number(digest), "version": 1,
        "metadata": {
            "timestamp": time_of_release(),
            "component": {"type": "application", "bom-ref": own, "name": name, "version": version,
                          "licenses": [{"expression": OWN_LICENCE}], "purl": own}},
        "components": [made[package] for package in sorted(made)], "dependencies": graph}


def text_of(bill):
    return json.dumps(bill, indent=1, ensure_ascii=False) + "\n"


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stdout if sys.argv[1:] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        try:
            if not path.is_file():
                raise Failure(f"there is no file {path}")
            bill = describe(path)
        except Failure as failure:
            print(f"scripts/sbom.py: {path.name}: {failure}", file=sys.stderr)
            return 1
        out = path.with_name(path.name + ".cdx.json")
        begun = out.with_suffix(f".{os.getpid()}")  # whoever reads the list meanwhile reads a whole one
        begun.write_text(text_of(bill))
        begun.replace(out)
        print(f"sbom: {out}, {len(bill['components'])} libraries")
    return 0


if __name__ == "__main__":
    sys.exit(main())

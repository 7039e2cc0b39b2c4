#!/usr/bin/env python3
"""Makes a signed repository of Debian packages, which apt reads from any web server or folder:
    scripts/apt_repository.py FOLDER KEY PACKAGE.deb...
FOLDER is the repository; it is made if there is none, and packages that it has already stay in it. KEY names a secret
key of gpg, for example by its fingerprint. For each kind of machine the repository lists all versions, and apt takes
the newest. FOLDER/continuo.asc is the public key, which users need.

The files that a reader takes first are written last, so one that reads meanwhile sees the old repository or the new
one. Lists are also under the names of their checksums (by-hash), and stay there for readers that are not finished.
The time of the lists is that of SOURCE_DATE_EPOCH, or now. Needs dpkg-deb and gpg."""

import datetime
import email.utils
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

SUITE, COMPONENT = "stable", "main"


class Failure(Exception):
    """What the user reads."""


def run(*command, given=None):
    try:
        done = subprocess.run([str(word) for word in command], input=given, capture_output=True, check=False)
    except FileNotFoundError:
        raise Failure(f"there is no {command[0]} here: install the package {command[0].replace('-deb', '')}") from None
    if done.returncode:
        raise Failure(f"{command[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def put(path, content):
    """Replaces the file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)


def check_key(key):
    """Fails before anything is changed."""
    try:
        run("gpg", "--batch", "--list-secret-keys", key)
    except Failure as failure:
        raise Failure(f"gpg finds no secret key of {key}; gpg --list-secret-keys shows which there are ({failure})") from None


def control_of(deb):
    return run("dpkg-deb", "-f", deb).decode().rstrip("\n")


def field(control, name):
    found = re.search(rf"^{name}: *(.+)$", control, re.M)
    if not found:
        raise Failure(f"a package has no field {name}")
    return found[1]


def add(root, deb):
    """Copies a package into the pool. One name must stay one package, because readers keep what they have."""
    if not deb.is_file():
        raise Failure(f"there is no file {deb}")
    control = control_of(deb)
    name, version, machine = (field(control, key) for key in ("Package", "Version", "Architecture"))
    there = root / "pool" / name / f"{name}_{version.split(':')[-1]}_{machine}.deb"
    if not there.exists():
        there.parent.mkdir(parents=True, exist_ok=True)
        part = there.with_name(there.name + ".part")
        shutil.copyfile(deb, part)
        part.replace(there)
    elif there.read_bytes() != deb.read_bytes():
        raise Failure(f"the repository has another {there.name}; give {deb} a new version")


def stanza(root, deb):
    """Returns (kind of machine, what the list of packages says about the package)."""
    control, content = control_of(deb), deb.read_bytes()
    return field(control, "Architecture"), (f"{control}\nFilename: {deb.relative_to(root)}\nSize: {len(content)}\n"
                                            f"SHA256: {hashlib.sha256(content).hexdigest()}\n")


def lists_of(root):
    """Returns the content of each list by its name in the suite's folder. Packages for all machines are in each list."""
    stanzas = [stanza(root, deb) for deb in sorted((root / "pool").rglob("*.deb"))]
    machines = sorted({machine for machine, _ in stanzas} - {"all"}) or ["amd64"]
    lists = {}
    for machine in machines:
        text = "\n".join(text for of, text in stanzas if of in (machine, "all")).encode()
        lists[f"{COMPONENT}/binary-{machine}/Packages"] = text
        lists[f"{COMPONENT}/binary-{machine}/Packages.gz"] = gzip.compress(text, mtime=0)
    return machines, lists


def release_of(machines, lists):
    when = float(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now().timestamp())
    files = "".join(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}\n"
                    for name, content in sorted(lists.items()))
    return (f"Origin: Continuo\nLabel: Continuo\nSuite: {SUITE}\nCodename: {SUITE}\n"
            f"Date: {email.utils.formatdate(when, usegmt=True).replace('GMT', 'UTC')}\nAcquire-By-Hash: yes\n"
            f"Architectures: {' '.join(machines)}\nComponents: {COMPONENT}\n"
            f"Description: Continuo, a model server for stateful inference\nSHA256:\n{files}").encode()


def publish(root, key):
    suite = root / "dists" / SUITE
    machines, lists = lists_of(root)
    release = release_of(machines, lists)
    sign = ["gpg", "--batch", "--yes", "--local-user", key, "--digest-algo", "SHA256", "--armor"]
    signed = run(*sign, "--clear-sign", given=release)
    signature = run(*sign, "--detach-sign", given=release)
    put(root / "continuo.asc", run("gpg", "--batch", "--armor", "--export", key))
    for name, content in lists.items():
        put((suite / name).parent / "by-hash" / "SHA256" / hashlib.sha256(content).hexdigest(), content)
    for name, content in [*lists.items(), ("Release.gpg", signature), ("Release", release), ("InRelease", signed)]:
        put(suite / name, content)
    return machines


def main(arguments):
    if len(arguments) < 3 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    root, key = pathlib.Path(arguments[0]), arguments[1]
    try:
        check_key(key)
        for deb in arguments[2:]:
            add(root, pathlib.Path(deb))
        machines = publish(root, key)
    except (Failure, OSError) as failure:
        print(f"scripts/apt_repository.py: {failure}", file=sys.stderr)
        return 1
    count = len(list((root / "pool").rglob("*.deb")))
    print(f"repository: {root}, {count} package{'s' * (count != 1)} for {', '.join(machines)}")
    print(f"repository: apt reads it as: deb [signed-by=/etc/apt/keyrings/continuo.asc] URL {SUITE} {COMPONENT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

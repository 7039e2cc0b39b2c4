#!/usr/bin/env python3
"""Makes a wheel of the package `continuo`, so that handlers can be tested and checked by tools in a venv, or of the
package `continuo-client`:
    scripts/wheel.py [folder of a release build]
    scripts/wheel.py --client

An installed server needs no such wheel: it brings the package itself. The wheel has the library of the worker, too,
which needs the Debian packages that the server needs, and is for Linux and CPython 3.9 and later. The wheel that has
the server as well is made by scripts/server_wheel.py."""

import base64
import hashlib
import os
import pathlib
import re
import stat
import sys
import sysconfig
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
METADATA = """Metadata-Version: 2.1
Name: continuo
Version: {version}
Summary: Handlers in Python for Continuo, a model server for stateful inference
License: Apache-2.0
Requires-Python: >=3.9
"""
CLIENT_METADATA = """Metadata-Version: 2.1
Name: continuo-client
Version: {version}
Summary: Client for Continuo, a model server for stateful inference
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: streams
Requires-Dist: websockets>=13; extra == "streams"
Provides-Extra: tensors
Requires-Dist: numpy; extra == "tensors"
"""
WHEEL = """Wheel-Version: 1.0
Generator: scripts/wheel.py
Root-Is-Purelib: {pure}
Tag: {tag}
"""


def files_of(package):
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".so", ".typed"):
            yield path.relative_to(package.parent).as_posix(), path.read_bytes()


def main():
    if sys.argv[1:] == ["--client"]:
        package = ROOT / "clients" / "python" / "continuo_client"
        make("continuo_client", version_of(package), "py3-none-any", CLIENT_METADATA, files_of(package))
        return
    build = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build/release")
    package = build / "bin" / "python" / "continuo"
    if not (package / "_worker.abi3.so").exists():
        sys.exit(f"scripts/wheel.py: no package in {package}: build it with Python's headers (python3-dev)")
    make("continuo", version_of(package), "cp39-abi3-" + re.sub(r"[-.]", "_", sysconfig.get_platform()), METADATA,
         files_of(package))


def version_of(package):
    return re.search(r'__version__ = "([^"]+)"', (package / "__init__.py").read_text()).group(1)


def make(name, version, tag, metadata, files, programs=()):
    """Writes build/NAME-VERSION-TAG.whl with the files, pairs of a path and bytes. `programs` are the paths of those
    that pip is to make executable."""
    info = f"{name}-{version}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = metadata.format(version=version).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag, pure=str(tag.endswith("any")).lower()).encode()
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    made = ROOT / "build" / f"{name}-{version}-{tag}.whl"
    made.parent.mkdir(exist_ok=True)
    begun = made.with_suffix(f".{os.getpid()}")  # whoever reads the wheel meanwhile reads a whole one
    with zipfile.ZipFile(begun, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))  # a fixed date: equal files give equal bytes
            entry.external_attr = (stat.S_IFREG | (0o755 if path in programs else 0o644)) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    begun.replace(made)
    print(f"wheel: {made.relative_to(ROOT)}, {made.stat().st_size // 1024} kB")


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main()

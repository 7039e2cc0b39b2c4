#!/usr/bin/env python3
"""Writes corpus/archive: small archives, good and hostile, with fixed times."""

import gzip
import io
import pathlib
import tarfile
import zipfile

HERE = pathlib.Path(__file__).parent / "corpus" / "archive"
MANIFEST = '{"runtime": "lua", "model": {"modelName": "m", "handler": "handler.lua", "modelVersion": "1.0"}}'
GOOD = {"handler.lua": "return {}\n", "lib/more.lua": "return 1\n", "MAR-INF/MANIFEST.json": MANIFEST}


def zipped(name, files, method=zipfile.ZIP_DEFLATED, modes=None):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for path, content in files.items():
            info = zipfile.ZipInfo(path)
            info.create_system = 3
            info.compress_type = method
            info.external_attr = (modes or {}).get(path, 0o100644) << 16
            archive.writestr(info, content)
    (HERE / name).write_bytes(out.getvalue())


def tarred(name, files, prefix, kind=None):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, content in files.items():
            info = tarfile.TarInfo(prefix + path)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content.encode()))
        if kind:
            info = tarfile.TarInfo(prefix + "odd")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    (HERE / name).write_bytes(gzip.compress(out.getvalue(), mtime=0) if name.endswith("gz") else out.getvalue())


HERE.mkdir(parents=True, exist_ok=True)
zipped("good.zip", GOOD)
zipped("stored.zip", GOOD, zipfile.ZIP_STORED)
zipped("outside.zip", {**GOOD, "../x": "x"}, zipfile.ZIP_STORED)
zipped("link.zip", {**GOOD, "link": "/etc/passwd"}, zipfile.ZIP_STORED, {"link": 0o120777})
zipped("bomb.zip", {**GOOD, "big": "a" * 200000})
tarred("good.tar.gz", GOOD, "m/")
tarred("good.tar", GOOD, "")
tarred("device.tar.gz", GOOD, "m/", tarfile.CHRTYPE)
tarred("hardlink.tar.gz", GOOD, "m/", tarfile.LNKTYPE)

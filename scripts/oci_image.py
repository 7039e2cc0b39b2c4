#!/usr/bin/env python3
"""Makes a container image of a tree, without podman, docker or a daemon:
    scripts/oci_image.py TREE.tar IMAGE.tar NAME:TAG
TREE.tar has the files of the image; `-` reads them from standard input. IMAGE.tar gets the image, as an archive of an OCI image layout
with one layer, which podman, skopeo and Kubernetes' containerd read; it also has the list that `docker load` reads. User,
folder, volumes, ports, variables, health check and entry point are those of packaging/Containerfile.

The time of the image is that of SOURCE_DATE_EPOCH, or now. Equal trees give equal images, byte for byte, if their times
are equal. HEALTHCHECK has no place in the OCI specification. It stands where Docker looks for it."""

import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
import sys
import tarfile
import tempfile

CONTAINERFILE = pathlib.Path(__file__).resolve().parents[1] / "packaging" / "Containerfile"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
NANOSECONDS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
OCI = "application/vnd.oci.image."


class Failure(Exception):
    """What the user reads."""


# ---- what the Containerfile says


def instructions(text):
    """Yields (word, the rest) of each instruction. A backslash at the end of a line joins the next one."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in lines.replace("\\\n", "").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def nanoseconds(text):
    found = re.fullmatch(r"(\d+)(ms|s|m|h)", text)
    if not found:
        raise Failure(f"{text} is not a time such as 10s")
    return int(found[1]) * NANOSECONDS[found[2]]


def health_check(rest):
    options, _, command = rest.partition("CMD ")
    times = {name: nanoseconds(value) for name, value in re.findall(r"--([\w-]+)=(\S+)", options)}
    return {"Test": ["CMD", *json.loads(command)], "Interval": times["interval"], "Timeout": times["timeout"],
            "StartPeriod": times["start-period"]}


def settings_of(text):
    """Returns the image's `config` as the instructions from USER on say it. Those before it make the tree."""
    config = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
    for word, rest in instructions(text):
        if word in ("FROM", "COPY", "RUN"):
            continue
        if word == "USER":
            config["User"] = rest
        elif word == "WORKDIR":
            config["WorkingDir"] = rest
        elif word == "VOLUME":
            config["Volumes"] = {path: {} for path in rest.split()}
        elif word == "EXPOSE":
            config["ExposedPorts"] = {f"{port}/tcp": {} for port in rest.split()}
        elif word == "ENV":
            config["Env"] += rest.split()
        elif word == "ENTRYPOINT":
            config["Entrypoint"] = json.loads(rest)
        elif word == "HEALTHCHECK":
            config["Healthcheck"] = health_check(rest)
        else:
            raise Failure(f"{CONTAINERFILE.name} has {word}, which this script does not know")
    return config


# ---- the image


class Layout:
    """The files of an image layout, which are named after their content."""

    def __init__(self, folder):
        self.blobs = folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        self.folder = folder

    def add_json(self, value):
        content = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(content).hexdigest()
        (self.blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    def add_layer(self, tree):
        """Compresses the tree. Returns the layer, and the digest of the tree itself."""
        plain, part = hashlib.sha256(), self.folder / "layer"
        with part.open("wb") as file, gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as out:
            while block := tree.read(1 << 20):
                plain.update(block)
                out.write(block)
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest() if sys.version_info >= (3, 11) else (
                hashlib.sha256(file.read()).hexdigest())
        size = part.stat().st_size
        part.rename(self.blobs / digest)
        return {"digest": f"sha256:{digest}", "size": size}, f"sha256:{plain.hexdigest()}"

    def pack(self, out, when):
        with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as archive:
            for path in sorted(self.folder.rglob("*")):
                info = archive.gettarinfo(path, path.relative_to(self.folder).as_posix())
                info.mtime, info.uid, info.gid, info.uname, info.gname = int(when), 0, 0, "", ""
                info.mode = 0o755 if path.is_dir() else 0o644
                with path.open("rb") if path.is_file() else io.BytesIO() as file:
                    archive.addfile(info, file)


def make(tree, out, name):
    when = float(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now().timestamp())
    created = datetime.datetime.fromtimestamp(int(when), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        layout = Layout(pathlib.Path(folder))
        layer, plain = layout.add_layer(tree)
        config = layout.add_json({
            "architecture": MACHINES.get(platform.machine(), platform.machine()), "os": "linux", "created": created,
            "config": settings_of(CONTAINERFILE.read_text()), "rootfs": {"type": "layers", "diff_ids": [plain]},
            "history": [{"created": created, "created_by": "scripts/image.sh"}]})
        manifest = layout.add_json({
            "schemaVersion": 2, "mediaType": OCI + "manifest.v1+json",
            "config": {"mediaType": OCI + "config.v1+json", **config},
            "layers": [{"mediaType": OCI + "layer.v1.tar+gzip", **layer}]})
        tag = {"org.opencontainers.image.ref.name": name.rpartition(":")[2], "io.containerd.image.name": name}
        files = {
            "oci-layout": {"imageLayoutVersion": "1.0.0"},
            "index.json": {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [
                {"mediaType": OCI + "manifest.v1+json", **manifest, "annotations": tag}]},
            "manifest.json": [{"Config": blob_of(config), "RepoTags": [name], "Layers": [blob_of(layer)]}]}
        for file, value in files.items():
            (layout.folder / file).write_text(json.dumps(value, sort_keys=True))
        layout.pack(out, when)
    return manifest["digest"]


def blob_of(descriptor):
    return "blobs/" + descriptor["digest"].replace(":", "/")


def main(arguments):
    asked = arguments[:1] in (["-h"], ["--help"])
    if len(arguments) != 3 or not re.fullmatch(r"[a-z0-9][a-z0-9._/-]*:[\w.-]+", arguments[2]):
        print(__doc__, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    out = pathlib.Path(arguments[1])
    try:
        with sys.stdin.buffer if arguments[0] == "-" else open(arguments[0], "rb") as tree:
            digest = make(tree, out, arguments[2])
    except (Failure, OSError) as failure:
        print(f"scripts/oci_image.py: {failure}", file=sys.stderr)
        return 1
    print(f"image: {out}, {arguments[2]}, {out.stat().st_size // 2**20} MiB, digest {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

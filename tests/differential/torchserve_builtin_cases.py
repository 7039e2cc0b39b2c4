"""TorchServe's own handlers with tiny models, on both servers, where the other server's Python has what they need.

CONTINUO_TORCHSERVE_PYTHON names an interpreter with torch, torchvision, captum and torchserve (torchserve_pair.py).
"""

import os
import pathlib
import subprocess
import sys

import common

sys.path.insert(0, str(common.ROOT / "tests" / "support"))
import torchserve_builtin as builtin  # noqa: E402 - beside the tests' other support

SETTINGS = {"settings": "disable_token_authorization=true\ndefault_workers_per_model=1\n", "flags": ["--ncs"],
            "models": [f"{name}={name}.mar" for name in builtin.MODELS]}


def available(python):
    """Can the models be served? Says what is missing if not."""
    lacks = builtin.missing(python)
    if lacks:
        common.say(f"torchserve: its own handlers are not compared: {python} lacks a package: {lacks}")
    return not lacks


def pack(folder, python):
    """The archives, made by the pip package torch-model-archiver."""
    (folder / "staging").mkdir(parents=True)
    builtin.make(folder, python)
    tool = pathlib.Path(sys.executable).parent / "torch-model-archiver"
    for name, (model, extra) in builtin.MODELS.items():
        command = [tool, "--model-name", name, "--version", "1.0", "--handler", name, "--serialized-file",
                   folder / model, "--export-path", folder]
        command += ["--extra-files", ",".join(str(folder / each) for each in extra)] if extra else []
        subprocess.run(list(map(str, command)), check=True, timeout=120,
                       env={**os.environ, "TMPDIR": str(folder / "staging")})
    return [folder / f"{name}.mar" for name in builtin.MODELS]


def cases(pair, folder):
    for case, name, path, body, kind in builtin.requests(folder):
        if (name, case) == ("image_segmenter", "a picture"):
            continue  # its answer has 100,000 numbers, each of which would be a part of the comparison
        pair.http(f"python {name} {case}", "inference", "POST", f"/{path}/{name}", body,
                  {"Content-Type": kind} if kind else {})

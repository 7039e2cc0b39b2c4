"""Models for tests: a handler's text, its YAML, and the archiver that packs them."""

import dataclasses
import os
import pathlib
import subprocess
import sys

from transcript import shorten
from waiting import limit

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CONTINUO_BUILD", ROOT / "build" / "release")).resolve()
BIN = BUILD / "bin"

# The running sum, which all tests of order and state use.
COUNTER_LUA = """
local M = { api = 1 }

function M.init()
    return { sum = 0 }
end

function M.step(state, req)
    local number = math.tointeger(tonumber(req.body))
    if not number then
        return nil, "the body must be a decimal integer"
    end
    state.sum = state.sum + number
    return { text = tostring(state.sum) }
end

return M
"""

# Answers with its body, and has no state.
ECHO_LUA = """
local M = { api = 1 }

function M.step(_, req)
    return { body = req.body }
end

return M
"""


@dataclasses.dataclass
class Model:
    """A model. `yaml` is a dict of top-level keys, which override the defaults of the kind, or a text that is used
    unchanged."""

    name: str
    lua: str = COUNTER_LUA
    yaml: object = None
    version: str = "1.0"
    stateful: bool = True
    handler_name: str = "handler.lua"
    extra: dict = dataclasses.field(default_factory=dict)  # file name -> bytes or text
    archive_format: str = "default"
    torchscript: bytes = None  # a TorchScript model that runs without a handler
    torchscript_name: str = "model.pt"

    def yaml_text(self):
        if isinstance(self.yaml, str):
            return self.yaml
        keys = {"minWorkers": 1, "maxWorkers": 1, "batchSize": 4}
        if self.stateful:
            keys["sequenceBatching"] = True
        keys.update(self.yaml or {})
        return "".join(_yaml_lines(keys))


def _yaml_lines(keys, indent=""):
    for key, value in keys.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:\n"
            yield from _yaml_lines(value, indent + "  ")
        else:
            text = str(value).lower() if isinstance(value, bool) else value
            yield f"{indent}{key}: {text}\n"


def counter(name="counter", version="1.0", **yaml):
    return Model(name, COUNTER_LUA, yaml, version)


def stateless(name="echo", lua=ECHO_LUA, version="1.0", **yaml):
    return Model(name, lua, yaml, version, stateful=False)


def archiver(*args, transcript=None, check=True, cwd=None):
    """Runs continuo-archiver with the given arguments."""
    run = subprocess.run([BIN / "continuo-archiver", *map(str, args)], capture_output=True, text=True,
                         timeout=limit(60), check=False, cwd=cwd)
    if transcript:
        transcript.log("archiver", f"{' '.join(map(str, args))} -> {run.returncode} "
                                   f"{shorten(run.stdout + run.stderr, 500)}")
    if check and run.returncode != 0:
        raise AssertionError(f"continuo-archiver {' '.join(map(str, args))}: {run.stderr}")
    return run


def pack(model, store, work, transcript=None, file_name=None):
    """Writes the model's files below `work` and packs them into the folder `store`. Returns the path of the archive.
    With a file name of its own, two versions of a model can be in the store."""
    source = pathlib.Path(work) / f"{model.name}-{model.version}"
    source.mkdir(parents=True, exist_ok=True)
    files = {"model-config.yaml": model.yaml_text().encode()}
    args = ["--model-name", model.name, "--version", model.version,
            "--config-file", source / "model-config.yaml",
            "--export-path", store, "--archive-format", model.archive_format, "--force", "--no-check"]
    if model.torchscript:
        files[model.torchscript_name] = model.torchscript
        args += ["--serialized-file", source / model.torchscript_name]
    else:
        files[model.handler_name] = model.lua.encode()
        args += ["--handler", source / model.handler_name]
    for name, content in model.extra.items():
        files[name] = content.encode() if isinstance(content, str) else content
    if model.extra:
        args += ["--extra-files", ",".join(str(source / name) for name in model.extra)]
    for name, content in files.items():
        (source / name).write_bytes(content)
    suffix = {"default": ".mar", "tgz": ".tar.gz", "no-archive": ""}[model.archive_format]
    made = pathlib.Path(store) / f"{model.name}{suffix}"
    known = (model.name, model.version, model.archive_format, model.handler_name, *files.items())
    if known in _packed:
        if transcript:
            transcript.log("archiver", f"{made}: as packed before")
        made.write_bytes(_packed[known])
    else:
        archiver(*args, transcript=transcript)
        if suffix and made.stat().st_size < 1 << 20:
            _packed[known] = made.read_bytes()
    if file_name:
        made = made.rename(pathlib.Path(store) / file_name)
    return made


# The archives that pack() has made. Tests share few models, and a sanitized archiver takes a fifth of the time that a
# server needs to start.
_packed = {}


# The running sum as a Python handler.
COUNTER_PY = """
from continuo import Refuse


def init(req):
    return {"sum": 0}


def step(state, req):
    try:
        number = int(req.body)
    except ValueError:
        raise Refuse("the body must be a decimal integer", 500) from None
    state["sum"] += number
    return str(state["sum"])
"""


def python(name, text=COUNTER_PY, version="1.0", stateful=True, **yaml):
    """A Python model. The key `python` of its YAML names the interpreter."""
    return Model(name, text, {"python": sys.executable, **yaml}, version, stateful,
                 handler_name="handler.py")

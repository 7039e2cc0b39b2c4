"""What a release has written is read by every later one of its MAJOR version: stores, archives, exported sequences and
states in a shared store (docs/compatibility.md).

tests/e2e/formats has one file for each release that has changed a format, which `write` has made:
    CONTINUO_WRITE_FORMATS=tests/e2e/formats/1.0.tar.gz pytest tests/e2e/test_formats.py -k reads_what_it_writes
"""

import gzip
import io
import json
import os
import pathlib
import shutil
import sys
import tarfile

import pytest

from models import BIN, COUNTER_LUA, ROOT, Model
from shared_store import shared_store_in

FORMATS = ROOT / "tests" / "e2e" / "formats"
# All kinds of values that a state in Lua or Python can hold. A step returns what it finds.
KINDS_LUA = """
local M = { api = 1 }

function M.init()
    return { n = 0, list = { 1, 2.5, "text\\0\\255", { deep = { true, false } } }, big = math.maxinteger, half = -0.5,
             [7] = "seven" }
end

function M.step(state, _)
    state.n = state.n + 1
    local list = state.list
    return { json = { n = state.n, kinds = { math.type(list[1]), math.type(list[2]), #list[3], list[3]:byte(-1),
             list[4].deep[1], list[4].deep[2], state.big == math.maxinteger, state.half, state[7] } } }
end

return M
"""
KINDS = ["integer", "float", 6, 255, True, False, True, -0.5, "seven"]
KINDS_PY = """
api = 1


def init(req):
    return {"n": 0, "kinds": [1, -(2 ** 70), 2.5, float("inf"), "text\\u00e9", b"\\x00\\xff", None, True, (1, 2),
                              {3: "x"}, {4}, bytearray(b"b")]}


def step(state, req):
    state["n"] += 1
    return f'{state["n"]} {state["kinds"]!r}'
"""
KINDS_IN_PY = ("[1, -1180591620717411303424, 2.5, inf, 'text\u00e9', b'\\x00\\xff', None, True, (1, 2), {3: 'x'}, "
               "{4}, bytearray(b'b')]")
MODELS = [Model("counter", COUNTER_LUA), Model("kinds", KINDS_LUA),
          Model("pykinds", KINDS_PY, handler_name="handler.py")]
STEPS = 3


def models_here():
    """Python models need a build with Python."""
    python = (BIN / "python" / "continuo" / "_worker.abi3.so").exists()
    return [model for model in MODELS if python or model.handler_name == "handler.lua"]


def expected(model, step):
    if model == "counter":
        return str(step)
    if model == "kinds":
        return {"n": step, "kinds": KINDS}
    return f"{step} {KINDS_IN_PY}"


def do_step(s, model, number, **headers):
    answer = s.client().step(model, "s", 1, headers=headers)
    assert answer.status == 200, answer
    assert (answer.json if model == "kinds" else answer.text) == expected(model, number)
    return answer


def last_step(s, model, number):
    """The last step had a key, so the store has its answer."""
    return do_step(s, model, number, **{"Idempotency-Key": "the last one"})


def flags(*more):
    return ["--python", sys.executable, *more]


# ---- what a release writes


def write(server, store, out):
    """Fills a folder with what this build writes."""
    out.mkdir()
    names = [model.name for model in models_here()]
    for how in ("stopped", "killed"):
        s = server(*models_here(), flags=flags(), name=how)
        for name in names:
            for step in range(1, STEPS):
                do_step(s, name, step)
            last_step(s, name, STEPS)
        (out / "exported").mkdir(exist_ok=True)
        for name in names:
            answer = s.admin().get(f"/models/{name}/sequences/s?export=true")
            assert answer.status == 200, answer
            (out / "exported" / f"{name}.cnseq").write_bytes(answer.body)
        s.kill() if how == "killed" else s.stop()
        (out / how).mkdir()
        shutil.copytree(s.state_dir / "models", out / how / "models")
        shutil.copy(s.state_dir / "FORMAT", out / how)
        shutil.copytree(s.store, out / "archives", dirs_exist_ok=True)
    s = server(*models_here(), flags=flags("--state-store", store.url), name="sharing")
    for name in names:
        for step in range(1, STEPS):
            do_step(s, name, step)
        last_step(s, name, STEPS)
    s.stop()
    (out / "shared.json").write_text(json.dumps(dump(store), indent=1, sort_keys=True) + "\n")


def to_hex(store, *call):
    """Runs a command in the store and returns its bytes, which need not be UTF-8."""
    words = ", ".join(f"ARGV[{i + 1}]" for i in range(len(call)))
    return store.say("EVAL", f"return (string.gsub(redis.call({words}), '.', function(c) "
                             "return string.format('%02x', string.byte(c)) end))", "0", *call)


def dump(store):
    """Returns what the shared store has of sequences. Leases and the list of nodes end by themselves."""
    kept = {}
    for key in sorted(store.say("KEYS", "{test/*/1.0/*").split()):
        kind = store.say("TYPE", key)
        if kind == "string":
            kept[key] = to_hex(store, "GET", key)
        elif kind == "zset":
            words = store.say("ZRANGE", key, "0", "-1", "WITHSCORES").split()
            kept[key] = dict(zip(words[::2], words[1::2]))
    return kept


def fill(store, kept):
    for key, value in kept.items():
        if isinstance(value, dict):
            for member, score in value.items():
                store.say("ZADD", key, score, member)
        else:
            store.say("EVAL", "redis.call('SET', KEYS[1], (string.gsub(ARGV[1], '..', function(c) "
                              "return string.char(tonumber(c, 16)) end)))", "1", key, value)


# ---- what later ones read


def goes_on(s, names):
    """The sequences have their state and the answer of their last step, and take further steps."""
    for name in names:
        assert last_step(s, name, STEPS).headers["Continuo-Replayed"] == "true"
        do_step(s, name, STEPS + 1)


def serve(server, written, name, *more, start=True):
    """A server with the archives of that release."""
    names = [model.name for model in models_here()]
    s = server(flags=flags(*more), start=False, name=name)
    shutil.copytree(written / "archives", s.store, dirs_exist_ok=True)
    s.models = [f"{model}={model}-1.0.mar" for model in names]
    return (s.start() if start else s), names


def check(server, store, written):
    for how in ("stopped", "killed"):
        s, names = serve(server, written, f"after-{how}", start=False)
        shutil.copytree(written / how, s.state_dir)
        s.start()
        goes_on(s, names)
        assert not any("event=store_damaged" in line or "event=data_set_aside" in line for line in s.lines)
        s.stop()

    s, names = serve(server, written, "importing")
    for name in names:
        body = (written / "exported" / f"{name}.cnseq").read_bytes()
        assert s.admin().put(f"/models/{name}/sequences/s", body=body).status == 200
    goes_on(s, names)
    s.stop()

    store.say("FLUSHALL")
    fill(store, json.loads((written / "shared.json").read_text()))
    s, names = serve(server, written, "sharing-again", "--state-store", store.url)
    goes_on(s, names)
    s.stop()


def pack(folder, path):
    """Equal folders give equal bytes."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for each in sorted(folder.rglob("*")):
            info = archive.gettarinfo(each, each.relative_to(folder).as_posix())
            info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
            with each.open("rb") if each.is_file() else io.BytesIO() as file:
                archive.addfile(info, file)
    path.write_bytes(gzip.compress(tar.getvalue(), mtime=0))


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


def test_this_build_reads_what_it_writes(server, store, folder):
    write(server, store, folder / "written")
    check(server, store, folder / "written")
    if "CONTINUO_WRITE_FORMATS" in os.environ:
        pack(folder / "written", pathlib.Path(os.environ["CONTINUO_WRITE_FORMATS"]))


@pytest.mark.parametrize("release", sorted(path.name.removesuffix(".tar.gz") for path in FORMATS.glob("*.tar.gz")))
def test_what_a_release_has_written_is_read(server, store, folder, release):
    with tarfile.open(FORMATS / f"{release}.tar.gz") as archive:
        archive.extractall(folder / "written")
    check(server, store, folder / "written")

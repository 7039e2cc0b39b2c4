"""The calls of operators that both servers get over HTTP, about the repository, settings and shared memory."""

import itertools
import json

import triton_wire as wire
from triton_http_cases import A, B, get, infer, post, tensor, wants

# --- what operators ask


def repository():
    index = "/v2/repository/index"
    for body in (None, {}, {"ready": True}, {"ready": False}, {"ready": 1}, {"ready": "true"}, {"ready": None}, [], "x", "{",
                 {"more": 1}):
        yield f"index {body!r}", lambda side, b=body: of_index(wire.call(side, "POST", index, b))
    yield "index of a repository", lambda side: of_index(wire.call(side, "POST", "/v2/repository/mine/index", {}))
    for name, what in itertools.product(("nothing", "add.", "ADD", "..", "a..b", "%2e%2e", "spare%2f", "broken"), ("load", "unload")):
        yield f"repository {what} {name}", post(f"/v2/repository/models/{name}/{what}")
    yield "repository load in a repository", post("/v2/repository/mine/models/spare/load")
    bodies = ({}, {"parameters": {}}, {"parameters": []}, {"parameters": {"config": 1}}, {"parameters": {"config": "x"}},
              {"parameters": {"config": "{"}}, {"parameters": {"config": ""}}, {"parameters": {"mine": "x"}},
              {"parameters": {"file:1/x": "%%"}}, [], "{", "x", {"parameters": None}, {"parameters": {"config": None}},
              {"more": 1}, {"parameters": {"file:1/x": "eA=="}})
    for body in bodies:
        def load(side, body=body):
            answer = wire.call(side, "POST", "/v2/repository/models/spare/load", body)
            wire.call(side, "POST", "/v2/repository/models/spare/unload")
            return answer
        yield f"repository load spare {body!r}", load
    for body in ({}, {"parameters": {}}, {"parameters": {"unload_dependents": True}},
                 {"parameters": {"unload_dependents": False}}, {"parameters": {"unload_dependents": 1}},
                 {"parameters": {"unload_dependents": "x"}}, {"parameters": {"mine": 1}}, [], "{", {"parameters": 1}):
        yield f"repository unload spare {body!r}", post("/v2/repository/models/spare/unload", body)

    def life(side):
        """Looks at a model while it is absent, loaded, used, loaded again, unloaded, and absent again."""
        made = {}

        def keep(name, answer):
            made.update({f"{name} {part}": text for part, text in answer.items()})

        for turn in ("first", "second"):
            keep(f"{turn} load", wire.call(side, "POST", "/v2/repository/models/spare/load", {}))
            keep(f"{turn} ready", wire.call(side, "GET", "/v2/models/spare/ready"))
            keep(f"{turn} infer", infer("spare", wants(A, B))(side))
        keep("unload", wire.call(side, "POST", "/v2/repository/models/spare/unload", {}))
        keep("ready", wire.call(side, "GET", "/v2/models/spare/ready"))
        keep("infer", infer("spare", wants(A, B))(side))
        keep("metadata", wire.call(side, "GET", "/v2/models/spare"))
        keep("config", wire.call(side, "GET", "/v2/models/spare/config"))
        keep("stats", wire.call(side, "GET", "/v2/models/spare/stats"))
        keep("again", wire.call(side, "POST", "/v2/repository/models/spare/unload", {}))
        index_of = wire.call(side, "POST", index)
        keep("index", {"spare": [one for one in json.loads(index_of["body"]) if one["name"] == "spare"]})
        return made

    yield "repository life", life


def of_index(answer):
    """Sorts the index, because a repository has no order."""
    if answer["status"] == 200:
        answer["body"] = wire.canonical(sorted(json.loads(answer["body"]), key=lambda one: (one["name"],
                                                                                            one.get("version", ""))))
    return answer


BACK = {"/v2/logging": {"log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0,
                        "log_format": "default"},
        "/v2/trace/setting": {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0"},
        "/v2/models/add/trace/setting": {"trace_level": None, "trace_rate": None, "trace_count": None,
                                         "log_frequency": None}}


def and_back(path, body):
    """Makes the call and then restores the settings, so that each case begins with the same ones."""
    def ask(side):
        answer = wire.call(side, "POST", path, body)
        wire.call(side, "POST", path, BACK[path])
        return answer
    return ask


def settings():
    for path, body in BACK.items():
        yield f"settings {path} first", post(path, body)
    for path, keys in (("/v2/logging", ("log_file", "log_info", "log_warning", "log_error", "log_verbose_level",
                                        "log_format", "mine")),
                       ("/v2/trace/setting", ("trace_file", "trace_level", "trace_rate", "trace_count", "log_frequency",
                                              "trace_mode", "mine")),
                       ("/v2/models/add/trace/setting", ("trace_level", "trace_rate", "trace_count", "trace_file"))):
        yield f"settings {path}", get(path)
        for key, value in itertools.product(keys, (None, True, False, 0, 1, -1, "x", "1", "-1", "OFF", "", ["OFF"],
                                                   ["x"], ["OFF", "TIMESTAMPS"], ["TENSORS"], {}, "ISO8601", "default",
                                                   1.5, "99999999999999999999")):
            yield f"settings {path} {key}={value!r}", and_back(path, {key: value})
        for text in ("", "{", "[]", "{}", "1"):
            yield f"settings {path} text {text}", and_back(path, text)
    yield "settings of no model", get("/v2/models/nothing/trace/setting")
    yield "settings for no model", post("/v2/models/nothing/trace/setting", {"trace_rate": "1"})


def shared_memory(key):
    """`key` is an object of shared memory of 8192 bytes that both servers may open. Triton maps it at the region's
    offset, so this must be a multiple of 4096. Triton then adds the offset once more, so no tensor lies in such a
    region."""
    system = "/v2/systemsharedmemory"
    region = f"{system}/region"
    bodies = ({"key": key, "byte_size": 64}, {"key": key}, {"byte_size": 64}, {}, {"key": 1, "byte_size": 64},
              {"key": key, "byte_size": "64"}, {"key": key, "byte_size": -1}, {"key": key, "byte_size": 0},
              {"key": key, "byte_size": 8193}, {"key": key, "byte_size": 64, "offset": 8192},
              {"key": key, "byte_size": 64, "offset": -1}, {"key": key, "byte_size": 64, "offset": "x"},
              {"key": "/nothing-there", "byte_size": 64}, {"key": "", "byte_size": 64}, {"key": "a/b", "byte_size": 64},
              {"key": "triton_python_backend_shm_region_1", "byte_size": 64}, {"key": key, "byte_size": 2 ** 63},
              {"key": key, "byte_size": 2 ** 64}, {"key": key, "byte_size": 4096, "offset": 4096},
              {"key": key, "byte_size": 4097, "offset": 4096}, {"key": key, "byte_size": 64, "offset": 64}, {"key": key, "byte_size": 64, "more": 1}, [], "{", "",
              {"key": None, "byte_size": 64}, {"key": key, "byte_size": 1.5})
    for body in bodies:
        def register(side, body=body):
            answer = wire.call(side, "POST", f"{region}/mine/register", body)
            wire.call(side, "POST", f"{region}/mine/unregister")
            return answer
        yield f"shm register {json.dumps(body).replace(key, 'KEY')}", register
    for method, path in (("GET", f"{system}/status"), ("GET", f"{region}/mine/status"), ("GET", f"{region}/none/status"),
                         ("POST", f"{region}/none/unregister"), ("POST", f"{system}/unregister"),
                         ("POST", f"{system}/register"), ("GET", f"{region}//status"), ("POST", f"{region}/a%20b/register"),
                         ("GET", "/v2/cudasharedmemory/status"), ("GET", "/v2/cudasharedmemory/region/none/status"),
                         ("POST", "/v2/cudasharedmemory/unregister"), ("POST", "/v2/cudasharedmemory/region/x/unregister")):
        yield f"shm {method} {path}", lambda side, m=method, p=path: wire.call(side, m, p)
    for body in ({}, {"raw_handle": {"b64": "eA=="}, "device_id": 0, "byte_size": 1}, {"raw_handle": "x"}, {"byte_size": 1},
                 {"raw_handle": {}, "byte_size": 1}, {"raw_handle": {"b64": "eA=="}, "byte_size": 1},
                 {"raw_handle": {"b64": "eA=="}, "device_id": "0", "byte_size": 1}):
        yield f"shm cuda register {json.dumps(body)}", post("/v2/cudasharedmemory/region/x/register", body)

    def window(**given):
        return {"shared_memory_region": "mine", "shared_memory_byte_size": 16, **given}

    def within(body):
        def ask(side):
            made = {}
            one = wire.call(side, "POST", f"{region}/mine/register", {"key": key, "byte_size": 64})
            twice = wire.call(side, "POST", f"{region}/mine/register", {"key": key, "byte_size": 64})
            for name, answer in (("register", one), ("twice", twice),
                                 ("status", wire.call(side, "GET", f"{region}/mine/status")),
                                 ("infer", wire.call(side, "POST", "/v2/models/add/infer", body)),
                                 ("unregister", wire.when_free(
                                     lambda: wire.call(side, "POST", f"{region}/mine/unregister"))),
                                 ("status after", wire.call(side, "GET", f"{system}/status"))):
                made.update({f"{name} {part}": str(text).replace(key, "KEY") for part, text in answer.items()})
            return made
        return ask

    shared = tensor("A", "INT32", [4])
    for name, given in (("whole", {}), ("offset", {"shared_memory_offset": 16}), ("end", {"shared_memory_offset": 48}),
                        ("over", {"shared_memory_offset": 49}), ("beyond", {"shared_memory_offset": 64}),
                        ("far beyond", {"shared_memory_offset": 2 ** 62}), ("negative", {"shared_memory_offset": -1}),
                        ("text", {"shared_memory_offset": "1"}), ("small", {"shared_memory_byte_size": 12}),
                        ("large", {"shared_memory_byte_size": 20}), ("none", {"shared_memory_byte_size": 0}),
                        ("huge", {"shared_memory_byte_size": 2 ** 62}), ("size text", {"shared_memory_byte_size": "16"}),
                        ("unknown", {"shared_memory_region": "none"}), ("number", {"shared_memory_region": 1}),
                        ("empty", {"shared_memory_region": ""})):
        yield f"shm input {name}", within(wants({**shared, "parameters": window(**given)}, B))
        yield f"shm output {name}", within(wants(A, B, outputs=[{"name": "SUM", "parameters": window(**given)}]))
    alone = {"shared_memory_region": "mine"}
    yield "shm input without size", within(wants({**shared, "parameters": alone}, B))
    yield "shm output without size", within(wants(A, B, outputs=[{"name": "SUM", "parameters": alone}]))
    yield "shm input with data", within(wants({**A, "parameters": window()}, B))
    yield "shm size alone", within(wants({**shared, "parameters": {"shared_memory_byte_size": 16}}, B))


def all_cases(key):
    yield from shared_memory(key)
    yield from settings()
    yield from repository()

"""The REST half of the matrix makes every management and inference call with every kind of value."""

import itertools
import json
import re


# The wrong values that a parameter is tried with.
WRONG = {"empty": "", "zero": "0", "negative": "-1", "below": "-7", "word": "seven", "fraction": "1.5",
         "huge": "99999999999"}
# The right value of each parameter. initial_workers and synchronous have cases of their own, since a worker takes
# seconds to start.
REGISTER = {"batch_size": "4", "max_batch_delay": "250", "response_timeout": "77",
            "startup_timeout": "88", "runtime": "python", "handler": "{handler}",
            "s3_sse_kms": "true", "synchronous": "false", "model_name": "renamed",
            "initial_workers": "0"}
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")


def query(parameters):
    return "&".join(f"{name}={value}" for name, value in parameters.items())


def registered(pair, case, parameters, name, body=None, headers=None):
    """Registers, describes and unregisters a model. Each of the three answers is a case."""
    path = "/models" + (f"?{query(parameters)}" if parameters else "")
    pair.http(f"register {case}", "management", "POST", path, body, headers)
    pair.http(f"register {case}: describe", "management", "GET", f"/models/{name}")
    pair.http(f"register {case}: unregister", "management", "DELETE", f"/models/{name}")


def register_cases(pair):
    for number, (parameter, right) in enumerate(REGISTER.items()):
        for kind, value in {"valid": right, **WRONG}.items():
            name = value if parameter == "model_name" and value else f"r{number}{kind}"
            given = {"url": "echo.mar", "model_name": name, "initial_workers": "0"}
            given[parameter] = value
            if parameter == "model_name" and not value:
                name = "echo"
            registered(pair, f"?{parameter}={kind}", given, name)
    for archive in ("echo.mar", "tuned.mar"):
        registered(pair, f"{archive} without parameters", {"url": archive}, archive[:-4])
    registered(pair, "?initial_workers=zero of a YAML with one worker",
               {"url": "served.mar", "model_name": "w1", "initial_workers": "0"}, "w1")
    registered(pair, "tuned.mar with all of its settings",
               {"url": "tuned.mar", "batch_size": "9", "max_batch_delay": "99",
                "response_timeout": "66", "startup_timeout": "55"}, "tuned")
    for kind, url in {"absent": None, "empty": "", "nothing": "nothing.mar", "damaged": "damaged.mar",
                      "relative": "../echo.mar", "inner relative": "a/../echo.mar",
                      "a path": "{store}/echo.mar", "a path elsewhere": "/nowhere/echo.mar",
                      "ftp": "ftp://localhost/echo.mar", "file": "file://{store}/nothing.mar",
                      "refused": "http://127.0.0.1:1/echo.mar"}.items():
        given = {"model_name": f"u{kind.replace(' ', '')}", "initial_workers": "0"}
        if url is not None:
            given["url"] = url
        registered(pair, f"?url={kind}", given, given["model_name"])
    registered(pair, "without anything", {}, "none")
    for kind, value in {"python3": "python3", "LSP": "LSP", "lower": "lsp", "ruby": "ruby"}.items():
        registered(pair, f"?runtime={kind}",
                   {"url": "echo.mar", "model_name": f"t{kind}", "runtime": value}, f"t{kind}")
    registered(pair, "?handler=nothing in the archive",
               {"url": "echo.mar", "model_name": "h1", "handler": "nothing.py"}, "h1")
    registered(pair, "?handler=a function", {"url": "echo.mar", "model_name": "h2",
                                             "handler": "{handler}:handle"}, "h2")
    register_bodies(pair)


def register_bodies(pair):
    kind = {"Content-Type": "application/json"}
    for name, body in {
            "all": {"url": "echo.mar", "model_name": "b1", "batch_size": 5, "max_batch_delay": 12,
                    "initial_workers": 0, "response_timeout": 9, "startup_timeout": 8},
            "least": {"url": "echo.mar", "model_name": "b2", "max_batch_delay": 100},
            "no url": {"model_name": "b3", "max_batch_delay": 100},
            "numbers as text": {"url": "echo.mar", "model_name": "b4", "batch_size": "5",
                                "max_batch_delay": "12"},
            "a word for a number": {"url": "echo.mar", "model_name": "b5", "batch_size": "five",
                                    "max_batch_delay": 12},
            "an unknown member": {"url": "echo.mar", "model_name": "b6", "max_batch_delay": 12,
                                  "colour": "red"}}.items():
        registered(pair, f"with a body: {name}", {}, body["model_name"], json.dumps(body), kind)
    for name, text in {"broken": "{\"url\": ", "a list": "[]", "empty": "", "null": "null"}.items():
        pair.http(f"register with a body: {name}", "management", "POST", "/models", text, kind)
    registered(pair, "with a body of another type", {}, "b8",
               json.dumps({"url": "echo.mar", "model_name": "b8"}), {"Content-Type": "text/plain"})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    registered(pair, "with a form", {}, "b9", "url=echo.mar&model_name=b9", form)


def name_cases(pair):
    """Compares models that TorchServe cannot unregister, because their names have a slash. These cases run last."""
    for kind, name in {"a slash": "a%2Fb", "a blank": "a%20b", "a quote": "a%22b"}.items():
        registered(pair, f"?model_name={kind}", {"url": "echo.mar", "model_name": name}, name)


def list_cases(pair):
    """Lists models while three are registered: counter, idle and served."""
    for parameter in ("limit", "next_page_token"):
        for kind, value in {"absent": None, "valid": "2", "one": "1", "all": "3", **WRONG}.items():
            path = "/models" if value is None else f"/models?{parameter}={value}"
            pair.http(f"list ?{parameter}={kind}", "management", "GET", path)
    for limit, token in itertools.product(("1", "2", "3"), ("0", "1", "2", "3", "4")):
        pair.http(f"list ?limit={limit} from {token}", "management", "GET",
                  f"/models?limit={limit}&next_page_token={token}")


def describe_cases(pair, model):
    for case, path in {"a model": f"/models/{model}", "a version": f"/models/{model}/1.0",
                       "all": f"/models/{model}/all", "unknown": "/models/none",
                       "all of unknown": "/models/none/all", "unknown version": f"/models/{model}/7",
                       "more": f"/models/{model}/1.0/more",
                       "much more": f"/models/{model}/1.0/more/still",
                       "a slash": f"/models/{model}/", "two slashes": f"/models//{model}"}.items():
        pair.http(f"describe {case}", "management", "GET", path)
    for kind, value in {"valid": "true", "upper": "TRUE", "no": "false", **WRONG}.items():
        pair.http(f"describe ?customized={kind}", "management", "GET",
                  f"/models/{model}?customized={value}")
    pair.http("describe ?customized=all", "management", "GET", f"/models/{model}/all?customized=true")
    pair.http("describe ?customized=no worker", "management", "GET", "/models/idle?customized=true")


def method_cases(pair):
    for path in ("/models", "/models/idle", "/models/idle/1.0", "/models/idle/1.0/set-default",
                 "/nothing", "/", "/ping", "/v1/models/idle", "/token", "/workflows",
                 "/workflows/none", "/models/", "/api-description"):
        for method in METHODS:
            if "idle" in path and method in ("PUT", "DELETE"):
                continue  # TorchServe's DELETE unregisters the model, whatever follows the version
            pair.compare(f"management {method} {path}", lambda side, method=method, path=path:
                         described(side.http("management", method, path)))


def scale_cases(pair):
    """Compares cases of a model without workers. life_cases() has those that start one."""
    for parameter in ("number_gpu", "timeout", "model_version", "synchronous"):
        right = {"model_version": "1.0", "synchronous": "true"}.get(parameter, "3")
        for kind, value in {"valid": right, **WRONG}.items():
            pair.http(f"scale ?{parameter}={kind}", "management", "PUT",
                      f"/models/idle?min_worker=0&{parameter}={value}")
    for kind, least, most in (("max below min", "2", "1"), ("both zero", "0", "0"),
                              ("negative max", "0", "-1"), ("negative min", "-1", "0"),
                              ("negative both", "-1", "-1"), ("word for max", "0", "many"),
                              ("huge max", "0", "99999999999"), ("empty max", "0", "")):
        pair.http(f"scale {kind}", "management", "PUT",
                  f"/models/idle?min_worker={least}&max_worker={most}&synchronous=true")
    for case, path in {"unknown": "/models/none", "unknown version": "/models/idle/7",
                       "a version": "/models/idle/1.0"}.items():
        pair.http(f"scale {case}", "management", "PUT", f"{path}?min_worker=0&synchronous=true")


def default_cases(pair):
    for case, path in {"right": "/models/idle/1.0", "unknown": "/models/none/1.0",
                       "unknown version": "/models/idle/7"}.items():
        pair.http(f"set-default {case}", "management", "PUT", f"{path}/set-default")


def unregister_cases(pair):
    for case, path in {"unknown": "/models/none", "unknown version": "/models/idle/7"}.items():
        pair.http(f"unregister {case}", "management", "DELETE", path)


def version_cases(pair):
    """Registers and unregisters two versions of one model."""
    def one(case, method, path):
        pair.http(f"versions {case}", "management", method, path)

    one("first", "POST", "/models?url=echo.mar&model_name=v")
    one("second", "POST", "/models?url=echo2.mar&model_name=v")
    one("first again", "POST", "/models?url=echo.mar&model_name=v")
    one("the default", "GET", "/models/v")
    one("all", "GET", "/models/v/all")
    one("second described", "GET", "/models/v/2.0")
    one("the default can't go", "DELETE", "/models/v")
    one("nor by its version", "DELETE", "/models/v/1.0")
    one("set default", "PUT", "/models/v/2.0/set-default")
    one("the new default", "GET", "/models/v")
    one("the old one goes", "DELETE", "/models/v/1.0")
    one("the old one is gone", "GET", "/models/v/1.0")
    one("all that is left", "GET", "/models/v/all")
    one("the last one goes", "DELETE", "/models/v")
    one("nothing is left", "GET", "/models/v")


def life_cases(pair):
    """Starts workers, lets some fail to start, and stops them."""
    def one(case, method, path, **more):
        pair.http(f"life {case}", "management", method, path, **more)

    one("broken, sync", "POST", "/models?url=broken.mar&initial_workers=1&synchronous=true")
    one("unregister broken", "DELETE", "/models/broken")
    one("register sync", "POST", "/models?url=echo.mar&model_name=l1&initial_workers=1")
    one("scale to none", "PUT", "/models/l1?min_worker=0&synchronous=true")
    one("scale to one of two", "PUT", "/models/l1?min_worker=1&max_worker=2&synchronous=true")
    one("described", "GET", "/models/l1")
    one("scale by version", "PUT", "/models/l1/1.0?min_worker=1&synchronous=true")
    one("scale asynchronously", "PUT", "/models/l1?min_worker=1")
    one("unregister", "DELETE", "/models/l1")
    one("register async", "POST", "/models?url=echo.mar&model_name=l2&initial_workers=1"
                                  "&synchronous=false")
    one("unregister at once", "DELETE", "/models/l2")
    one("handler that is not there",
        "POST", "/models?url=echo.mar&model_name=l3&handler=nothing.py&initial_workers=1")
    one("unregister it", "DELETE", "/models/l3")


# --- inference


def inference_paths(pair, model):
    paths = {"ping": "/ping", "ping with a slash": "/ping/", "ping more": "/ping/x", "root": "/",
             "nothing": "/nothing", "predictions": "/predictions", "no model": "/predictions/",
             "unknown": "/predictions/none", "unknown version": f"/predictions/{model}/7",
             "model": f"/predictions/{model}", "version": f"/predictions/{model}/1.0",
             "extra": f"/predictions/{model}/1.0/extra/path",
             "explanations": f"/explanations/{model}", "explain version": f"/explanations/{model}/1.0",
             "explain nothing": "/explanations", "explain unknown": "/explanations/none",
             "invocations": "/invocations", "invocations of": f"/invocations?model_name={model}&k=v",
             "invocations of unknown": "/invocations?model_name=none",
             "invoke": f"/models/{model}/invoke?k=v", "invoke unknown": "/models/none/invoke",
             "models": "/models", "models of": f"/models/{model}",
             "models other": f"/models/{model}/other",
             "legacy": f"/{model}/predict?k=v", "legacy version": f"/{model}/1.0/predict",
             "legacy unknown": "/none/predict",
             "kserve 1": f"/v1/models/{model}:predict", "kserve 1 explain": f"/v1/models/{model}:explain",
             "kserve 1 other": f"/v1/models/{model}:other", "kserve 1 unknown": "/v1/models/none:predict",
             "kserve 1 model": f"/v1/models/{model}",
             "kserve 2": f"/v2/models/{model}/infer", "kserve 2 explain": f"/v2/models/{model}/explain",
             "kserve 2 unknown": "/v2/models/none/infer", "kserve 2 other": f"/v2/models/{model}/other",
             "kserve 2 model": f"/v2/models/{model}", "kserve 2 ready": f"/v2/models/{model}/ready",
             "kserve 2 root": "/v2", "kserve 2 live": "/v2/health/live",
             "kserve 2 server ready": "/v2/health/ready", "wfpredict": "/wfpredict/none",
             "no worker": "/predictions/idle", "no worker of a version": "/predictions/idle/1.0",
             "query": f"/predictions/{model}?k=v"}
    for case, path in paths.items():
        for method in ("GET", "POST"):
            body = "hello" if method == "POST" else None
            headers = {"Content-Type": "text/plain"} if body else None
            pair.http(f"inference {method} {case}", "inference", method, path, body, headers)
    for path, method in itertools.product((f"/predictions/{model}", "/ping", f"/explanations/{model}"),
                                          ("PUT", "DELETE", "PATCH", "HEAD")):
        pair.http(f"inference {method} {path}", "inference", method, path)


def multipart(fields, files):
    """Makes a body of multipart/form-data of tuples: (name, text) or (name, file name, type, text)."""
    parts = [f'--bound\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
             for name, text in fields]
    parts += [f'--bound\r\nContent-Disposition: form-data; name="{name}"; filename="{file_name}"\r\n'
              f'Content-Type: {kind}\r\n\r\n{text}\r\n' for name, file_name, kind, text in files]
    return "".join(parts) + "--bound--\r\n"


def inference_bodies(pair, model):
    path = f"/predictions/{model}"
    plain = {"Content-Type": "text/plain"}
    form = {"Content-Type": "multipart/form-data; boundary=bound"}
    bodies = {
        "no type": ("hello", {}), "text": ("hello", plain),
        "text with charset": ("hello", {"Content-Type": "text/plain; charset=utf-8"}),
        "json": ('{"a":1}', {"Content-Type": "application/json"}),
        "json list": ("[1,2]", {"Content-Type": "application/json"}),
        "broken json": ('{"a":', {"Content-Type": "application/json"}),
        "bytes": ("hello", {"Content-Type": "application/octet-stream"}),
        "odd type": ("hello", {"Content-Type": "a/b; c=d"}), "empty text": ("", plain),
        "form": ("data=hello&other=x%20y", {"Content-Type": "application/x-www-form-urlencoded"}),
        "form twice": ("data=1&data=2", {"Content-Type": "application/x-www-form-urlencoded"}),
        "form without value": ("data&k=v", {"Content-Type": "application/x-www-form-urlencoded"}),
        "multipart": (multipart([("data", "hello")], []), form),
        "multipart file": (multipart([], [("data", "a.txt", "text/plain", "hello")]), form),
        "multipart both": (multipart([("k", "v")], [("data", "a.json", "application/json", "[1]")]), form),
        "multipart broken": ("--bound\r\nnonsense", form),
    }
    for case, (body, headers) in bodies.items():
        pair.http(f"body {case}", "inference", "POST", path, body, headers)
    for case, body in {"raise": "!raise", "status 202": "!status 202 Later",
                       "status 418": "!status 418 Teapot", "status 503": "!status 503 Busy",
                       "header": "!header x-told yes", "type": "!type text/x-told",
                       "json": "!json"}.items():
        pair.http(f"handler {case}", "inference", "POST", path, body, plain)
    pair.http("body too large", "inference", "POST", path, "x" * 200000, plain)
    instances = json.dumps({"instances": [{"data": "a"}, {"data": "b"}]}, separators=(",", ":"))
    tensors = json.dumps({"id": "7", "inputs": [{"name": "x", "shape": [2], "datatype": "INT32",
                                                 "data": [1, 2]}]}, separators=(",", ":"))
    kind = {"Content-Type": "application/json"}
    for verb in ("predict", "explain"):
        pair.http(f"envelope v1 {verb}", "inference", "POST", f"/v1/models/{model}:{verb}", instances, kind)
    for verb in ("infer", "explain"):
        pair.http(f"envelope v2 {verb}", "inference", "POST", f"/v2/models/{model}/{verb}", tensors, kind)
    for body in ("{}", "[]", '{"instances":3}', "no json"):
        pair.http(f"envelope v1 of {body}", "inference", "POST", f"/v1/models/{model}:predict", body, kind)
    for body in ("{}", '{"inputs":[]}', "no json"):
        pair.http(f"envelope v2 of {body}", "inference", "POST", f"/v2/models/{model}/infer", body, kind)


def sequence_cases(pair):
    path, plain = "/predictions/counter", {"Content-Type": "text/plain"}

    def step(case, body, **headers):
        pair.http(f"sequence {case}", "inference", "POST", path, body, {**plain, **headers})

    for number in (1, 2, 3):
        step(f"step {number}", str(number), ts_request_sequence_id="s1")
    step("another", "10", ts_request_sequence_id="s2")
    step("with a start header", "5", ts_request_sequence_id="s3", ts_request_sequence_start="true")
    step("without an id", "7")


def full_cases(pair):
    """Compares steps when the maximum number of sequences is open: four of sequence_cases() and two of gRPC's."""
    def step(case, body, **headers):
        pair.http(f"sequence {case}", "inference", "POST", "/predictions/counter", body,
                  {"Content-Type": "text/plain", **headers})

    step("too many", "1", ts_request_sequence_id="s5")
    step("with an end header", "5", ts_request_sequence_id="s3", ts_request_sequence_end="true")


def options_cases(pair, model):
    """Makes parts of the status, the headers, and each path and method of the document."""
    for port, paths in {"inference": ("/", "/api-description", f"/predictions/{model}",
                                      "/predictions/none", "/ping"),
                        "management": ("/", "/api-description", f"/models/{model}", "/models/none",
                                       "/models"),
                        "metrics": ("/", "/api-description", "/metrics")}.items():
        for path in paths:
            pair.compare(f"options {port} {path}",
                         lambda side, port=port, path=path: described(side.http(port, "OPTIONS", path)))


def described(parts):
    """Returns the paths and methods of an API description."""
    if not any(part.startswith("json .openapi") for part in parts):
        return parts
    kept = {part: text for part, text in parts.items() if not part.startswith("json ")}
    for part in parts:
        found = re.match(r"json \.paths\.(/[^.]*)\.([a-z]+)\.", part)
        if found:
            kept[f"path {found.group(2)} {found.group(1)}"] = "described"
    return kept

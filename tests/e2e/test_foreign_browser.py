"""A real browser shows a page of another site, which tries to change a server on the same machine. Nothing changes.

The server has its default settings but for its ports, and one run has the mode in which clients load models."""

import http.server
import json
import threading

import pytest

from browsing import browser, page_of
from models import counter
from server import address_of
from waiting import limit

SITES = "MAP evil.example 127.0.0.1, MAP rebound.example 127.0.0.1"


@pytest.fixture(scope="module")
def chromium():
    with browser(f"--host-resolver-rules={SITES}") as opened:
        yield opened


@pytest.fixture(scope="module")
def site():
    """Another web server on this machine. Returns its port."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>evil</title><body></body>")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served.server_address[1]
        served.shutdown()


# Each attack of the page is (kind, interface, method, path, body). `ask` is fetch() without a header of its own, so that
# the browser sends it without a preflight; `cors` is the same with CORS and a header of ours; `form` and `form-text` are
# forms; `image`, `script`, `frame` and `link` only read; `beacon` is what a page sends when it is left.
STEP = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["5"]}],
                   "parameters": {"sequence_id": "victim", "sequence_start": False, "sequence_end": True}})


def attacks():
    manage = [("POST", "/models?url=other.mar&initial_workers=1", ""), ("DELETE", "/models/counter", ""),
              ("POST", "/models?url=https://127.0.0.1:1/x.mar", ""),
              ("PUT", "/models/counter?min_worker=3&max_worker=3", ""), ("PUT", "/models/counter/1.0/set-default", ""),
              ("DELETE", "/models/counter/sequences/victim", ""), ("DELETE", "/models/counter/1.0/workers/1", ""),
              ("POST", "/models/counter/sequences", "x")]
    infer = [("POST", "/v2/repository/models/counter/unload", "{}"), ("POST", "/v2/repository/models/other/load", "{}"),
             ("POST", "/v2/logging", '{"log_verbose_level": 1}'), ("POST", "/v2/trace/setting", '{"trace_rate": "7"}'),
             ("POST", "/v2/models/counter/infer", STEP), ("POST", "/predictions/counter", "5"),
             ("POST", "/predictions/counter?ts_request_sequence_id=victim", "5"),
             ("POST", "/invocations", "5"), ("POST", "/models/counter/invoke", "5"),
             ("POST", "/v1/models/counter:predict", "5"), ("POST", "/v1/streams/tickets", ""),
             ("POST", "/v2/systemsharedmemory/register", '{"name": "x", "key": "/x", "byte_size": 1}')]
    for where, calls in (("management", manage), ("inference", infer)):
        for method, path, body in calls:
            if method == "POST":
                for kind in ("ask", "cors", "beacon", "form", "form-text"):
                    yield kind, where, method, path, body
            else:
                yield "cors", where, method, path, body
                yield "form", where, "POST", f"{path}{'&' if '?' in path else '?'}_method={method}", body
    for kind in ("image", "script", "frame", "link", "ask"):
        for where, path in (("management", "/models?url=other.mar"), ("management", "/models/counter?min_worker=3"),
                            ("inference", "/predictions/counter"), ("inference", "/predictions/counter?data=5"),
                            ("inference", "/invocations?data=5"), ("inference", "/v1/models/counter:predict"),
                            ("inference", "/predictions/counter?ts_request_sequence_id=victim")):
            yield kind, where, "GET", path, ""


ATTACK = """async ([base, list]) => {
  const wait = (element, how) => new Promise(done => {
    element.onload = element.onerror = () => done();
    document.body.appendChild(element);
    if (how) how();
    setTimeout(done, 3000);
  });
  const said = [];
  const attack = async ([kind, where, method, path, body], n) => {
    const url = base[where] + path;
    try {
      if (kind === "ask") {
        const answer = await fetch(url, {method, mode: "no-cors", credentials: "include",
                                         body: method === "GET" ? undefined : body});
        said.push(answer.type);
      } else if (kind === "cors") {
        await fetch(url, {method, body, headers: {"ts-request-sequence-id": "victim"}});
        said.push("let through: " + method + " " + path);
      } else if (kind === "beacon") {
        navigator.sendBeacon(url, body);
      } else if (kind.startsWith("form")) {
        const frame = document.createElement("iframe");
        frame.name = "f" + n;
        document.body.appendChild(frame);
        const form = document.createElement("form");
        form.method = "POST"; form.action = url; form.target = frame.name;
        form.enctype = kind === "form" ? "application/x-www-form-urlencoded" : "text/plain";
        const input = document.createElement("input");
        input.name = body; input.value = "";
        form.appendChild(input);
        document.body.appendChild(form);
        await new Promise(done => { frame.onload = done; form.submit(); setTimeout(done, 3000); });
      } else {
        const element = document.createElement({image: "img", script: "script", frame: "iframe", link: "link"}[kind]);
        if (kind === "link") { element.rel = "stylesheet"; element.href = url; } else element.src = url;
        await wait(element);
      }
    } catch (error) {
      said.push(String(error));
    }
  };
  await Promise.all(list.map(attack));
  return said;
}"""

SOCKETS = """async urls => {
  const out = [];
  for (const url of urls) {
    out.push(await new Promise(done => {
      const socket = new WebSocket(url, "continuo.v1.plain");
      socket.onopen = () => { socket.send("5"); done("open"); };
      socket.onerror = () => done("refused");
    }));
  }
  return out;
}"""

REBOUND = """async list => {
  const out = [];
  for (const [where, method, path, body] of list) {
    try {
      const answer = await fetch(path, {method, body: method === "GET" ? undefined : body});
      out.push([method, path, answer.status, (await answer.text()).slice(0, 300)]);
    } catch (error) {
      out.push([method, path, 0, String(error)]);
    }
  }
  return out;
}"""


def state_of(s):
    """What the attacks could have changed."""
    admin, client = s.admin(), s.client()
    return {
        "models": admin.get("/models").json,
        "counter": {key: value for key, value in s.describe("counter").items()
                    if key in ("minWorkers", "maxWorkers", "modelVersion", "liveSequences", "status")},
        "workers": [each["pid"] for each in s.describe("counter")["workers"]],
        "sequences": [(each["sequence"], each["step"]) for each in admin.get("/models/counter/sequences").json["sequences"]],
        "logging": client.get("/v2/logging").json,
        "trace": client.get("/v2/trace/setting").json,
        "index": client.post("/v2/repository/index", "{}").json,
        "regions": client.get("/v2/systemsharedmemory/status").json,
        "steps": s.metric('continuo_steps_total{model="counter",version="1.0"}'),
    }


@pytest.fixture(params=[[], ["--model-control-mode", "explicit"]], ids=["default", "explicit"])
def target(request, server):
    s = server(counter(), flags=request.param)
    s.pack(counter("other"))
    assert s.client().step("counter", "victim", "1").text == "1"
    return s


def unchanged(s, before):
    after = state_of(s)
    assert after == before
    assert s.client().step("counter", "victim", "1").text == "2"


@pytest.mark.parametrize("host", ["evil.example", "localhost"], ids=["other-site", "other-port"])
def test_a_page_of_another_site_changes_nothing(target, chromium, site, host):
    s, before = target, state_of(target)
    base = {"management": s.management.replace("127.0.0.1", "localhost" if host == "localhost" else "127.0.0.1"),
            "inference": s.inference}
    with page_of(chromium, s.management) as page:
        page.goto(f"http://{host}:{site}/")
        said = page.evaluate(ATTACK, [base, list(attacks())])
    assert not [each for each in said if each.startswith("let through")], said
    assert "opaque" in said, "the requests without a preflight were sent"
    unchanged(s, before)


def test_a_page_of_another_site_opens_no_stream(target, chromium, site):
    s, before = target, state_of(target)
    host, port = address_of(s.inference)
    urls = [f"ws://{name}:{port}/v1/streams/counter/victim" for name in (host, "localhost", "evil.example")]
    with page_of(chromium, s.management) as page:
        page.goto(f"http://evil.example:{site}/")
        said = page.evaluate(SOCKETS, urls)
    assert said == ["refused"] * 3
    unchanged(s, before)


def test_a_page_whose_name_now_means_this_server_manages_nothing(target, chromium):
    """DNS rebinding: the browser takes the server for the page's own site, and sends whatever the page asks for."""
    s, before = target, state_of(target)
    for where in ("management", "inference"):
        calls = [(each[1], *each[2:]) for each in attacks() if each[1] == where and each[0] == "cors"
                 and (where == "management" or each[3].startswith(("/v2/repository", "/v2/logging", "/v2/trace")))]
        if where == "management":
            calls += [("management", "GET", "/models", ""), ("management", "GET", "/models/counter/sequences", "")]
        origin = f"http://rebound.example:{address_of(getattr(s, where))[1]}"
        with page_of(chromium, s.management) as page:
            # The server's own 404 or 403 stands for the page, which came from this origin when the name meant another
            # machine. Chromium would not let a page that a test makes up reach this machine.
            page.goto(f"{origin}/evil", timeout=limit(30) * 1000)
            said = page.evaluate(REBOUND, calls)
        assert len(said) == len(calls)
        for method, path, status, text in said:
            assert status == 403 and "rebound.example" in text and "--allowed-hosts" in text, (method, path, text)
    unchanged(s, before)

"""The API descriptions are valid, complete and true, and so is the page that shows them."""

import json
import re

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import validate

from client import curl
from models import ROOT, counter, stateless

ERRORS = re.findall(r'^CN_ERROR\(\w+, "(\w+)", (\d+),', (ROOT / "core/errors/errors.def").read_text(), re.M)


@pytest.fixture
def served(server):
    return server(stateless(), counter())


def description(url):
    answer = requests.get(url + "/api-description", timeout=30)
    assert answer.status_code == 200 and answer.headers["Content-Type"] == "application/json"
    return answer.json()


def operations(api):
    return {about["operationId"]: (path, method, about)
            for path, methods in api["paths"].items() for method, about in methods.items()}


def test_both_descriptions_are_valid_openapi(served):
    """openapi-spec-validator accepts them, and each operation has an id of its own."""
    for url in (served.inference, served.management):
        api = description(url)
        assert api["openapi"] == "3.0.1"
        validate(api)
        assert len(operations(api)) == sum(len(methods) for methods in api["paths"].values())


def test_they_come_as_torchserve_gives_them(served, transcript):
    """They are returned for curl -X OPTIONS http://localhost:8080 and for /api-description with any method. GET / is
    not allowed, except that the management address has our page there."""
    for url in (served.inference, served.management):
        head, body = curl(transcript, "-X", "OPTIONS", url)
        assert head.startswith("HTTP/1.1 200") and json.loads(body) == description(url)
        assert requests.post(url + "/api-description", timeout=30).status_code == 200
        refused = requests.request("GET" if url == served.inference else "POST", url + "/", timeout=30)
        assert refused.status_code == 405 and refused.json()["type"] == "MethodNotAllowedException"
    assert requests.get(served.management + "/", timeout=30).headers["Content-Type"].startswith("text/html")


def test_one_model_is_described_by_its_own_paths(served, transcript):
    """OPTIONS /predictions/{model}, and OPTIONS /models/{model} for management, return valid descriptions."""
    _, body = curl(transcript, "-X", "OPTIONS", served.inference + "/predictions/echo")
    api = json.loads(body)
    validate(api)
    assert "/predictions/echo" in api["paths"] and "/v1/models/echo:predict" in api["paths"]
    assert not any("{model_name}" in path or path == "/ping" for path in api["paths"])
    assert requests.options(served.inference + "/predictions/echo/1.0", timeout=30).json() == api
    api = requests.options(served.management + "/models/counter", timeout=30).json()
    validate(api)
    assert "put" in api["paths"]["/models/counter"]
    unknown = requests.options(served.inference + "/predictions/nobody", timeout=30)
    assert (unknown.status_code, unknown.json()["type"]) == (404, "ModelNotFoundException")


def test_a_name_with_braces_is_no_parameter(server):
    """The name is escaped as in a URL."""
    s = server(stateless("echo"))
    assert s.register(stateless("echo"), model_name="odd.name_1").status in (200, 202)
    validate(requests.options(s.inference + "/predictions/odd.name_1", timeout=30).json())


def test_every_described_operation_is_there(served):
    """No described operation answers "no such resource" or "no such method"."""
    for url in (served.inference, served.management):
        for name, (path, method, about) in operations(description(url)).items():
            if name.startswith("unregister"):
                path = path.replace("{model_name}", "nobody")
            words = {"model_name": "counter", "model_version": "1.0", "url_path": "x", "sequence_id": "s/1",
                     "workflow_name": "w", "model_folder": "m", "version_folder": "1",
                     "worker_index": "1"}
            for parameter in about["parameters"]:
                if name in ("openStream", "openVersionStream"):  # the id is one part of the path
                    words["sequence_id"] = "s%2F1"
                if parameter["in"] == "path":
                    path = path.replace("{" + parameter["name"] + "}", words[parameter["name"]])
            answer = requests.request(method, url + path, timeout=30, data=b"0" if "requestBody" in about else None,
                                      stream=True)
            if answer.status_code == 200:  # its body may be a stream without an end
                answer.close()
                continue
            assert answer.status_code != 405, (name, answer.text)
            if answer.status_code == 404 and name != "newToken":
                assert answer.json()["type"] != "ResourceNotFoundException", (name, answer.text)


def test_the_parameters_of_management_are_described(served):
    """The described parameters are those that the code reads, and the parameters of paths."""
    code = "".join(file.read_text() for file in (ROOT / "management").rglob("*.c"))
    read = set(re.findall(r'\bcn_api_param(?:_number|_bool)?\(call, "(\w+)"', code))
    told = {parameter["name"] for _, _, about in operations(description(served.management)).values()
            for parameter in about["parameters"] if parameter["in"] == "query"}
    assert read and read <= told, read - told


def test_the_errors_are_described(served):
    """Each word of the error table is described with its status, for every operation that may fail."""
    responses = operations(description(served.inference))["predictions"][2]["responses"]
    for word, status in ERRORS:
        assert word in responses[status]["description"].split(", "), word


def test_the_page_needs_nothing_from_elsewhere(served):
    """/docs on both ports is one page without outside resources, and may only send requests to its own origin."""
    for url in (served.inference, served.management):
        answer = requests.get(url + "/docs", timeout=30)
        assert answer.status_code == 200 and answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert answer.text == (ROOT / "frontend/endpoints/docs_page.html").read_text()
        assert not re.search(r"(src|href)\s*=|@import|https?://|url\(", answer.text)
        assert "default-src 'none'" in answer.text and "innerHTML" not in answer.text


def test_descriptions_and_page_need_no_key(server):
    """As in TorchServe, descriptions can be read without a key. Everything else needs one."""
    s = server(stateless(), flags=["--token-auth"])
    for url in (s.inference, s.management):
        assert requests.options(url + "/", timeout=30).status_code == 200
        for path in ("/api-description", "/docs"):
            assert requests.get(url + path, timeout=30).status_code == 200, path
    assert requests.options(s.inference + "/predictions/echo", timeout=30).status_code == 400


@pytest.mark.parametrize("which", ["inference", "management"])
def test_schemathesis_finds_no_answer_that_is_not_described(server, which):
    """schemathesis makes requests from the description, valid and invalid ones. Each answer is described, and the
    server is healthy afterwards."""
    s = server(stateless(), counter(maxNumSequence=50))
    url = getattr(s, which)
    api = schemathesis.openapi.from_dict(description(url))
    known = {int(status) for _, status in ERRORS}
    calls = 0

    @settings(max_examples=15, deadline=None, derandomize=True, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    def probe(case):
        nonlocal calls
        # What would unload the models that the others call.
        if case.method == "DELETE" and "{model_name}" in case.path and "sequences" not in case.path:
            case.path_parameters["model_name"] = "nobody"
        answer = case.call(base_url=url, timeout=60, session=session)
        calls += 1
        assert answer.status_code < 300 or answer.status_code in known, (case.as_curl_command(), answer.text)
        if answer.status_code >= 400 and answer.request.method != "HEAD" and "Continuo-Error" in answer.headers:
            assert set(answer.json()) == {"code", "type", "message"}

    with requests.Session() as session:
        for result in api.get_all_operations():
            if result.ok().path != "/events":  # a feed without an end: test_page_feed.py reads it
                given(case=result.ok().as_strategy())(probe)()
    assert calls > 100, calls
    assert requests.get(s.inference + "/ping", timeout=30).json() == {"status": "Healthy"}

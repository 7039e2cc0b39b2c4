"""What a handler gets of a request, by TorchServe's rules: parts, types, headers, paths."""

import pytest
import requests

from client import curl
from models import Model

# Answers with what it got.
MIRROR_LUA = """
return { api = 1, handle = function(req)
    local parts = {}
    for i, part in ipairs(req.parts) do
        parts[i] = { part.name, part.content_type or "", part.data }
    end
    return { json = { parts = continuo.json.array(parts), body = req.body, explain = req.explain,
                      headers = { explain = req.headers.explain, url_path = req.headers.url_path,
                                  content_length = req.headers["content-length"] } } }
end }
"""


def mirror(name="mirror", version="1.0"):
    return Model(name, MIRROR_LUA, {}, version, stateful=False)


@pytest.fixture
def seen(server, transcript, folder):
    """seen("/path", *arguments) calls curl and returns what the handler got. The files kitten.jpg and dog.jpg exist."""
    s = server(mirror())
    (folder / "kitten.jpg").write_bytes(b"meow")
    (folder / "dog.jpg").write_bytes(b"woof")

    def ask(path, *args):
        head, body = curl(transcript, *[str(arg).replace("@", f"@{folder}/") for arg in args], s.inference + path)
        assert head.startswith("HTTP/1.1 200"), head + body
        return requests.models.complexjson.loads(body)

    ask.server = s
    ask.folder = folder
    return ask


def test_torchserves_curl_commands(seen):
    """The commands are from TorchServe's docs/inference_api.md: -T, -F "data=@...", and two inputs with different
    names."""
    assert seen("/predictions/mirror", "-T", seen.folder / "kitten.jpg")["parts"] == [["body", "", "meow"]]
    assert seen("/predictions/mirror", "-X", "POST", "-F", "data=@kitten.jpg")["parts"] == [
        ["data", "image/jpeg", "meow"]]
    two = seen("/predictions/mirror", "-X", "POST", "-F", "dog=@dog.jpg", "-F", "kitten=@kitten.jpg")
    assert two["parts"] == [["dog", "image/jpeg", "woof"], ["kitten", "image/jpeg", "meow"]]
    versioned = seen("/predictions/mirror/1.0", "-T", seen.folder / "kitten.jpg")
    assert versioned["parts"] == [["body", "", "meow"]] and not versioned["explain"]


def test_text_fields_have_no_type(seen):
    """Only a file has the type that its part declares."""
    got = seen("/predictions/mirror", "-F", "note=hi;type=text/html", "-F", "file=@dog.jpg;type=text/plain")
    assert got["parts"] == [["note", "", "hi"], ["file", "text/plain", "woof"]]


def test_forms_by_curl(seen):
    """With pairs, -d sends a form. With a plain value, which curl labels in the same way, it sends the body."""
    assert seen("/predictions/mirror", "-d", "data=a+b%21&lone&x=")["parts"] == [
        ["data", "", "a b!"], ["lone", "", ""], ["x", "", ""]]
    assert seen("/predictions/mirror", "-d", "4")["parts"] == [["body", "application/x-www-form-urlencoded", "4"]]
    assert seen("/predictions/mirror", "-H", "Content-Type: application/json; charset=utf-8", "-d", '{"a": "b=c"}')[
        "parts"] == [["body", "application/json", '{"a": "b=c"}']]


def test_python_requests(seen):
    """requests.post sends files, and data as bytes, as a dict or as JSON."""
    url = seen.server.inference + "/predictions/mirror"
    files = requests.post(url, files={"data": ("k.jpg", b"meow", "image/jpeg"), "n": (None, "1")}, timeout=30)
    assert files.json()["parts"] == [["data", "image/jpeg", "meow"], ["n", "", "1"]]
    assert requests.post(url, files={"data": b"meow"}, timeout=30).json()["parts"] == [
        ["data", "application/octet-stream", "meow"]]
    assert requests.post(url, data=b"a=b", timeout=30).json()["parts"] == [["body", "", "a=b"]]
    assert requests.post(url, data={"a": "b c", "d": "é"}, timeout=30).json()["parts"] == [
        ["a", "", "b c"], ["d", "", "é"]]
    assert requests.post(url, json={"a": 1}, timeout=30).json()["parts"] == [["body", "application/json", '{"a": 1}']]


def test_the_last_of_a_name_counts(seen):
    """TorchServe's handlers get a dict, so the last part counts."""
    assert seen("/predictions/mirror", "-F", "data=1", "-F", "data=2")["body"] == "2"
    assert seen("/models/mirror/invoke?body=query", "-d", "real")["body"] == "real"


def test_query_parameters_are_parts_where_torchserve_passes_them(seen):
    """These are /invocations, /models/{m}/invoke and the old .../predict. On other paths the query is ignored."""
    both = [["a", "", "1 2"], ["body", "application/x-www-form-urlencoded", "x"]]
    for path in ("/models/mirror/invoke", "/mirror/predict", "/mirror/1.0/predict", "/invocations"):
        assert seen(f"{path}?a=1+2", "-d", "x")["parts"] == both, path
    for path in ("/predictions/mirror", "/explanations/mirror", "/v1/models/mirror:predict"):
        assert seen(f"{path}?a=1+2", "-d", "x")["parts"] == both[1:], path


def test_invocations_finds_its_model_by_query_or_form(server, transcript):
    """The parameter model_name may come either way. Without it, and with two models, it is an error."""
    s = server(mirror("one"), mirror("two"))
    client = s.client()
    assert client.post("/invocations?model_name=two", b"x").json["parts"] == [
        ["model_name", "", "two"], ["body", "", "x"]]
    _, body = curl(transcript, "-F", "model_name=one", "-F", "data=x", s.inference + "/invocations")
    assert '"one"' in body and '"data"' in body
    refused = client.post("/invocations", b"x")
    assert (refused.status, refused.message) == (400, "Parameter model_name is required.")
    assert client.post("/invocations?model_name=three", b"x").message == "Model not found: three"


def test_explanations_say_so(seen):
    """An explanation is like a prediction, with the flag and TorchServe's header."""
    for path in ("/explanations/mirror", "/explanations/mirror/1.0", "/v1/models/mirror:explain"):
        got = seen(path, "-T", seen.folder / "kitten.jpg")
        assert got["explain"] is True and got["headers"]["explain"] == "True", path
        assert got["body"] == "meow"
    assert "explain" not in seen("/predictions/mirror", "-d", "x")["headers"]


def test_custom_paths_reach_the_handler(seen):
    """What follows the version is the handler's url_path."""
    got = seen("/predictions/mirror/1.0/generate/v1%2Fx", "-d", "x")
    assert got["headers"]["url_path"] == "generate/v1/x"
    assert seen("/explanations/mirror/1.0/deep", "-d", "x")["headers"]["url_path"] == "deep"
    assert "url_path" not in seen("/predictions/mirror/1.0", "-d", "x")["headers"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
def test_any_method_predicts(seen, method):
    """TorchServe only looks at the path."""
    got = seen.server.client().request(method, "/predictions/mirror", body=b"m")
    assert (got.status, got.json["body"]) == (200, "m")


def test_a_request_without_body_has_an_empty_one(seen):
    """There is one part named body, without bytes."""
    assert seen("/predictions/mirror")["parts"] == [["body", "", ""]]


@pytest.mark.parametrize("content_type, body, why", [
    ("multipart/form-data", b"--b--", "boundary"),
    ("multipart/form-data; boundary=b", b"--b\r\n\r\nx\r\n--b--", "no name"),
    ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data; name=x\r\n\r\ncut", "last boundary"),
    ("application/x-www-form-urlencoded", b"a=%zz", "escape"),
    ("application/x-www-form-urlencoded", b"a=&" * 5, "max-request-parts"),
], ids=["no-boundary", "no-name", "cut", "escape", "parts"])
def test_broken_forms_are_told_so(server, content_type, body, why):
    """The answer is 400 with the reason. The connection stays open, since the body was read."""
    client = server(mirror(), flags=["--max-request-parts", "4"]).client()
    refused = client.post("/predictions/mirror", body, headers={"Content-Type": content_type})
    assert refused.status == 400 and refused.json["type"] == "BadRequestException", refused
    assert why in refused.message
    assert client.post("/predictions/mirror", b"ok").status == 200

"""Keys as in TorchServe: who may call what, and how operators get and renew keys."""

import json
import os
import stat
import subprocess

import pytest

from client import SEQUENCE
from models import BIN, counter

REFUSED = "Token Authorization failed. Token either incorrect, expired, or not provided correctly"
NOT_RENEWED = "Token Authentication failed. Token either incorrect, expired, or not provided correctly"


def guarded(server, *models, flags=(), **more):
    return server(*(models or (counter(),)), flags=["--token-auth", *flags], **more)


def keys(s):
    return json.loads((s.folder / "key_file.json").read_text())


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def of(s, kind):
    return bearer(keys(s)[kind]["key"])


def test_the_key_file_is_torchserves_and_nobody_elses(server):
    """key_file.json is in the working directory, with mode 0600 and three keys, two of which expire."""
    s = guarded(server)
    assert list(keys(s)) == ["management", "inference", "API"]
    assert list(keys(s)["management"]) == ["key", "expiration time"] and list(keys(s)["API"]) == ["key"]
    assert all(len(each["key"]) == 8 for each in keys(s).values())
    assert len({each["key"] for each in keys(s).values()}) == 3
    assert stat.S_IMODE(os.stat(s.folder / "key_file.json").st_mode) == 0o600


@pytest.mark.parametrize("path", ["/ping", "/predictions/counter", "/predictions/nobody", "/invocations", "/nowhere"])
def test_inference_needs_the_inference_key(server, path):
    """This includes /ping, and without a key nobody learns whether a model exists. The status is 400, as in TorchServe.
    """
    s = guarded(server)
    client = s.client()
    for headers in ({}, of(s, "management"), of(s, "API"), bearer("wrong"), {"Authorization": keys(s)["inference"]["key"]}):
        answer = client.post(path, "1", headers=headers) if path != "/ping" else client.get(path, headers=headers)
        assert answer.status == 400 and answer.error == "token_refused", answer
        assert answer.json == {"code": 400, "type": "InvalidKeyException", "message": REFUSED}
        assert "WWW-Authenticate" not in answer.headers


def test_the_right_key_opens_the_right_port(server):
    """Metrics need no key."""
    s = guarded(server)
    client, admin = s.client(), s.admin()
    assert client.post("/predictions/counter", "5", headers={**of(s, "inference"), SEQUENCE: "a"}).text == "5"
    assert client.get("/ping", headers=of(s, "inference")).status == 200
    assert admin.get("/models", headers=of(s, "management")).json["models"][0]["modelName"] == "counter"
    for answer in (admin.get("/models"), admin.get("/models", headers=of(s, "inference")),
                   admin.delete("/models/counter"), admin.get("/v1/models/counter")):
        assert (answer.status, answer.json["type"], answer.message) == (400, "InvalidKeyException", REFUSED)
    assert s.metric("continuo_workers_ready") == 1


def test_the_inference_key_administers_nothing(server):
    """The v2 protocol changes models and logs on the inference interface, but with management's key."""
    s = guarded(server, flags=["--model-control-mode", "explicit"])
    client = s.client()
    changes = [("/v2/logging", '{"log_verbose_level": 1}'), ("/v2/trace/setting", '{"trace_rate": "5"}'),
               ("/v2/repository/models/counter/unload", "{}")]
    for path, body in [("/v2/repository/models/counter/load", "{}"), *changes]:
        assert client.post(path, body, headers=of(s, "inference")).status == 400, path
    assert client.post("/predictions/counter", "5", headers={**of(s, "inference"), SEQUENCE: "a"}).text == "5"
    assert client.get("/v2/logging", headers=of(s, "inference")).status == 200
    assert client.post("/v2/repository/index", "", headers=of(s, "inference")).status == 200
    for path, body in changes:
        assert client.post(path, body, headers=of(s, "management")).status == 200, path


def test_a_large_body_without_a_key_is_refused_unread(server):
    """Without a key nobody can fill the server's memory."""
    s = guarded(server)
    raw = s.raw()
    raw.send("POST /predictions/counter HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n" + "x" * 1000)
    answer = raw.answer()
    assert (answer.status, answer.error) == (400, "token_refused")
    assert raw.is_closed_by_server()


def test_the_api_key_renews_the_others(server):
    """GET /token answers 200 with an empty line. The new key is in the file, the old one is no longer valid, and the
    others stay."""
    s = guarded(server)
    old = keys(s)
    admin = s.admin()
    answer = admin.get("/token?type=inference", headers=of(s, "API"))
    assert (answer.status, answer.body) == (200, b"\n")
    new = keys(s)
    assert new["inference"]["key"] != old["inference"]["key"]
    assert (new["management"], new["API"]) == (old["management"], old["API"])
    assert s.client().get("/ping", headers=bearer(old["inference"]["key"])).status == 400
    assert s.client().get("/ping", headers=of(s, "inference")).status == 200
    assert admin.get("/token?type=management", headers=of(s, "API")).status == 200
    assert admin.get("/models", headers=bearer(old["management"]["key"])).status == 400
    assert admin.get("/models", headers=of(s, "management")).status == 200
    for path, headers in (("/token?type=inference", {}), ("/token?type=inference", of(s, "management")),
                          ("/token?type=API", of(s, "API")), ("/token", of(s, "API"))):
        answer = admin.get(path, headers=headers)
        assert answer.json == {"code": 400, "type": "InvalidKeyException", "message": NOT_RENEWED}, path
    assert new == {**keys(s), "management": new["management"]}


def test_keys_end_when_the_file_says(server):
    """--token-lifetime limits two keys. The API key stays valid and makes new ones."""
    s = guarded(server, flags=["--token-lifetime", "60000"], clock=True)
    assert s.client().get("/ping", headers=of(s, "inference")).status == 200
    s.clock.advance(60_000)
    assert s.client().get("/ping", headers=of(s, "inference")).status == 400
    assert s.admin().get("/token?type=inference", headers=of(s, "API")).status == 200
    assert s.client().get("/ping", headers=of(s, "inference")).status == 200


def test_what_describes_the_api_is_open(server):
    """Descriptions can be read without a key. Paths that only look like theirs need one."""
    s = guarded(server)
    for client in (s.client(), s.admin()):
        assert client.request("OPTIONS", "/").error != "token_refused"
        assert client.get("/api-description").error != "token_refused"
        for method, path in (("POST", "/"), ("OPTIONS", "/models"), ("GET", "/api-description/x"), ("GET", "/tokens"),
                             ("GET", "/models?x=/token"), ("POST", "/models/api-description")):
            assert client.request(method, path).error == "token_refused", path
    assert s.client().get("/token").error == "token_refused"
    assert s.client().get("/").error == "token_refused"
    assert s.admin().get("/").status == 200  # the page, which asks for the key itself


def test_without_token_auth_nothing_is_asked(server):
    """By default there is no key file, and /token does not exist."""
    s = server(counter())
    assert not (s.folder / "key_file.json").exists()
    assert s.client().get("/ping").status == 200
    assert s.admin().get("/token?type=inference").status == 404


def test_a_place_where_the_keys_can_not_be_written_stops_the_start(server):
    """A server whose keys nobody knows would be worse."""
    s = server(counter(), flags=["--token-auth", "--token-file", "/nowhere/keys.json"], start=False).launch()
    assert s.exit_code() == 1
    assert any("cannot write the keys to /nowhere/keys.json (token-file)" in line for line in s.lines)


def test_continuo_ctl_shows_a_key(server):
    """The key is in CONTINUO_TOKEN."""
    s = guarded(server)
    command = [BIN / "continuo-ctl", "models", "--server", s.management, "--metrics", s.metrics]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "Token Authorization failed" in run.stdout + run.stderr
    env = {**os.environ, "CONTINUO_TOKEN": keys(s)["management"]["key"]}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert run.returncode == 0 and "counter" in run.stdout, run

"""Named keys: each API admits the keys that have the scope and the model, and tells the others why not."""

import datetime
import json
import os
import signal
import subprocess

import grpc
import pytest
import requests
import websockets.exceptions

import v2rpc
from client import SEQUENCE
from models import BIN, counter, stateless
from rpc import Rpc, module, refused, request
from test_grpc_stream import reason
from test_v2_http import accumulator
from waiting import expect, limit
from websocketing import Stream, body_of


def ctl(*words, check=True, env=None):
    run = subprocess.run([BIN / "continuo-ctl", "keys", *map(str, words)], capture_output=True, text=True, check=False,
                         timeout=limit(60), env={**os.environ, **(env or {})})
    assert not check or run.returncode == 0, run
    return run


class Keys:
    """A file of keys, and the keys themselves."""

    def __init__(self, folder):
        self.path = folder / "keys.json"
        self.texts = {}

    def add(self, name, scopes, *more):
        self.texts[name] = ctl("add", name, "--scopes", scopes, "--keys", self.path, *more).stdout.strip()
        return self

    def http(self, name):
        return {"Authorization": f"Bearer {self.texts[name]}"}

    def rpc(self, name):
        return (("authorization", f"Bearer {self.texts[name]}"),)


@pytest.fixture
def keys(folder):
    """One key for each scope, and one that may use the model `counter` only."""
    return Keys(folder).add("shop", "infer").add("ops", "manage").add("watch", "observe").add(
        "narrow", "infer,manage,observe", "--models", "coun?er,asr-*")


def start(server, keys, *models, flags=(), **more):
    return server(*(models or (counter(),)), flags=["--keys", keys.path, *flags], **more)


def hang_up(s, *words):
    """Lets the server read the file again, and waits for the line that says so."""
    before = len(s.lines)
    s.process.send_signal(signal.SIGHUP)
    expect(lambda: any(all(w in line for w in words) for line in s.lines[before:]), " and ".join(words))


def test_a_model_with_the_name_of_a_page_needs_a_key(server, keys):
    """The pages are open, but not every path that begins like one."""
    names = ("try", "page")
    s = start(server, keys, *map(stateless, names))
    for name in names:
        for method in "GET", "HEAD", "POST":
            for path in f"/{name}/1.0/predict", f"/{name}/1.0/predict/", f"/predictions/{name}":
                assert s.client().request(method, path).status == 401, (method, path)
        assert s.client().get(f"/{name}/1.0/predict?data=4", headers=keys.http("shop")).status == 200
    assert s.client().get("/try/try").status == s.client().get("/page/try.js").status == 200


def test_each_http_api_asks_for_its_scope(server, keys):
    """401 says that a key is missing and how to send it; 403 that the key lacks something."""
    s = start(server, keys)
    client, admin, metrics = s.client(), s.admin(), requests.Session()
    step = {SEQUENCE: "a"}
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"},
                    {"Authorization": "Bearer continuo-" + "A" * 43}):
        for answer in (client.post("/predictions/counter", "5", headers={**step, **headers}),
                       client.get("/ping", headers=headers), client.get("/v2/health/ready", headers=headers),
                       client.get("/nowhere", headers=headers), admin.get("/models", headers=headers),
                       admin.get("/events", headers=headers)):
            assert (answer.status, answer.error) == (401, "key_required"), answer
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert metrics.get(s.metrics + "/metrics", headers=headers, timeout=limit(20)).status_code == 401
    assert client.post("/predictions/counter", "5", headers={**step, **keys.http("shop")}).text == "5"
    for name in ("ops", "watch"):
        answer = client.post("/predictions/counter", "5", headers={**step, **keys.http(name)})
        assert (answer.status, answer.error) == (403, "key_forbidden")
        assert answer.message == f"the key {name} lacks the scope that this request needs: infer"
        assert admin.get("/models", headers=keys.http(name)).status == 200
        assert metrics.get(s.metrics + "/metrics", headers=keys.http(name), timeout=limit(20)).status_code == 200
    for name in ("shop", "ops", "watch"):
        assert client.get("/ping", headers=keys.http(name)).status == 200
        assert client.get("/v2/health/live", headers=keys.http(name)).status == 200
    assert admin.get("/models", headers=keys.http("shop")).status == 403
    assert metrics.get(s.metrics + "/metrics", headers=keys.http("shop"), timeout=limit(20)).status_code == 403
    for name in ("shop", "watch"):
        assert admin.delete("/models/counter", headers=keys.http(name)).status == 403
    assert admin.get("/token?type=inference").status == 404
    assert client.get("/api-description").status == 200  # descriptions and the page's files stay open
    assert admin.get("/").status == 200
    assert admin.delete("/models/counter", headers=keys.http("ops")).status == 200


def test_observing_does_not_read_what_clients_have_stored(server, keys):
    """A sequence's state is its client's data: export and show_state need `manage`."""
    s = start(server, keys)
    admin = s.admin()
    s.client().post("/predictions/counter", "5", headers={SEQUENCE: "a", **keys.http("shop")})
    assert admin.get("/models/counter/sequences", headers=keys.http("watch")).status == 200
    assert admin.get("/models/counter/sequences/shop/a", headers=keys.http("watch")).status == 200
    for query in ("export=true", "show_state=true"):
        path = f"/models/counter/sequences/shop/a?{query}"
        assert admin.get(path, headers=keys.http("watch")).error == "key_forbidden"
        assert admin.get(path, headers=keys.http("ops")).status == 200


def test_a_limited_key_uses_its_models_only(server, keys):
    """The answer for another model does not tell whether the server has it, and nothing that lists all is open."""
    s = start(server, keys, counter(), stateless(), flags=["--model-control-mode", "explicit"])
    client, admin, narrow = s.client(), s.admin(), keys.http("narrow")
    assert client.post("/predictions/counter", "5", headers={SEQUENCE: "a", **narrow}).text == "5"
    assert client.post("/models/counter/invoke", "1", headers={SEQUENCE: "a", **narrow}).status == 200
    assert client.post("/invocations?model_name=counter", "1", headers={SEQUENCE: "a", **narrow}).status == 200
    for model in ("echo", "nobody"):
        for answer in (client.post(f"/predictions/{model}", "1", headers=narrow),
                       client.post(f"/invocations?model_name={model}", "1", headers=narrow),
                       client.get(f"/v1/models/{model}", headers=narrow),
                       client.get(f"/v1/streams/{model}/a", headers=narrow),
                       admin.get(f"/models/{model}", headers=narrow), admin.put(f"/models/{model}", headers=narrow),
                       admin.get(f"/models/{model}/sequences/a", headers=narrow),
                       admin.get(f"/v1/models/{model}", headers=narrow)):
            assert (answer.status, answer.error) == (403, "key_forbidden"), answer
            assert answer.message == f"the key narrow may not use the model {model}"
        for path in (f"/v2/models/{model}", f"/v2/models/{model}/stats", f"/v2/models/{model}/ready"):
            assert client.get(path, headers=narrow).status == 403
        assert client.post(f"/v2/models/{model}/infer", "{}", headers=narrow).status == 403
        assert client.post(f"/v2/repository/models/{model}/unload", "{}", headers=narrow).status == 403
    for answer in (admin.get("/models", headers=narrow), admin.post("/models?url=counter.mar", headers=narrow),
                   admin.get("/slowlog", headers=narrow), admin.get("/stores", headers=narrow),
                   admin.get("/events", headers=narrow), client.get("/v2/models/stats", headers=narrow),
                   client.post("/v2/repository/index", "", headers=narrow),
                   client.get("/v2/logging", headers=narrow)):
        assert answer.status == 403 and answer.error == "key_forbidden", answer
    assert requests.get(s.metrics + "/metrics", headers=narrow, timeout=limit(20)).status_code == 403
    assert client.get("/ping", headers=narrow).status == 200
    assert client.get("/v2", headers=narrow).status == 200
    assert admin.get("/models/counter", headers=narrow).json[0]["modelName"] == "counter"
    assert admin.get("/models/coun%2Fter", headers=narrow).status == 403
    assert admin.get("//models//echo", headers=narrow).status == 403
    assert client.post("/v2/repository/index", "", headers=keys.http("shop")).status == 200


def test_a_request_that_names_no_model_does_not_tell_its_name(server, keys):
    """/invocations means the only model that was loaded at the start."""
    s = start(server, keys, stateless("secret-name"))
    assert s.client().post("/invocations", "1", headers=keys.http("shop")).status == 200
    answer = s.client().post("/invocations", "1", headers=keys.http("narrow"))
    assert (answer.status, answer.error) == (403, "key_forbidden") and "secret" not in answer.text


def test_v2_clients_get_their_own_form_of_error(server, keys):
    s = start(server, keys, accumulator())
    body = json.dumps({"parameters": {"sequence_id": "a", "sequence_start": True},
                       "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [4]}]})
    url = s.inference + "/v2/models/accumulator/infer"
    done = requests.post(url, data=body, headers=keys.http("shop"), timeout=limit(20))
    assert done.status_code == 200, done.text
    none = requests.post(url, data=body, timeout=limit(20))
    assert none.status_code == 401 and none.headers["WWW-Authenticate"] == "Bearer"
    assert none.json()["error"].startswith("this server requires a key")
    assert requests.post(url, data=body, headers=keys.http("watch"), timeout=limit(20)).status_code == 403
    assert requests.post(url, data=body, headers=keys.http("narrow"), timeout=limit(20)).status_code == 403
    for path in ("/v2/models/accumulator", "/v2/models/stats"):
        assert requests.get(s.inference + path, headers=keys.http("watch"), timeout=limit(20)).status_code == 200
    change = requests.post(s.inference + "/v2/logging", data='{"log_verbose_level": 1}', headers=keys.http("shop"),
                           timeout=limit(20))
    assert change.status_code == 403


def test_grpc_asks_on_both_ports(server, keys):
    """No key: UNAUTHENTICATED; the wrong one: PERMISSION_DENIED; health needs none."""
    s = start(server, keys, counter(), stateless())
    with Rpc(s.grpc) as client, Rpc(s.grpc_admin) as admin:
        assert client.predict("counter", 1, "s", metadata=keys.rpc("shop")).prediction == b"1"
        assert client.predict("counter", 1, "s", metadata=keys.rpc("narrow")).prediction == b"1"
        for metadata in (None, (("authorization", "Bearer nonsense"),)):
            assert refused(client.predict, "counter", 1, "s", metadata=metadata).code() == \
                grpc.StatusCode.UNAUTHENTICATED
        for model, name in (("counter", "watch"), ("echo", "narrow"), ("nobody", "narrow")):
            error = refused(client.predict, model, 1, "s", metadata=keys.rpc(name))
            assert error.code() == grpc.StatusCode.PERMISSION_DENIED
        assert error.details() == "the key narrow may not use the model nobody"
        assert refused(client.inference.StreamPredictions2(iter(()), timeout=limit(30)).next).code() == \
            grpc.StatusCode.UNAUTHENTICATED
        answers = client.inference.StreamPredictions2(iter([request("echo", b"x", "t")]), timeout=limit(30),
                                                      metadata=keys.rpc("narrow"))
        assert reason(next(answers)) == "key_forbidden"
        manage = module("management_pb2")
        listing = manage.ListModelsRequest(limit=5)
        assert "counter" in admin.management.ListModels(listing, metadata=keys.rpc("watch"), timeout=30).msg
        for name, code in (("shop", "PERMISSION_DENIED"), ("narrow", "PERMISSION_DENIED")):
            assert refused(admin.management.ListModels, listing, metadata=keys.rpc(name), timeout=30).code().name == code
        assert refused(admin.management.ListModels, listing, timeout=30).code().name == "UNAUTHENTICATED"
        scale = manage.ScaleWorkerRequest(model_name="counter", min_worker=1, max_worker=1)
        assert refused(admin.management.ScaleWorker, scale, metadata=keys.rpc("watch"), timeout=30).code().name == \
            "PERMISSION_DENIED"
        assert admin.management.ScaleWorker(scale, metadata=keys.rpc("narrow"), timeout=30).msg
        remove = manage.UnregisterModelRequest(model_name="echo")
        assert refused(admin.management.UnregisterModel, remove, metadata=keys.rpc("narrow"), timeout=30).code().name == \
            "PERMISSION_DENIED"
        assert client.health.Check(module("grpc.health.v1.health_pb2").HealthCheckRequest(), timeout=30).status == 1


def test_v2_over_grpc_asks_too(server, keys):
    s = start(server, keys, accumulator())
    messages = v2rpc.triton.service_pb2
    with v2rpc.channel_of(s) as channel:
        service = v2rpc.stub_of(channel)
        first = v2rpc.step("accumulator", 3, "a", sequence_start=True)
        assert service.ModelInfer(first, metadata=keys.rpc("shop"), timeout=30).model_name
        about = messages.ModelMetadataRequest(name="accumulator")
        assert service.ModelMetadata(about, metadata=keys.rpc("watch"), timeout=30).name == "accumulator"
        for call, name, code in (
                (lambda m: service.ModelInfer(v2rpc.step("accumulator", 3, "a"), metadata=m, timeout=30), None, 401),
                (lambda m: service.ModelInfer(v2rpc.step("accumulator", 3, "a"), metadata=m, timeout=30), "watch", 403),
                (lambda m: service.ModelInfer(v2rpc.step("accumulator", 3, "a"), metadata=m, timeout=30), "narrow", 403),
                (lambda m: service.ModelMetadata(about, metadata=m, timeout=30), "narrow", 403),
                (lambda m: service.ModelReady(messages.ModelReadyRequest(name="nobody"), metadata=m, timeout=30),
                 "narrow", 403),
                (lambda m: service.ModelStatistics(messages.ModelStatisticsRequest(), metadata=m, timeout=30),
                 "narrow", 403),
                (lambda m: service.RepositoryIndex(messages.RepositoryIndexRequest(), metadata=m, timeout=30),
                 "narrow", 403),
                (lambda m: service.SystemSharedMemoryStatus(messages.SystemSharedMemoryStatusRequest(), metadata=m,
                                                         timeout=30), "narrow", 403)):
            code = {401: grpc.StatusCode.UNAUTHENTICATED, 403: grpc.StatusCode.PERMISSION_DENIED}[code]
            assert refused(call, keys.rpc(name) if name else None).code() == code
        assert service.ServerLive(messages.ServerLiveRequest(), metadata=keys.rpc("narrow"), timeout=30).live
        assert service.RepositoryIndex(messages.RepositoryIndexRequest(), metadata=keys.rpc("shop"), timeout=30).models


def test_web_sockets_ask_at_the_handshake_and_at_each_step(server, keys):
    """A key comes by header, subprotocol or ticket. When it is revoked, the open stream gets no further step."""
    s = start(server, keys, counter(), stateless())
    for wrong, status in (({}, 401), ({"headers": keys.http("watch")}, 403), ({"query": {"ticket": "0" * 32}}, 401),
                          ({"protocols": ["continuo.v1.json", "continuo.key." + keys.texts["watch"]]}, 403)):
        with pytest.raises(websockets.exceptions.InvalidStatus) as error:
            Stream(s, "counter", "a", **wrong)
        assert error.value.response.status_code == status
    with pytest.raises(websockets.exceptions.InvalidStatus) as error:
        Stream(s, "echo", "a", headers=keys.http("narrow"))
    assert error.value.response.status_code == 403
    with Stream(s, "counter", "a", protocols=["continuo.key." + keys.texts["narrow"], "continuo.v1.json"]) as stream:
        assert body_of(stream.step(1)) == "1"
    tickets = s.inference + "/v1/streams/tickets"
    assert requests.post(tickets, timeout=limit(20)).status_code == 401
    made = [requests.post(tickets, headers=keys.http("shop"), timeout=limit(20)).json()["ticket"] for _ in range(2)]
    with Stream(s, "counter", "a", query={"ticket": made[0]}) as stream:
        assert body_of(stream.step(1)) == "1"
        ctl("revoke", "shop", "--keys", keys.path)
        hang_up(s, "event=keys_reloaded", "keys=4")
        answer = stream.step(1)
        assert (answer["status"], answer["error"]) == (401, "key_required"), answer
    with pytest.raises(websockets.exceptions.InvalidStatus) as error:
        Stream(s, "counter", "a", query={"ticket": made[1]})
    assert error.value.response.status_code == 401


def test_keys_expire(server, folder):
    """A key ends at the moment that the file says, without a reload."""
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    keys = Keys(folder).add("short", "infer", "--expires", end.strftime("%Y-%m-%dT%H:%M:%SZ")).add("long", "infer")
    s = start(server, keys, clock=True)
    assert s.client().get("/ping", headers=keys.http("short")).status == 200
    s.clock.advance(3_600_000)
    answer = s.client().get("/ping", headers=keys.http("short"))
    assert answer.status == 401 and answer.message.startswith("the key short expired at ")
    assert s.client().get("/ping", headers=keys.http("long")).status == 200


def test_the_log_says_who_has_changed_the_server(server, keys):
    """A line has the key's name, never the key. Refused changes are there, too; what only reads is not."""
    s = start(server, keys, counter(), stateless(), flags=["--model-control-mode", "explicit"])
    admin = s.admin()
    assert admin.get("/models", headers=keys.http("ops")).status == 200
    s.client().post("/predictions/counter", "5", headers={SEQUENCE: "a", **keys.http("shop")})
    assert admin.delete("/models/counter", headers=keys.http("watch")).status == 403
    s.expect_log("event=audit key=watch", 'method="DELETE"', 'path="/models/counter"', "status=403")
    assert admin.delete("/models/counter/sequences/shop/a", headers=keys.http("narrow")).status == 200
    s.expect_log("event=audit key=narrow", 'path="/models/counter/sequences/shop/a"', "status=200")
    done = requests.post(s.inference + "/v2/logging", data='{"log_verbose_level": 1}', headers=keys.http("ops"),
                         timeout=limit(20))
    assert done.status_code == 200
    s.expect_log("event=audit key=ops", 'path="/v2/logging"', "status=200")
    with Rpc(s.grpc_admin) as rpc:
        remove = module("management_pb2").UnregisterModelRequest(model_name="echo")
        assert refused(rpc.management.UnregisterModel, remove, metadata=keys.rpc("watch"), timeout=30)
        assert rpc.management.UnregisterModel(remove, metadata=keys.rpc("ops"), timeout=30).msg
    for name, status in (("watch", "status=7"), ("ops", "status=0")):
        s.expect_log(f"event=audit key={name}", "ManagementAPIsService/UnregisterModel", status)
    audits = [line for line in s.lines if "event=audit" in line]
    assert len(audits) == 5, audits
    assert not any(key in line for line in s.lines for key in keys.texts.values())


def test_a_damaged_file_keeps_the_old_keys(server, keys):
    """A typing error must not lock everybody out. The log says where it is."""
    s = start(server, keys)
    text = keys.path.read_text()
    keys.path.write_text(text.replace('"scopes"', '"scope"', 1))
    hang_up(s, "event=keys_reload_failed", "keys.json:2:", "did you mean scopes?", "the old keys stay in use")
    assert s.client().get("/ping", headers=keys.http("shop")).status == 200
    keys.path.write_text(text)
    keys.add("late", "infer")
    assert s.client().get("/ping", headers=keys.http("late")).status == 401
    hang_up(s, "event=keys_reloaded", "keys=5")
    assert s.client().get("/ping", headers=keys.http("late")).status == 200


@pytest.mark.parametrize("text, message", [
    (None, "keys.json"), ("keys: [", "keys.json:2:1: did not find"), ("keys:\n- name: a\n", "keys.json:2:3: the key has no hash")])
def test_a_bad_file_stops_the_start(server, folder, text, message):
    """A server that silently lets nobody in, or everybody, would be worse."""
    keys = Keys(folder)
    if text:
        keys.path.write_text(text)
    s = server(counter(), flags=["--keys", keys.path], start=False).launch()
    assert s.exit_code() == 1
    assert any(message in line for line in s.lines), s.lines


def test_named_keys_and_torchserves_exclude_each_other(server, keys):
    s = server(counter(), flags=["--keys", keys.path, "--token-auth"], start=False).launch()
    assert s.exit_code() == 1
    assert any("keys and token-auth exclude each other" in line for line in s.lines), s.lines
    assert not (s.folder / "key_file.json").exists()


def test_keys_open_management_to_other_machines(server, keys):
    """With named keys, management may listen on any address."""
    s = start(server, keys, flags=["--management-address", "http://0.0.0.0:0"])
    s.management = s.management.replace("0.0.0.0", "127.0.0.1")
    assert s.admin().get("/models").status == 401
    assert s.admin().get("/models", headers=keys.http("ops")).status == 200


def test_the_commands_write_a_file_that_shows_no_key(folder):
    """The key is printed once; the file has its hash, and only its owner reads it."""
    path = folder / "keys.json"
    made = ctl("add", "shop", "--models", "counter,asr-*", "--expires", "2999-12-31", "--keys", path)
    key = made.stdout.strip()
    assert key.startswith("continuo-") and len(key) == 52 and "only now" in made.stderr
    assert path.stat().st_mode & 0o777 == 0o600 and key not in path.read_text()
    other = json.loads(ctl("add", "ops", "--scopes", "manage,observe", "--keys", path, "--json").stdout)
    assert other["name"] == "ops" and other["key"] != key
    listed = ctl("ls", env={"CONTINUO_KEYS": str(path)}).stdout
    assert listed.splitlines()[0].split() == ["NAME", "STATE", "SCOPES", "MODELS", "EXPIRES", "LIMITS", "CERTIFICATES"]
    assert "counter, asr-*" in listed and "2999-12-31T00:00:00.000Z" in listed and "manage, observe" in listed
    path.chmod(0o640)
    assert ctl("revoke", "shop", "--keys", path).stdout == "the key shop is revoked\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert "revoked" in next(line for line in ctl("ls", "--keys", path).stdout.splitlines() if "shop" in line)
    assert json.loads(path.read_text())["keys"][0]["revoked"] is True
    assert [each["name"] for each in json.loads(ctl("ls", "--json", "--keys", path).stdout)["keys"]] == ["shop", "ops"]


@pytest.mark.parametrize("words", [["add", "more"], ["revoke", "shop"]])
def test_the_file_stays_the_servers(folder, words):
    """The server may run as another user than the operator, who may also have a strict umask or name a link."""
    keys = Keys(folder).add("shop", "infer")
    link = folder / "link.json"
    link.symlink_to(keys.path.name)
    keys.path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(keys.path, 12345, 12346)
    before = keys.path.stat()
    umask = os.umask(0o077)
    try:
        ctl(*words, "--keys", link)
    finally:
        os.umask(umask)
    after = keys.path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert link.is_symlink() and after.st_size != before.st_size


@pytest.mark.parametrize("words, message", [
    (["add"], "takes the name of one key"), (["ls", "x"], "takes no further word"), (["drop", "x"], "one of: ls add revoke"),
    (["add", "a b"], "cannot be the name of a key"), (["add", "shop"], "there is a key shop already"),
    (["add", "x", "--scopes", "admin"], "--scopes has \"admin\""), (["add", "x", "--expires", "soon"], "--expires is \"soon\""),
    (["add", "x", "--models", "a,,b"], "--models must be a list"), (["revoke", "x"], "has no key x"),
    (["ls", "--scopes", "infer"], "work only with keys add")])
def test_wrong_commands_change_nothing(folder, words, message):
    keys = Keys(folder).add("shop", "infer")
    before = keys.path.read_text()
    run = ctl(*words, "--keys", keys.path, check=False)
    assert run.returncode != 0 and message in run.stderr, run
    assert keys.path.read_text() == before


def test_two_commands_at_once_lose_no_key(folder):
    """Each reads, changes and writes the whole file, so without a lock one change would be lost."""
    path = folder / "keys.json"
    running = [subprocess.Popen([BIN / "continuo-ctl", "keys", "add", f"k{i}", "--keys", path], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE) for i in range(8)]
    for each in running:
        assert each.wait(limit(60)) == 0
        each.communicate()
    assert len(json.loads(path.read_text())["keys"]) == 8


def test_continuo_ctl_shows_a_named_key(server, keys):
    s = start(server, keys)
    command = [BIN / "continuo-ctl", "models", "--server", s.management, "--metrics", s.metrics]
    env = {**os.environ, "CONTINUO_TOKEN": keys.texts["watch"]}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=limit(60))
    assert run.returncode == 0 and "counter" in run.stdout, run

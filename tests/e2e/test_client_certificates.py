"""Certificates of clients stand for named keys, on https addresses of HTTP and gRPC."""

import contextlib
import json
import os
import queue
import ssl
import subprocess

import grpc
import pytest

from certificates import Authority, Connection, channel, context, write_keys
from client import SEQUENCE
from models import BIN, counter
from rpc import Rpc, module, refused, request, word
from test_grpc_stream import reason
from test_named_keys import ctl, hang_up
from test_tls import HTTPS, Identity as ServerIdentity
from waiting import expect, limit
from websocketing import Stream, body_of

GRPCS = ["--grpc-inference-address", "https://127.0.0.1:0", "--grpc-management-address", "https://127.0.0.1:0"]
SHOP = {"name": "shop", "certificates": ["dns:shop.example"], "scopes": ["infer"], "models": ["coun*"]}
OPS = {"name": "ops", "certificates": ["uri:spiffe://prod/ops"], "scopes": ["manage"]}
WATCH = {"name": "watch", "certificates": ["cn:watch"], "scopes": ["observe"]}


class World:
    """An authority, a server that asks for its certificates, and the key file."""

    def __init__(self, server, folder):
        self._server, self.folder = server, folder
        self.identity = ServerIdentity(folder, "server")
        self.authority = Authority(folder)
        self.path = folder / "keys.json"
        self.running = None

    def start(self, *keys, flags=(), ca=None, models=(counter(),), has_keys=True):
        write_keys(self.path, *(keys or (SHOP, OPS, WATCH)))
        self.running = self._server(*models, flags=[
            *HTTPS, *GRPCS, *self.identity.flags(), *(["--keys", self.path] if has_keys else []),
            "--client-ca", ca or self.authority.cert, *flags], start=False)
        self.running.tls = context(self.identity.cert)
        self.running.start()
        return self.running

    def change(self, *keys):
        write_keys(self.path, *keys)
        hang_up(self.running, "event=keys_reloaded")

    def shop(self, **more):
        return self.authority.issue("shop", ["subjectAltName=DNS:Shop.example"], **more)

    def ops(self):
        return self.authority.issue("ops", ["subjectAltName=URI:spiffe://prod/ops"])

    def connect(self, own=None, url=None):
        return Connection(url or self.running.inference, context(self.identity.cert, own))

    def add_user(self):
        """Makes a key that a client sends, and returns it."""
        key = ctl("add", "user", "--scopes", "infer", "--keys", self.path).stdout.strip()
        hang_up(self.running, "event=keys_reloaded", "keys=4")
        return key

    def stream(self, own=None, sequence="w", **more):
        return Stream(self.running, "counter", sequence, form="json", tls=context(self.identity.cert, own), **more)

    def step(self, own=None, headers=None):
        """Returns status, error and text of a step over a connection of its own."""
        with contextlib.closing(self.connect(own)) as connection:
            return connection.ask("POST", "/predictions/counter", "1", {SEQUENCE: "a", **(headers or {})})

    def manage(self, own, method="GET", path="/models"):
        with contextlib.closing(self.connect(own, self.running.management)) as connection:
            return connection.ask(method, path)

    def rpc(self, own=None):
        return Rpc(self.running.grpc, channel(self.identity.cert, own))

    def rpc_admin(self, own=None):
        return Rpc(self.running.grpc_admin, channel(self.identity.cert, own))


@pytest.fixture
def world(server, folder):
    return World(server, folder)


def test_a_certificate_is_as_good_as_its_key_over_http(world):
    """Scopes, models, owners and the audit lines are those of the key that has the certificate's name."""
    s = world.start()
    shop, ops, watch = world.shop(), world.ops(), world.authority.issue("watch")
    assert [world.step(shop)[2] for _ in range(3)] == ["1", "2", "3"]
    assert world.step(ops)[:2] == world.step(watch)[:2] == (403, "key_forbidden")
    assert world.manage(shop)[:2] == (403, "key_forbidden")
    assert world.manage(watch)[0] == 200
    status, _, text = world.manage(ops, path="/models/counter/sequences")
    assert status == 200 and "shop/a" in text
    with contextlib.closing(world.connect(shop)) as connection:
        status, error, text = connection.ask("POST", "/predictions/other", "1", {SEQUENCE: "a"})
        assert (status, error) == (403, "key_forbidden") and "the key shop may not use the model other" in text
    assert world.manage(watch, "DELETE", "/models/counter")[:2] == (403, "key_forbidden")
    assert world.manage(ops, "DELETE", "/models/counter")[0] == 200
    s.expect_log("event=audit key=watch", "status=403")
    s.expect_log("event=audit key=ops", "status=200")


def test_a_certificate_is_as_good_as_its_key_over_grpc(world):
    world.start()
    manage = module("management_pb2")
    listing = manage.ListModelsRequest(limit=5)
    with world.rpc(world.shop()) as client, world.rpc_admin(world.ops()) as admin:
        assert [client.predict("counter", 1, "a").prediction for _ in range(2)] == [b"1", b"2"]
        answers = client.inference.StreamPredictions2(iter([request("counter", 1, "a")]), timeout=limit(30))
        assert [answer.prediction for answer in answers] == [b"3"]
        error = refused(client.predict, "other", 1, "a")
        assert (error.code().name, word(error)) == ("PERMISSION_DENIED", "key_forbidden")
        assert "counter" in admin.management.ListModels(listing, timeout=limit(30)).msg
    with world.rpc(world.ops()) as client, world.rpc_admin(world.shop()) as admin:
        assert refused(client.predict, "counter", 1, "a").code().name == "PERMISSION_DENIED"
        assert refused(admin.management.ListModels, listing, timeout=limit(30)).code().name == "PERMISSION_DENIED"
    with world.rpc_admin(world.ops()) as admin:
        assert admin.management.UnregisterModel(manage.UnregisterModelRequest(model_name="counter"), timeout=limit(30)).msg
    world.running.expect_log('event=audit key=ops method="gRPC"', "status=0")


def test_old_tls_asks_for_certificates_too(world):
    """TLS 1.2 sends the client's certificate in another part of the handshake."""
    world.start()
    old = context(world.identity.cert, world.shop())
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with contextlib.closing(Connection(world.running.inference, old)) as connection:
        assert connection.ask("POST", "/predictions/counter", "1", {SEQUENCE: "a"})[2] == "1"
    nobody = context(world.identity.cert)
    nobody.maximum_version = ssl.TLSVersion.TLSv1_2
    with contextlib.closing(Connection(world.running.inference, nobody)) as connection:
        assert connection.ask("GET", "/ping")[:2] == (403, "certificate_refused")


def test_http_and_grpc_share_the_sequences_of_a_key(world):
    world.start()
    shop = world.shop()
    assert world.step(shop)[2] == "1"
    with world.rpc(shop) as client:
        assert client.predict("counter", 1, "a").prediction == b"2"
    with Stream(world.running, "counter", "a", form="json", tls=context(world.identity.cert, shop)) as stream:
        assert body_of(stream.step(1)) == "3"


def test_who_has_no_good_certificate_is_told_why(world):
    """The answer names the certificate, what is wrong with it, and what to do. gRPC has only TLS to say it with."""
    world.start()
    other = Authority(world.folder, "other")
    bad = {
        "requires a certificate of each client": None,
        "dns:shop.example) was not accepted: none of the authorities": other.issue("shop", ["subjectAltName=DNS:shop.example"]),
        "dns:shop.example) was not accepted: it has expired": world.shop(begins=-7200, ends=-3600),
        "dns:shop.example) was not accepted: it is not valid yet":
            world.authority.issue("early", ["subjectAltName=DNS:shop.example"], begins=3600, ends=7200),
        "was not accepted: it is not for clients of TLS":
            world.authority.issue("purpose", ["subjectAltName=DNS:shop.example", "extendedKeyUsage=serverAuth"]),
    }
    for words, own in bad.items():
        status, error, text = world.step(own)
        assert (status, error) == (403, "certificate_refused") and words in text, text
        with contextlib.closing(world.connect(own)) as connection:
            assert connection.ask("GET", "/api-description")[0] == 403  # nothing is open without a certificate
        with world.rpc(own) as client:
            assert refused(client.predict, "counter", 1, "a").code() == grpc.StatusCode.UNAVAILABLE


ODD = {
    "wildcard": ["subjectAltName=DNS:*.example"],
    "nul": ["2.5.29.17=DER:30:16:82:14:73:68:6f:70:2e:65:78:61:6d:70:6c:65:00:2e:65:76:69:6c:00:00"],  # shop.example\0.evil
    "other": ["subjectAltName=DNS:shop.example.evil"],
    "kind": ["subjectAltName=URI:shop.example"],
    "email": ["subjectAltName=email:dns@shop.example"],
    "address": ["subjectAltName=IP:127.0.0.1"],
    "none": [],
    "two": ["subjectAltName=DNS:shop.example,URI:spiffe://prod/ops"],
}


@pytest.mark.parametrize("name", sorted(ODD))
def test_odd_names_are_nobodys(world, name):
    """Neither a wildcard nor a NUL nor a name of another kind stands for a key, and HTTP and gRPC agree on that."""
    world.start()
    own = world.authority.issue(name, ODD[name], subject="/O=Example" if name == "none" else "/CN=dns:shop.example")
    status, error, text = world.step(own)
    if name == "nul" and error == "certificate_refused":
        assert "cannot be read" in text
    else:
        assert (status, error) == (401, "key_required"), text
        assert "belong to two keys" in text if name == "two" else "belongs to no key" in text, text
    with world.rpc(own) as client:
        failed = refused(client.predict, "counter", 1, "a")
        assert failed.code() == grpc.StatusCode.UNAUTHENTICATED and word(failed) == error


def test_the_common_name_counts_only_without_alternative_names(world):
    world.start({"name": "shop", "certificates": ["cn:shop"], "scopes": ["infer"]})
    assert world.step(world.authority.issue("shop"))[2] == "1"
    assert world.step(world.authority.issue("shop", ["subjectAltName=DNS:anybody.example"]))[1] == "key_required"
    with world.rpc(world.authority.issue("shop")) as client:
        assert client.predict("counter", 1, "a").prediction == b"2"


def test_a_common_name_with_signs_is_compared_as_it_is_written(world):
    """GnuTLS gives some signs of a subject with a backslash before them."""
    world.start({"name": "shop", "certificates": ["cn:Shop, Inc"], "scopes": ["infer"]})
    own = world.authority.issue("signs", subject="/CN=Shop, Inc")
    assert world.step(own)[2] == "1"
    with world.rpc(own) as client:
        assert client.predict("counter", 1, "a").prediction == b"2"


def test_a_key_that_is_sent_counts_more_than_a_certificate(world):
    """A gateway with a certificate passes its users' keys on. A wrong key is refused: it never becomes the gateway's."""
    world.start()
    key = world.add_user()
    shop = world.shop()
    assert [world.step(shop)[2] for _ in range(2)] == ["1", "2"]
    assert world.step(shop, {"Authorization": f"Bearer {key}"})[2] == "1"  # the sequence of another owner
    assert world.step(shop, {"Authorization": "Bearer nonsense"})[:2] == (401, "key_required")
    with world.rpc(shop) as client:
        assert client.predict("counter", 1, "a", metadata=(("authorization", f"Bearer {key}"),)).prediction == b"2"
        assert client.predict("counter", 1, "a").prediction == b"3"
        for sent in ("Bearer nonsense", ""):
            error = refused(client.predict, "counter", 1, "a", metadata=(("authorization", sent),))
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED, sent
    status, error, text = world.step(shop, {"Authorization": ""})
    assert (status, error) == (401, "key_required") and "the key that was sent is empty" in text
    for more in ({"headers": {"Authorization": ""}}, {"headers": {"Authorization": ""}, "query": {"ticket": "x"}},
                 {"protocols": ["continuo.key.", "continuo.v1.json"]}, {"query": {"ticket": ""}}):
        with pytest.raises(Exception, match="401"):
            world.stream(shop, **more)


def test_clients_may_choose_between_key_and_certificate(world):
    """With --require-client-certificate=false both come in; a certificate that is shown must still be a good one."""
    world.start(flags=["--require-client-certificate=false"])
    key = ctl("add", "user", "--scopes", "infer", "--keys", world.path).stdout.strip()
    hang_up(world.running, "event=keys_reloaded", "keys=4")
    bearer = {"Authorization": f"Bearer {key}"}
    assert world.step(None, bearer)[2] == "1"
    status, error, text = world.step(None)
    assert (status, error) == (401, "key_required") and "or connect with the certificate of a key" in text
    assert world.step(world.shop())[2] == "1"
    stranger = Authority(world.folder, "other").issue("shop", ["subjectAltName=DNS:shop.example"])
    assert world.step(stranger, bearer)[:2] == (403, "certificate_refused")
    with world.rpc() as client:
        assert client.predict("counter", 1, "a", metadata=(("authorization", f"Bearer {key}"),)).prediction == b"2"
        assert refused(client.predict, "counter", 1, "a").code() == grpc.StatusCode.UNAUTHENTICATED
    with world.rpc(stranger) as client:
        assert refused(client.predict, "counter", 1, "a").code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("how", ["revoked", "taken away"])
def test_a_key_ends_while_its_connections_stand(world, how):
    """Connections stay open, and their next request or step is refused."""
    world.start()
    shop = world.shop()
    tls = context(world.identity.cert, shop)
    with contextlib.closing(world.connect(shop)) as http, world.rpc(shop) as client, \
            Stream(world.running, "counter", "w", form="json", tls=tls) as stream:
        assert http.ask("POST", "/predictions/counter", "1", {SEQUENCE: "a"})[2] == "1"
        assert client.predict("counter", 1, "a").prediction == b"2"
        assert body_of(stream.step(1)) == "1"
        if how == "revoked":
            world.change({**SHOP, "revoked": True}, OPS, WATCH)
        else:
            world.change({**SHOP, "certificates": ["dns:new.example"]}, OPS, WATCH)
        status, error, text = http.ask("GET", "/ping")  # a refused request with a body would close the connection
        assert (status, error) == (401, "key_required"), text
        assert ("the key shop is revoked" if how == "revoked" else "belongs to no key") in text
        assert refused(client.predict, "counter", 1, "a").code() == grpc.StatusCode.UNAUTHENTICATED
        answer = stream.step(1)
        assert (answer["status"], answer["error"]) == (401, "key_required"), answer
        world.change(SHOP, OPS, WATCH)
        assert client.predict("counter", 1, "a").prediction == b"3"
        assert world.step(shop)[2] == "4"


@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "certificates alone"])
def test_a_certificate_expires_while_its_connections_stand(world, has_keys):
    """Then nothing goes on over them, with or without a key, and neither do streams that are open."""
    world.start(has_keys=has_keys)
    metadata = (("authorization", f"Bearer {world.add_user()}"),) if has_keys else ()
    shop = world.shop(ends=int(limit(10)))
    with contextlib.closing(world.connect(shop)) as http, world.rpc(shop) as client, world.stream(shop) as stream, \
            _Calls(client.inference.StreamPredictions2) as calls:
        assert client.predict("counter", 1, "b").prediction == b"1"
        assert client.predict("counter", 1, "d", metadata=metadata).prediction == b"1"
        assert body_of(stream.step(1)) == "1"
        assert calls.ask(request("counter", 1, "c")).prediction == b"1"
        assert http.ask("POST", "/predictions/counter", "1", {SEQUENCE: "a"})[0] == 200
        status, error, text = expect(lambda: (lambda a: a[0] != 200 and a)(
            http.ask("POST", "/predictions/counter", "1", {SEQUENCE: "a"})), "the certificate expires", timeout=20)
        assert (status, error) == (403, "certificate_refused") and "dns:shop.example) expired at 20" in text
        for sent in {(), metadata}:
            failed = refused(client.predict, "counter", 1, "b", metadata=sent)
            assert (failed.code().name, word(failed)) == ("UNAUTHENTICATED", "certificate_refused"), sent
        answer = stream.step(1)
        assert (answer.get("status"), answer.get("error")) == (403, "certificate_refused"), answer
        assert reason(calls.ask(request("counter", 1, "c"))) == "certificate_refused"


def test_a_ticket_ends_with_the_certificate_by_which_it_was_made(world):
    """Its stream runs over a connection without a certificate, and ends all the same when that certificate expires. A
    ticket that was not used by then opens nothing."""
    world.start(flags=["--require-client-certificate=false", "--stream-ticket-lifetime", "600000"])
    with contextlib.closing(world.connect(world.shop(ends=int(limit(8))))) as http:
        used, late = (json.loads(http.ask("POST", "/v1/streams/tickets", "")[2])["ticket"] for _ in range(2))
        with world.stream(query={"ticket": used}) as stream:
            assert body_of(stream.step(1)) == "1"
            expect(lambda: http.ask("POST", "/predictions/counter", "1", {SEQUENCE: "a"})[0] == 403,
                   "the certificate expires", timeout=20)
            answer = stream.step(1)
            assert (answer.get("status"), answer.get("error")) == (403, "certificate_refused"), answer
        with pytest.raises(Exception, match="403"):
            world.stream(query={"ticket": late})


class _Calls:
    """A stream of gRPC whose messages are sent one by one."""

    def __init__(self, method):
        self._queue = queue.SimpleQueue()
        self._answers = method(iter(self._queue.get, None), timeout=limit(60))

    def ask(self, message):
        self._queue.put(message)
        return next(self._answers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._queue.put(None)


def test_the_limits_of_a_key_hold_for_its_certificates(world):
    """One rate for all clients of a key, however they show it."""
    world.start({**SHOP, "rate": 1, "burst": 2, "certificates": ["dns:shop.example", "dns:second.example"]})
    second = world.authority.issue("second", ["subjectAltName=DNS:second.example"])
    answers = [world.step(own)[1] for own in (world.shop(), second, second, world.shop())]
    assert answers[:2] == [None, None] and "key_limit" in answers[2:]


def test_a_new_authority_counts_after_sighup(world):
    """Old and new authority can be in the file together while the clients change."""
    both, new = world.folder / "both.pem", Authority(world.folder, "new")
    both.write_text(world.authority.cert.read_text())
    world.start(ca=both)
    shop = new.issue("shop", ["subjectAltName=DNS:shop.example"])
    assert world.step(shop)[1] == "certificate_refused"
    both.write_text(world.authority.cert.read_text() + new.cert.read_text())
    hang_up(world.running, "event=certificate_loaded")
    assert world.step(shop)[2] == "1" and world.step(world.shop())[2] == "2"
    expect(lambda: _works(world, shop), "gRPC knows the authority")
    both.write_text("nothing")
    hang_up(world.running, "event=reload_failed", "client-ca", "has no PEM certificates")
    assert world.step(shop)[0] == 200


def _works(world, own):
    with world.rpc(own) as client, contextlib.suppress(grpc.RpcError):
        return client.predict("counter", 1, "g").prediction
    return None


def test_pages_of_other_sites_do_not_use_the_browsers_certificate(world):
    """A browser shows its certificate for any page, so `*` allows no page to make steps with it."""
    world.start(flags=["--cors-allowed-origin", "*", "--require-client-certificate=false"])
    key = world.add_user()
    foreign = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
    shop = world.shop()
    assert world.step(shop, foreign)[:2] == (403, "foreign_site")
    assert world.step(shop, {"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert world.step(shop, {**foreign, "Authorization": f"Bearer {key}"})[0] == 200
    origin = {"Origin": "https://evil.example"}
    with pytest.raises(Exception, match="403"):
        world.stream(shop, headers=origin)
    with world.stream(shop, headers=origin, protocols=[f"continuo.key.{key}", "continuo.v1.json"]) as stream:
        assert body_of(stream.step(1)) == "1"
    with contextlib.closing(world.connect(shop)) as connection:
        made = connection.ask("POST", "/v1/streams/tickets", "", {"Authorization": f"Bearer {key}"})[2]
    with world.stream(shop, headers=origin, query={"ticket": json.loads(made)["ticket"]}) as stream:
        assert body_of(stream.step(1)) == "2"


def test_pages_of_a_named_origin_use_the_browsers_certificate(world):
    """The browser asks first, without a certificate, and then shows the answer only if it allows credentials."""
    world.start(flags=["--cors-allowed-origin", "https://app.example"])
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    credentials = "Access-Control-Allow-Credentials"
    with contextlib.closing(world.connect()) as connection:
        status, _, text = connection.ask("OPTIONS", "/predictions/counter", None, asked)
        assert (status, connection.headers[credentials]) == (204, "true"), text
        assert connection.ask("OPTIONS", "/predictions/counter")[:2] == (403, "certificate_refused")
    with contextlib.closing(world.connect(world.shop())) as connection:
        page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site", SEQUENCE: "a"}
        assert connection.ask("POST", "/predictions/counter", "1", page)[2] == "1"
        assert connection.headers[credentials] == "true"


def test_no_page_is_told_that_every_site_may_use_certificates(world):
    world.start(flags=["--cors-allowed-origin", "*"])
    with contextlib.closing(world.connect(world.shop())) as connection:
        assert connection.ask("POST", "/predictions/counter", "1")[0] == 200
        assert "Access-Control-Allow-Credentials" not in connection.headers


def test_the_command_line_makes_and_uses_certificates(world):
    """keys add --certificates makes a key that nobody can send; continuo-ctl shows a certificate to the server."""
    made = ctl("add", "shop", "--certificates", "dns:Shop.example,cn:shop", "--keys", world.path)
    assert made.stdout == "" and "needs no key" in made.stderr
    assert json.loads(world.path.read_text())["keys"] == [
        {"name": "shop", "certificates": ["dns:shop.example", "cn:shop"], "scopes": ["infer"]}]
    assert "dns:shop.example, cn:shop" in ctl("ls", "--keys", world.path).stdout
    wrong = ctl("add", "b", "--certificates", "dns:*.example", "--keys", world.path, check=False)
    assert wrong.returncode == 2 and "--certificates has \"dns:*.example\"" in wrong.stderr
    twice = ctl("add", "b", "--certificates", "cn:shop", "--keys", world.path, check=False)
    assert twice.returncode != 0 and "a certificate belongs to one key" in twice.stderr
    world.start()
    ops = world.ops()
    env = {**os.environ, "CONTINUO_CA": str(world.identity.cert), "CONTINUO_CLIENT_CERT": str(ops.cert),
           "CONTINUO_CLIENT_KEY": str(ops.key)}
    run = subprocess.run([BIN / "continuo-ctl", "models", "--server", world.running.management,
                          "--metrics", world.running.metrics],
                         env=env, capture_output=True, text=True, check=False, timeout=limit(60))
    assert run.returncode == 0 and "counter" in run.stdout, run
    del env["CONTINUO_CLIENT_CERT"]
    run = subprocess.run([BIN / "continuo-ctl", "models", "--server", world.running.management,
                          "--metrics", world.running.metrics],
                         env=env, capture_output=True, text=True, check=False, timeout=limit(60))
    assert run.returncode == 1 and "requires a certificate of each client" in run.stderr, run


@pytest.mark.parametrize("flags, keys, words", [
    (["--client-ca", "{ca}"], (), "client-ca needs an https address"),
    ([*HTTPS, "--client-ca", "/nowhere.pem"], (), "cannot read the client-ca /nowhere.pem"),
    ([*HTTPS, "--client-ca", "{key}"], (), "has no PEM certificates"),
    ([*HTTPS], (SHOP,), "the key shop has certificates, but the server asks no client for one; set client-ca"),
    (["--management-address", "https://0.0.0.0:0", "--client-ca", "{ca}", "--require-client-certificate=false"], (),
     "a certificate of each client (--client-ca FILE)"),
])
def test_wrong_settings_stop_the_start(server, folder, flags, keys, words):
    identity = ServerIdentity(folder, "server")
    path = folder / "keys.json"
    write_keys(path, *keys)
    flags = [flag.format(ca=identity.cert, key=identity.key) for flag in flags]
    s = server(counter(), flags=[*flags, *identity.flags(), *(["--keys", path] if keys else [])], start=False).launch()
    assert s.exit_code() == 1
    assert any(words in line for line in s.lines), s.lines
    s.expected_exit = 1


def test_certificates_alone_open_management_to_other_machines(server, folder):
    """Without keys, the authority is the lock: each of its clients may do everything, and nobody else anything."""
    identity, authority = ServerIdentity(folder, "server"), Authority(folder)
    s = server(counter(), flags=[*HTTPS[:2], *HTTPS[4:], "--management-address", "https://0.0.0.0:0", *identity.flags(),
                                 "--client-ca", authority.cert], start=False)
    s.tls = context(identity.cert, authority.issue("anybody"))
    s.start()
    s.management = s.management.replace("0.0.0.0", "127.0.0.1")
    assert s.admin().get("/models").status == 200
    with contextlib.closing(Connection(s.management, context(identity.cert))) as nobody:
        assert nobody.ask("GET", "/models")[:2] == (403, "certificate_refused")

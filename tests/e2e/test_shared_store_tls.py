"""A shared store with TLS: rediss:// (docs/shared-store.md). Each mistake has an error that names it and the fix."""

import pytest

from models import counter
from sentinels import replicated_store_in
from store_tls import Authority, tls_store_in
from waiting import expect


@pytest.fixture
def store(folder, transcript):
    with tls_store_in(folder, transcript) as made:
        yield made


def step(client, key):
    return client.step("counter", "s", 1, headers={"Idempotency-Key": key})


def refuses(server, url, *why):
    s = server(counter(), flags=["--state-store", url], start=False)
    s.launch()
    assert s.exit_code() == 1
    for each in why:
        s.expect_log(each)


def test_steps_go_through_tls_and_survive_a_restart_of_the_store(server, store):
    s = server(counter(), flags=["--state-store", store.tls_url()])
    client = s.client()
    assert step(client, "k1").text == "1"
    store.kill()
    store.start()
    expect(lambda: step(client, "k2").text == "2", "the step to be done after the restart")
    large = "x" * 3000  # a listing and a large answer need more than one record of TLS
    for i in range(200):  # other workers may not have noticed the restart yet
        expect(lambda i=i: client.step("counter", f"{i}-{large[:200]}", 1,
                                       headers={"Idempotency-Key": "k"}).text == "1", "a step of a new sequence")
    listed = s.admin().get("/models/counter/sequences?limit=1000").json
    assert len(listed["sequences"]) == 201


def test_a_name_of_the_certificate_may_be_the_host(server, store):
    """A host that the certificate does not name is refused, whether it is a name or, as here, an address."""
    refuses(server, store.tls_url(name=None), "a TLS certificate for another name than '127.0.0.1'", "name= in the URL")


def test_an_unknown_authority_is_refused(server, store, folder):
    other = Authority(folder / "other", "other")
    refuses(server, store.tls_url(ca=other.file), "not signed by an authority that this node trusts", "?ca=")
    refuses(server, store.tls_url(ca=None), "not signed by an authority that this node trusts", "?ca=")


def test_an_expired_certificate_is_refused(server, folder, transcript):
    with tls_store_in(folder, transcript, days=-1) as store:
        refuses(server, store.tls_url(), "a TLS certificate that has expired; renew it there")


def test_a_store_that_wants_a_client_certificate(server, folder, transcript):
    with tls_store_in(folder, transcript, clients="yes") as store:
        refuses(server, store.tls_url(), "?certificate=/etc/node.pem&key=/etc/node.key")
        stranger, stranger_key = Authority(folder / "other", "other").sign("node")
        refuses(server, store.tls_url(certificate=stranger, key=stranger_key), "TLS connection")
        certificate, key = store.authority.sign("node")
        refuses(server, store.tls_url(certificate=certificate, key=stranger_key), "is not that of the certificate")
        s = server(counter(), flags=["--state-store", store.tls_url(certificate=certificate, key=key)])
        assert step(s.client(), "k1").text == "1"


def test_files_that_cannot_be_read_are_named(server, store, folder):
    empty = folder / "empty.pem"
    empty.write_text("", encoding="ascii")
    refuses(server, store.tls_url(ca="/nowhere/ca.pem"), "the file '/nowhere/ca.pem' (ca= in the URL)")
    refuses(server, store.tls_url(ca=empty), "empty.pem' (ca= in the URL)")


def test_a_port_without_tls_is_named(server, store):
    url = store.tls_url().replace(str(store.tls_port), str(store.port))
    refuses(server, url, "speak TLS on this port")


def test_a_url_without_tls_for_a_port_with_tls_says_so(server, store):
    """The server only closes the connection, which says nothing; the message names the scheme to try."""
    refuses(server, f"valkey://127.0.0.1:{store.tls_port}/test", "before it answered; if it speaks TLS on this port",
            "begin the URL with rediss:// or valkeys://")
    refuses(server, f"valkey+sentinel://127.0.0.1:{store.tls_port}/mymaster/test",
            "the Sentinel at 127.0.0.1", "rediss+sentinel://")


def test_real_sentinels_with_tls_and_a_failover(server, folder, transcript):
    """Nodes, Sentinels and stores speak TLS only with each other. The primary is killed, and no step is lost."""
    with replicated_store_in(folder, transcript, tls=True) as replicated:
        refuses(server, replicated.url.split("?", maxsplit=1)[0], "not signed by an authority that this node trusts")
        s = server(counter(state={"storeTimeoutMSec": 1000, "replicas": 1}), flags=["--state-store", replicated.url],
                   name="with-sentinels")
        client = s.client()
        assert step(client, "k1").text == "1"
        old = replicated.primary()
        old.kill()
        expect(lambda: step(client, "k2").text == "2", "the step to be done after the failover", 60)
        assert replicated.primary() is not old
        assert step(client, "k3").text == "3"


def test_tls_to_sentinels_and_a_closed_tls_port(server, store):
    """Sentinels are asked with TLS, too; a server that is not one says so."""
    url = store.tls_url().replace("rediss://", "rediss+sentinel://").replace("/test", "/mymaster/test")
    refuses(server, url, "does not know a primary with the name 'mymaster'")


def test_a_worker_without_tls_does_not_load_gnutls_for_it(server, store):
    """A worker pays for TLS only if its URL has it."""
    plain = server(counter(), flags=["--state-store", store.url])
    assert step(plain.client(), "k1").text == "1"
    with open(f"/proc/{plain.ready_pids('counter')[0]}/maps", encoding="ascii") as maps:
        assert "gnutls" not in maps.read()

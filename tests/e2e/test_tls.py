"""TLS on the listeners: all forms of certificates, their renewal, and clients that do not speak TLS."""

import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from client import SEQUENCE, RawClient, curl
from models import BIN, counter, stateless
from server import address_of
from waiting import expect, limit


def openssl(*args):
    return subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, timeout=60, text=True).stdout


class Identity:
    """A self-signed certificate for 127.0.0.1 and its key, as files."""

    def __init__(self, folder, name, kind=("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"), days=2):
        self.cert, self.key = folder / f"{name}-cert.pem", folder / f"{name}-key.pem"
        openssl("req", "-x509", *kind, "-nodes", "-days", days, "-keyout", self.key, "-out", self.cert,
                "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")

    def trusting(self):
        return ssl.create_default_context(cafile=self.cert)

    def not_after(self):
        end = openssl("x509", "-in", self.cert, "-noout", "-enddate").strip().removeprefix("notAfter=")
        return ssl.cert_time_to_seconds(end)

    def flags(self):
        return ["--certificate-file", self.cert, "--private-key-file", self.key]


@pytest.fixture
def identity(folder):
    return Identity(folder, "first")


HTTPS = ["--inference-address", "https://127.0.0.1:0", "--management-address", "https://127.0.0.1:0",
         "--metrics-address", "https://127.0.0.1:0"]


def secure(server, identity, *models, flags=(), **more):
    s = server(*models, flags=[*HTTPS, *identity.flags(), *flags], start=False, **more)
    s.tls = identity.trusting()
    return s.start()


def subject_of(address):
    """Returns the name in the certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address, limit(10)) as plain, context.wrap_socket(plain) as tls:
        der = tls.getpeercert(binary_form=True)
    out = subprocess.run(["openssl", "x509", "-inform", "der", "-noout", "-subject"], input=der, check=True,
                         capture_output=True)
    return out.stdout.decode().strip().rpartition("=")[2].strip()


def test_all_three_listeners_speak_tls(server, identity):
    """The certificate passes a client's checks. Sequences, keep-alive and large bodies work as usual."""
    s = secure(server, identity, counter(), stateless())
    assert all(url.startswith("https://") for url in (s.inference, s.management, s.metrics))
    client = s.client()
    for i in range(1, 20):
        assert client.step("counter", "a", 1).text == str(i)
    body = bytes(range(256)) * 8000
    assert client.post("/predictions/echo", body).body == body
    assert s.admin().get("/models").status == 200
    assert s.metric("continuo_workers_ready") == 2
    headers, text = curl(s.transcript, "--cacert", str(identity.cert), s.inference + "/ping")
    assert headers.startswith("HTTP/1.1 200") and json.loads(text) == {"status": "Healthy"}


def test_versions_from_tls_1_2_on(server, identity):
    """Older versions are refused."""
    s = secure(server, identity, stateless())
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        s.tls = identity.trusting()
        s.tls.minimum_version = s.tls.maximum_version = version
        assert s.client().get("/ping").status == 200
    old = subprocess.run(["openssl", "s_client", "-connect", s.inference.removeprefix("https://"), "-tls1_1"],
                         stdin=subprocess.DEVNULL, capture_output=True, timeout=limit(20), check=False)
    assert old.returncode != 0


def test_each_address_decides_for_itself(server, identity):
    """One address has https and another one http."""
    s = server(stateless(), flags=["--management-address", "https://127.0.0.1:0", *identity.flags()], start=False)
    s.tls = identity.trusting()
    s.start()
    assert s.inference.startswith("http://") and s.management.startswith("https://")
    assert s.client().get("/ping").status == 200
    assert s.admin().get("/models/echo").status == 200


def test_plain_http_on_a_tls_port_is_told_so(server, identity):
    """The answer is in HTTP and says what to do, because the client would not understand a TLS alert. This also works
    if the request comes in pieces."""
    s = secure(server, identity, stateless())
    for pieces in (["POST /predictions/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n" + "x" * 3000],
                   ["G", "ET /ping HTTP/1.1\r\n", "Host: x\r\n\r\n"]):
        raw = RawClient(address_of(s.inference), s.transcript, "plain")
        for piece in pieces:
            try:
                raw.send(piece)
            except OSError:
                break  # refused after the first one
        answer = raw.answer()
        assert (answer.status, answer.error) == (400, "tls_required")
        assert answer.message == "this port requires TLS: begin the URL with https://"
        assert raw.is_closed_by_server()
    assert s.client().get("/ping").status == 200


def test_a_handshake_that_stops_costs_nothing_and_ends(server, identity):
    """A client that sends nothing, or half a handshake, must not keep the loop busy. The header timeout ends both."""
    s = secure(server, identity, counter(), flags=["--header-timeout", "3000", "--loops", "1"])
    silent = [socket.create_connection(address_of(s.inference)) for _ in range(20)]
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)
    for each in silent[:10]:
        each.sendall(hello)
    client = s.client()
    assert client.step("counter", "a", 1).text == "1"

    def cpu_s():
        with open(f"/proc/{s.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    before, began = cpu_s(), time.monotonic()
    time.sleep(1)  # what is measured is time
    share = (cpu_s() - before) / (time.monotonic() - began)
    assert share < 0.3, f"the server is busy for {share:.0%} of the time"
    assert client.step("counter", "a", 1).text == "2"
    for each in silent:
        each.settimeout(limit(10))
        try:
            while each.recv(1000):
                pass
        except ConnectionError:
            pass
        each.close()
    assert client.step("counter", "a", 1).text == "3"


def test_sighup_takes_a_new_certificate_and_drops_nobody(server, folder, identity):
    """Connections and their steps go on, and new connections get the new certificate. A bad file changes nothing."""
    files = Identity(folder, "served")
    s = secure(server, files, counter())
    old = s.client()
    assert old.step("counter", "a", 1).text == "1"
    assert subject_of(address_of(s.inference)) == "served"
    with s.hold():
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(s.client().step("counter", "b", 1)))
        waiting.start()
        s.expect_outstanding("counter", 1)
        files.cert.write_bytes(identity.cert.read_bytes())
        files.key.write_bytes(identity.key.read_bytes())
        s.process.send_signal(signal.SIGHUP)
        expect(lambda: subject_of(address_of(s.inference)) == "first", "the new certificate")
    waiting.join(limit(10))
    assert answers[0].text == "1"
    assert old.step("counter", "a", 1).text == "2"
    s.tls = identity.trusting()
    assert s.client().step("counter", "a", 1).text == "3"
    files.key.write_text("nonsense")
    s.process.send_signal(signal.SIGHUP)
    s.expect_log("event=reload_failed", "the old certificate stays")
    assert s.client().step("counter", "a", 1).text == "4"


def test_the_end_of_the_certificate_is_told(server, folder, identity):
    """doctor warns before clients notice. A new certificate is recognised at once."""
    s = secure(server, identity, counter())
    end, name = identity.not_after(), "continuo_certificate_not_after_timestamp_seconds"
    assert s.metric(name) == end
    doctor = subprocess.run([BIN / "continuo-ctl", "--server", s.management, "--metrics", s.metrics, "doctor"],
                            env={"CONTINUO_CA": str(identity.cert)}, capture_output=True, text=True,
                            timeout=limit(20), check=False)
    assert doctor.returncode == 0 and "the https certificate expires in " in doctor.stdout, doctor
    renewed = Identity(folder, "renewed", days=90)
    identity.cert.write_bytes(renewed.cert.read_bytes())
    identity.key.write_bytes(renewed.key.read_bytes())
    s.process.send_signal(signal.SIGHUP)
    s.expect_log("event=certificate_loaded", "CN=renewed")
    s.tls = renewed.trusting()
    expect(lambda: s.metric(name) == renewed.not_after(), "the new one's end")


def test_sighup_without_tls_does_no_harm(server):
    """A terminal that is closed must not end a server."""
    s = server(counter())
    s.process.send_signal(signal.SIGHUP)
    s.expect_log("event=reloaded")
    assert s.client().step("counter", "a", 1).text == "1"


def test_clients_that_reload_and_vanish_under_load(server, folder, identity):
    """Handshakes run on all loops, beside reloads and broken connections. No answer is lost or mixed up."""
    s = secure(server, identity, counter(), flags=["--loops", "2"])
    failures, stop = [], threading.Event()

    def predict(number):
        try:
            for i in range(1, 31):
                client = s.client()  # a handshake for each
                answer = client.step("counter", f"c{number}", 1)
                client.close()
                if answer.text != str(i):
                    failures.append(answer)
        except Exception as e:  # a test's thread must tell
            failures.append(e)

    def vanish():
        while not stop.is_set():
            with socket.create_connection(address_of(s.inference)) as plain:
                plain.sendall(b"\x16\x03\x01\x02\x00\x01")
            s.process.send_signal(signal.SIGHUP)
            time.sleep(0.01)
    clients = [threading.Thread(target=predict, args=(n,)) for n in range(8)]
    other = threading.Thread(target=vanish)
    for each in [*clients, other]:
        each.start()
    for each in clients:
        each.join(limit(60))
    stop.set()
    other.join(limit(10))
    assert not failures, failures[:3]


def test_a_pkcs12_keystore_serves_too(server, folder, identity):
    """TorchServe's kind of keystore works, and so do RSA keys in PKCS#1 and PKCS#8."""
    store = folder / "keystore.p12"
    openssl("pkcs12", "-export", "-in", identity.cert, "-inkey", identity.key, "-out", store, "-passout", "pass:changeit")
    s = server(stateless(), flags=[*HTTPS, "--keystore", store], start=False)
    s.tls = identity.trusting()
    s.start()
    assert s.client().get("/ping").status == 200
    rsa = Identity(folder, "rsa", ("-newkey", "rsa:2048"))
    for form in ("-traditional", "-out"):
        extra = [form] if form == "-traditional" else []
        openssl("rsa", "-in", rsa.key, *extra, "-out", rsa.key)
        s = secure(server, rsa, stateless())
        assert s.client().get("/ping").status == 200


def test_what_is_wrong_with_the_files_is_said_at_the_start(server, folder, identity):
    """Each message has the file and says what to do."""
    other = Identity(folder, "other")
    locked, store, jks = folder / "locked.pem", folder / "store.p12", folder / "store.jks"
    openssl("pkey", "-in", identity.key, "-aes256", "-passout", "pass:x", "-out", locked)
    openssl("pkcs12", "-export", "-in", identity.cert, "-inkey", identity.key, "-out", store, "-passout", "pass:else")
    jks.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    for flags, words in (
            ([], "needs certificate-file and private-key-file (PEM), or keystore (PKCS12)"),
            (["--certificate-file", identity.cert], "private-key-file is not set"),
            (["--certificate-file", "/no/cert", "--private-key-file", identity.key], "cannot read the certificate-file /no/cert"),
            (["--certificate-file", identity.key, "--private-key-file", identity.key], "has no PEM certificates"),
            (["--certificate-file", identity.cert, "--private-key-file", identity.cert], "has no PEM key"),
            (["--certificate-file", identity.cert, "--private-key-file", locked], "removes its password"),
            (["--certificate-file", identity.cert, "--private-key-file", other.key], "the private key does not belong to the certificate"),
            (["--keystore", store], "is not a PKCS12 store with a key that keystore-password opens"),
            (["--keystore", jks], "keytool -importkeystore")):
        s = server(flags=["--inference-address", "https://127.0.0.1:0", *flags], start=False).launch()
        assert s.exit_code() == 1, flags
        assert any(words in line for line in s.lines), (words, s.lines)


def test_plain_listeners_can_be_forbidden(server, identity, folder):
    """With --require-tls an http:// address is an error, but a Unix socket is allowed."""
    s = server(flags=["--require-tls", *identity.flags()], start=False).launch()
    assert s.exit_code() == 1
    assert any("is plain http, which require-tls forbids; write https:// or unix:/PATH" in line for line in s.lines)
    s = secure(server, identity, stateless(), flags=["--require-tls"])
    assert s.client().get("/ping").status == 200


def test_continuo_ctl_trusts_what_it_is_told_to(server, identity):
    """CONTINUO_CA names the authority."""
    s = secure(server, identity, counter())
    command = [BIN / "continuo-ctl", "models", "--server", s.management, "--metrics", s.metrics]

    def refused():  # the system's authorities are many: a slow build may need longer for them than ctl waits
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 1, run
        return "certificate" in run.stdout + run.stderr
    expect(refused, "ctl says that it does not trust the certificate")
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={"CONTINUO_CA": str(identity.cert)})
    assert run.returncode == 0 and "counter" in run.stdout, run


def test_keys_and_tls_together(server, identity):
    """This is how a server on a network should be set up."""
    s = secure(server, identity, counter(), flags=["--token-auth", "--require-tls"])
    key = json.loads((s.folder / "key_file.json").read_text())["inference"]["key"]
    assert s.client().post("/predictions/counter", "1").status == 400
    answer = s.client().post("/predictions/counter", "1", headers={"Authorization": f"Bearer {key}", SEQUENCE: "a"})
    assert answer.text == "1"

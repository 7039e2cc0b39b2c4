"""TLS on the gRPC ports: with a server certificate, with client certificates, and with a new certificate while streams
are open."""

import signal
import subprocess

import grpc
import pytest

from models import counter
from rpc import Rpc, module, refused, request
from waiting import expect


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, timeout=60)


class Identity:
    """A self-signed certificate for 127.0.0.1 and its key, as files."""

    def __init__(self, folder, name):
        self.cert, self.key = folder / f"{name}-cert.pem", folder / f"{name}-key.pem"
        self.make(name)

    def make(self, name):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-keyout", self.key, "-out", self.cert, "-subj", f"/CN={name}", "-addext",
                "subjectAltName=IP:127.0.0.1")

    def flags(self):
        return ["--certificate-file", self.cert, "--private-key-file", self.key]


GRPCS = ["--grpc-inference-address", "https://127.0.0.1:0", "--grpc-management-address", "https://127.0.0.1:0"]


def trusting(identity, own=None):
    return grpc.ssl_channel_credentials(identity.cert.read_bytes(), own and own.key.read_bytes(),
                                        own and own.cert.read_bytes())


@pytest.fixture
def identity(folder):
    return Identity(folder, "first")


def test_both_ports_speak_tls(server, identity):
    running = server(counter(), flags=[*GRPCS, *identity.flags()])
    with Rpc(running.grpc, trusting(identity)) as client, Rpc(running.grpc_admin, trusting(identity)) as admin:
        assert client.predict("counter", 3, "s").prediction == b"3"
        answers = client.inference.StreamPredictions2(iter([request("counter", i, "s") for i in range(3)]), timeout=60)
        assert [answer.prediction for answer in answers] == [b"3", b"4", b"6"]
        listing = module("management_pb2").ListModelsRequest(limit=5)
        assert "counter" in admin.management.ListModels(listing, timeout=60).msg
    with Rpc(running.grpc) as plain:
        assert refused(plain.predict, "counter", 1, "s").code() == grpc.StatusCode.UNAVAILABLE


def test_each_port_decides_for_itself(server, identity):
    running = server(counter(), flags=[*GRPCS[:2], *identity.flags()])
    with Rpc(running.grpc, trusting(identity)) as client, Rpc(running.grpc_admin) as admin:
        assert client.predict("counter", 3, "s").prediction == b"3"
        assert "counter" in admin.management.ListModels(module("management_pb2").ListModelsRequest(limit=5)).msg


def test_mutual_tls_asks_clients_for_a_certificate(server, identity, folder):
    """With --grpc-client-ca, a client without a certificate of that authority cannot connect."""
    known, stranger = Identity(folder, "known"), Identity(folder, "stranger")
    running = server(counter(), flags=[*GRPCS, *identity.flags(), "--grpc-client-ca", known.cert])
    with Rpc(running.grpc, trusting(identity, known)) as client:
        assert client.predict("counter", 3, "s").prediction == b"3"
    for other in (None, stranger):
        with Rpc(running.grpc, trusting(identity, other)) as client:
            assert refused(client.predict, "counter", 3, "s").code() == grpc.StatusCode.UNAVAILABLE


def test_a_new_certificate_is_shown_after_sighup(server, identity):
    """Open streams continue, and new connections get the new certificate. If a file is broken, the old certificate
    stays."""
    running = server(counter(), flags=[*GRPCS, *identity.flags()])
    first = trusting(identity)
    with Rpc(running.grpc, first) as standing:
        assert standing.predict("counter", 1, "s").prediction == b"1"
        identity.make("second")
        running.process.send_signal(signal.SIGHUP)

        def second_is_shown():
            with Rpc(running.grpc, trusting(identity)) as client:
                try:
                    return client.predict("counter", 1, "s")
                except grpc.RpcError:
                    return None

        assert expect(second_is_shown, "the new certificate is shown").prediction == b"2"
        assert standing.predict("counter", 1, "s").prediction == b"3"
        with Rpc(running.grpc, first) as late:
            assert refused(late.predict, "counter", 1, "s").code() == grpc.StatusCode.UNAVAILABLE
        shown = trusting(identity)
        identity.cert.write_text("no certificate")
        running.process.send_signal(signal.SIGHUP)
        running.expect_log("event=reload_failed")
        with Rpc(running.grpc, shown) as client:
            assert client.predict("counter", 1, "s").prediction == b"4"


@pytest.mark.parametrize("flags, words", [
    (["--certificate-file", "{cert}"], "private-key-file"),
    (["--certificate-file", "/nowhere.pem", "--private-key-file", "{key}"], "/nowhere.pem"),
    (["--certificate-file", "{cert}", "--private-key-file", "{key}", "--grpc-client-ca", "/nowhere.pem"],
     "/nowhere.pem"),
    (["--certificate-file", "{cert}", "--private-key-file", "{key}", "--grpc-client-ca", "{key}"],
     "has no PEM certificates"),
])
def test_missing_files_stop_the_start(server, identity, flags, words):
    flags = [flag.format(cert=identity.cert, key=identity.key) for flag in flags]
    running = server(flags=[*GRPCS, *flags], start=False).launch()
    assert running.exit_code() == 1
    assert any(words in line for line in running.lines)
    running.expected_exit = 1


def test_a_taken_address_is_told(server, identity):
    running = server(flags=[*GRPCS, *identity.flags()])
    port = running.grpc.rpartition(":")[2]
    other = server(flags=["--grpc-inference-address", f"https://127.0.0.1:{port}", *identity.flags()], start=False)
    other.launch()
    assert other.exit_code() == 1
    assert any(f"https://127.0.0.1:{port}" in line for line in other.lines)
    other.expected_exit = 1

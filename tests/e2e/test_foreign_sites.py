"""Requests that a browser sends for the page of another site must not manage the server."""

import socket

import pytest

from client import RawClient
from models import counter
from server import address_of

EXPLICIT = ["--model-control-mode", "explicit"]
EVIL = "http://evil.example"


def raw_request(server, line, *headers, port="management"):
    raw = RawClient(address_of(getattr(server, port)), server.transcript, "raw")
    raw.send("\r\n".join([f"{line} HTTP/1.1", *headers, "Content-Length: 0", "", ""]))
    return raw.answer()


@pytest.mark.parametrize("headers", [
    ["Host: localhost", f"Origin: {EVIL}", "Content-Type: text/plain"],
    ["Host: localhost", "Sec-Fetch-Site: cross-site"],
    ["Host: localhost", "Sec-Fetch-Site: same-site", "Origin: http://localhost:3000"],
    ["Host: localhost", "Origin: null"],
    ["Host: evil.example", f"Origin: {EVIL}", "Sec-Fetch-Site: same-origin"],
    ["Host: evil.example"],
])
def test_pages_of_other_sites_change_nothing(server, headers):
    """This holds for management, and for what the v2 protocol manages on the inference interface."""
    s = server(counter(), flags=EXPLICIT)
    for line in ("POST /models?url=other.mar", "DELETE /models/counter", "PUT /models/counter?min_worker=3",
                 "DELETE /models/counter/sequences/a"):
        refused = raw_request(s, line, *headers)
        assert (refused.status, refused.error) == (403, "foreign_site"), (line, refused)
    for line in ("POST /v2/repository/models/counter/unload", "POST /v2/logging", "POST /v2/trace/setting"):
        assert raw_request(s, line, *headers, port="inference").status == 403, line
    assert s.client().step("counter", "a", "1").text == "1"


def test_a_name_that_is_not_this_servers_reads_nothing_either(server):
    """A site whose name was made to stand for this server could read answers."""
    s = server(counter(), flags=["--allowed-hosts", "models.example,backup.example",
                                 "--advertise", "http://node.example:8080"])
    refused = raw_request(s, "GET /models", "Host: evil.example:8081")
    assert refused.status == 403 and "evil.example" in refused.message and "--allowed-hosts" in refused.message
    for host in ("models.example", "Backup.Example:8081", socket.gethostname(), "node.example:8081", "localhost:1", "127.0.0.1", "[::1]:8081"):
        assert raw_request(s, "GET /models", f"Host: {host}").status == 200, host


def test_programs_and_own_pages_are_let_through(server):
    """Programs that are not browsers send no Origin. A page that this server or a listed site has sent may manage."""
    s = server(counter(), flags=["--cors-allowed-origin", "http://ui.example"])
    for headers in ([], ["Origin: http://localhost:8081"], ["Sec-Fetch-Site: same-origin", "Origin: http://else"],
                    ["Sec-Fetch-Site: cross-site", "Origin: http://ui.example"]):
        answer = raw_request(s, "PUT /models/counter?min_worker=1", "Host: localhost:8081", *headers)
        assert answer.status < 300, (headers, answer)


def test_with_keys_the_name_does_not_matter(server):
    """A page of another site has no key, so the server may have any name."""
    s = server(counter(), flags=["--token-auth"])
    assert raw_request(s, "GET /models", "Host: any.example").error == "token_refused"

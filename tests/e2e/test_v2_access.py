"""Groups of the v2 protocol that require a header, and headers that become parameters for the handler."""

import pytest
import requests
from tritonclient.utils import InferenceServerException

from models import Model
from test_v2_http import client_of, identity, one

RESTRICTED = ["--http-restricted-api", "model-repository,logging,trace:admin-key=secret;inference:x-tenant=a"]


def test_a_restricted_group_asks_for_its_header(server):
    """Without the header the answer is 403 with the protocol's message. Other groups stay open."""
    s = server(identity(), flags=[*RESTRICTED, "--model-control-mode", "explicit"])
    client = client_of(s)
    assert client.is_server_live() and client.is_model_ready("identity")
    assert client.get_inference_statistics("identity")
    words = r"This API is restricted, expecting header 'admin-key'"
    for call in (client.get_model_repository_index, client.get_log_settings, client.get_trace_settings,
                 lambda **more: client.unload_model("identity", **more)):
        with pytest.raises(InferenceServerException, match=words) as refused:
            call()
        assert refused.value.status() == "403"
        with pytest.raises(InferenceServerException, match=words):
            call(headers={"admin-key": "wrong"})
    assert client.get_log_settings(headers={"Admin-Key": "secret"})["log_info"] is True
    assert client.get_model_repository_index(headers={"admin-key": "secret"})[0]["state"] == "READY"
    url = f"{s.inference}/v2/models/identity/infer"
    document = one("FP32", "FP32", [1], [1])
    assert requests.post(url, json=document, timeout=20).status_code == 403
    assert requests.post(url, json=document, headers={"X-Tenant": "a"}, timeout=20).status_code == 200
    assert requests.post(f"{s.inference}/predictions/identity", json={"FP32": [1]}, timeout=20).status_code == 200


def test_headers_become_parameters(server):
    """Headers whose names match, in upper or lower case, become parameters. One with a name of the protocol is refused.
    """
    lua = """
return { api = 1, handle = function(req)
    local tag = req.parameters["x-tag-one"] or req.parameters["X-Tag-One"] or "none"
    return { outputs = { Y = { datatype = "BYTES", shape = { 1 }, data = { tag } } } }
end }
"""
    yaml = "inputs:\n  - {name: X, dataType: INT32, dims: [1]}\noutputs:\n  - {name: Y, dataType: BYTES, dims: [1]}\n"
    s = server(Model("tagged", lua, yaml, stateful=False), flags=["--http-header-forward-pattern", "^x-tag|^timeout"])
    url, document = f"{s.inference}/v2/models/tagged/infer", one("X", "INT32", [1], [1])

    def tag(**headers):
        answer = requests.post(url, json=document, headers=headers, timeout=20)
        return answer.json()["outputs"][0]["data"] if answer.ok else (answer.status_code, answer.json()["error"])

    assert tag() == ["none"]
    assert tag(**{"X-Tag-One": "blue", "Other": "red"}) == ["blue"]
    assert tag(timeout="5") == (400, "Header 'timeout' is reserved for Triton usage and cannot be forwarded.")


@pytest.mark.parametrize("flags, words", [
    (["--http-restricted-api", "everything:a=b"], 'unknown API group "everything"'),
    (["--http-restricted-api", "logging"], "a restricted API must be written GROUP,GROUP:HEADER=VALUE"),
    (["--http-restricted-api", "trace:a=b;trace:c=d"], "the API group trace is restricted twice"),
    (["--http-header-forward-pattern", "("], "the header forward pattern ("),
])
def test_bad_rules_end_the_start(server, flags, words):
    s = server(identity(), flags=flags, start=False)
    s.expected_exit = 1
    s.launch()
    assert s.exit_code() == 1
    assert any(words in line for line in s.lines)

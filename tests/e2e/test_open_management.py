"""A client that can register a model can run code on this machine, so management is not opened to others by mistake."""

import pytest

from models import ROOT, counter
from test_startup_errors import refuses


@pytest.mark.parametrize("which, address", [
    ("management", "http://0.0.0.0:0"), ("management", "http://[::]:0"), ("grpc-management", "http://0.0.0.0:0")])
def test_an_open_management_address_needs_keys(server, which, address):
    """The message names the address and both ways out."""
    refuses(server(start=False, flags=[f"--{which}-address", address]), f"--{which}-address {address}", "--token-auth",
            "127.0.0.1", "--insecure-management", code=1)


@pytest.mark.parametrize("flags", [["--token-auth"], ["--insecure-management"]])
def test_keys_or_the_operators_word_open_it(server, flags):
    s = server(counter(), flags=["--management-address", "http://0.0.0.0:0", *flags])
    assert s.client().get("/ping").status == (400 if "--token-auth" in flags else 200)


def test_inference_may_be_open_without_keys(server):
    s = server(counter(), flags=["--inference-address", "http://0.0.0.0:0", "--metrics-address", "http://0.0.0.0:0"])
    assert s.admin().get("/models").status == 200


EXPLICIT = ["--model-control-mode", "explicit"]


@pytest.mark.parametrize("which, flag", [("inference", "--http-restricted-api"),
                                         ("grpc-inference", "--grpc-restricted-protocol")])
def test_loading_models_over_an_open_inference_address_needs_a_secret(server, which, flag):
    """In the explicit mode, clients of the v2 protocol manage the server, so the same rule holds."""
    opened = [f"--{which}-address", "http://0.0.0.0:0"]
    refuses(server(start=False, flags=[*EXPLICIT, *opened]), f"--{which}-address http://0.0.0.0:0",
            f"{flag} model-repository:NAME=SECRET", "--token-auth", "--insecure-management", code=1)
    for way_out in (["--token-auth"], ["--insecure-management"], [flag, "model-repository:admin-key=x"],
                    ["--model-api=false"]):
        server(start=False, flags=[*EXPLICIT, *opened, *way_out]).start()


def test_torchserves_settings_say_how_to_start(torchserve):
    """TorchServe starts with these two settings. The message names the one that must go."""
    t = torchserve()
    t.pack(counter())
    t.properties("disable_token_authorization=true\n", ports="inference_address=http://127.0.0.1:0\n"
                 "management_address=http://0.0.0.0:0\nmetrics_address=http://127.0.0.1:0\n"
                 "grpc_inference_port=0\ngrpc_management_port=0\n")
    code, said = t.run("--start", "--foreground", "--ncs", "--model-store", "model-store")
    assert code == 1 and "remove disable_token_authorization=true" in said and "127.0.0.1" in said, said


def test_a_path_outside_the_store_is_refused(server, folder):
    """A client of management must not be able to run any file of this machine as a handler."""
    s = server(counter())
    kept = s.pack(counter("inside"))
    outside = folder / "outside.mar"
    outside.write_bytes(kept.read_bytes())
    for url in (outside, f"file://{outside}", ROOT / "examples" / "counter", f"{s.store}/../../outside.mar"):
        refused = s.register_url(url)
        assert refused.status in (403, 404) and refused.error in ("local_model", "model_not_found"), refused
    assert (s.register_url(outside).error, s.register_url(outside).status) == ("local_model", 403)
    assert "--allow-local-models" in s.register_url(outside).message
    assert [each["modelName"] for each in s.admin().get("/models").json["models"]] == ["counter"]
    assert s.register_url(kept).status == 200, "a path inside the store"
    assert s.admin().delete("/models/inside").status == 200
    assert s.register_url(kept.name).status == 200, "a name in the store"


@pytest.mark.parametrize("flags, scheme", [(["--allow-local-models"], ""), (["--allowed-urls", "file://.*"], "file://")])
def test_the_operator_may_allow_local_paths(server, folder, flags, scheme):
    s = server(flags=flags)
    outside = folder / "outside.mar"
    outside.write_bytes(s.pack(counter()).read_bytes())
    assert s.register_url(f"{scheme}{outside}", initial_workers=1, synchronous="true").status == 200
    assert s.client().step("counter", "a", "2").text == "2"

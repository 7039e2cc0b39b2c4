"""Several versions of a model side by side."""

from models import COUNTER_LUA, Model, counter

DOUBLE = COUNTER_LUA.replace("state.sum + number", "state.sum + 2 * number")


def two_versions(server):
    s = server(counter())
    assert s.register(Model("counter", DOUBLE, version="2.0")).status == 200
    return s, s.client()


def test_each_version_is_reached_by_its_path(server):
    """Two versions answer differently and keep their sequences apart."""
    _, client = two_versions(server)
    assert client.step("counter/1.0", "v", 3).text == "3"
    assert client.step("counter/2.0", "v", 3).text == "6"
    assert client.step("counter/1.0", "v", 3).text == "6"
    assert client.step("counter/2.0", "v", 3).text == "12"


def test_the_first_version_stays_default_until_told(server):
    """Registering a new version must not move traffic."""
    s, client = two_versions(server)
    assert client.step("counter", "a", 1).text == "1"
    answer = s.admin().put("/models/counter/2.0/set-default")
    assert answer.status == 200, answer
    assert answer.json == {"status": 'Default version successfully updated for model "counter" to "2.0"'}
    assert client.step("counter", "b", 1).text == "2"


def test_an_unknown_version_is_said_to_be_unknown(server):
    """The answer is 404 with a message that TorchServe's clients know."""
    _, client = two_versions(server)
    answer = client.step("counter/3.0", "x", 1)
    assert (answer.status, answer.error) == (404, "version_not_found")
    assert answer.json == {"code": 404, "type": "ModelVersionNotFoundException",
                           "message": "Model version: 3.0 does not exist for model: counter"}


def test_the_default_version_cannot_go_while_others_stay(server):
    """Otherwise requests without a version would have nowhere to go."""
    s, client = two_versions(server)
    refused = s.admin().delete("/models/counter/1.0")
    assert (refused.status, refused.json["type"]) == (403, "InvalidModelVersionException"), refused
    assert "Cannot remove default version for model counter" in refused.message
    assert s.admin().delete("/models/counter/2.0").status == 200
    assert client.step("counter", "a", 1).text == "1"
    assert client.step("counter/2.0", "a", 1).status == 404


def test_describe_all_shows_every_version(server):
    """One call shows an operator everything that runs."""
    s, _ = two_versions(server)
    everything = s.admin().get("/models/counter/all").json
    assert sorted(each["modelVersion"] for each in everything) == ["1.0", "2.0"]
    assert [each["modelVersion"] for each in s.admin().get("/models/counter").json] == ["1.0"]

"""The store is full: steps that cannot be kept are refused, never half done."""

import os

from disk import resize
from models import Model

# Keeps what it is given: state grows with each step.
KEEPER = """
local M = { api = 1 }
function M.init() return { n = 0, kept = "" } end
function M.step(state, req)
    state.n = state.n + 1
    state.kept = state.kept .. req.body
    return { text = tostring(state.n) }
end
return M
"""
PIECE = b"x" * 50_000


def keeper(**yaml):
    return Model("keeper", KEEPER, yaml)


def fill(client, first_sequence=0):
    """Opens sequences of 50 kB until one is refused. Returns (number of sequences, the refusal)."""
    for i in range(first_sequence, first_sequence + 500):
        answer = client.step("keeper", f"s{i}", PIECE)
        if answer.status != 200:
            return i, answer
        assert answer.text == "1"
    raise AssertionError("the store took 25 MB")


def check_full_store(s):
    client = s.client()
    taken, refused = fill(client)
    assert taken > 2
    assert (refused.status, refused.error) == (507, "state_store"), refused
    # Ending sequences makes room; the refused one then begins at the beginning: it left nothing behind.
    for i in range(3):
        assert client.step("keeper", f"s{i}", b"", headers={"ts_request_sequence_end": "true"}).status == 200
    again = client.step("keeper", f"s{taken}", b"small")
    assert (again.status, again.text) == (200, "1"), again
    assert client.step("keeper", "s3", b"").text == "2", "sequences that were open go on"


def test_a_full_store_refuses_steps_and_recovers(server):
    """storeMaxBytes bounds a model's store, and ended sequences give their room back."""
    check_full_store(server(keeper(state={"storeMaxBytes": 4 * 1024 * 1024})))


def test_a_sequence_stays_in_its_version_while_the_new_one_has_no_room(server):
    """The sequence moves when there is room, and loses nothing until then."""
    s = server(keeper(sequence={"swapPolicy": "migrate"}))
    client = s.client()
    for i in range(4):
        assert client.step("keeper", f"old{i}", PIECE).text == "1"
    full = keeper(sequence={"swapPolicy": "migrate"}, state={"storeMaxBytes": 1024 * 1024})
    full.version = "2.0"
    assert s.register(full).status == 200
    assert s.admin().put("/models/keeper/2.0/set-default").status == 200
    taken, refused = fill(client)
    assert refused.error == "state_store", refused
    for i in range(4):
        assert client.step("keeper", f"old{i}", b"").text == "2"
    s.expect_log("event=sequence_not_migrated", "from=1.0", "to=2.0")
    for i in range(taken):
        assert client.step("keeper", f"s{i}", b"", headers={"ts_request_sequence_end": "true"}).status == 200
    for i in range(4):
        assert client.step("keeper", f"old{i}", b"").text == "3"
    assert s.describe("keeper", "1.0")["liveSequences"] == 0


def test_a_full_disk_refuses_steps_and_recovers(server, small_disk):
    """Like the test above, but the disk is full before a limit is reached. A signal or a short write must not damage
    LMDB's file."""
    s = server(start=False)
    s.state_dir = small_disk / "state"
    s.models = [keeper()]
    s.start()
    client = s.client()
    taken, refused = fill(client)
    assert taken > 2 and (refused.status, refused.error) == (507, "state_store"), refused
    assert client.step("keeper", f"s{taken - 1}", b"", headers={"ts_request_sequence_end": "true"}).status in (200, 507)
    # Room on the disk again, by someone else's cleaning.
    resize(small_disk, "60m")
    again = client.step("keeper", f"s{taken}", b"small")
    assert (again.status, again.text) == (200, "1"), again
    assert client.step("keeper", "s0", b"").text == "2"
    assert os.path.ismount(small_disk)


def test_a_state_over_its_limit_is_refused_and_the_last_one_kept(server):
    """state.maxBytes bounds one sequence."""
    s = server(keeper(state={"maxBytes": 60_000}))
    client = s.client()
    assert client.step("keeper", "a", PIECE).text == "1"
    refused = client.step("keeper", "a", PIECE)
    assert (refused.status, refused.error) == (507, "state_too_large"), refused
    assert "60000" in refused.message
    assert client.step("keeper", "a", b"y").text == "2", "the refused step was not kept"

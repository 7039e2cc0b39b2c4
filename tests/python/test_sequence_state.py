"""SequenceState is a mapping whose entries are in the states of the running batch."""

import pytest
from continuo import SequenceState
from continuo import sequence_state
from continuo.sequence_state import SequenceNotInBatch


@pytest.fixture(autouse=True)
def batch():
    states = {"a": {}, "b": {"value": 7}}
    sequence_state.forget_names()
    sequence_state.begin(states)
    yield states
    sequence_state.end()
    sequence_state.forget_names()


def test_it_is_a_mapping(batch):
    state = SequenceState()
    assert "a" not in state and "b" in state and state.has_key("b")
    assert state.get("a") is None and state.get("a", 1) == 1 and state["b"] == 7
    state["a"] = [1]
    state["a"].append(2)
    assert batch == {"a": {"value": [1, 2]}, "b": {"value": 7}}
    assert sorted(state) == ["a", "b"] and len(state) == 2
    assert dict(state.items()) == {"a": [1, 2], "b": 7}
    del state["b"]
    assert state.pop("a") == [1, 2] and state.setdefault("a", 3) == 3
    with pytest.raises(KeyError):
        state["b"]
    with pytest.raises(KeyError):
        del state["b"]


def test_several_have_names_of_their_own(batch):
    totals, history = SequenceState("totals"), SequenceState("history")
    totals["a"], history["a"] = 1, [1]
    assert batch["a"] == {"totals": 1, "history": [1]}
    with pytest.raises(ValueError, match='the name "totals" already'):
        SequenceState("totals")


@pytest.mark.parametrize("name", [10, "", None, "@worker"])
def test_a_name_is_a_text(name):
    with pytest.raises((TypeError, ValueError), match="name"):
        SequenceState(name)


def test_only_the_sequences_of_the_batch_can_be_reached():
    state = SequenceState()
    for use in (lambda: state["c"], lambda: "c" in state, lambda: state.get("c"),
                lambda: state.__setitem__("c", 1), lambda: state.pop("c", None)):
        with pytest.raises(SequenceNotInBatch, match="'c' is not in the running batch.*'a', 'b'"):
            use()
    with pytest.raises(SequenceNotInBatch, match="sequenceBatching: true"):
        state[None] = 1
    sequence_state.end()
    with pytest.raises(SequenceNotInBatch, match="no batch is running"):
        state["a"]

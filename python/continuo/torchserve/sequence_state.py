"""SequenceState: what a TorchServe handler remembers of its sequences, kept by Continuo.

    from continuo import SequenceState

    class Handler:
        def initialize(self, context):
            self.totals = SequenceState()      # in place of a dict or an LRU cache

        def handle(self, data, context):
            answers = []
            for i, row in enumerate(data):
                id = context.get_sequence_id(i)
                self.totals[id] = self.totals.get(id, 0) + int(row["body"])
                ...

An entry lies in the state of its sequence. It is committed before the answer leaves, so it is there
after a crash or a restart, in another worker and in an exported sequence, and it goes when its
sequence ends. If the batch fails, the entries are what they were before it. Only the sequences of
the batch that runs can be reached.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, MutableMapping, Optional

_MISSING = object()

#: The states of the batch that runs, by sequence id; None between batches.
_running: Optional[Dict[str, Dict[str, Any]]] = None
#: All names in use. A name must stay the same over restarts, because the state is stored under it.
_names: List[str] = []


class SequenceNotInBatch(LookupError):
    """An id that is not the id of a sequence in the batch that runs."""


class SequenceState(MutableMapping[str, Any]):
    """A mapping from the ids of the sequences in the running batch to values.

    Values are what a state may hold: None, bool, int, float, str, bytes, lists, tuples and dicts of
    them, NumPy arrays and PyTorch CPU tensors. A value may be changed in place.

    A handler with several of them names each: SequenceState("totals"), SequenceState("history").
    """

    def __init__(self, name: str = "value") -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"SequenceState(name): the name must be a text, got {name!r}. It needs "
                            f"no capacity: an entry lives as long as its sequence")
        if name.startswith("@"):
            raise ValueError(f"SequenceState(\"{name}\"): names that begin with @ are Continuo's")
        if name in _names:
            raise ValueError(f"there is a SequenceState with the name \"{name}\" already: give "
                             f"each a name of its own, for example SequenceState(\"{name}2\")")
        _names.append(name)
        self.name = name

    def _entries(self, sequence_id: str) -> Dict[str, Any]:
        if _running is None:
            raise SequenceNotInBatch(
                f"SequenceState \"{self.name}\": no batch is running, and only handle(data, "
                f"context) can reach the state of a sequence")
        try:
            return _running[sequence_id]
        except (KeyError, TypeError):
            pass
        if sequence_id is None:
            raise SequenceNotInBatch(
                f"SequenceState \"{self.name}\": the sequence id is None. The model has no "
                f"sequences: set sequenceBatching: true in its model-config.yaml")
        raise SequenceNotInBatch(
            f"SequenceState \"{self.name}\": the sequence {sequence_id!r} is not in the running "
            f"batch, whose sequences are {sorted(_running)}. Use the id that "
            f"context.get_sequence_id(index) returns")

    def get(self, sequence_id: str, default: Any = None) -> Any:
        return self._entries(sequence_id).get(self.name, default)

    def __getitem__(self, sequence_id: str) -> Any:
        value = self._entries(sequence_id).get(self.name, _MISSING)
        if value is _MISSING:
            raise KeyError(sequence_id)
        return value

    def __setitem__(self, sequence_id: str, value: Any) -> None:
        self._entries(sequence_id)[self.name] = value

    def __delitem__(self, sequence_id: str) -> None:
        if self._entries(sequence_id).pop(self.name, _MISSING) is _MISSING:
            raise KeyError(sequence_id)

    def __contains__(self, sequence_id: object) -> bool:
        return self.name in self._entries(sequence_id)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[str]:
        """The ids of the sequences in the running batch that have an entry."""
        return iter([id for id, entries in (_running or {}).items() if self.name in entries])

    def __len__(self) -> int:
        return sum(self.name in entries for entries in (_running or {}).values())

    def __repr__(self) -> str:
        return f"SequenceState({self.name!r})"

    #: The name that LRU caches give it.
    def has_key(self, sequence_id: str) -> bool:
        return sequence_id in self


def in_use() -> bool:
    """Returns whether the handler has made a SequenceState."""
    return bool(_names)


def begin(states: Dict[str, Dict[str, Any]]) -> None:
    """The worker begins a batch with these states."""
    global _running
    _running = states


def end() -> None:
    global _running
    _running = None


def forget_names() -> None:
    """For tests: the next handler begins with none."""
    _names.clear()

"""SequenceState: what a handler of TorchServe, or a model of Triton, remembers of its sequences,
kept by Continuo.

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

In a model of Triton, self.totals[request.correlation_id()] does the same.

An entry lies in the state of its sequence. It is committed before the answer leaves, so it is there
after a crash or a restart, in another worker and in an exported sequence, and it goes when its
sequence ends. If the batch fails, the entries are what they were before it. Only the sequences of
the batch that runs can be reached.
"""

from __future__ import annotations

import contextvars
from typing import Any, Dict, Iterator, List, MutableMapping, Optional

_MISSING = object()

#: The states of the batch that runs, by sequence id; None between batches. An id of Triton may be an
#: int. A model has either such batches or tasks of asyncio.
_running: Any = None
#: The same for a task of asyncio, which overlaps with others.
_of_task: "contextvars.ContextVar[Optional[Dict[Any, Dict[str, Any]]]]" = contextvars.ContextVar(
    "continuo_states", default=None)
#: All names in use. A name must stay the same over restarts, because the state is stored under it.
_names: List[str] = []


class SequenceNotInBatch(LookupError):
    """An id that is not the id of a sequence in the batch that runs."""


class SequenceState(MutableMapping[Any, Any]):
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

    # The methods below look into the batch first, because each row of it calls some of them.
    # What they do not find there is found, or refused, by _entries().

    def _entries(self, sequence_id: Any) -> Dict[str, Any]:
        running = _states()
        if running is None:
            raise SequenceNotInBatch(
                f"SequenceState \"{self.name}\": no batch is running. The state of a sequence "
                f"can be reached only while its step runs: in handle(data, context) or "
                f"execute(requests)")
        try:
            return running[sequence_id]
        except (KeyError, TypeError):
            pass
        if sequence_id is None:
            raise SequenceNotInBatch(
                f"SequenceState \"{self.name}\": the sequence id is None. The model has no "
                f"sequences: set sequenceBatching: true in its model-config.yaml")
        raise SequenceNotInBatch(
            f"SequenceState \"{self.name}\": the sequence {sequence_id!r} is not in the running "
            f"batch, whose sequences are {sorted(running, key=str)}. Use the id that "
            f"context.get_sequence_id(index) or request.correlation_id() returns")

    def get(self, sequence_id: Any, default: Any = None) -> Any:
        try:
            return _running[sequence_id].get(self.name, default)
        except (KeyError, TypeError):
            return self._entries(sequence_id).get(self.name, default)

    def __getitem__(self, sequence_id: Any) -> Any:
        try:
            return _running[sequence_id][self.name]
        except (KeyError, TypeError):
            pass
        value = self._entries(sequence_id).get(self.name, _MISSING)
        if value is _MISSING:
            raise KeyError(sequence_id)
        return value

    def __setitem__(self, sequence_id: Any, value: Any) -> None:
        try:
            _running[sequence_id][self.name] = value
        except (KeyError, TypeError):
            self._entries(sequence_id)[self.name] = value

    def __delitem__(self, sequence_id: Any) -> None:
        if self._entries(sequence_id).pop(self.name, _MISSING) is _MISSING:
            raise KeyError(sequence_id)

    def __contains__(self, sequence_id: object) -> bool:
        return self.name in self._entries(sequence_id)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        """The ids of the sequences in the running batch that have an entry."""
        return iter([id for id, entries in (_states() or {}).items() if self.name in entries])

    def __len__(self) -> int:
        return sum(self.name in entries for entries in (_states() or {}).values())

    def __repr__(self) -> str:
        return f"SequenceState({self.name!r})"

    #: The name that LRU caches give it.
    def has_key(self, sequence_id: Any) -> bool:
        return sequence_id in self


def in_use() -> bool:
    """Returns whether the handler has made a SequenceState."""
    return bool(_names)


def begin(states: Dict[Any, Dict[str, Any]]) -> None:
    """The worker begins a batch with these states."""
    global _running
    _running = states


def begin_task(states: Dict[Any, Dict[str, Any]]) -> None:
    """The running task of asyncio, and no other, finds these states from now on."""
    _of_task.set(states)


def _states() -> Optional[Dict[Any, Dict[str, Any]]]:
    of_task = _of_task.get()
    return _running if of_task is None else of_task


def end() -> None:
    global _running
    _running = None


def forget_names() -> None:
    """For tests: the next handler begins with none."""
    _names.clear()

"""Sequences whose handler keeps what it remembers of them in the memory of its process.

The state that the server stores then only names the process. When a step finds the name of another
process, what the handler knew is lost, and the sequence is closed instead of silently beginning
anew.
"""

from __future__ import annotations

import uuid
from typing import Any, Dict, List, Optional

from continuo.types import Refuse

#: The entry of a state that names the process. No SequenceState may have this name.
WORKER_KEY = "@worker"


class WorkerLost(Refuse):
    """The sequence's state was in the memory of a worker that is gone.

    The worker closes the sequence with this reason.
    """

    close_reason = "worker_lost"

    def __init__(self, sequence_id: Optional[str]) -> None:
        super().__init__(
            f"the sequence \"{sequence_id}\" is closed (worker_lost): its handler keeps the state "
            f"in the memory of a worker, and that worker is gone. SequenceState of the package "
            f"continuo keeps it", 410)


class WorkerMemory:
    """This process, as the states of its sequences name it."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex

    def forked(self) -> None:
        """This process is a worker that was forked; its siblings remember other sequences."""
        self.token = uuid.uuid4().hex

    def new_state(self) -> Dict[str, Any]:
        return {WORKER_KEY: self.token}

    def lost(self, states: List[Any]) -> List[int]:
        """Which of the states belong to another process, by their index."""
        token = self.token
        return [idx for idx, state in enumerate(states)
                if isinstance(state, dict) and state.get(WORKER_KEY) != token]

"""Settings of a model's YAML that Python code reads, by all names that the server knows for each.

The server (config/model/model_io.c, model_state.c, batching.c) takes the first name that the YAML
has, in the same order.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

Names = Tuple[str, ...]

INPUTS: Names = ("inputs", "input")
OUTPUTS: Names = ("outputs", "output")
DATATYPE: Names = ("dataType", "data_type", "datatype")
DIMS: Names = ("dims", "shape")
RAGGED: Names = ("ragged", "allowRaggedBatch", "allow_ragged_batch")
MAX_BATCH_SIZE: Names = ("maxBatchSize", "max_batch_size")
POLICY: Names = ("modelTransactionPolicy", "model_transaction_policy")
SEQUENCE_BATCHING: Names = ("sequence_batching", "sequenceBatching")
DYNAMIC_BATCHING: Names = ("dynamic_batching", "dynamicBatching")
#: The output of a declared state.
STATE_OUTPUT: Names = ("output", "outputName", "output_name", "name")


def setting(settings: Dict[str, Any], names: Names, default: Any = None) -> Any:
    """The value of the first of these names that is there."""
    return next((settings[name] for name in names if name in settings), default)


def entries(settings: Dict[str, Any], names: Names) -> List[Dict[str, Any]]:
    """A list of maps, such as the inputs."""
    found = setting(settings, names)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def datatype(entry: Dict[str, Any], default: str = "") -> str:
    """The datatype of an input or output, as the protocol calls it."""
    word = str(setting(entry, DATATYPE, default))
    word = word[len("TYPE_"):] if word.startswith("TYPE_") else word
    return "BYTES" if word == "STRING" else word

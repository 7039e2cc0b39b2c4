"""The model's configuration as a Triton model gets it: JSON with Triton's names.

Continuo's YAML has most fields of config.pbtxt under their own names, because `continuo-archiver
import` has written it. Fields that are not there get the values that Triton gives them.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from continuo import _settings
from continuo._device import in_turn
from continuo.types import Model

#: The folder of the model, for get_model_dir().
_model_dir = ""


def _datatype(entry: Dict[str, Any]) -> str:
    word = _settings.datatype(entry, "INVALID")
    return "TYPE_" + ("STRING" if word == "BYTES" else word)


def _tensor(entry: Dict[str, Any], is_input: bool) -> Dict[str, Any]:
    dims = _settings.setting(entry, _settings.DIMS, [])
    made: Dict[str, Any] = {"name": str(entry.get("name", "")), "data_type": _datatype(entry),
                            "dims": dims if isinstance(dims, list) else [dims]}
    if is_input:
        made.update(format="FORMAT_NONE", is_shape_tensor=False, is_non_linear_format_io=False,
                    allow_ragged_batch=bool(_settings.setting(entry, _settings.RAGGED, False)),
                    optional=bool(entry.get("optional", False)))
    else:
        made.update(label_filename="", is_shape_tensor=False, is_non_linear_format_io=False)
    return made


def triton_config(model: Model) -> Dict[str, Any]:
    """The configuration with Triton's names and defaults."""
    config = model.config
    parameters = config.get("parameters")
    made: Dict[str, Any] = {
        "name": model.name,
        "platform": "",
        "backend": "python",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": int(_settings.setting(config, _settings.MAX_BATCH_SIZE, 0)),
        "input": [_tensor(each, True) for each in _settings.entries(config, _settings.INPUTS)],
        "output": [_tensor(each, False) for each in _settings.entries(config, _settings.OUTPUTS)],
        "batch_input": [],
        "batch_output": [],
        "optimization": {"priority": "PRIORITY_DEFAULT",
                         "input_pinned_memory": {"enable": True},
                         "output_pinned_memory": {"enable": True},
                         "gather_kernel_buffer_threshold": 0, "eager_batching": False},
        "instance_group": [{"name": f"{model.name}_0",
                            "kind": "KIND_GPU" if config.get("deviceType") == "gpu" else "KIND_CPU",
                            "count": int(config.get("maxWorkers", 1)), "gpus": [],
                            "secondary_devices": [], "profile": [], "passive": False,
                            "host_policy": ""}],
        "default_model_filename": os.path.basename(model.file.partition(":")[0]),
        "cc_model_filenames": {},
        "metric_tags": {},
        "parameters": {str(key): {"string_value": str(each)} for key, each in
                       (parameters.items() if isinstance(parameters, dict) else ())},
        "model_warmup": [],
    }
    if is_decoupled(config) or _settings.setting(config, _settings.POLICY) is not None:
        made["model_transaction_policy"] = {"decoupled": is_decoupled(config)}
    for names in (_settings.SEQUENCE_BATCHING, _settings.DYNAMIC_BATCHING):
        if isinstance(_settings.setting(config, names), dict):
            made[names[0]] = _settings.setting(config, names)
    return made


def is_decoupled(config: Dict[str, Any]) -> bool:
    policy = _settings.setting(config, _settings.POLICY)
    if isinstance(policy, dict) and "decoupled" in policy:
        return policy["decoupled"] is True
    return config.get("decoupled") is True


def arguments(model: Model) -> Dict[str, str]:
    """What initialize() gets, without model_config."""
    global _model_dir

    folder = os.path.abspath(model.dir)
    several = model.config.get("maxWorkers", 1) != 1
    instance = max(model.worker - 1, 0)  # worker 0 is the process from which workers are forked
    gpu = model.config.get("deviceType") == "gpu"
    ids = model.config.get("deviceIds")
    asked = in_turn(ids, model.worker) if isinstance(ids, list) and ids else 0
    device = model.device.partition(":")[2] or str(asked)  # also on a machine without a GPU, as kind says GPU
    _model_dir = os.path.join(folder, model.version)
    if not os.path.isdir(_model_dir):
        _model_dir = folder
    return {"model_instance_kind": "GPU" if gpu else "CPU",
            "model_instance_name": f"{model.name}_0" + (f"_{instance}" if several else ""),
            "model_instance_device_id": device if gpu else "0",
            "model_repository": folder,
            "model_version": model.version,
            "model_name": model.name}


# --- functions of triton_python_backend_utils ---

def get_model_dir() -> str:
    """The folder of the running version, which has model.py in it."""
    return _model_dir


def _by_name(model_config: Dict[str, Any], way: str, name: str) -> Optional[Dict[str, Any]]:
    return next((each for each in model_config.get(way, []) if each["name"] == name), None)


def get_input_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """The entry of an input in the configuration; None if there is none of this name."""
    return _by_name(model_config, "input", name)


def get_output_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """The entry of an output in the configuration; None if there is none of this name."""
    return _by_name(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config: Dict[str, Any]) -> bool:
    return is_decoupled(model_config)


class ModelConfig:
    """What auto_complete_config() gets and fills in. See `continuo-archiver import`."""

    def __init__(self, model_config: Dict[str, Any]) -> None:
        self._config = model_config

    def as_dict(self) -> Dict[str, Any]:
        return self._config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Sets it; of a configuration that has one, the smaller one stays."""
        given = int(self._config.get("max_batch_size", 0))
        self._config["max_batch_size"] = min(given, max_batch_size) if given else max_batch_size

    def set_dynamic_batching(self) -> None:
        if self._config.get("sequence_batching"):
            raise ValueError("the configuration has sequence_batching, so set_dynamic_batching() "
                             "cannot be used")
        self._config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict: Dict[str, Any]) -> None:
        unknown = set(transaction_policy_dict) - {"decoupled"}
        if unknown or "decoupled" not in transaction_policy_dict:
            raise ValueError("model_transaction_policy has the one property \"decoupled\", got "
                             f"{sorted(transaction_policy_dict)}")
        given = self._config.get("model_transaction_policy", {}).get("decoupled")
        if given and not transaction_policy_dict["decoupled"]:
            raise ValueError("the configuration says decoupled: true, and the model says false")
        self._config["model_transaction_policy"] = dict(transaction_policy_dict)

    def add_input(self, input: Dict[str, Any]) -> None:  # noqa: A002 (Triton's name)
        self._add("input", input, {"name", "data_type", "dims", "optional"})

    def add_output(self, output: Dict[str, Any]) -> None:
        self._add("output", output, {"name", "data_type", "dims"})

    def _add(self, way: str, entry: Dict[str, Any], known: Any) -> None:
        for name in ("name", "data_type", "dims"):
            if name not in entry:
                raise ValueError(f"add_{way}: the property {name} is missing in {entry}")
        unknown = set(entry) - known
        if unknown:
            raise ValueError(f"add_{way}: {entry['name']} has the unknown property "
                             f"{sorted(unknown)[0]}")
        listed = self._config.setdefault(way, [])
        given = next((each for each in listed if each["name"] == entry["name"]), None)
        if given is None:
            listed.append(dict(entry))
            return
        for name in ("data_type", "dims"):
            if given.get(name) not in (None, [], "TYPE_INVALID", entry[name]):
                raise ValueError(f"add_{way}: {entry['name']} has {name} {given[name]} in the "
                                 f"configuration, and the model says {entry[name]}")
        given.update(entry)

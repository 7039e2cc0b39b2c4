"""Helpers that handlers import from ts.utils.util."""

import inspect
import json
import logging
import os
import warnings
from functools import wraps

logger = logging.getLogger(__name__)


class PredictionException(Exception):
    """Raised by a handler: the clients of the batch get this message and status."""

    def __init__(self, message, error_code=500):
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self):
        return f"{self.message} : {self.error_code}"


def list_classes_from_module(module, parent_class=None):
    """The classes that the module itself defines, or those of them that derive from a class."""
    found = [value for _, value in inspect.getmembers(module, inspect.isclass)
             if value.__module__ == module.__name__]
    return [each for each in found if parent_class is None or issubclass(each, parent_class)]


def load_label_mapping(mapping_file_path):
    """Reads index_to_name.json: labels by the number of their class. None without such a file."""
    if not os.path.isfile(mapping_file_path):
        logger.warning("there is no file %s, so answers name classes by their numbers",
                       mapping_file_path)
        return None
    with open(mapping_file_path, encoding="utf-8") as file:
        mapping = json.load(file)
    if not isinstance(mapping, dict):
        raise Exception(f"{mapping_file_path} must be a JSON object of labels by class number")
    names = mapping.get("object_type_names")
    if isinstance(names, list):
        return {str(number): name for number, name in enumerate(names)}
    labels = {number: label[-1] if isinstance(label, list) else label
              for number, label in mapping.items()}
    for number, label in labels.items():
        if not isinstance(label, str):
            raise Exception(f"{mapping_file_path}: the label of class {number} must be a text or a "
                            f"list of texts")
    return labels


def map_class_to_label(probs, mapping=None, lbl_classes=None):
    """For each row of probabilities, a dict of them by their labels."""
    if not isinstance(probs, list):
        raise Exception("the probabilities must be a list of lists")
    if mapping is not None and not isinstance(mapping, dict):
        raise Exception("the mapping must be a dict of labels by class number")
    rows = []
    for at, row in enumerate(probs):
        numbers = range(len(row)) if lbl_classes is None else lbl_classes[at]
        rows.append({mapping[str(number)] if mapping is not None else str(number): value
                     for number, value in zip(numbers, row)})
    return rows


def get_yaml_config(yaml_file_path):
    import yaml  # PyYAML is needed by those handlers only that read YAML files themselves

    with open(yaml_file_path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def check_valid_pt2_backend(backend):
    try:
        import torch

        known = backend in torch.compiler.list_backends(exclude_tags=())
    except (ImportError, AttributeError):
        known = False
    if not known:
        logger.warning("torch.compile has no backend %s", backend)
    return known


def deprecated(version, replacement="", klass=PendingDeprecationWarning):
    """A decorator that warns when the function is called."""
    def decorate(function):
        @wraps(function)
        def call(*args, **kwargs):
            warnings.warn(f"{function.__name__} is deprecated since {version}; use {replacement}",
                          klass, stacklevel=2)
            return function(*args, **kwargs)
        return call
    return decorate

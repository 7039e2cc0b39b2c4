"""Service envelopes: what is around the rows of a request and of an answer.

`service_envelope` in the server's configuration names one:

body      data[i] is the request's body instead of a dict
json      {"instances": [...]} of each request; the instances of all requests are one batch
kserve    {"instances": [...]} of the first request: its instances are the batch
kservev2  {"inputs": [...]} of the first request: its tensors are the batch
"""

from __future__ import annotations

import base64
import json
from typing import Any, Callable, Dict, List, Optional, Type

from continuo.torchserve.context import Context

Rows = List[Any]


class Envelope:
    """Opens requests and closes answers around a call of the handler."""

    def call(self, handle: Callable[[Rows], Any], data: Rows, context: Context) -> Any:
        rows = self.open(data, context) if data else data
        results = handle(rows)
        return self.close(results, context) if results else results

    def open(self, data: Rows, context: Context) -> Rows:
        raise NotImplementedError

    def close(self, results: Rows, context: Context) -> Any:
        return results


def body_of(row: Dict[str, Any]) -> Any:
    return row.get("data") or row.get("body")


def parsed(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, str)):
        return json.loads(value)
    return value


class BodyEnvelope(Envelope):
    def open(self, data: Rows, context: Context) -> Rows:
        return [body_of(row) for row in data]


class JsonEnvelope(Envelope):
    def __init__(self) -> None:
        self.lengths: List[int] = []

    def open(self, data: Rows, context: Context) -> Rows:
        requests = [decode_base64((parsed(body_of(row)) or row)["instances"]) for row in data]
        self.lengths = [len(instances) for instances in requests]
        return [instance for instances in requests for instance in instances]

    def close(self, results: Rows, context: Context) -> Any:
        answers, at = [], 0
        for length in self.lengths:
            answers.append(json.dumps({"predictions": results[at:at + length]}))
            at += length
        return answers


def decode_base64(instances: Rows) -> Rows:
    """{"b64": "..."} stands for bytes: as an instance, or as a member of one."""
    def is_base64(value: Any) -> bool:
        return isinstance(value, dict) and list(value) == ["b64"]

    if not instances or not isinstance(instances[0], dict):
        return instances
    opened: Rows = []
    for instance in instances:
        if is_base64(instance):
            opened.append(base64.b64decode(instance["b64"]))
        else:
            opened.append({name: base64.b64decode(value["b64"]) if is_base64(value) else value
                           for name, value in instance.items()})
    return opened


class KserveEnvelope(Envelope):
    def open(self, data: Rows, context: Context) -> Rows:
        return parsed(body_of(data[0])).get("instances")

    def close(self, results: Rows, context: Context) -> Any:
        explains = context.get_request_header(0, "explain") == "True"
        return [{"explanations" if explains else "predictions": results}]


class KserveV2Envelope(Envelope):
    """Each input tensor is a row: its data is a nested list in its shape."""

    def open(self, data: Rows, context: Context) -> Rows:
        request = parsed(body_of(data[0]))
        rows = request["inputs"]
        for row in rows:
            if row["datatype"] == "BYTES":
                row["data"] = row["data"][0]
            else:
                row["data"] = shaped(flat(row["data"]), row["shape"])
        self.names = [row["name"] for row in rows]
        self.id = str(request.get("id") or "").strip()
        return rows

    def close(self, results: Rows, context: Context) -> Any:
        model = (context.manifest or {}).get("model", {})
        outputs = []
        for name, result in zip(self.names, results):
            elements = flat(result)
            outputs.append({"name": name, "datatype": datatype_of(elements), "data": elements,
                            "shape": [len(elements)]})
        return [{"id": self.id or context.get_request_id(0), "model_name": model.get("modelName"),
                 "model_version": model.get("modelVersion"), "outputs": outputs}]


def flat(value: Any) -> List[Any]:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        return [value]
    return [element for each in value for element in flat(each)]


def shaped(elements: List[Any], shape: List[int]) -> Any:
    """Nested lists of this shape."""
    n = 1
    for size in shape:
        n *= size
    if n != len(elements):
        raise ValueError(f"the shape {shape} has {n} elements, and the data has {len(elements)}")
    if len(shape) < 2:
        return elements
    step = n // shape[0] if shape[0] else 0
    return [shaped(elements[at * step:(at + 1) * step], shape[1:]) for at in range(shape[0])]


def datatype_of(elements: List[Any]) -> str:
    """The v2 name of the type that NumPy would give these elements."""
    if all(isinstance(each, bool) for each in elements) and elements:
        return "BOOL"
    if any(isinstance(each, (str, bytes)) for each in elements):
        return "BYTES"
    if all(isinstance(each, int) for each in elements) and elements:
        return "INT64"
    return "FP64"


ENVELOPES: Dict[str, Type[Envelope]] = {
    "body": BodyEnvelope, "json": JsonEnvelope, "kserve": KserveEnvelope,
    "kservev2": KserveV2Envelope}


def find_envelope(name: str) -> Optional[Envelope]:
    if name in ("", "none"):
        return None
    if name not in ENVELOPES:
        raise ValueError(f"service_envelope \"{name}\" is unknown: there are "
                         f"{', '.join(ENVELOPES)}")
    return ENVELOPES[name]()

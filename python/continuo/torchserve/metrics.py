"""context.metrics: the numbers that a handler measures.

They reach the server by continuo.metrics, which puts them on the page /metrics or, in TorchServe's
metrics mode `log`, into model_metrics.log, as all metrics of handlers.

The worker takes samples only in its main thread. What a thread of the handler measures waits here
until the call that runs has returned.
"""

from __future__ import annotations

import collections
import enum
import logging
import sys
import threading
from typing import (Any, Callable, Deque, Dict, Iterable, List, Optional, Sequence, Tuple, Union)

logger = logging.getLogger(__name__)

Number = Union[int, float]
#: kind ("counter", "gauge" or "histogram"), name, value, dimensions, unit
Sink = Callable[[str, str, float, Dict[str, str], str], None]

#: The server measures these itself, for each call of a handler.
OF_THE_SERVER = ("HandlerTime", "PredictionTime")
#: The server gives these to each metric of a handler, and takes no others for them.
DIMENSIONS_OF_THE_SERVER = ("ModelName", "Level", "Hostname")
#: What TorchServe's own metrics.yaml declares of a model.
OF_A_MODEL = tuple(("gauge", name, "ms", ["ModelName", "Level"]) for name in OF_THE_SERVER)

UNITS: Dict[Optional[str], str] = {
    "ms": "Milliseconds", "s": "Seconds", "percent": "Percent", "count": "Count",
    "MB": "Megabytes", "GB": "Gigabytes", "kB": "Kilobytes", "B": "Bytes", "": "unit",
    None: "unit"}


class MetricTypes(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Dimension:
    """A label of a metric."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return f"{self.name}:{self.value}"

    def to_dict(self) -> Dict[str, Any]:
        return {"Name": self.name, "Value": self.value}


class Units:
    def __init__(self) -> None:
        self.units = dict(UNITS)


class GeneralMetricsCacheError(Exception):
    pass


class MetricsCacheIOError(OSError):
    pass


class MetricsCachePyYamlError(Exception):
    pass


class MetricsCacheTypeError(TypeError):
    pass


class MetricsCacheValueError(ValueError):
    pass


class MetricsCacheKeyError(KeyError):
    pass


def _error(name: str) -> Any:
    """Returns the class of an error: that of the pip package torchserve if a handler has imported it."""
    return getattr(sys.modules.get("ts.metrics.metric_cache_errors"), name, globals()[name])


#: How many numbers of threads may wait. If there are more, the oldest ones are dropped.
WAITING_MAX = 10000

_waiting: Deque[Tuple[str, str, float, Dict[str, str], str]] = collections.deque(maxlen=WAITING_MAX)


def flush() -> None:
    """Gives what waits to the server. Called in the worker's main thread, in a call."""
    while _waiting:
        report(*_waiting.popleft())


def report(kind: str, name: str, value: float, dimensions: Dict[str, str], unit: str) -> None:
    """Gives a number to the server. What the server refuses is logged, as TorchServe does."""
    from continuo import metrics

    if threading.current_thread() is not threading.main_thread():
        _waiting.append((kind, name, value, dimensions, unit))
        return
    own = {dim: each for dim, each in dimensions.items() if dim not in DIMENSIONS_OF_THE_SERVER}
    try:
        getattr(metrics, kind)(name, value, own, unit)
    except ValueError as error:
        logger.error("metric %s: %s", name, error)


class Metric:
    """One metric with its dimensions' names."""

    def __init__(self, metric_name: str, unit: Optional[str],
                 dimension_names: Optional[Sequence[str]] = None,
                 metric_type: Any = MetricTypes.COUNTER, sink: Optional[Sink] = None) -> None:
        self.metric_name = metric_name
        self.unit = UNITS.get(unit, unit)
        self.dimension_names: List[str] = list(dimension_names or [])
        self.metric_type = metric_type
        self._sink = sink or report

    def add_or_update(self, value: Number, dimension_values: Sequence[Any] = (),
                      request_id: str = "") -> None:
        """Adds to a counter, sets a gauge, or gives a histogram one more value.

        A wrong value is logged, and does not fail the request.
        """
        kind = getattr(self.metric_type, "value", self.metric_type)
        if len(dimension_values or ()) != len(self.dimension_names):
            logger.error("metric %s: it has the dimensions %s, and the values given are %s",
                         self.metric_name, self.dimension_names, list(dimension_values or ()))
        elif kind == "counter" and value < 0:
            logger.error("metric %s: a counter cannot go down; the value given is %s",
                         self.metric_name, value)
        elif self.metric_name not in OF_THE_SERVER:
            named = {name: str(each)
                     for name, each in zip(self.dimension_names, dimension_values or ())}
            self._sink(kind, self.metric_name, float(value), named, self.unit or "unit")

    def update(self, value: Number, request_id: str = "",
               dimensions: Sequence[Dimension] = ()) -> None:
        self.dimension_names = [each.name for each in dimensions]
        self.add_or_update(value, [each.value for each in dimensions], request_id)

    def reset(self) -> None:
        self.add_or_update(0, [""] * len(self.dimension_names))


class MetricsCache:
    """The metrics of a handler by type and name."""

    def __init__(self, model_name: str = "", declared: Iterable[Tuple[str, str, str, List[str]]] = (),
                 sink: Optional[Sink] = None) -> None:
        """`declared`: the metrics that exist without add_metric_to_cache()."""
        self.model_name = model_name
        #: By the index in the batch.
        self.request_ids: Any = None
        self.cache: Dict[str, Dict[str, Metric]] = {}
        self.store: List[Any] = []
        self._sink = sink
        for kind, name, unit, dimension_names in (*OF_A_MODEL, *declared):
            self.add_metric_to_cache(name, unit, list(dimension_names), MetricTypes(kind))

    def set_request_ids(self, request_ids: Any) -> None:
        self.request_ids = request_ids

    # --- metrics with dimensions of the handler's own

    def add_metric_to_cache(self, metric_name: str, unit: str,
                            dimension_names: Optional[List[str]] = None,
                            metric_type: Any = MetricTypes.COUNTER) -> Metric:
        """Makes a metric. One of the same type and name is replaced."""
        self._check(metric_name, metric_type)
        if not isinstance(unit, str):
            raise _error("MetricsCacheTypeError")(f"`unit` must be a str, got {unit!r}")
        if dimension_names and not isinstance(dimension_names, list):
            raise _error("MetricsCacheTypeError")(
                f"`dimension_names` must be a list of str, got {dimension_names!r}")
        metric = Metric(metric_name, unit, dimension_names, metric_type, self._sink)
        self.cache.setdefault(_kind(metric_type), {})[metric_name] = metric
        return metric

    def get_metric(self, metric_name: str, metric_type: Any = MetricTypes.COUNTER) -> Metric:
        self._check(metric_name, metric_type)
        metric = self.cache.get(_kind(metric_type), {}).get(metric_name)
        if metric is None:
            raise _error("MetricsCacheKeyError")(
                f"there is no metric {metric_name!r} of the type {_kind(metric_type)}: make it "
                f"with add_metric_to_cache()")
        return metric

    def cache_keys(self) -> List[str]:
        return [f"{kind}:{name}" for kind, metrics in self.cache.items() for name in metrics]

    # --- metrics of a model, whose dimensions are ModelName and Level

    def add_metric(self, name: str, value: Number, unit: str, idx: Any = None,
                   dimensions: Optional[List[Dimension]] = None,
                   metric_type: Any = MetricTypes.COUNTER) -> None:
        self._add(name, value, unit, dimensions, metric_type)

    def add_counter(self, name: str, value: Number, idx: Any = None,
                    dimensions: Optional[List[Dimension]] = None) -> None:
        self._add(name, value, "count", dimensions, MetricTypes.COUNTER)

    def add_time(self, name: str, value: Number, idx: Any = None, unit: str = "ms",
                 dimensions: Optional[List[Dimension]] = None,
                 metric_type: Any = MetricTypes.GAUGE) -> None:
        if unit not in ("ms", "s"):
            raise _error("MetricsCacheValueError")(
                f"add_time: the unit must be ms or s, got {unit!r}")
        self._add(name, value, unit, dimensions, metric_type)

    def add_size(self, name: str, value: Number, idx: Any = None, unit: str = "MB",
                 dimensions: Optional[List[Dimension]] = None,
                 metric_type: Any = MetricTypes.GAUGE) -> None:
        if unit not in ("MB", "kB", "GB", "B"):
            raise ValueError(f"add_size: the unit must be MB, kB, GB or B, got {unit!r}")
        self._add(name, value, unit, dimensions, metric_type)

    def add_percent(self, name: str, value: Number, idx: Any = None,
                    dimensions: Optional[List[Dimension]] = None,
                    metric_type: Any = MetricTypes.GAUGE) -> None:
        self._add(name, value, "percent", dimensions, metric_type)

    def add_error(self, name: str, value: Number,
                  dimensions: Optional[List[Dimension]] = None) -> None:
        self._add(name, value, "", dimensions, MetricTypes.COUNTER, level="Error")

    def _add(self, name: str, value: Number, unit: str, dimensions: Optional[List[Dimension]],
             metric_type: Any, level: str = "Model") -> None:
        everything: List[Tuple[str, Any]] = [(each.name, each.value) for each in dimensions or ()]
        names = [each for each, _ in everything]
        if level == "Model" and "ModelName" not in names:
            everything.append(("ModelName", self.model_name))
        if "Level" not in names:
            everything.append(("Level", level))
        metric = self.cache.get(_kind(metric_type), {}).get(name)
        if metric is None:
            metric = self.add_metric_to_cache(name, unit, [each for each, _ in everything],
                                              metric_type)
        metric.add_or_update(value, [each for _, each in everything])

    @staticmethod
    def _check(metric_name: Any, metric_type: Any) -> None:
        if not isinstance(metric_name, str):
            raise _error("MetricsCacheTypeError")(
                f"`metric_name` must be a str, got {metric_name!r}")
        if _kind(metric_type) not in ("counter", "gauge", "histogram") or \
                not isinstance(metric_type, enum.Enum):
            raise _error("MetricsCacheTypeError")(
                f"`metric_type` must be one of MetricTypes, got {metric_type!r}")


def _kind(metric_type: Any) -> str:
    """Our MetricTypes and that of the pip package are different classes with equal values."""
    return str(getattr(metric_type, "value", metric_type))

"""MetricFamily: a model's own metrics, which /metrics shows.

The worker takes samples only in its main thread and during a call. What a model measures at another
time, in initialize or in a thread, waits here until flush() is called there.
"""

from __future__ import annotations

import collections
import logging
import threading
from typing import Any, Deque, Dict, List, Mapping, Optional, Set, Tuple

from continuo import metrics
from continuo.triton.errors import TritonModelException

#: How many samples may wait. If there are more, the oldest ones are dropped.
WAITING_MAX = 10000

_waiting: Deque[Tuple[Any, str, float, Dict[str, str]]] = collections.deque(maxlen=WAITING_MAX)
_lock = threading.Lock()
#: Names of metrics about which a warning was logged.
_refused: Set[str] = set()

logger = logging.getLogger(__name__)


def flush() -> None:
    """Gives what waits to the worker. Called in the worker's main thread, during a call."""
    while _waiting:
        report, name, value, labels = _waiting.popleft()
        try:
            report(name, value, labels)
        except ValueError as error:
            if name not in _refused:
                _refused.add(name)
                logger.warning("the metric %s is not recorded: %s", name, error)


class Metric:
    """One series of a family: a counter, a gauge or a histogram with its labels."""

    def __init__(self, family: MetricFamily, labels: Dict[str, str],
                 buckets: Optional[List[float]]) -> None:
        self._family = family
        self._labels = labels
        self._buckets = buckets
        self._value = 0.0

    def increment(self, value: float) -> None:
        """Adds to a counter or a gauge."""
        kind = self._family.kind
        if kind == MetricFamily.HISTOGRAM:
            raise TritonModelException(f"{self._family.name}: a histogram has observe(), and no "
                                       f"increment()")
        if kind == MetricFamily.COUNTER and value < 0:
            raise TritonModelException(f"{self._family.name}: a counter cannot fall; the value is "
                                       f"{value}")
        with _lock:
            self._value += value
            _waiting.append((metrics.counter, self._family.name, value, self._labels)
                            if kind == MetricFamily.COUNTER else
                            (metrics.gauge, self._family.name, self._value, self._labels))

    def set(self, value: float) -> None:
        """Sets a gauge."""
        if self._family.kind != MetricFamily.GAUGE:
            raise TritonModelException(f"{self._family.name}: only a gauge has set()")
        with _lock:
            self._value = float(value)
            _waiting.append((metrics.gauge, self._family.name, self._value, self._labels))

    def observe(self, value: float) -> None:
        """Adds a value to a histogram."""
        if self._family.kind != MetricFamily.HISTOGRAM:
            raise TritonModelException(f"{self._family.name}: only a histogram has observe()")
        with _lock:
            _waiting.append((metrics.histogram, self._family.name, float(value), self._labels))

    def value(self) -> float:
        """What this process has added, or set last."""
        if self._family.kind == MetricFamily.HISTOGRAM:
            raise TritonModelException(f"{self._family.name}: a histogram has no value()")
        return self._value


class MetricFamily:
    """Metrics of one name: MetricFamily(name=..., description=..., kind=MetricFamily.COUNTER)."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2

    def __init__(self, name: str, description: str, kind: int) -> None:
        if kind not in (MetricFamily.COUNTER, MetricFamily.GAUGE, MetricFamily.HISTOGRAM):
            raise TritonModelException(f"MetricFamily(\"{name}\"): kind must be COUNTER, GAUGE or "
                                       f"HISTOGRAM of MetricFamily, got {kind!r}")
        self.name = name
        self.description = description
        self.kind = kind

    def Metric(self, labels: Optional[Mapping[str, Any]] = None,  # noqa: N802 (Triton's name)
               buckets: Optional[List[float]] = None) -> Metric:
        """A series. A histogram's buckets are the server's own; those that are given are not used.
        """
        return Metric(self, {str(key): str(each) for key, each in (labels or {}).items()}, buckets)

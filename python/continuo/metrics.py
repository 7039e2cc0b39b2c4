"""Numbers that a handler measures, for /metrics.

    from continuo import metrics
    metrics.counter("tokens", 12, {"language": "en"})
    metrics.gauge("vocabulary", 32000)
    metrics.histogram("decode_time", 3.5, unit="ms")

Each returns True, or False when the call has recorded as many values as handler.metrics.samples
allows. A name or a value that a metric must not have raises ValueError.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

__all__ = ["counter", "gauge", "histogram"]


def _measure(kind: int, name: str, value: float, dims: Optional[Mapping[str, Any]],
             unit: str) -> bool:
    from continuo import _worker  # type: ignore[attr-defined]

    pairs = [(str(key), _text(each)) for key, each in dims.items()] if dims else []
    return _worker.measure(kind, name, float(value), pairs, unit)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise ValueError(f"the value of a dimension must be a str, a number or a bool, got "
                         f"{type(value).__name__}")
    return str(value)


def counter(name: str, value: float = 1, dims: Optional[Mapping[str, Any]] = None,
            unit: str = "") -> bool:
    """Adds to a sum; the value must not be negative."""
    return _measure(0, name, value, dims, unit)


def gauge(name: str, value: float, dims: Optional[Mapping[str, Any]] = None,
          unit: str = "") -> bool:
    """Keeps the last value."""
    return _measure(1, name, value, dims, unit)


def histogram(name: str, value: float, dims: Optional[Mapping[str, Any]] = None,
              unit: str = "") -> bool:
    """Counts values by size."""
    return _measure(2, name, value, dims, unit)

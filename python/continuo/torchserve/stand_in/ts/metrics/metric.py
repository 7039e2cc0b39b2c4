"""Metric(name, value, unit, dimensions): a counter with a fixed set of labels."""

from continuo.torchserve.metrics import Metric as _Metric
from continuo.torchserve.metrics import MetricTypes


class Metric:
    def __init__(self, name, value, unit, dimensions, request_id=None, metric_method=None):
        self._metric = _Metric(name, unit, [each.name for each in dimensions], MetricTypes.COUNTER)
        self.name = self._metric.metric_name
        self.unit = self._metric.unit
        self.metric_type = MetricTypes.COUNTER
        self.dimensions = dimensions
        self.dimension_names = self._metric.dimension_names
        self.dimension_values = [each.value for each in dimensions]
        self.value = value
        self.request_id = request_id
        self.metric_method = metric_method

    def update(self, value):
        self._metric.add_or_update(value, self.dimension_values)

    def reset(self):
        self._metric.add_or_update(0, self.dimension_values)

    def __str__(self):
        return f"{self.name}.{self.unit}:{self.value}|#" + ",".join(map(str, self.dimensions))

"""The older name of context.metrics."""

from continuo.torchserve.metrics import MetricsCache


class MetricsStore(MetricsCache):
    def __init__(self, request_ids, model_name):
        super().__init__(model_name)
        self.request_ids = request_ids

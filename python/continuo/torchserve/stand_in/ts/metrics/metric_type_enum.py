from continuo.torchserve.metrics import MetricTypes  # noqa: F401

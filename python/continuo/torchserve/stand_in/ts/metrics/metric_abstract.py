from continuo.torchserve.metrics import Metric as MetricAbstract  # noqa: F401

from continuo.torchserve.metrics import Metric as CachingMetric  # noqa: F401

from continuo.torchserve.metrics import MetricsCache as MetricCacheAbstract  # noqa: F401

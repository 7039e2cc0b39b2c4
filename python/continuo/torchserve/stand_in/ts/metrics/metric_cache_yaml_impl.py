from continuo.torchserve.metrics import MetricsCache as MetricsCacheYamlImpl  # noqa: F401

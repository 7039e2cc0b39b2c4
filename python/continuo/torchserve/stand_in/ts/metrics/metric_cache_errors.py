from continuo.torchserve.metrics import (GeneralMetricsCacheError,  # noqa: F401
                                         MetricsCacheIOError, MetricsCacheKeyError,
                                         MetricsCachePyYamlError, MetricsCacheTypeError,
                                         MetricsCacheValueError)

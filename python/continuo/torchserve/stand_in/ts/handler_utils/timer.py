"""@timed: measures a method of a handler as ts_handler_NAME if the YAML has handler.profile."""

import time
from functools import wraps


def timed(function):
    @wraps(function)
    def call(self, *args, **kwargs):
        context = getattr(self, "context", None)
        settings = (getattr(context, "model_yaml_config", None) or {}).get("handler")
        if not isinstance(settings, dict) or not settings.get("profile"):
            return function(self, *args, **kwargs)
        begun = time.perf_counter()
        result = function(self, *args, **kwargs)
        context.metrics.add_time("ts_handler_" + function.__name__,
                                 (time.perf_counter() - begun) * 1000)
        return result
    return call

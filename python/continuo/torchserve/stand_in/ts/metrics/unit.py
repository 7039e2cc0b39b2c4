from continuo.torchserve.metrics import Units  # noqa: F401

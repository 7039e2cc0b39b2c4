from continuo.torchserve.metrics import Dimension  # noqa: F401

from continuo.torchserve.context import API_VERSION as __version__  # noqa: F401

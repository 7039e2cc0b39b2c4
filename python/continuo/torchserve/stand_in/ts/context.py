from continuo.torchserve.context import Context, RequestProcessor  # noqa: F401

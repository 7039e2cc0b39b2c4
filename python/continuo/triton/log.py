"""Logger: writes to the server's log. A model's calls look like Logger.log_info("text")."""

from __future__ import annotations

import logging

_logger = logging.getLogger("model")
_logger.setLevel(logging.DEBUG)  # the server's level decides what is written


class Logger:
    """Its functions need no object."""

    ERROR = logging.ERROR
    WARNING = logging.WARNING
    INFO = logging.INFO
    VERBOSE = logging.DEBUG

    @staticmethod
    def log(message: str, level: int = logging.INFO) -> None:
        _logger.log(int(level), "%s", message)

    @staticmethod
    def log_info(message: str) -> None:
        _logger.info("%s", message)

    @staticmethod
    def log_warn(message: str) -> None:
        _logger.warning("%s", message)

    @staticmethod
    def log_error(message: str) -> None:
        _logger.error("%s", message)

    @staticmethod
    def log_verbose(message: str) -> None:
        _logger.debug("%s", message)

"""The names that handlers import from ts.service."""

import logging

from ts.context import Context, RequestProcessor  # noqa: F401
from ts.protocol.otf_message_handler import create_predict_response  # noqa: F401
from ts.utils.util import PredictionException  # noqa: F401

PREDICTION_METRIC = "PredictionTime"
logger = logging.getLogger(__name__)


def emit_metrics(metrics):
    """Logs each metric of a dict."""
    for metric in metrics or ():
        logger.info("[METRICS]%s", metric)

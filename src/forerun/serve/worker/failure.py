"""A failure in the log: where it was raised, and not what it said, which may hold a request's text."""

from __future__ import annotations

import logging
import traceback


def log_failure(log: logging.Logger, error: BaseException, say: bool = False) -> None:
    """say: the error's message, too."""
    places = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
    said = f": {error}" if say else ""
    log.error("a request failed with %s%s\n%s", type(error).__name__, said, places)

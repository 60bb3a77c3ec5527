"""The log of a worker group: one line per event on stderr, with time, level and who says it."""

from __future__ import annotations

import logging
import sys
import time

_NAME = "fleet"


def open_journal(who: str) -> None:
    """Log to stderr under the name `who`; what user code configured for the root logger is left alone."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(
        f"%(asctime)s.%(msecs)03dZ %(levelname)s {who.replace('%', '%%')} %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger(_NAME)
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False

"""Where logs go: to stderr from the first line on, and nowhere near the protocol."""

from __future__ import annotations

import logging
import os
import sys

LEVELS = ("debug", "info", "warning", "error", "critical")
VARIABLE = "COUPLER_LOG"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogSettingError(ValueError):
    """The level or the file for logs cannot be used."""


def send_logs_to_stderr(level: str | None = None, file: str | None = None) -> None:
    """Give all loggers and Python's warnings one destination, unless the program has set up its own.

    The level is the argument's, else that of COUPLER_LOG, else warning.
    """
    chosen = (level or os.environ.get(VARIABLE) or "warning").lower()
    if chosen not in LEVELS:
        raise LogSettingError(f"the log level {chosen!r} is unknown: use one of {', '.join(LEVELS)}")
    root = logging.getLogger()
    if root.handlers and level is None and file is None:
        return
    handler = _file_handler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    root.addHandler(handler)
    root.setLevel(chosen.upper())
    logging.captureWarnings(True)


def _file_handler(file: str) -> logging.Handler:
    try:
        return logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        raise LogSettingError(f"the log file {file} cannot be written: {error.strerror}") from None

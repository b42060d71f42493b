"""Sends logs to stderr from the first line on, or to a file that only its owner can read.

`logging` is imported on use, because the settings are checked before an editor's first answer.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

LEVELS = ("debug", "info", "warning", "error", "critical")
VARIABLE = "COUPLER_LOG"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogSettingError(ValueError):
    """The level or the file for logs cannot be used."""


def log_level(given: str | None = None) -> str:
    """The level that was given, else that of COUPLER_LOG, else warning."""
    chosen = (given or os.environ.get(VARIABLE) or "warning").lower()
    if chosen not in LEVELS:
        raise LogSettingError(f"the log level {chosen!r} is unknown: use one of {', '.join(LEVELS)}")
    return chosen


def check_log_file(file: str) -> None:
    """Raise if logs cannot be written to this file."""
    try:
        with open(file, "a", encoding="utf-8", opener=open_private):
            return
    except OSError as error:
        raise LogSettingError(f"the log file {file} cannot be written: {error.strerror}") from None


def open_private(path: str, flags: int) -> int:
    """Open a file of which only its owner may see anything; an `opener` for `open`.

    A new one is made so, and one that others can read is closed to them, if it is ours and no device or pipe.
    """
    descriptor = os.open(path, flags, 0o600)
    if os.name == "posix":
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            with suppress(PermissionError):  # somebody else's, who decides who reads it
                os.fchmod(descriptor, 0o600)
    return descriptor


def send_logs_to_stderr(level: str | None = None, file: str | None = None) -> None:
    """Give all loggers and Python's warnings one destination, unless the program has set up its own."""
    import logging

    # To a program's own logs as well: what is a log can be kept free of secrets.
    logging.captureWarnings(True)
    chosen = log_level(level)
    root = logging.getLogger()
    if root.handlers and level is None and file is None:
        return
    handler = _file_handler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    root.addHandler(handler)
    root.setLevel(chosen.upper())


def _file_handler(file: str) -> logging.Handler:
    import logging

    class PrivateFileHandler(logging.FileHandler):
        def _open(self) -> Any:
            return open(self.baseFilename, self.mode, encoding=self.encoding, opener=open_private)

    check_log_file(file)
    return PrivateFileHandler(file, encoding="utf-8")

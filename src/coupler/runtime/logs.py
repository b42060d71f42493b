"""Sends logs to stderr from the first line on, or to a file that only its owner can read.

Coupler's own loggers write a limited number of lines of a kind, and none that is very long: a peer can cause
nearly all that they say, as often as it likes. `logging` is imported on use, because the settings are
checked before an editor's first answer.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

LEVELS = ("debug", "info", "warning", "error", "critical")
VARIABLE = "COUPLER_LOG"
_PARTS = "agent cli client coder doctor langchain mcp permission providers relay schema store wire workflow"
LOGGERS = tuple(f"coupler.{part}" for part in _PARTS.split())
"""The loggers of Coupler, all of which are limited."""

LINES_OF_A_KIND = 50
"""Lines of a kind that are logged within a period; then only those whose number is a power of two."""

PERIOD = 60.0
"""Seconds after which the lines of a kind are counted anew."""

MAX_KINDS = 1000
"""Kinds of lines that are counted; with more, all are counted anew."""

MAX_MESSAGE = 4096
"""Characters of a message in a log."""

MAX_TRACEBACK = 32 * 1024
"""Characters of a traceback in a log."""

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
    handler.setFormatter(clean_formatter(_FORMAT))
    root.addHandler(handler)
    root.setLevel(chosen.upper())


def clean_formatter(format: str) -> logging.Formatter:
    """Make a formatter whose lines no terminal obeys: logs quote agents, programs and their files."""
    import logging

    from coupler.runtime.terminal_text import clean_sentence

    class CleanFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return clean_sentence(super().format(record))

    return CleanFormatter(format)


def _file_handler(file: str) -> logging.Handler:
    import logging

    class PrivateFileHandler(logging.FileHandler):
        def _open(self) -> Any:
            return open(self.baseFilename, self.mode, encoding=self.encoding, opener=open_private)

    check_log_file(file)
    return PrivateFileHandler(file, encoding="utf-8")


def limit_logs() -> LogLimit:
    """Limit how much Coupler's loggers write, whatever handles their records; may be called again."""
    import logging

    for name in LOGGERS:
        logging.getLogger(name).addFilter(_limit)
    return _limit


class LogLimit:
    """A filter for loggers: counts the records of a kind, lets some of them pass, and shortens those."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, object], int] = {}
        self._since = time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged; the text of one that stands for others says so."""
        now = time.monotonic()
        if now - self._since >= PERIOD or len(self._counts) > MAX_KINDS:
            self.start_anew()
        kind = (record.name, record.levelno, record.msg if isinstance(record.msg, str) else record.lineno)
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count > LINES_OF_A_KIND and count & (count - 1):
            return False
        _shorten(
            record, f" ({count} like this by now, most are not logged)" if count > LINES_OF_A_KIND else ""
        )
        return True

    def start_anew(self) -> None:
        """Forget what was counted: a new period begins."""
        self._counts.clear()
        self._since = time.monotonic()


_limit = LogLimit()


def _shorten(record: logging.LogRecord, note: str) -> None:
    try:
        text = record.getMessage()
    except Exception:  # whatever the arguments raise: the handler reports it in its own way
        return
    if len(text) > MAX_MESSAGE or note:
        record.msg, record.args = _cut(text, MAX_MESSAGE) + note, ()
    if record.exc_info and not record.exc_text:
        import traceback

        told = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        if len(told) > MAX_TRACEBACK:
            record.exc_text = _cut(told, MAX_TRACEBACK)


def _cut(text: str, limit: int) -> str:
    """Keep both ends of a long text: a traceback has its cause at the end."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]} … {len(text) - limit} characters are left out … {text[-limit // 2 :]}"

"""Secrets in logs: the formatter in front of a handler, and what a handler says when it fails.

`coupler.runtime.logs` stands below this layer and knows nothing of secrets; who knows them calls `mask_logs`.
"""

from __future__ import annotations

import contextlib
import logging
import sys

from coupler.secrets.masker import Masker

_PLAIN = logging.Formatter()


def mask_logs(handler: logging.Handler, masker: Masker) -> None:
    """Mask all that this handler writes from now on, tracebacks too. A later call replaces the masker."""
    formatter = handler.formatter
    if isinstance(formatter, MaskedFormatter):
        formatter.masker = masker
        return
    handler.setFormatter(MaskedFormatter(formatter or _PLAIN, masker))
    # The default prints the message and its arguments as they are.
    handler.handleError = _tell_of_failure  # type: ignore[method-assign]


class MaskedFormatter(logging.Formatter):
    """Masks what another formatter made of a record. The record stays as it is, for other handlers."""

    def __init__(self, formatter: logging.Formatter, masker: Masker) -> None:
        super().__init__()
        self.masker = masker
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        try:
            text = self._formatter.format(record)
        except Exception as error:
            # Any error may come from the arguments, and its traceback would show them.
            text = f"a log message cannot be formatted ({_place(record)}): {type(error).__name__}"
        return self.masker.mask(text)


def _tell_of_failure(record: logging.LogRecord) -> None:
    """Say that a record was lost, in place of `Handler.handleError`, and nothing of what it said."""
    if not logging.raiseExceptions or sys.stderr is None:
        return
    kind = sys.exc_info()[0]
    reason = kind.__name__ if kind else "unknown error"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"a log message cannot be written ({_place(record)}): {reason}\n")


def _place(record: logging.LogRecord) -> str:
    return f"logger {record.name}, {record.module} line {record.lineno}"

"""Masks secrets in logs and in Python's own reports of errors.

`install_log_redaction` is for a process that `serve` has to itself; `serve_async` leaves the logging of its
program alone. `coupler.runtime.logs` stands below this layer and knows nothing of secrets.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

from coupler.redaction.known_secrets import process_masker
from coupler.runtime.terminal_text import clean

if TYPE_CHECKING:
    from coupler.redaction.masker import Masker

_PLAIN = logging.Formatter()


def install_log_redaction() -> None:
    """Mask secrets in all handlers and in Python's own reports of errors from now on."""
    make_record = logging.getLogRecordFactory()

    def filter_and_make_record(name: str, *parts: Any, **more: Any) -> logging.LogRecord:
        # Targets and libraries bring handlers of their own at any time; a record comes before it is handled.
        _add_filters(name)
        return make_record(name, *parts, **more)

    if getattr(make_record, "__name__", "") != filter_and_make_record.__name__:
        logging.setLogRecordFactory(filter_and_make_record)
    if logging.lastResort is not None:
        _add_filter(logging.lastResort)
    _mask_uncaught_errors()


def mask_handler(handler: logging.Handler, masker: Masker) -> None:
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


def _add_filters(name: str) -> None:
    logger = logging.root.manager.loggerDict.get(name, logging.root)
    current: logging.Logger | None = logger if isinstance(logger, logging.Logger) else logging.root
    while current is not None:
        for handler in current.handlers:
            _add_filter(handler)
        current = current.parent


def _add_filter(handler: logging.Handler) -> None:
    if not any(isinstance(each, _MaskingFilter) for each in handler.filters):
        handler.addFilter(_MaskingFilter(handler))


class _MaskingFilter(logging.Filter):
    """Sees each record before it is formatted, and keeps the masker of the handler's formatter up to date."""

    def __init__(self, handler: logging.Handler) -> None:
        super().__init__()
        self._handler = handler
        self._masker: Masker | None = None
        self._formatter: logging.Formatter | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        masker = process_masker()
        # Somebody may have given the handler another formatter.
        if masker is not self._masker or self._handler.formatter is not self._formatter:
            mask_handler(self._handler, masker)
            self._masker, self._formatter = masker, self._handler.formatter
        return True


def _mask_uncaught_errors() -> None:
    """Mask what Python writes to stderr of errors that nobody caught, also in threads and destructors."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = lambda *error: _tell("", *error)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _tell_of_thread
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _tell_of_unraisable


def _tell_of_thread(report: threading.ExceptHookArgs) -> None:
    if report.exc_type is not SystemExit:
        name = report.thread.name if report.thread is not None else "unknown"
        _tell(f"Exception in thread {name}:\n", report.exc_type, report.exc_value, report.exc_traceback)


def _tell_of_unraisable(report: sys.UnraisableHookArgs) -> None:
    where = f"{report.err_msg or 'Exception ignored in'}: {_shown(report.object)}\n"
    _tell(where, report.exc_type, report.exc_value, report.exc_traceback)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<what cannot be shown: {type(error).__name__}>"


def _tell(
    where: str, kind: type[BaseException], error: BaseException | None, trace: types.TracebackType | None
) -> None:
    import traceback

    if sys.stderr is not None:
        told = "".join(traceback.format_exception(kind, error, trace))
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(process_masker().mask(clean(where + told)))
            sys.stderr.flush()


def _tell_of_failure(record: logging.LogRecord) -> None:
    """Report in place of `Handler.handleError` that a record was lost, and nothing of what it said."""
    if not logging.raiseExceptions or sys.stderr is None:
        return
    kind = sys.exc_info()[0]
    reason = kind.__name__ if kind else "unknown error"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"a log message cannot be written ({_place(record)}): {reason}\n")


def _place(record: logging.LogRecord) -> str:
    return f"logger {record.name}, {record.module} line {record.lineno}"

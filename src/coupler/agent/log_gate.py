"""Logs without any secret: a gate in front of every handler, and Python's own reports of errors.

It is for a process that `serve` has to itself; `serve_async` leaves the logging of its program alone.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

from coupler.agent.known_secrets import process_masker

if TYPE_CHECKING:
    from coupler.secrets.masker import Masker


def keep_secrets_from_logs() -> None:
    """Let handlers and Python's own reports of errors write nothing secret from now on."""
    make_record = logging.getLogRecordFactory()

    def make_gates_and_record(name: str, *parts: Any, **more: Any) -> logging.LogRecord:
        # Targets and libraries bring handlers of their own at any time; a record comes before it is handled.
        _make_gates(name)
        return make_record(name, *parts, **more)

    if getattr(make_record, "__name__", "") != make_gates_and_record.__name__:
        logging.setLogRecordFactory(make_gates_and_record)
    if logging.lastResort is not None:
        _make_gate(logging.lastResort)
    _mask_reports()


def _make_gates(name: str) -> None:
    logger = logging.root.manager.loggerDict.get(name, logging.root)
    current: logging.Logger | None = logger if isinstance(logger, logging.Logger) else logging.root
    while current is not None:
        for handler in current.handlers:
            _make_gate(handler)
        current = current.parent


def _make_gate(handler: logging.Handler) -> None:
    if not any(isinstance(each, _Gate) for each in handler.filters):
        handler.addFilter(_Gate(handler))


class _Gate(logging.Filter):
    """Sees each record before it is formatted, and has the handler's formatter hide what is secret by now."""

    def __init__(self, handler: logging.Handler) -> None:
        super().__init__()
        self._handler = handler
        self._masker: Masker | None = None
        self._formatter: logging.Formatter | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        masker = process_masker()
        # Somebody may have given the handler another formatter.
        if masker is not self._masker or self._handler.formatter is not self._formatter:
            from coupler.secrets.logs import mask_logs

            mask_logs(self._handler, masker)
            self._masker, self._formatter = masker, self._handler.formatter
        return True


def _mask_reports() -> None:
    """Errors that nobody caught, in a thread or while an object was deleted, are told on stderr."""
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
            sys.stderr.write(process_masker().mask(where + told))
            sys.stderr.flush()

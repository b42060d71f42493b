"""Tables of cases that are one test: every row is tried, and the test reports all that fail.

    @table("text, value", [("1", 1), ("x", None)])
    def test_a_number_is_read(text, value):
        assert number(text) == value

A thousand collected tests cost half a minute of processor time before one runs. So a table of pure cases is
no `parametrize`: its rows share the fixtures of the test, and must leave nothing behind for the next row.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

LONGEST = 2000
"""Characters of what is told of one row."""


def table(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Sequence[str] | Callable[[Any], Any] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, for rows that one test can go through."""
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    cases = [_values(row, len(columns)) for row in rows]
    labels = [*ids] if ids is not None and not callable(ids) else [None] * len(cases)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        fixtures = [each for name, each in signature.parameters.items() if name not in columns]

        @functools.wraps(function)
        def try_every_row(*self: Any, **given: Any) -> None:
            failed: list[str] = []
            skipped: list[str] = []
            for label, values in zip(labels, cases, strict=True):
                row = dict(zip(columns, values, strict=True))
                try:
                    function(*self, **given, **row)
                except pytest.skip.Exception as skip:
                    skipped.append(str(skip))
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(_told(label or row, error))
            if failed:
                pytest.fail(f"{len(failed)} of {len(cases)} rows:\n\n" + "\n\n".join(failed), pytrace=False)
            if skipped and len(skipped) == len(cases):
                pytest.skip(skipped[0])

        try_every_row.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return try_every_row

    return decorate


def _values(row: Any, columns: int) -> tuple[Any, ...]:
    if hasattr(row, "values") and hasattr(row, "marks"):  # pytest.param
        assert not row.marks, "a row of a table has no marks: make it a test"
        return tuple(row.values)
    return (row,) if columns == 1 else tuple(row)


def _told(row: object, error: BaseException) -> str:
    """A row, where it failed, and why."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    why = "".join(traceback.format_exception_only(error)).strip()
    return f"{row!r:.{LONGEST}}\n{place}\n{why:.{LONGEST}}"

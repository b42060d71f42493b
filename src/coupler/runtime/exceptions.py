"""Tells people what went wrong, also if it comes in exception groups.

Task groups wrap what was raised in them, and such a group's own text says only how many errors there were.
"""

from __future__ import annotations

from collections.abc import Iterator

MOST_CAUSES = 5
"""Exceptions of one group that a text names."""

_TASK_GROUP_MESSAGE = "unhandled errors in a TaskGroup"
"""The message of the groups that asyncio and anyio raise."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group and of the groups in it; one that is no group is its own cause."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from causes(each)
    else:
        yield error


def innermost(error: BaseException) -> BaseException:
    """Return the first cause: that which ended the task group, unless several came in the same moment."""
    return next(causes(error))


def only_cause(error: BaseException) -> BaseException:
    """Return the exception that a group is about, or the group itself if there are several."""
    found = [*causes(error)]
    return found[0] if len(found) == 1 else error


def exception_text(error: BaseException, *, is_typed: bool = True) -> str:
    """Return the type and the message of an exception, even if `str` fails; without the type on request.

    Of a group, those of its causes, after the group's own message if somebody has written one. An exception
    without a message is named by its type in any case.
    """
    if not isinstance(error, BaseExceptionGroup):
        return _text(error, is_typed=is_typed)
    shown = error.exceptions[:MOST_CAUSES]
    texts = [*dict.fromkeys(exception_text(each, is_typed=is_typed) for each in shown)]
    if len(error.exceptions) > MOST_CAUSES:
        texts.append(f"and {len(error.exceptions) - MOST_CAUSES} more")
    own = "" if not error.message or error.message == _TASK_GROUP_MESSAGE else f"{error.message}: "
    return f"{own}{'; '.join(texts)}"


def _text(error: BaseException, *, is_typed: bool) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as fault:
        text = f"<its text cannot be shown: {type(fault).__name__}>"
    if not text:
        return name
    return f"{name}: {text}" if is_typed else text

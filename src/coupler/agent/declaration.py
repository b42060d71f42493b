"""What agents declare (modes, options, commands), checked where it is written.

A mistake is found when the agent starts, not when a client chokes on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from coupler.agent.text import plain_text

T = TypeVar("T")


def declared_text(value: object, what: str) -> str:
    """The value if it is text that a client can show and send back as it is.

    The wire replaces unpaired surrogates, so an id with one would come back as another id.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} is text that is not blank, not {value!r:.100}")
    if not _is_encodable(value):
        raise ValueError(f"{what} has an unpaired surrogate, take it out: {value!r:.100}")
    return plain_text(value, what)


def declared_or_none(value: object, what: str) -> str | None:
    """The same for text that can be left out, by None or by an empty string."""
    return None if value is None or value == "" else declared_text(value, what)


def declared_list(
    values: Iterable[T], kinds: tuple[type[T], ...], identify: Callable[[T], str], what: str
) -> tuple[T, ...]:
    """The values as a tuple if all are of these kinds and no two have the same id."""
    kind = " or ".join(kind.__name__ for kind in kinds)
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{what} are a list of {kind}, not {values!r:.100}")
    declared = tuple(values)
    for value in declared:
        if not isinstance(value, kinds):
            raise ValueError(f"{what} are a list of {kind}; make {value!r:.100} one")
    _refuse_doubles((identify(value) for value in declared), what)
    return declared


def _refuse_doubles(ids: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            raise ValueError(f"two {what} are called {each!r:.100}: rename one of them or take it out")
        seen.add(each)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Which sessions a command is about: the store that has them, and the ones that its arguments mean."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coupler.cli.exit_codes import FAILED
from coupler.cli.kept import kept_store
from coupler.cli.refusal import complain, refuse
from coupler.cli.sessions.wording import SESSION, count, one_line, short_agent, short_id
from coupler.cli.unshown import shown_title

if TYPE_CHECKING:
    from coupler.store.sessions import SessionRecord
    from coupler.store.store import BlockingStore

PROGRAM = "coupler sessions"

SHORTEST_PREFIX = 4
"""Characters of an id, without its beginning, that are taken as one."""

PAGE = 500
MOST_CANDIDATES = 5

SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

Filter = Callable[["SessionRecord"], bool]


@contextmanager
def opened(path: str | None) -> Iterator[BlockingStore | None]:
    """The store, or None if there is none yet."""
    with kept_store(path, PROGRAM) as store:
        yield None if store is None else store.blocking


def all_sessions(store: BlockingStore, *, include_empty: bool) -> Iterator[SessionRecord]:
    """Every session, the newest first; a broken row is told of and left out."""
    cursor: str | None = None
    while True:
        page = store.page(None, cursor=cursor, limit=PAGE, include_empty=include_empty)
        for record in page.records:
            if _is_sound(record):
                yield record
            else:
                name = one_line(str(record.id))
                complain(f"the row of the session {name} is broken, and left out", PROGRAM)
        cursor = page.next_cursor
        if cursor is None:
            return


def _is_sound(record: SessionRecord) -> bool:
    try:
        msgspec.convert(msgspec.structs.asdict(record), type(record))
    except msgspec.ValidationError:
        return False
    return True


def find(store: BlockingStore | None, given: str) -> SessionRecord:
    """The session that an id or the beginning of one means; ends the command if there is not exactly one."""
    found = find_or_complaint(store, given)
    if isinstance(found, str):
        refuse(found, PROGRAM, FAILED)
    return found


def find_or_complaint(store: BlockingStore | None, given: str) -> SessionRecord | str:
    """The session, or what is wrong with its id."""
    # What is no text, as a command line may have it, is no id either.
    given = given.encode("utf-8", "replace").decode()
    exact = store.find(given) if store is not None else None
    if exact is not None:
        return exact if _is_sound(exact) else f"the row of the session {given} is broken: it cannot be read"
    beginning = given.removeprefix(SESSION)
    if len(beginning) < SHORTEST_PREFIX or SESSION.startswith(given):
        refuse(
            f"{given!r} is too short for a session's id: give at least {SHORTEST_PREFIX} characters of it",
            PROGRAM,
        )
    candidates = [] if store is None else _candidates(store, given)
    if len(candidates) > 1:
        return _ambiguous(given, candidates)
    # Once more, because a list leaves out the agents' states.
    found = store.find(candidates[0].id) if store is not None and candidates else None
    return found or f"there is no session {given}: `coupler sessions list --all` shows those there are"


def _candidates(store: BlockingStore, given: str) -> list[SessionRecord]:
    beginnings = (given, f"{SESSION}{given.lower()}")
    return [record for record in all_sessions(store, include_empty=True) if record.id.startswith(beginnings)]


def _ambiguous(given: str, candidates: Sequence[SessionRecord]) -> str:
    named = [
        f"{each.id} ({one_line(shown_title(each))})" if each.title else each.id
        for each in candidates[:MOST_CANDIDATES]
    ]
    rest = len(candidates) - len(named)
    more = f" and {rest:,} more" if rest else ""
    return f"{given} is the beginning of {count(len(candidates), 'session')}: {', '.join(named)}{more}"


def by_agent(text: str) -> Filter:
    """Sessions of an agent by its whole identity, or by a part of its short name."""
    wanted = text.casefold()
    return lambda record: text == record.agent or wanted in short_agent(record.agent).casefold()


def by_directory(path: str) -> Filter:
    """Sessions of a directory, whichever way a link leads to it."""

    @cache
    def real(directory: str) -> str:
        try:
            return os.path.realpath(directory)
        except (OSError, ValueError):
            return directory

    return lambda record: real(record.cwd) == real(str(Path(path).expanduser()))


def by_age(seconds: int) -> Filter:
    """Sessions in which nothing has happened for so long."""
    limit = (time.time() - seconds) * 1000
    return lambda record: record.updated_at < limit


def never_prompted(record: SessionRecord) -> bool:
    """Whether a client opened the session and left it."""
    return record.turns == 0


def seconds_of(duration: str) -> int:
    """How long `30d` is; raises ValueError for what is no duration."""
    match = re.fullmatch(r"(\d{1,6})([mhdw])", duration.strip().lower(), re.ASCII)
    if match is None:
        raise ValueError(f"{duration!r} is no age: write it as 12h, 30d or 8w")
    return int(match[1]) * SECONDS[match[2]]


def describe(record: SessionRecord) -> str:
    """A session in a few words."""
    title = one_line(shown_title(record)) or "(no title)"
    return f"{short_id(record.id)}  {title}  ({count(record.turns, 'turn')}, {short_agent(record.agent)})"

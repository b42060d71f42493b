"""Deletes sessions and runs for good: for `coupler sessions delete` and `coupler runs delete`.

Whoever has not said --yes is asked first, and the store's file is smaller afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from coupler.cli.exit_codes import print_error
from coupler.cli.output import say
from coupler.cli.terminal import confirm_or_refuse
from coupler.config.shapes import parse_age
from coupler.runtime.formatting import count, size

if TYPE_CHECKING:
    from coupler.store.store import BlockingStore


WORTH_TELLING = 16 * 1024 * 1024
"""Bytes that stay free in the store's file from which on it is told why."""

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Record(Protocol):
    """A session or a run."""

    @property
    def id(self) -> str: ...


RecordT = TypeVar("RecordT", bound=Record)


def older_than_option(command: CommandT) -> CommandT:
    """Adds --older-than, whose value is a number of seconds."""
    return click.option(
        "--older-than",
        callback=_age,
        metavar="AGE",
        help="Delete those that were not used for this long: 12h, 30d, 8w.",
    )(command)


def yes_option(command: CommandT) -> CommandT:
    """Adds --yes."""
    return click.option("--yes", is_flag=True, help="Do not ask.")(command)


def _age(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return parse_age(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def find_each(
    given: Iterable[str], find: Callable[[str], RecordT | str], program: str
) -> tuple[list[RecordT], int]:
    """Finds what ids mean, each once; also returns how many mean nothing, after telling why."""
    chosen: dict[str, RecordT] = {}
    problems = 0
    for each in given:
        found = find(each)
        if isinstance(found, str):
            print_error(found, program)
            problems += 1
        else:
            chosen[found.id] = found
    return [*chosen.values()], problems


def confirm_deletion(noun: str, described: Sequence[str], program: str, *, is_sure: bool) -> None:
    """Asks whether what is described may be deleted; a no ends the program."""
    if not is_sure:
        question, declined = f"Delete {count(len(described), noun)} for good?", "nothing was deleted"
        confirm_or_refuse(question, program, to="delete", declined=declined, listed=described)


def delete_each(noun: str, ids: Iterable[str], delete: Callable[[str], bool], program: str) -> int:
    """Deletes what still fits, since the answer may have taken hours; returns how many failed."""
    from coupler.store.errors import StoreError

    deleted = problems = 0
    try:
        for each in ids:
            try:
                deleted += delete(each)
            except StoreError as error:
                if error.kind != "held":
                    raise
                print_error(str(error), program)
                problems += 1
    finally:
        # Also when the store fails on the way.
        say(f"{count(deleted, noun)} deleted.")
    return problems


def shrink_store(store: BlockingStore, program: str) -> None:
    """Removes what was deleted from the store's file, which gets smaller; tells if it cannot just now."""
    left = store.purge()
    if left >= WORTH_TELLING:
        print_error(
            f"{size(left)} stay free in the store's file, for later sessions, because other Coupler "
            "processes use it: to make it smaller, end them and run this again",
            program,
        )

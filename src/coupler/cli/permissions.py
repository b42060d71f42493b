"""`coupler permissions`: lists and withdraws the answers that are remembered for projects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from coupler.cli.exit_codes import FAILED, print_error, refuse
from coupler.cli.listing import Column, Listing, json_option
from coupler.cli.output import say, tell
from coupler.cli.store_access import blocking_store, store_option
from coupler.cli.terminal import confirm_or_refuse, local_time, short_directory
from coupler.redaction.known_secrets import masker_for
from coupler.runtime.formatting import count, timestamp
from coupler.runtime.terminal_text import one_line

if TYPE_CHECKING:
    from coupler.store.choices import ChoiceRecord
    from coupler.store.store import BlockingStore


PROGRAM = "coupler permissions"

ANSWERS = {"allow": "allow", "deny": "reject"}
"""Words for a remembered effect, as in the question that was answered."""


@click.group(
    short_help="List and withdraw what you always allow or reject.",
    context_settings={"max_content_width": 80},
)
def permissions() -> None:
    """List and withdraw what you always allow or reject in a project.

    These are the answers to agents' questions that hold for a project. Those
    that hold for a session end with it, and are not listed. Rules are written
    in coupler.toml.

    \b
    Examples:
      coupler permissions list
      coupler permissions forget "execute(git commit *)"

    Exit codes: 0 if all went well, 1 if something could not be done or the
    answer was no, 2 for wrong usage.
    """


@permissions.command("list", short_help="List what is remembered, the oldest first.")
@click.option("--project", metavar="DIR", help="Only for the project that this directory is in.")
@json_option
@store_option
def list_choices(project: str | None, is_json: bool, store: str | None) -> None:
    """List what is remembered, project by project, the oldest first.

    On a terminal it is a table. To a pipe it writes one choice a line, with tabs
    between project, allow or reject, what it is about, and when it was made.

    \b
    Examples:
      coupler permissions list
      coupler permissions list --project . --json
    """
    with blocking_store(store, PROGRAM) as kept:
        chosen = _sorted(_choices(kept, project))
    LISTING.show(chosen, is_json=is_json)
    if not chosen:
        tell(_nothing(project))


def _nothing(project: str | None) -> str:
    if project is None:
        return "Nothing is remembered yet: answers such as `Always allow … in this project` are."
    return f"Nothing is remembered for {one_line(project)}: leave out --project to see the other projects."


@permissions.command(short_help="Withdraw what is remembered for a project.")
@click.argument("rule", metavar="[RULE]", required=False)
@click.option("--project", metavar="DIR", help="The project that this directory is in.  [default: .]")
@click.option("--all", "is_all", is_flag=True, help="Everything that is remembered for the project.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@store_option
def forget(rule: str | None, project: str | None, is_all: bool, is_sure: bool, store: str | None) -> None:
    """Withdraw one answer, or with --all everything of a project.

    RULE is what `coupler permissions list` shows: "execute(git commit *)". The
    next time, agents ask again; that holds for running ones, too.

    \b
    Examples:
      coupler permissions forget "execute(git commit *)"
      coupler permissions forget --all --yes
    """
    if (rule is not None) == is_all:
        refuse(
            "say what to forget: either one RULE, as `coupler permissions list` shows it, or --all", PROGRAM
        )
    directory = project if project is not None else "."
    with blocking_store(store, PROGRAM) as kept:
        own = _choices(kept, directory)
        chosen = own if rule is None else [record for record in own if _is_meant(record, rule)]
        if not chosen:
            refuse(_why_unknown(kept, directory, rule, own), PROGRAM, FAILED)
        if is_all and not is_sure:
            confirm_or_refuse(
                f"Forget {count(len(chosen), 'choice')}?",
                PROGRAM,
                to="forget",
                declined="nothing was forgotten",
                heading=one_line(chosen[0].project),
                listed=[f"{ANSWERS[each.effect]:<6}  {_rule(each)}" for each in chosen],
            )
        assert kept is not None
        forgotten = sum(kept.forget_choices(each.project, each.subject, each.pattern) for each in chosen)
    say(f"{count(forgotten, 'choice')} forgotten.")


def _is_meant(record: ChoiceRecord, rule: str) -> bool:
    return one_line(rule) == _rule(record)


def _why_unknown(
    store: BlockingStore | None, directory: str, rule: str | None, own: Sequence[ChoiceRecord]
) -> str:
    """Says why there is nothing to forget, and where it would be found."""
    if rule is None:
        return f"nothing is remembered for {directory}: `coupler permissions list` shows what is"
    from difflib import get_close_matches

    wrong = f"`{one_line(rule)}` is not remembered for {directory}"
    near = get_close_matches(one_line(rule), [_rule(record) for record in own], n=1, cutoff=0.8)
    if near:
        return f"{wrong}: did you mean `{near[0]}`?"
    for record in _choices(store, None):
        if _is_meant(record, rule):
            return f"{wrong}, but for {one_line(record.project)}: name that with --project"
    return f"{wrong}: `coupler permissions list` shows what is"


def _choices(store: BlockingStore | None, directory: str | None) -> list[ChoiceRecord]:
    """The choices remembered for the project that a directory is in, or for all; broken rows are told of."""
    if store is None:
        return []
    if directory is None:
        return _intact(store.choices())
    # A directory that is gone, or was a project of its own once, is still found by its name.
    own = os.path.realpath(directory).encode("utf-8", "replace").decode()
    return _intact(store.choices(own)) or _intact(store.choices(_project_of(own)))


def _project_of(directory: str) -> str:
    from coupler.config import ConfigError
    from coupler.config.lookup import project_directory

    try:
        return project_directory(directory, os.environ)
    except (ConfigError, ValueError):
        return directory


def _intact(records: Sequence[ChoiceRecord]) -> list[ChoiceRecord]:
    return [record for record in records if _is_intact(record)]


def _is_intact(record: ChoiceRecord) -> bool:
    """True if the row is one that Coupler wrote."""
    texts = (record.project, record.subject, record.pattern)
    if all(isinstance(text, str) for text in texts) and isinstance(record.made_at, int):
        return True
    print_error("a row of the remembered choices is broken, and left out", PROGRAM)
    return False


def _sorted(records: Sequence[ChoiceRecord]) -> list[ChoiceRecord]:
    """Sorts choices by project; in each they keep their order."""
    return sorted(records, key=lambda record: record.project)


def _rule(record: ChoiceRecord) -> str:
    """The choice as a rule is written, in one line."""
    return one_line(_text(record))


def _text(record: ChoiceRecord) -> str:
    shown = masker_for(record.project).mask(record.pattern or "")
    return f"{record.subject}({shown})" if shown else record.subject


def _cells(record: ChoiceRecord) -> tuple[str, ...]:
    directory = short_directory(record.project)
    return ANSWERS[record.effect], _rule(record), directory, local_time(record.made_at)


def _fields(record: ChoiceRecord) -> tuple[str, ...]:
    return record.project, ANSWERS[record.effect], _rule(record), timestamp(record.made_at) or "-"


def _as_json(record: ChoiceRecord) -> dict[str, Any]:
    return {
        "project": record.project,
        "answer": ANSWERS[record.effect],
        "rule": _text(record),
        "made_at": timestamp(record.made_at),
    }


LISTING: Listing[ChoiceRecord] = Listing(
    (
        Column("ANSWER", {"allow": "green", "reject": "red"}),
        Column("RULE"),
        Column("PROJECT", share=1, overflow="cut left"),
        Column("MADE", "dim"),
    ),
    _cells,
    _fields,
    _as_json,
)

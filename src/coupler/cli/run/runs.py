"""`coupler runs`: lists, shows, follows, cancels and deletes the runs of workflows."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coupler.cli.deletion import (
    confirm_deletion,
    delete_each,
    find_each,
    older_than_option,
    shrink_store,
    yes_option,
)
from coupler.cli.exit_codes import DONE, FAILED, refuse
from coupler.cli.listing import json_option, limit_option, note_rest
from coupler.cli.output import say, stdout, tell
from coupler.cli.run.run_log import STATUSES, RunLogWriter, read_log
from coupler.cli.run.run_page import LISTING, run_lines, status_of
from coupler.cli.store_access import store_option, store_or_exit
from coupler.cli.terminal import ago
from coupler.redaction.known_secrets import masker_for
from coupler.runtime.formatting import count
from coupler.runtime.terminal_text import one_line

if TYPE_CHECKING:
    from coupler.store.runs import BlockingRuns, RunRecord
    from coupler.store.store import Store


PROGRAM = "coupler runs"

PATIENCE = 30.0
"""Seconds in which a run that is told so ends: programs and hooks have 5 each."""

CANCEL_POLL = 0.05


@click.group(
    short_help="List, read, follow, cancel and delete runs of workflows.",
    context_settings={"max_content_width": 80},
)
def runs() -> None:
    """List, read, follow, cancel and delete the runs of workflows.

    RUN is a run's id or the beginning of one.

    \b
    Examples:
      coupler runs list
      coupler runs logs review-7f3k2 --follow

    Exit codes: 0 if all went well, 1 if something could not be done, 2 for
    wrong usage.
    """


@runs.command("list", short_help="List runs, the newest first.")
@click.option("--cwd", metavar="PATH", help="Only those of this directory.")
@click.option("--status", type=click.Choice(STATUSES), help="Only those that stand so.")
@limit_option
@json_option
@store_option
def list_runs(cwd: str | None, status: str | None, limit: int, is_json: bool, store: str | None) -> None:
    """List runs, the newest first.

    A run is interrupted if its process died before its end.

    On a terminal it is a table. To a pipe it writes one run a line, with tabs
    between id, start, status, seconds, workflow and directory.

    \b
    Examples:
      coupler runs list --status failed
      coupler runs list --cwd . --limit 5 --json
    """
    with store_or_exit(store, PROGRAM) as kept:
        chosen = [] if kept is None else _matching(kept.runs.blocking, cwd, status)
    LISTING.show(chosen[:limit], is_json=is_json)
    if not chosen:
        tell(_nothing(is_filtered=bool(cwd or status)))
    note_rest(len(chosen) - limit, "run", f"--limit {len(chosen)}")


def _matching(kept: BlockingRuns, cwd: str | None, status: str | None) -> list[RunRecord]:
    chosen = [record for record in kept.find_all() if status in (None, status_of(record))]
    if cwd is None:
        return chosen
    wanted = os.path.realpath(Path(cwd).expanduser())
    return [record for record in chosen if os.path.realpath(record.cwd) == wanted]


def _nothing(*, is_filtered: bool) -> str:
    if is_filtered:
        return "No run fits: leave out --cwd and --status to see the others."
    return "No workflow was run yet: `coupler run` runs one."


@runs.command(short_help="Read how a run went, step by step.")
@click.argument("id", metavar="RUN")
@click.option(
    "--full", is_flag=True, help="Show all steps of long loops, and all lines of steps that were cut off."
)
@store_option
def show(id: str, full: bool, store: str | None) -> None:
    """Read how a run went: its steps, its outputs, what went wrong, and how to resume it.

    Below a step that was cancelled, or whose time was up, stand the last lines
    that it wrote: | from stdout, ! from stderr, > what its agent said.

    \b
    Examples:
      coupler runs show review-7f3k2
      coupler runs show review --full
    """
    with store_or_exit(store, PROGRAM) as kept:
        opened, record = _find_run(kept, id)
        output = stdout()
        for line in run_lines(record, opened, is_full=full):
            output.line(*line)
        output.flush()


@runs.command(short_help="Read or follow what happened in a run.")
@click.argument("id", metavar="RUN")
@click.option("--follow", is_flag=True, help="Go on until the run is over.")
@click.option("--step", metavar="PATH", help="Only of this step, and of what is inside of it.")
@click.option("--json", "is_json", is_flag=True, help="Write one JSON object a line.")
@store_option
def logs(id: str, follow: bool, step: str | None, is_json: bool, store: str | None) -> None:
    """Read what happened in a run, in order.

    PATH is a step as the log names it, such as fixes[2].fix.

    \b
    Examples:
      coupler runs logs review-7f3k2 --follow
      coupler runs logs review-7f3k2 --step 'fixes[2].fix'
    """
    with store_or_exit(store, PROGRAM) as kept:
        opened, record = _find_run(kept, id)
        writer = RunLogWriter(stdout(), masker_for(record.cwd), is_json=is_json)
        found = False
        for logged in read_log(opened, record.id, is_followed=follow, step=step):
            writer.tell(logged)
            found = True
        writer.end()
    if step is not None and not found:
        refuse(
            f"nothing happened at {step}: `coupler runs logs {record.id}` names the steps", PROGRAM, FAILED
        )


@runs.command(short_help="Cancel a run.")
@click.argument("id", metavar="RUN")
@store_option
def cancel(id: str, store: str | None) -> None:
    """Cancel a run.

    One that runs is told to end, as by Ctrl-C, and its end is waited for. One
    that is parked or was interrupted is marked as cancelled.

    \b
    Examples:
      coupler runs cancel review-7f3k2
      coupler runs cancel review
    """
    with store_or_exit(store, PROGRAM) as kept:
        opened, record = _find_run(kept, id)
        trouble = cancel_run(opened, record)
    if trouble is not None:
        refuse(trouble, PROGRAM, FAILED)
    say(f"The run {one_line(record.id)} is cancelled.")


def cancel_run(runs: BlockingRuns, record: RunRecord) -> str | None:
    """Cancels a run and waits for its end; a sentence if that is not possible."""
    from coupler.workflow.journal.runs import end_unheld

    if status_of(record) in ("success", "failed", "cancelled"):
        return f"the run {record.id} is over already: {record.status}"
    if record.pid is None:
        return None if end_unheld(runs, record.id) else f"the run {record.id} was resumed just now: try again"
    if record.session_id is not None:
        return f"the run {record.id} belongs to a session of an editor: cancel it there"
    # The lease says that this process lives and has the run, so the number cannot be another's.
    try:
        os.kill(record.pid, signal.SIGINT)
    except ProcessLookupError:
        pass
    except PermissionError:
        return f"the run {record.id} belongs to a process of another user ({record.pid}): it cannot be told"
    return _wait_for_end(runs, record.id, record.pid)


def _wait_for_end(runs: BlockingRuns, id: str, pid: int) -> str | None:
    from coupler.workflow.journal.runs import end_unheld

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        record = runs.find(id)
        if record is None:
            return f"the run {id} is gone"
        if record.status == "cancelled":
            return None
        if status_of(record) in ("success", "failed"):
            return f"the run {id} was over before it could be cancelled: {record.status}"
        if record.pid is None and end_unheld(runs, id):
            return None
        time.sleep(CANCEL_POLL)
    return f"the process {pid} was told to cancel the run {id}, but has not ended it yet: look again later"


@runs.command(short_help="Delete runs for good.")
@click.argument("ids", nargs=-1, metavar="[RUN]...")
@older_than_option
@click.option(
    "--parked", "with_parked", is_flag=True, help="With --older-than, also those that wait for an answer."
)
@yes_option
@store_option
def delete(
    ids: tuple[str, ...], older_than: int | None, with_parked: bool, yes: bool, store: str | None
) -> None:
    """Delete runs for good, by their ids or by their age.

    A run that a process works on is not deleted. One that is parked waits for
    somebody's answer: it is deleted when you name it, or with --parked. What
    was deleted can be neither read nor resumed. The store's file gets smaller
    by it.

    \b
    Examples:
      coupler runs delete review-7f3k2
      coupler runs delete --older-than 30d --yes
    """
    if bool(ids) == (older_than is not None) or (ids and with_parked):
        refuse("say what to delete: either ids, or --older-than, with --parked or without", PROGRAM)
    with store_or_exit(store, PROGRAM) as kept:
        if ids:
            chosen, problems = find_each(ids, partial(_find_run_or_problem, kept), PROGRAM)
        else:
            assert older_than is not None
            chosen, problems = _unused_since(kept, older_than, with_parked=with_parked), 0
        if chosen:
            confirm_deletion("run", [describe(each) for each in chosen], PROGRAM, is_sure=yes)
            assert kept is not None
            opened = kept.runs.blocking
            unchanged = {each.id: each.updated_at for each in chosen}

            def delete_if_unchanged(id: str) -> bool:
                record = opened.find(id)
                return record is not None and record.updated_at == unchanged[id] and opened.delete(id)

            problems += delete_each("run", unchanged, delete_if_unchanged, PROGRAM)
        elif not ids:
            say("No run fits: nothing was deleted.")
        if kept is not None:
            shrink_store(kept.blocking, PROGRAM)
    sys.exit(FAILED if problems else DONE)


def _unused_since(store: Store | None, seconds: int, *, with_parked: bool) -> list[RunRecord]:
    """The runs in which nothing has happened for so long; tells of those that are left because they wait."""
    limit = (time.time() - seconds) * 1000
    records = [] if store is None else store.runs.blocking.find_all()
    old = [record for record in records if record.updated_at < limit]
    chosen = [record for record in old if with_parked or status_of(record) != "parked"]
    if len(chosen) < len(old):
        parked = count(len(old) - len(chosen), "parked run")
        tell(f"{parked} left, waiting for an answer: add --parked to delete them too")
    return chosen


def describe(record: RunRecord) -> str:
    """Describes a run in a line."""
    status = status_of(record)
    waits = ", waits for an answer" if status == "parked" else ""
    return f"{one_line(record.id)}  {one_line(record.workflow)}  ({status}{waits}, {ago(record.updated_at)})"


def _find_run(store: Store | None, given: str) -> tuple[BlockingRuns, RunRecord]:
    """Finds a run by its id or the beginning of one; ends the command if there is not exactly one."""
    found = _find_run_or_problem(store, given)
    if isinstance(found, str):
        refuse(found, PROGRAM, FAILED)
    assert store is not None
    return store.runs.blocking, found


def _find_run_or_problem(store: Store | None, given: str) -> RunRecord | str:
    """The run, or what is wrong with its id."""
    from coupler.workflow.errors import RunError
    from coupler.workflow.journal.runs import resolve_run_id

    # What is no text, as a command line may have it, is no id either.
    given = given.encode("utf-8", "replace").decode()
    try:
        meant = resolve_run_id(given, [] if store is None else store.runs.blocking.ids())
    except RunError as error:
        return str(error)
    assert store is not None
    return store.runs.blocking.find(meant) or f"the run {meant} is gone"

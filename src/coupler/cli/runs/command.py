"""`coupler runs`: the runs of workflows, to be listed, read, followed and cancelled."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from coupler.cli.exit_codes import FAILED
from coupler.cli.kept import kept_store
from coupler.cli.refusal import refuse
from coupler.cli.sessions.wording import count

if TYPE_CHECKING:
    from coupler.store.runs import BlockingRuns, RunRecord
    from coupler.store.store import Store

PROGRAM = "coupler runs"

USUAL_LIMIT = 20
STATUSES = ("running", "success", "failed", "cancelled", "parked", "interrupted")

Command = TypeVar("Command", bound=Callable[..., Any])


def _store_option(command: Command) -> Command:
    return click.option(
        "--store", metavar="FILE", help="The file that keeps them, if it is not the user's own."
    )(command)


@click.group(
    short_help="List, read, follow and cancel runs of workflows.",
    context_settings={"max_content_width": 80},
)
def runs() -> None:
    """List, read, follow and cancel the runs of workflows.

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
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=USUAL_LIMIT,
    show_default=True,
    metavar="N",
    help="How many to show at most.",
)
@click.option("--json", "is_json", is_flag=True, help="Write one JSON array.")
@_store_option
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
    from coupler.cli.runs.table import write_json, write_lines, write_table

    with kept_store(store, PROGRAM) as kept:
        chosen = [] if kept is None else _matching(kept.runs.blocking, cwd, status)
    output = _forgiving_output()
    shown = chosen[:limit]
    if is_json:
        write_json(shown, output)
    elif not output.isatty():
        write_lines(shown, output)
    elif shown:
        write_table(shown, output)
    output.flush()
    if not chosen:
        sys.stderr.write(f"{_nothing(is_filtered=bool(cwd or status))}\n")
    if len(chosen) > limit:
        sys.stderr.write(f"{count(len(chosen) - limit, 'more run')} not shown: add --limit {len(chosen)}\n")


def _matching(kept: BlockingRuns, cwd: str | None, status: str | None) -> list[RunRecord]:
    from coupler.cli.runs.wording import status_of

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
@click.option("--full", is_flag=True, help="Show all steps of long loops.")
@_store_option
def show(id: str, full: bool, store: str | None) -> None:
    """Read how a run went: its steps, its outputs, what went wrong, and how to resume it.

    \b
    Examples:
      coupler runs show review-7f3k2
      coupler runs show review --full
    """
    from coupler.cli.runs.reading import lines_of
    from coupler.cli.sessions.reading import writer

    with kept_store(store, PROGRAM) as kept:
        opened, record = _found(kept, id)
        output = _forgiving_output()
        write = writer(output)
        for line in lines_of(record, opened, is_full=full):
            write(line)
        output.flush()


@runs.command(short_help="Read or follow what happened in a run.")
@click.argument("id", metavar="RUN")
@click.option("--follow", is_flag=True, help="Go on until the run is over.")
@click.option("--step", metavar="PATH", help="Only of this step, and of what is inside of it.")
@click.option("--json", "is_json", is_flag=True, help="Write one JSON object a line.")
@_store_option
def logs(id: str, follow: bool, step: str | None, is_json: bool, store: str | None) -> None:
    """Read what happened in a run, in order.

    PATH is a step as the log names it, such as fixes[2].fix.

    \b
    Examples:
      coupler runs logs review-7f3k2 --follow
      coupler runs logs review-7f3k2 --step 'fixes[2].fix'
    """
    from coupler.cli.runs.log import Telling, told_by

    with kept_store(store, PROGRAM) as kept:
        opened, record = _found(kept, id)
        output = _forgiving_output()
        telling = Telling(output, record.cwd, is_json=is_json)
        found = False
        for logged in told_by(opened, record.id, is_followed=follow, step=step):
            telling.tell(logged)
            found = True
        telling.end()
    if step is not None and not found:
        refuse(
            f"nothing happened at {step}: `coupler runs logs {record.id}` names the steps", PROGRAM, FAILED
        )


@runs.command(short_help="Cancel a run.")
@click.argument("id", metavar="RUN")
@_store_option
def cancel(id: str, store: str | None) -> None:
    """Cancel a run.

    One that runs is told to end, as by Ctrl-C, and its end is waited for. One
    that is parked or was interrupted is marked as cancelled.

    \b
    Examples:
      coupler runs cancel review-7f3k2
      coupler runs cancel review
    """
    from coupler.cli.runs.cancel import cancel_run

    with kept_store(store, PROGRAM) as kept:
        opened, record = _found(kept, id)
        trouble = cancel_run(opened, record)
    if trouble is not None:
        refuse(trouble, PROGRAM, FAILED)
    sys.stdout.write(f"The run {record.id} is cancelled.\n")


def _found(store: Store | None, given: str) -> tuple[BlockingRuns, RunRecord]:
    """The run that is meant, and where it is kept; ends the command if there is not exactly one."""
    from coupler.workflow.errors import RunError
    from coupler.workflow.journal.runs import meant_by

    # What is no text, as a command line may have it, is no id either.
    given = given.encode("utf-8", "replace").decode()
    try:
        meant = meant_by(given, [] if store is None else store.runs.blocking.ids())
    except RunError as error:
        refuse(str(error), PROGRAM, FAILED)
    assert store is not None
    record = store.runs.blocking.find(meant)
    if record is None:
        refuse(f"the run {meant} is gone", PROGRAM, FAILED)
    return store.runs.blocking, record


def _forgiving_output() -> Any:
    """A character that stdout cannot show is escaped, instead of ending the program."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    return sys.stdout

"""`coupler resume`: a run goes on from where it was left, or from an earlier step."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from coupler.cli.exit_codes import RUN_EXIT_CODES, table
from coupler.cli.options import pairs
from coupler.cli.run.options import RunCommand, run_options, shared_options

if TYPE_CHECKING:
    from coupler.cli.run.course import Course

PROGRAM = "coupler resume"


@click.command(
    "resume",
    cls=RunCommand,
    short_help="Go on with a run.",
    epilog=f"\b\nExit codes; a `stop` may set its own:\n{table(RUN_EXIT_CODES)}",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("id", metavar="RUN")
@click.option("--from", "from_step", metavar="STEP", help="Do this step again, and all that came after it.")
@click.option("--force", "is_forced", is_flag=True, help="Go on although the workflow's files have changed.")
@click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    callback=pairs,
    metavar="NAME=VALUE",
    help="Give a secret input again, which is kept nowhere.",
)
@shared_options
def resume(id: str, from_step: str | None, is_forced: bool, inputs: dict[str, str], **given: Any) -> None:
    """Go on with a run that waits for an answer, has failed, was cancelled, or whose process died.

    RUN is its id or the beginning of one, as `coupler runs list` shows it.
    Steps that are done are not run again. A step that failed is tried again,
    and one that was interrupted is repeated; if it is to run `once`, somebody
    is asked first.

    \b
    Examples:
      coupler resume review-7f3k2 --answer version=1.2
      coupler resume review-7f3k2 --from 'fixes[2].fix'
    """
    from coupler.cli.run.course import conducted

    options = run_options(given)

    def story(course: Course) -> Any:
        return _go_on(course, id, from_step=from_step, is_forced=is_forced, inputs=inputs)

    sys.exit(conducted(PROGRAM, options, story))


async def _go_on(
    course: Course, id: str, *, from_step: str | None, is_forced: bool, inputs: dict[str, str]
) -> int:
    from coupler.cli.kept import user_store
    from coupler.cli.run.choice import Chosen, fill_in_secrets
    from coupler.workflow.engine.run import resumed
    from coupler.workflow.errors import RunError
    from coupler.workflow.journal.runs import find_run

    with user_store() as kept:
        if kept is None:
            raise RunError("no workflow was run yet: `coupler run` runs one")
        record = await find_run(kept, _readable(id))
        bundle = course.options.limiting(Chosen(record.file, record.cwd).read(PROGRAM))
        way = course.way(bundle, record.cwd)
        secrets = await fill_in_secrets(bundle.main, record, inputs, course.terminal)
        going_on = resumed(
            kept, record.id, bundle, way, secret_inputs=secrets, from_step=from_step, is_forced=is_forced
        )
        async with going_on as started:
            return await course.take(started, started.run.log.seq)


def _readable(id: str) -> str:
    """What is no text, as a command line may have it, is no id either."""
    return id.encode("utf-8", "replace").decode()


def main(arguments: list[str]) -> None:
    """Run it without the other commands, which somebody who waits for it has no need of."""
    resume.main(arguments, prog_name=PROGRAM)

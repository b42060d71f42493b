"""`coupler run`: a workflow, from a file or by its name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coupler.cli.exit_codes import RUN_EXIT_CODES, WRONG_INPUT, table
from coupler.cli.run.options import RunCommand, run_options, shared_options

if TYPE_CHECKING:
    from coupler.cli.run.course import Course

PROGRAM = "coupler run"


@click.command(
    "run",
    cls=RunCommand,
    short_help="Run a workflow.",
    epilog=f"\b\nExit codes; a `stop` may set its own:\n{table(RUN_EXIT_CODES)}",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("workflow", metavar="FILE|NAME")
@click.argument("words", nargs=-1, metavar="[NAME=VALUE]... [TEXT]...")
@click.option("-i", "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Give an input.")
@click.option(
    "--cwd",
    default=".",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIRECTORY",
    help="Where the steps work.  [default: here]",
)
@click.option(
    "--dry-run", "is_rehearsal", is_flag=True, help="Start nothing, and show what each step would do."
)
@shared_options
def run(workflow: str, words: tuple[str, ...], inputs: tuple[str, ...], cwd: str, **given: Any) -> None:
    """Run a workflow.

    FILE is a path, with a / or the ending .yaml; NAME is a workflow that
    `coupler workflows list` shows.

    Inputs are NAME=VALUE, with or without -i. Other words are text for the
    input that takes the rest; after `--` they may begin with a dash. Missing
    inputs are asked for at a terminal.

    Ctrl-C cancels the run, and its hooks for that still run; a second one ends
    everything at once. A run that was cancelled, has failed or waits goes on
    with `coupler resume`.

    \b
    Examples:
      coupler run review target=main rounds=2
      coupler run ./release.yaml --yes --answer version=1.2
    """
    from coupler.cli.refusal import refuse
    from coupler.cli.run.course import conducted
    from coupler.workflow.language.library import is_path

    options = run_options(given)
    spelled = [*(f"--input={each}" for each in inputs), "--", *words]
    try:
        directory = str(Path(cwd).resolve())
        workflow = str(Path(workflow).absolute()) if is_path(workflow) else workflow
    except FileNotFoundError:
        refuse("the directory that you are in was deleted: go to another one", PROGRAM, WRONG_INPUT)
    sys.exit(conducted(PROGRAM, options, lambda course: _begin(course, workflow, spelled, directory)))


async def _begin(course: Course, given: str, words: list[str], cwd: str) -> int:
    from contextlib import closing

    from coupler.cli.kept import user_store
    from coupler.cli.run.choice import Chosen, fill_in
    from coupler.store.store import Store
    from coupler.workflow.engine.run import begun
    from coupler.workflow.language.inputs import bind, pairs_in

    chosen = Chosen(given, cwd)
    bundle = course.options.limiting(chosen.read(PROGRAM))
    way = course.way(bundle, cwd)
    pairs = await fill_in(bundle.main, pairs_in(words, bundle.main), course.terminal, cwd)
    inputs = bind(bundle.main, pairs, cwd)
    if way.is_rehearsal:
        # Nothing of it is worth keeping, and nothing of it can do harm.
        with closing(Store.open(":memory:")) as store:
            async with begun(store, bundle, inputs, cwd=cwd, way=way) as started:
                return await course.take(started, 0)
    with user_store(is_made=True) as kept:
        assert kept is not None
        await chosen.see_to_trust(bundle, kept, course.terminal)
        async with begun(kept, bundle, inputs, cwd=cwd, way=way) as started:
            return await course.take(started, 0)


def main(arguments: list[str]) -> None:
    """Run it without the other commands, which somebody who waits for it has no need of."""
    run.main(arguments, prog_name=PROGRAM)

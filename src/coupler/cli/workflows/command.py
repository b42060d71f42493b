"""`coupler workflows`: the workflows that there are, to be listed, read, checked, drawn and begun."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import click

from coupler.cli.exit_codes import FAILED
from coupler.cli.kept import kept_store
from coupler.cli.refusal import refuse
from coupler.cli.sessions.wording import count
from coupler.cli.workflows.new import TEMPLATES

if TYPE_CHECKING:
    from coupler.workflow.language.library import Library

PROGRAM = "coupler workflows"
INVALID = 2
"""The exit code of `validate` for a workflow that cannot work."""


@click.group(
    short_help="List, read, check, draw and begin workflows.",
    context_settings={"max_content_width": 80},
)
def workflows() -> None:
    """List, read, check, draw and begin workflows.

    They are the .yaml files in .coupler/workflows of the project and in
    workflows/ of the user's configuration; of two with one name, the project's
    counts. NAME is a workflow's name; one that ends with .yaml or .yml or has a
    / in it is the path of a file.

    \b
    Examples:
      coupler workflows list
      coupler workflows validate

    Exit codes: 0 if all went well, 1 if something could not be done, 2 for an
    invalid workflow or wrong usage.
    """


@workflows.command("list", short_help="List the workflows that can be run by name.")
@click.option("--json", "is_json", is_flag=True, help="Write one JSON array.")
def list_workflows(is_json: bool) -> None:
    """List the workflows that can be run by name.

    A workflow of a project has to be trusted before it runs: see coupler
    trust. One that is broken is listed with the first of its problems.

    On a terminal it is a table. To a pipe it writes one workflow a line, with
    tabs between name, origin, state, file and description.

    \b
    Examples:
      coupler workflows list
      coupler workflows list --json
    """
    from coupler.cli.workflows.table import remarks_on, rows_of, write_json, write_lines, write_table

    with _library() as library, kept_store(None, PROGRAM) as store:
        rows = rows_of(library, None if store is None else store.trust)
        hidden = library.hidden()
    output = _forgiving_output()
    if is_json:
        write_json(rows, output)
    elif not output.isatty():
        write_lines(rows, output)
    elif rows:
        write_table(rows, output)
    output.flush()
    for remark in remarks_on(rows, hidden):
        sys.stderr.write(f"{remark}\n")


@workflows.command(short_help="Read what a workflow takes, does and gives.")
@click.argument("name", metavar="NAME")
def show(name: str) -> None:
    """Read what a workflow takes, does and gives: its inputs, steps and outputs.

    \b
    Examples:
      coupler workflows show review
      coupler workflows show ./release.yaml
    """
    from coupler.cli.workflows.reading import lines_of

    with _library() as library:
        output = _forgiving_output()
        for line in lines_of(library.find(name), name, library.directory):
            output.write(f"{line}\n")
        output.flush()


@workflows.command(short_help="Check workflows without running them.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--strict", "is_strict", is_flag=True, help="Warnings count as errors.")
@click.option("--json", "is_json", is_flag=True, help="Write one JSON array of the problems.")
def validate(names: tuple[str, ...], is_strict: bool, is_json: bool) -> None:
    """Check workflows, and those that they call, without running anything.

    Without NAME it is all of them. Each problem is a line with file, line and
    column. What is only a warning can run: an agent that is not installed, a
    step that is never reached.

    \b
    Examples:
      coupler workflows validate
      coupler workflows validate review --strict
    """
    from coupler.cli.workflows.check import checked, write_json, write_lines

    with _library() as library:
        names_checked, problems = checked(library, names)
        output = _forgiving_output()
        if is_json:
            write_json(problems, output)
        else:
            write_lines(problems, output, library.directory)
        output.flush()
    errors = sum(each.severity == "error" for each in problems)
    warnings = len(problems) - errors
    if not is_json:
        sys.stderr.write(f"{_summary(names_checked, errors, warnings)}\n")
    if errors or (is_strict and warnings):
        sys.exit(INVALID)


def _summary(checked: int, errors: int, warnings: int) -> str:
    if not checked:
        return "There is no workflow yet: `coupler workflows new NAME` begins one."
    found = [count(number, word) for number, word in ((errors, "error"), (warnings, "warning")) if number]
    return f"{count(checked, 'workflow')} checked: {' and '.join(found) or 'all is well'}."


@workflows.command(short_help="Draw a workflow as a flowchart.")
@click.argument("name", metavar="NAME")
def graph(name: str) -> None:
    """Draw a workflow as a flowchart in Mermaid's language.

    Put it between ```mermaid and ``` into a Markdown file, or into any other
    program that shows Mermaid.

    \b
    Examples:
      coupler workflows graph review
      coupler workflows graph ./release.yaml > release.mmd
    """
    from coupler.workflow.language.graph import mermaid

    with _library() as library:
        _forgiving_output().write(mermaid(library.find(name)))


@workflows.command(short_help="Begin a workflow with an example.")
@click.argument("name", metavar="NAME")
@click.option(
    "--template",
    type=click.Choice([*TEMPLATES]),
    default=next(iter(TEMPLATES)),
    show_default=True,
    help="What the example shows.",
)
@click.option("--user", "is_users", is_flag=True, help="Among the user's own, instead of in the project.")
def new(name: str, template: str, is_users: bool) -> None:
    """Begin a workflow: write a commented example that runs.

    It goes to .coupler/workflows of the project, and is trusted as it is
    written. A file that is there is left alone.

    \b
    Examples:
      coupler workflows new review
      coupler workflows new tidy --user
    """
    from coupler.cli.workflows.new import write_new

    with _library() as library, kept_store(None, PROGRAM, is_made=True) as store:
        assert store is not None
        written = write_new(library, name, template, PROGRAM, store.trust, is_users=is_users)
    sys.stdout.write(f"{written} is a workflow now. Run it with: coupler run {name}\n")


@workflows.command(short_help="Print the JSON Schema of workflow files.")
def schema() -> None:
    """Print the JSON Schema of workflow files, for completion in editors.

    Save it in the project, and name it in the first line of a workflow for the
    YAML language server:

    # yaml-language-server: $schema=../workflow.schema.json

    \b
    Examples:
      coupler workflows schema > .coupler/workflow.schema.json
      coupler workflows schema | less
    """
    from coupler.workflow.language.json_schema import workflow_schema

    sys.stdout.write(json.dumps(workflow_schema(), indent=2) + "\n")


@contextmanager
def _library() -> Iterator[Library]:
    """The workflows that can be used here; what is wrong with them ends the command with a sentence."""
    from coupler.cli.workflows.check import relative
    from coupler.config import ConfigError
    from coupler.runtime.extras import MissingExtraError
    from coupler.workflow.errors import InvalidWorkflowError, WorkflowError
    from coupler.workflow.language.library import Library

    try:
        yield Library(".")
    except InvalidWorkflowError as error:
        for problem in error.problems:
            sys.stderr.write(f"{relative(problem, '.')}\n")
        sys.exit(INVALID)
    except (WorkflowError, MissingExtraError, ConfigError) as error:
        refuse(str(error), PROGRAM, FAILED)


def _forgiving_output() -> IO[str]:
    """A character that stdout cannot show is escaped, instead of ending the program."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    return sys.stdout

"""`coupler workflows`: lists, shows, checks, draws and begins workflows."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import click
import msgspec

from coupler.cli.exit_codes import FAILED, refuse
from coupler.cli.listing import Column, Listing, json_option
from coupler.cli.output import Output, say, stdout, tell
from coupler.cli.store_access import store_or_exit
from coupler.runtime.formatting import count
from coupler.runtime.terminal_text import clean, one_line

if TYPE_CHECKING:
    from coupler.config.config import TrustedFiles
    from coupler.store.choices import Trust
    from coupler.workflow.errors import Problem
    from coupler.workflow.language.library import Broken, Found, Library
    from coupler.workflow.language.model import Input, Step, Workflow


PROGRAM = "coupler workflows"
INVALID = 2
"""The exit code of `validate` for a workflow that cannot work."""

LONGEST_LINE = 79
"""Characters of a line, so that it stands whole in the narrowest terminals that are usual."""

LEAST_TITLE = 20
"""Characters of a step's title that are shown however far in it stands."""

_COMMANDS = """\
# A workflow: commands, from top to bottom. `coupler workflows validate` checks it,
# `coupler workflows graph {name}` draws it, and `coupler run {name}` runs it.
name: {name}
description: Count the lines of some files

# What whoever starts it may give: coupler run {name} pattern='*.md'
inputs:
  pattern: {{default: "*", description: Which files}}

steps:
  # The id is the name by which later steps use what this one has found.
  - id: files
    run: find . -maxdepth 1 -type f -name {{{{ inputs.pattern }}}}
    output: lines              # stdout as a list: steps.files.output
    timeout: 30s

  - if: not steps.files.output
    stop: {{status: success, message: "No file is called {{{{ inputs.pattern }}}}"}}

  # Once for each file, two at a time; `item` is the file.
  - id: counts
    for_each: steps.files.output
    max_concurrent: 2
    steps:
      - id: count
        # A value in braces is always one word for the shell, whatever is in it.
        run: wc -l < {{{{ item }}}}
        on_error: continue

# What comes out: one whole pair of braces keeps its type, so this is a list.
outputs:
  files: "{{{{ steps.files.output }}}}"
  lines: "{{{{ steps.counts.results | map(attribute='count.stdout') | map('trim') | list }}}}"
"""

_AGENT = """\
# A workflow: an agent that reviews a change, with an answer that programs can read.
# `coupler agents` lists the agents that can be used here.
name: {name}
description: Review the changes that are not committed yet

inputs:
  agent: {{default: claude, description: Who reviews}}

steps:
  - id: diff
    run: |
      if ! git rev-parse --quiet --verify HEAD >/dev/null 2>&1; then
        echo "This directory is in no git repository with a commit." >&2
        exit 1
      fi
      git diff HEAD

  - if: not steps.diff.stdout | trim
    stop: Nothing has changed.

  - id: review
    agent: "{{{{ inputs.agent }}}}"
    prompt: |
      Find mistakes in this change. Change nothing.

      {{{{ steps.diff.stdout }}}}
    tools: {{deny: ["edit(**)", "execute(*)"]}}
    timeout: 10m
    # The answer must fit this JSON Schema; it is then steps.review.output.
    output:
      type: object
      required: [findings]
      properties:
        findings: {{type: array, items: {{type: string}}}}

outputs:
  findings: "{{{{ steps.review.output.findings }}}}"
"""

_APPROVAL = """\
# A workflow: it asks before it does something, and stops if the answer is no.
name: {name}
description: Tag a release, after a question

steps:
  - id: last
    run: git describe --tags --abbrev=0
    on_error: continue         # there may be no tag yet

  - id: version
    ask: "Which version comes after {{{{ steps.last.stdout | trim or 'nothing' }}}}?"
    pattern: "v[0-9]+\\\\.[0-9]+\\\\.[0-9]+"

  - id: gate
    approve: "Tag this commit as {{{{ steps.version.text }}}}?"
    on_deny: stop              # skip | fail | stop

  - id: tag
    run: git tag {{{{ steps.version.text }}}}
    once: true                 # after a crash in its midst it does not run again without a question

outputs:
  version: "{{{{ steps.version.text }}}}"
"""

TEMPLATES = {"commands": _COMMANDS, "agent": _AGENT, "approval": _APPROVAL}


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
@json_option
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
    with _library() as library, store_or_exit(None, PROGRAM) as store:
        rows = rows_of(library, None if store is None else store.trust)
        hidden = library.hidden()
    LISTING.show(rows, is_json=is_json)
    for remark in remarks_on(rows, hidden):
        tell(remark)


@workflows.command(short_help="Read what a workflow takes, does and gives.")
@click.argument("name", metavar="NAME")
def show(name: str) -> None:
    """Read what a workflow takes, does and gives: its inputs, steps and outputs.

    \b
    Examples:
      coupler workflows show review
      coupler workflows show ./release.yaml
    """
    with _library() as library:
        output = stdout()
        for line in workflow_lines(library.find(name), name, library.directory):
            output.line(line)
        output.flush()


def workflow_lines(workflow: Workflow, given: str, directory: str) -> Iterator[str]:
    """The page of a workflow, from what it takes to what it gives."""
    yield _heading(workflow)
    yield f"  {one_line(relative_path(directory, workflow.file))}"
    yield ""
    yield f"Usage: {_usage(workflow, given)}"
    yield from _input_lines(workflow)
    if workflow.secrets:
        yield from ("", "Secrets, from the environment:", f"  {', '.join(workflow.secrets)}")
    yield from ("", "Steps:")
    yield from _tree_lines(workflow.steps, "  ")
    yield from _hook_lines(workflow)
    if workflow.outputs:
        yield from ("", "Outputs:")
        width = max(map(len, workflow.outputs))
        for name, value in workflow.outputs.items():
            yield f"  {name:{width}}  {_cut(_text(value), max(LONGEST_LINE - width - 4, LEAST_TITLE))}"


def _heading(workflow: Workflow) -> str:
    description = one_line(workflow.description)
    return f"{workflow.name}: {description}" if description else workflow.name


def _usage(workflow: Workflow, given: str) -> str:
    import shlex

    words = [_word(each) for each in workflow.inputs.values()]
    return " ".join(["coupler run", shlex.quote(one_line(given)), *words])


def _word(declared: Input) -> str:
    word = "TEXT..." if declared.rest else f"{declared.name}={_value_word(declared)}"
    return word if declared.required else f"[{word}]"


def _value_word(declared: Input) -> str:
    if declared.enum and declared.type != "list":
        return "|".join(_cut(str(choice), 20) for choice in declared.enum)
    return {"string": "TEXT", "list": "ITEMS", "object": "JSON", "file": "PATH"}.get(
        declared.type, declared.type.upper()
    )


def _input_lines(workflow: Workflow) -> Iterator[str]:
    from coupler.workflow.language.inputs import inputs_usage

    if workflow.inputs:
        yield from ("", "Inputs:")
        yield from (clean(line) for line in inputs_usage(workflow).splitlines()[1:])


def _tree_lines(steps: Sequence[Step], indent: str) -> Iterator[str]:
    """Steps, and what is inside of them, further in."""
    from coupler.workflow.language.model import inner_lists
    from coupler.workflow.steps.kinds import kind_of

    width = max((len(step.id) for step in steps), default=0)
    for step in steps:
        kind = kind_of(step)
        yield from _step_lines(f"{indent}{step.id:{width}}  {kind.name:8}  ", step)
        for number, inner in enumerate(inner_lists(step), 1):
            if (title := kind.list_title(step, number)) is not None:
                yield f"{indent}  {title}"
            yield from _tree_lines(inner, f"{indent}    ")


def _step_lines(begin: str, step: Step) -> Iterator[str]:
    """A line, or more if there is no room for the conditions beside the title."""
    from textwrap import wrap

    from coupler.workflow.steps.kinds import kind_of

    line = (
        begin
        + _cut(step.description or kind_of(step).outline(step), max(LONGEST_LINE - len(begin), LEAST_TITLE))
    ).rstrip()
    ways = _conditions(step)
    if not ways or len(line) + 2 + len(ways) <= LONGEST_LINE:
        yield f"{line}  {ways}".rstrip()
    else:
        indent = " " * len(begin)
        yield from (line, *wrap(ways, LONGEST_LINE, initial_indent=indent, subsequent_indent=indent))


def _conditions(step: Step) -> str:
    """The conditions of a step, and where it goes on if not with the next."""
    from coupler.workflow.validation.views import targets_of

    words = []
    if step.condition is not None:
        words.append(f"if {_cut(str(step.condition), 40)}")
    if step.needs:
        words.append(f"needs {', '.join(step.needs)}")
    if step.gate is not None:
        words.append("asks first")
    words += [f"may go to {target.step}" for target in targets_of(step)]
    return f"[{'; '.join(dict.fromkeys(words))}]" if words else ""


def _hook_lines(workflow: Workflow) -> Iterator[str]:
    hooks = workflow.hooks
    for moment, steps in (
        ("starts", hooks.start),
        ("fails", hooks.error),
        ("is cancelled", hooks.cancel),
        ("ends", hooks.end),
    ):
        if steps:
            yield from ("", f"When it {moment}:")
            yield from _tree_lines(steps, "  ")


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _cut(text: str, longest: int) -> str:
    line = one_line(text)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


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
    with _library() as library:
        names_checked, problems = check_workflows(library, names)
        output = stdout()
        if is_json:
            write_problems_json(problems, output)
        else:
            write_problem_lines(problems, output, library.directory)
        output.flush()
    errors = sum(each.severity == "error" for each in problems)
    warnings = len(problems) - errors
    if not is_json:
        tell(_summary(names_checked, errors, warnings))
    if errors or (is_strict and warnings):
        sys.exit(INVALID)


def _summary(checked: int, errors: int, warnings: int) -> str:
    if not checked:
        return "There is no workflow yet: `coupler workflows new NAME` begins one."
    found = [count(number, word) for number, word in ((errors, "error"), (warnings, "warning")) if number]
    return f"{count(checked, 'workflow')} checked: {' and '.join(found) or 'all is well'}."


def check_workflows(library: Library, names: Sequence[str]) -> tuple[int, list[Problem]]:
    """Checks workflows, all without names; returns how many, and each problem once."""
    from coupler.workflow.language.library import is_path

    chosen = names or [found.file if is_path(found.name) else found.name for found in library.all()]
    problems: dict[Problem, None] = {}
    for name in dict.fromkeys(chosen):
        problems.update(dict.fromkeys(library.check(name).problems))
    return len({*chosen}), [*problems]


def write_problem_lines(problems: Sequence[Problem], output: Output, directory: str) -> None:
    """Writes one problem a line, as compilers do."""
    for problem in problems:
        output.line(problem_line(problem, directory))


def problem_line(problem: Problem, directory: str) -> str:
    """Formats a problem with its file relative to a directory."""
    position = problem.position
    place = f"{relative_path(directory, position.file)}:{position.line}:{position.column}"
    return one_line(f"{place}: {problem.severity}: {problem.message}")


def relative_path(directory: str, file: str) -> str:
    """A path relative to a directory, if it is below that."""
    try:
        return str(Path(file).relative_to(Path(directory).absolute()))
    except ValueError:
        return file


def write_problems_json(problems: Sequence[Problem], output: Output) -> None:
    """Writes one JSON array."""
    encoded = msgspec.json.encode(
        [
            {
                "file": problem.position.file.encode("utf-8", "replace").decode(),
                "line": problem.position.line,
                "column": problem.position.column,
                "severity": problem.severity,
                "message": problem.message,
            }
            for problem in problems
        ]
    )
    output.json(msgspec.json.format(encoded, indent=2).decode())


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
        stdout().text(mermaid(library.find(name)))


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
    with _library() as library, store_or_exit(None, PROGRAM, is_made=True) as store:
        assert store is not None
        written = write_example(library, name, template, PROGRAM, store.trust, is_users=is_users)
    say(f"{written} is a workflow now. Run it with: coupler run {name}")


def write_example(
    library: Library, name: str, template: str, program: str, trust: Trust, *, is_users: bool
) -> str:
    """Writes an example, and returns its path, relative to here.

    It is trusted: what is in it came from here, and the user has asked for it.
    """
    from coupler.workflow.language.shapes import FREE_NAMES

    if not FREE_NAMES.fit(name) or name.endswith((".yaml", ".yml")):
        refuse(f"a workflow's name must be {FREE_NAMES.words}, without .yaml", program)
    if taken := next((found for found in library.all() if found.name == name), None):
        refuse(f"there is a workflow `{name}` already, in {taken.file}: choose another name", program, FAILED)
    file = Path(_directory(library, program, is_users=is_users), f"{name}.yaml")
    content = TEMPLATES[template].format(name=name).encode()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            stream.write(content)
    except FileExistsError:
        refuse(f"{file} is there already: choose another name", program, FAILED)
    except OSError as error:
        refuse(f"{file} cannot be written: {error.strerror}", program, FAILED)
    trust.trust(os.path.realpath(file), content)
    return relative_path(library.directory, str(file))


def _directory(library: Library, program: str, *, is_users: bool) -> str:
    from coupler.config.lookup import project_directory

    if is_users:
        if library.user_directory is None:
            refuse("this user has no home directory: leave out --user", program, FAILED)
        return library.user_directory
    if library.project is not None:
        return library.project.path
    return str(Path(project_directory(library.directory, os.environ), ".coupler", "workflows"))


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

    stdout().json(json.dumps(workflow_schema(), indent=2))


@contextmanager
def _library() -> Iterator[Library]:
    """The workflows that can be used here; what is wrong with them ends the command."""
    from coupler.config import ConfigError
    from coupler.runtime.extras import MissingExtraError
    from coupler.workflow.errors import InvalidWorkflowError, WorkflowError
    from coupler.workflow.language.library import Library

    try:
        yield Library(".")
    except InvalidWorkflowError as error:
        for problem in error.problems:
            tell(problem_line(problem, "."))
        sys.exit(INVALID)
    except (WorkflowError, MissingExtraError, ConfigError) as error:
        refuse(str(error), PROGRAM, FAILED)


STYLES = {"ready": "green", "not trusted": "yellow", "broken": "red"}


class Row(NamedTuple):
    """A row of the list."""

    name: str
    origin: str
    state: Literal["ready", "not trusted", "broken"]
    file: str
    description: str
    """The workflow's description, or the first problem with it."""


def rows_of(library: Library, trust: TrustedFiles | None) -> list[Row]:
    """The rows of all workflows, by name."""
    return [_row(found, library, trust) for found in library.all()]


def _row(found: Found | Broken, library: Library, trust: TrustedFiles | None) -> Row:
    from coupler.workflow.language.library import Broken, untrusted_files_of

    if isinstance(found, Broken):
        first = found.problems[0]
        place = f"{relative_path(library.directory, first.position.file)}:{first.position.line}"
        return Row(found.name, found.origin, "broken", found.file, f"{place}: {first.message}")
    is_trusted = found.origin == "user" or not untrusted_files_of(found, library, trust)
    state: Literal["ready", "not trusted"] = "ready" if is_trusted else "not trusted"
    return Row(found.name, found.origin, state, found.file, found.workflow.description)


def remarks_on(rows: Sequence[Row], hidden: Sequence[str]) -> Iterator[str]:
    """Remarks about the list; `hidden` names the user's own workflows that are not used here."""
    from coupler.workflow.language.library import why_no_command

    if not rows:
        yield "There is no workflow yet: `coupler workflows new NAME` begins one."
    if any(row.state == "not trusted" for row in rows):
        yield "Some are not trusted yet: read them, then run `coupler trust`."
    yield from (f"`{one_line(name)}` is the project's: your own one is not used here." for name in hidden)
    for row in rows:
        if row.state != "broken" and (reason := why_no_command(row.name)):
            yield f"`{one_line(row.name)}`: {reason}."


def _as_json(row: Row) -> dict[str, str | None]:
    # Undecodable bytes in names of files are replaced.
    name, file, about = (
        each.encode("utf-8", "replace").decode() for each in (row.name, row.file, row.description)
    )
    is_broken = row.state == "broken"
    return {
        "name": name,
        "origin": row.origin,
        "state": row.state,
        "file": file,
        "description": None if is_broken else about,
        "problem": about if is_broken else None,
    }


def _cells(row: Row) -> tuple[str, ...]:
    return one_line(row.name), row.origin, row.state, one_line(row.description)


LISTING = Listing[Row](
    (
        Column("NAME", "cyan"),
        Column("ORIGIN"),
        Column("STATE", STYLES),
        Column("DESCRIPTION", share=1, overflow="wrap"),
    ),
    _cells,
    tuple,
    _as_json,
)

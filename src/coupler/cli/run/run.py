"""`coupler run` and `coupler resume`: the commands, their options, and how a run's end is told.

The workflow is found and read, its files are trusted, and missing inputs are asked for; then `execution`
runs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
import msgspec

from coupler.cli.exit_codes import (
    INTERRUPTED,
    RUN_EXIT_CODES,
    WRONG_INPUT,
    exit_code_table,
    print_error,
    refuse,
)
from coupler.cli.main import pairs, run_command, seconds
from coupler.cli.output import Output, open_closed_streams
from coupler.cli.run.questions import ask_approval, ask_value
from coupler.cli.run.run_log import usage_words
from coupler.cli.terminal import format_duration
from coupler.cli.workflows import problem_line, relative_path
from coupler.runtime.terminal_text import clean, one_line, terminal_safe_json
from coupler.workflow.errors import InputError, InvalidWorkflowError, RunError, require_packages
from coupler.workflow.journal.run_events import RunFinished, unpacked
from coupler.workflow.journal.run_secrets import OPENING
from coupler.workflow.language.inputs import bind_inputs, inputs_in_words, parse_input
from coupler.workflow.language.library import Library, is_path, trust_files, untrusted_files
from coupler.workflow.language.model import Input, Json, Limits

if TYPE_CHECKING:
    from coupler.cli.run.execution import RunExecution
    from coupler.cli.terminal import QuestionTerminal
    from coupler.store.runs import RunRecord
    from coupler.store.store import Store
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Limits, Workflow


PROGRAM = "coupler run"

RESUME_PROGRAM = "coupler resume"

BUDGETS = {"tokens": int, "cost": float}
"""The limits of --budget besides time, and the type of each."""

TAIL_LINES = 10
"""Lines of what a failed step wrote last that are shown."""

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class WrongUsageError(click.UsageError):
    """Wrong usage as click says it, with the exit code of runs."""

    exit_code = WRONG_INPUT


class RunCommand(click.Command):
    """A command whose wrong usage ends with the code that runs have for it: 2 is an invalid workflow."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except click.UsageError as error:
            raise WrongUsageError(error.format_message(), error.ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Exits with the code for Ctrl-C also before it is handled."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


def _pairs(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> list[tuple[str, str]]:
    """Parses STEP=TEXT pairs; a step may be named several times."""
    pairs(context, parameter, values)
    return [(name, text) for name, _, text in (value.partition("=") for value in values)]


def _budget(context: click.Context, parameter: click.Parameter, text: str | None) -> dict[str, Any]:
    """Parses limits such as tokens=5000,cost=0.5."""
    limits: dict[str, Any] = {}
    for part in (text or "").split(",") if text is not None else ():
        name, _, value = part.strip().partition("=")
        if name not in BUDGETS:
            raise click.BadParameter(
                f"it limits {', '.join(BUDGETS)}, as in tokens=5000,cost=0.5: not {part!r}"
            )
        try:
            limits[name] = BUDGETS[name](value)
        except ValueError:
            raise click.BadParameter(f"{name} must be a number, not {value!r}") from None
        if not limits[name] >= 0:
            raise click.BadParameter(f"{name} cannot be less than 0")
    return limits


_SHARED = (
    click.option(
        "--yes/--no",
        "approval",
        default=None,
        help="Answer every approval so. Without it somebody is asked at a terminal; without a terminal it is "
        "the approval's default, else no.",
    ),
    click.option(
        "--answer",
        "answers",
        multiple=True,
        callback=_pairs,
        metavar="STEP=TEXT",
        help="Answer an `ask` or `approve` step, or say something in a `converse` step, which ends after the "
        "last one given.",
    ),
    click.option(
        "--mock",
        "mocks",
        multiple=True,
        callback=pairs,
        metavar="STEP=FILE",
        help="Take a step's result from a file instead of running it.",
    ),
    click.option("--step", "is_stepwise", is_flag=True, help="Ask before each step: run, skip or stop."),
    click.option("--json", "is_json", is_flag=True, help="Write a JSON object a line for all that happens."),
    click.option(
        "--quiet",
        "is_quiet",
        is_flag=True,
        help="Write only the outputs: a single text as it is, everything else as JSON.",
    ),
    click.option(
        "--timeout", "time", type=float, callback=seconds, metavar="SECONDS", help="How long it may take."
    ),
    click.option(
        "--budget", callback=_budget, metavar="LIMITS", help="What its agents may use: tokens=5000,cost=0.5."
    ),
)


def shared_options(command: CommandT) -> CommandT:
    """Adds the options that both commands have."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


@click.command(
    "run",
    cls=RunCommand,
    short_help="Run a workflow.",
    epilog=f"\b\nExit codes; a `stop` may set its own:\n{exit_code_table(RUN_EXIT_CODES)}",
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
    from coupler.cli.run.execution import execute

    options = run_options(given)
    spelled = [*(f"--input={each}" for each in inputs), "--", *words]
    try:
        directory = str(Path(cwd).resolve())
        workflow = str(Path(workflow).absolute()) if is_path(workflow) else workflow
    except FileNotFoundError:
        refuse("the directory that you are in was deleted: go to another one", PROGRAM, WRONG_INPUT)
    sys.exit(execute(PROGRAM, options, lambda execution: _start(execution, workflow, spelled, directory)))


def main(arguments: list[str]) -> None:
    """Runs `coupler run` without importing the other commands, because somebody waits for it."""
    _run_with_any_stdout(run, arguments, PROGRAM)


async def _start(execution: RunExecution, given: str, words: list[str], cwd: str) -> int:
    from contextlib import closing

    from coupler.cli.store_access import tidied_store
    from coupler.store.store import Store
    from coupler.workflow.engine.run import start_run

    chosen = ChosenWorkflow(given, cwd)
    bundle = execution.options.limiting(chosen.read(PROGRAM))
    way = execution.prepare(bundle, cwd)
    pairs = await ask_missing_inputs(
        bundle.main, inputs_in_words(words, bundle.main), execution.terminal, cwd
    )
    inputs = bind_inputs(bundle.main, pairs, cwd)
    if way.is_rehearsal:
        # Nothing of it is worth keeping, and nothing of it can do harm.
        with closing(Store.open(":memory:")) as store:
            async with start_run(store, bundle, inputs, cwd=cwd, way=way) as started:
                return await execution.run(started, 0)
    with tidied_store(PROGRAM, is_made=True) as (kept, tidy):
        assert kept is not None
        await chosen.ensure_trusted(bundle, given, kept, execution.terminal)
        by_path = is_path(given)
        async with start_run(kept, bundle, inputs, cwd=cwd, way=way, by_path=by_path) as started:
            tidy()
            return await execution.run(started, 0)


@click.command(
    "resume",
    cls=RunCommand,
    short_help="Go on with a run.",
    epilog=f"\b\nExit codes; a `stop` may set its own:\n{exit_code_table(RUN_EXIT_CODES)}",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("id", metavar="RUN")
@click.option("--from", "from_step", metavar="STEP", help="Do this step again, and all that came after it.")
@click.option(
    "--done",
    "done_steps",
    multiple=True,
    metavar="STEP",
    help="Say that an interrupted step that is to run `once` was done: it is not run again.",
)
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
def resume(
    id: str,
    from_step: str | None,
    done_steps: tuple[str, ...],
    is_forced: bool,
    inputs: dict[str, str],
    **given: Any,
) -> None:
    """Go on with a run that waits for an answer, has failed, was cancelled, or whose process died.

    RUN is its id or the beginning of one, as `coupler runs list` shows it.
    Steps that are done are not run again. A step that failed is tried again,
    and one that was interrupted is repeated. If that is to run `once`, you are
    asked first whether it runs again, was done, or the run stops; without a
    terminal, --done STEP says that it was done, and --yes runs it again.

    \b
    Examples:
      coupler resume review-7f3k2 --answer version=1.2
      coupler resume review-7f3k2 --from 'fixes[2].fix'
      coupler resume review-7f3k2 --done deploy
    """
    from coupler.cli.run.execution import execute

    options = run_options(given)
    if from_step is not None and done_steps:
        raise WrongUsageError("--from and --done exclude each other: --from does steps again")

    def story(execution: RunExecution) -> Any:
        return _resume(
            execution, id, from_step=from_step, done_steps=done_steps, is_forced=is_forced, inputs=inputs
        )

    sys.exit(execute(RESUME_PROGRAM, options, story))


def resume_main(arguments: list[str]) -> None:
    """Runs `coupler resume` without importing the other commands, because somebody waits for it."""
    _run_with_any_stdout(resume, arguments, RESUME_PROGRAM)


def _run_with_any_stdout(command: click.Command, arguments: list[str], program: str) -> NoReturn:
    """Runs a command whose work counts, and not what it prints: a closed stdout costs only that."""
    open_closed_streams(is_output_needed=False)
    run_command(command, arguments, program)


async def _resume(
    execution: RunExecution,
    id: str,
    *,
    from_step: str | None,
    done_steps: Sequence[str],
    is_forced: bool,
    inputs: dict[str, str],
) -> int:
    from coupler.cli.store_access import tidied_store
    from coupler.workflow.engine.run import check_resumable, path_of_consent, resume_run
    from coupler.workflow.journal.runs import find_run

    with tidied_store(RESUME_PROGRAM) as (kept, tidy):
        if kept is None:
            raise RunError("no workflow was run yet: `coupler run` runs one")
        record = await find_run(kept, _as_text(id))
        chosen = ChosenWorkflow(record.file, record.cwd)
        bundle = execution.options.limiting(chosen.read(RESUME_PROGRAM))
        check_resumable(record, bundle, is_over_allowed=from_step is not None, is_forced=is_forced)
        consent = path_of_consent(record, bundle)
        await chosen.ensure_trusted(bundle, consent, kept, execution.terminal)
        way = execution.prepare(bundle, record.cwd)
        secrets = await ask_secret_inputs(bundle.main, record, inputs, execution.terminal)
        going_on = resume_run(
            kept,
            record.id,
            bundle,
            way,
            secret_inputs=secrets,
            from_step=from_step,
            done_steps=done_steps,
            is_forced=is_forced,
        )
        async with going_on as started:
            tidy()
            return await execution.run(started, started.run.log.seq)


def _as_text(id: str) -> str:
    """Replaces what is no text, as a command line may have it: it is no id either."""
    return id.encode("utf-8", "replace").decode()


@dataclass(frozen=True)
class RunOptions:
    """The options of both commands: how a run is done and shown."""

    is_json: bool = False
    is_quiet: bool = False
    is_stepwise: bool = False
    is_rehearsal: bool = False
    approval: bool | None = None
    """The answer to every approval; None: somebody is asked."""
    answers: Sequence[tuple[str, str]] = ()
    mocks: Mapping[str, str] | None = None
    tokens: int | None = None
    cost: float | None = None
    time: float | None = None

    def limiting(self, bundle: Bundle) -> Bundle:
        """The bundle with these limits instead of the workflow's own; its digest stays."""
        given = {"tokens": self.tokens, "cost": self.cost, "time": self.time}
        given = {name: limit for name, limit in given.items() if limit is not None}
        return _limited(bundle, given) if given else bundle


def _limited(bundle: Bundle, given: Mapping[str, Any]) -> Bundle:
    limits: Limits = msgspec.structs.replace(bundle.main.budget or Limits(), **given)
    return replace(bundle, main=msgspec.structs.replace(bundle.main, budget=limits))


def run_options(given: Mapping[str, Any]) -> RunOptions:
    """Builds the options; raises click.UsageError for those that exclude each other."""
    given = {**given, **given["budget"]}
    del given["budget"]
    options = RunOptions(**given)
    if options.is_json and options.is_quiet:
        raise WrongUsageError("--json and --quiet exclude each other")
    if options.is_stepwise and options.is_rehearsal:
        raise WrongUsageError("--step and --dry-run exclude each other: a dry run starts nothing")
    return options


class ChosenWorkflow:
    """The workflow of the command line: a name is looked up where the run works, and a path starts here."""

    def __init__(self, given: str, cwd: str) -> None:
        self._given = str(Path(given).absolute()) if is_path(given) else given
        self._library = Library(cwd)

    def read(self, program: str) -> Bundle:
        """Reads and checks it; raises WorkflowError. Warnings are told."""
        require_packages()
        checked = self._library.check(self._given)
        if checked.bundle is None:
            raise InvalidWorkflowError(checked.errors)
        for problem in checked.problems:
            print_error(problem_line(problem, "."), program)
        return checked.bundle

    async def ensure_trusted(
        self, bundle: Bundle, given: str | None, store: Store, terminal: QuestionTerminal | None
    ) -> None:
        """Asks about files that somebody else may have written; raises RunError unless they are trusted.

        `given` is how the user has named the workflow; None if that is no consent to anything.
        """
        files = untrusted_files(bundle, given, self._library, store.trust)
        if not files:
            return
        named = "\n".join(f"  {one_line(relative_path('.', file.path))}" for file in files)
        if terminal is None:
            raise RunError(
                "these files came with the project, and are not trusted yet: read them, and trust them with "
                f"`{self._trust_command(bundle)}`\n{named}"
            )
        question = (
            "These files came with the project, can run commands, and are not trusted yet:\n"
            f"{named}\nTrust them as they are now?"
        )
        async with terminal.turn():
            if not await ask_approval(terminal, "", question, None):
                raise RunError("nothing was run: read the files first, and say yes if you trust them")
        trust_files(store.trust, files)

    def _trust_command(self, bundle: Bundle) -> str:
        """The command that trusts its files: a workflow of the project is trusted with all others of it."""
        project, file = self._library.project, bundle.main.file
        if project is not None and Path(file).parent == Path(project.path):
            return "coupler trust"
        return f"coupler trust {one_line(relative_path('.', file))}"


async def ask_missing_inputs(
    workflow: Workflow, given: Mapping[str, str], terminal: QuestionTerminal | None, cwd: str
) -> dict[str, Json]:
    """The inputs that were given, and those that are missing and somebody can be asked for."""
    missing = [
        declared
        for name, declared in workflow.inputs.items()
        if declared.required and declared.default is msgspec.UNSET and name not in given
    ]
    return {**given, **await _ask_inputs(missing, terminal, cwd)}


async def ask_secret_inputs(
    workflow: Workflow,
    record: RunRecord,
    given: Mapping[str, str],
    terminal: QuestionTerminal | None,
) -> dict[str, Json]:
    """The secret inputs of a run, of which only references are stored, given again or asked for.

    Raises InputError for other inputs.
    """
    secrets = {name: declared for name, declared in workflow.inputs.items() if declared.secret}
    for name in given:
        if name not in secrets:
            listed = f": those are {', '.join(secrets)}" if secrets else ""
            raise InputError(f"a resumed run has its inputs, and takes only secret ones again{listed}")
    kept = unpacked(record.inputs)
    missing = [
        declared for name, declared in secrets.items() if OPENING in str(kept.get(name)) and name not in given
    ]
    if missing and terminal is None:
        raise InputError(f"give the secret input again, which is not kept: -i {missing[0].name}=VALUE")
    read = {name: parse_input(secrets[name], text, record.cwd) for name, text in given.items()}
    return {**read, **await _ask_inputs(missing, terminal, record.cwd)}


async def _ask_inputs(missing: list[Input], terminal: QuestionTerminal | None, cwd: str) -> dict[str, Json]:
    values: dict[str, Json] = {}
    if terminal is None:
        return values
    for declared in missing:
        async with terminal.turn():
            question = declared.description or "it is needed"
            answer = await ask_value(terminal, declared.name, question, declared, cwd)
        if answer is None:
            break
        values[declared.name] = answer.value
    return values


def write_outputs(outputs: Mapping[str, Any], output: Output) -> None:
    """Writes outputs for programs: a single text as it is, everything else as one JSON object."""
    if not outputs:
        return
    values = [*outputs.values()]
    if len(values) == 1 and isinstance(values[0], str):
        output.data(values[0] if values[0].endswith("\n") else f"{values[0]}\n")
    else:
        output.json(_as_json(outputs))
    output.flush()


def output_lines(outputs: Mapping[str, Any]) -> Iterator[str]:
    """Formats outputs for people: each behind its name, further lines of it indented."""
    for name, value in outputs.items():
        text = value if isinstance(value, str) else terminal_safe_json(_as_json(value))
        first, *rest = clean(text).rstrip("\n").split("\n")
        yield f"  {one_line(name)}: {first}".rstrip()
        yield from (f"    {line}".rstrip() for line in rest)


def result_line(run: str, finished: RunFinished) -> str:
    """Says how the run went, in a line."""
    words = {"success": "succeeded", "parked": "waits"}.get(finished.status, finished.status)
    line = f"{run} {words} after {format_duration(finished.duration)}"
    if finished.usage is not None and finished.usage.total:
        line += f", {usage_words(finished.usage)}"
    return line


def report_failure(program: str, run: str | None, finished: RunFinished, tail: str = "") -> None:
    """Prints why a run did not end well, and how to go on; nothing of one that did.

    `tail` is what the failed step wrote last. A run without an id is kept nowhere.
    """
    if finished.status == "success":
        return
    lines = [clean(finished.message) or f"the run is {finished.status}"]
    lines += [f"  | {line}" for line in clean(tail).rstrip().split("\n")[-TAIL_LINES:] if tail.strip()]
    if run is not None:
        lines += _next_commands(run, finished)
    print_error("\n".join(lines), program)


def _next_commands(run: str, finished: RunFinished) -> Iterator[str]:
    match finished.status:
        case "parked" | "cancelled":
            yield f"Resume it with: coupler resume {run}"
        case "failed" if finished.error is not None and finished.error.kind == "denied":
            yield f"Be asked again with: coupler resume {run}"
            yield f"Allow it with: coupler resume {run} --yes"
        case "failed" if finished.failed_step is not None:
            yield f"Try again from there with: coupler resume {run}"
            yield f"All that happened: coupler runs logs {run}"


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False).encode().decode()
    except UnicodeEncodeError:
        # Half a surrogate pair is escaped, which is JSON.
        return json.dumps(value)

"""`coupler check`: checks that an agent, a client or a recording keeps to the protocol.

The table goes to the terminal, the other forms of the report to their files. If one of them goes to stdout
it is there alone, and the table goes to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from coupler.cli.exit_codes import DONE, FAILED, INTERRUPTED, WRONG_USAGE, refuse
from coupler.cli.main import interrupt_on_signals, pairs, seconds
from coupler.cli.output import stderr, stdout

if TYPE_CHECKING:
    from coupler.conformance.assertion import Assertion
    from coupler.conformance.candidate import Candidate
    from coupler.conformance.report import AssertionResult, ConformanceReport
    from coupler.recording.traces import Trace


PROGRAM = "coupler check"

INSTEAD = "as in `coupler check -- my-agent`, or else a recording with --trace"

HOW = "where the client takes the agent's command: `coupler check --client -- my-client --agent {agent}`"

AGENT_OPTIONS = ("auth", "prompt", "slow_prompt", "env", "timeout", "save_traces")
"""Options about a command that is started."""

DEFAULT_TIMEOUT = 10.0
"""Seconds that an answer may take, unless another limit is given."""

PROJECT = {
    "README.md": "# Coupler's conformance kit\n\nA project for an agent to look at while it is checked.\n",
    "app.py": 'def greet(name: str) -> str:\n    return f"Hello, {name}!"\n\n\nprint(greet("world"))\n',
}
"""The files of the directory that sessions are opened in."""

STDOUT = "-"

SPINNER_COLUMNS = 3


def _ids(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    words = [word.strip().upper() for value in values for word in value.split(",")]
    ids = tuple(word for word in words if word)
    if values and not ids:
        raise click.BadParameter("it names no assertion")
    return ids


@click.command(
    short_help="Check that an agent or a client keeps to the protocol.",
    context_settings={"allow_interspersed_args": False, "max_content_width": 80},
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND]...")
@click.option(
    "--trace",
    "traces",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Grade a recording instead of an agent; may be repeated.",
)
@click.option("--client", is_flag=True, help="Check a client instead of an agent.")
@click.option("--list", is_flag=True, help="List the assertions and exit.")
@click.option(
    "--only",
    multiple=True,
    metavar="IDS",
    callback=_ids,
    help="Check only these assertions: A28,A34. May be repeated.",
)
@click.option(
    "--timeout",
    type=float,
    default=DEFAULT_TIMEOUT,
    callback=seconds,
    show_default=True,
    metavar="SECONDS",
    help="How long an answer may take; the first may take three times that, a turn six times.",
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    callback=pairs,
    help="Set a variable for the command; may be repeated.",
)
@click.option("--auth", metavar="METHOD", help="Log in with this method of the agent.")
@click.option(
    "--prompt", metavar="TEXT", help="A prompt that makes the agent stream, call tools and ask permission."
)
@click.option(
    "--slow-prompt", metavar="TEXT", help="A prompt that makes it run for seconds, to be cancelled."
)
@click.option(
    "--json",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Write the report as JSON; without a FILE to stdout.",
)
@click.option(
    "--junit",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Write it as JUnit XML; without a FILE to stdout.",
)
@click.option("--html", metavar="FILE", help="Write it as a web page; - is stdout.")
@click.option(
    "--save-traces",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Keep all that was said, as files that --trace reads.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all frames of failures, and what passed.")
def check(command: tuple[str, ...], client: bool, **given: Any) -> None:
    """Check that an agent keeps to the Agent Client Protocol.

    COMMAND starts the agent; it is started many times, each time in a
    conversation of its own.

    \b
    Examples:
      coupler check -- npx my-agent --acp
      coupler check --trace session.ndjson --html report.html
      coupler check --client -- python my_client.py {agent...}

    Exit codes: 0 if nothing fails that an agent must do, 1 if something does,
    2 if nothing could be judged or for wrong usage, 130 when interrupted.
    """
    options = CheckOptions(**given)
    # A CI job that is stopped gets SIGTERM: it leaves no agent behind either. A shell makes what it starts in
    # the background ignore SIGINT, and then neither would do anything.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt_on_signals()
    try:
        sys.exit(_run([*command], options, is_client=client))
    except KeyboardInterrupt:
        refuse("interrupted", PROGRAM, INTERRUPTED)


def _run(command: list[str], options: CheckOptions, *, is_client: bool) -> int:
    if options.list:
        return _list(command, options, is_client=is_client)
    if options.traces:
        return _grade(command, options, is_client=is_client)
    if is_client:
        return check_client(command, options)
    return _check_agent(command, options)


def _list(command: list[str], options: CheckOptions, *, is_client: bool) -> int:
    from coupler.conformance.rendering import print_assertions

    if command:
        refuse("--list takes no command", PROGRAM)
    options.refuse_unused("with --list", *AGENT_OPTIONS, "traces", "json", "junit", "html", "verbose")
    print_assertions(options.chosen("client" if is_client else "agent"), ReportOutput(options).console)
    return DONE


def _grade(command: list[str], options: CheckOptions, *, is_client: bool) -> int:
    from coupler.conformance.client_examination import grade_client
    from coupler.conformance.examination import grade
    from coupler.recording.traces import Trace, TraceError

    if command:
        refuse(f"give either a command or recordings, {INSTEAD}", PROGRAM)
    options.refuse_unused("with --trace", *AGENT_OPTIONS)
    try:
        traces = [Trace.load(file) for file in options.traces]
    except TraceError as error:
        refuse(str(error), PROGRAM)
    subject = ", ".join(map(str, options.traces))
    if is_client:
        report = grade_client(traces, options.chosen("client"), subject)
    else:
        report = grade(traces, options.chosen("agent"), subject)
    ReportOutput(options).write(report)
    return exit_code(report)


def _check_agent(command: list[str], options: CheckOptions) -> int:
    if not command:
        refuse(f"give the agent's command, {INSTEAD}", PROGRAM)
    output = ReportOutput(options)
    report = _examine(command, options, output)
    output.write(report)
    return exit_code(report)


def _examine(command: list[str], options: CheckOptions, output: ReportOutput) -> ConformanceReport:
    from coupler.conformance.examination import CannotStart, examine

    assertions = options.chosen("agent")
    with tempfile.TemporaryDirectory(prefix="coupler-check-", ignore_cleanup_errors=True) as directory:
        candidate = _candidate(command, options, _project(Path(directory)))
        try:
            with output.progress(len(assertions)) as show:
                report = asyncio.run(examine(candidate, assertions, show))
        except CannotStart as error:
            refuse(str(error), PROGRAM)
        finally:
            save_traces(candidate.traces, options.save_traces, options.env)
    report.subject = shlex.join(command)
    return report


def _candidate(command: list[str], options: CheckOptions, project: Path) -> Candidate:
    from coupler.client_api import default_startup_timeout, startable_command
    from coupler.conformance.candidate import Candidate

    prompt = {} if options.prompt is None else {"prompt": options.prompt}
    return Candidate(
        [*startable_command(command)],
        project,
        env=options.env,
        timeout=options.timeout,
        startup_timeout=default_startup_timeout(command) * options.timeout / DEFAULT_TIMEOUT,
        auth=options.auth,
        slow_prompt=options.slow_prompt,
        **prompt,
    )


def _project(directory: Path) -> Path:
    for name, text in PROJECT.items():
        (directory / name).write_text(text)
    return directory.resolve()


def check_client(command: list[str], options: CheckOptions) -> int:
    """Examines a client's command, or is the agent that an editor was told to start."""
    options.refuse_unused("with --client", "auth", "prompt", "slow_prompt")
    if not command:
        options.refuse_unused("without a client's command", "env", "timeout", "save_traces")
    output = ReportOutput(options)
    report = _examine_client(command, options) if command else _serve(options)
    output.write(report)
    return exit_code(report)


def _examine_client(command: list[str], options: CheckOptions) -> ConformanceReport:
    from coupler.conformance.candidate import AGENT_WORD, AGENT_WORDS, ClientCandidate
    from coupler.conformance.client_examination import examine_client
    from coupler.conformance.examination import CannotStart

    if not any(AGENT_WORD in word or AGENT_WORDS in word for word in command):
        refuse(f"write {AGENT_WORD} {HOW}", PROGRAM)
    with tempfile.TemporaryDirectory(prefix="coupler-check-", ignore_cleanup_errors=True) as folder:
        candidate = ClientCandidate(command, Path(folder).resolve(), env=options.env, timeout=options.timeout)
        try:
            report = asyncio.run(examine_client(candidate, options.chosen("client")))
        except CannotStart as error:
            refuse(str(error), PROGRAM)
        finally:
            save_traces(candidate.traces, options.save_traces, options.env)
    report.subject = shlex.join(command)
    return report


def _serve(options: CheckOptions) -> ConformanceReport:
    from coupler.wire.stdio import StdioIsTerminal, take_over

    try:
        incoming, outgoing = take_over()
    except StdioIsTerminal as error:
        refuse(str(error), PROGRAM)
    from coupler.conformance.client_examination import Chat
    from coupler.wire.pipe_transport import PipeTransport

    chat = Chat(PipeTransport(incoming, outgoing), options.chosen("client"))
    # An editor that closes may kill its agents; the report is due all the same.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(chat.hold())
    return chat.report()


@dataclass(frozen=True)
class CheckOptions:
    """The options as they were given; `json`, `junit` and `html` are files, "-" for stdout."""

    only: tuple[str, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    env: Mapping[str, str] | None = None
    auth: str | None = None
    prompt: str | None = None
    slow_prompt: str | None = None
    traces: tuple[Path, ...] = ()
    save_traces: Path | None = None
    json: str | None = None
    junit: str | None = None
    html: str | None = None
    list: bool = False
    verbose: bool = False

    def refuse_unused(self, situation: str, *names: str) -> None:
        """Ends the program if an option was given that has no effect in this situation."""
        for name in names:
            if getattr(self, name) not in (getattr(CheckOptions, name), {}):
                refuse(f"--{name.replace('_', '-')} has no use {situation}", PROGRAM)

    def chosen(self, side: Literal["agent", "client"]) -> Sequence[Assertion]:
        """The assertions to judge; an unknown id ends the program."""
        from coupler.conformance.assertion import UnknownAssertionError, chosen

        try:
            return chosen(side, self.only)
        except UnknownAssertionError as error:
            refuse(f"{error}; --list shows them all", PROGRAM)


class ReportOutput:
    """Writes the report. Made before an examination, so that an unwritable file is no surprise at its end."""

    def __init__(self, options: CheckOptions) -> None:
        self._verbose = options.verbose
        forms = {"json": options.json, "junit": options.junit, "html": options.html}
        self._files = {form: file for form, file in forms.items() if file is not None}
        to_stdout = [f"--{form}" for form, file in self._files.items() if file == STDOUT]
        if len(to_stdout) > 1:
            refuse(f"{' and '.join(to_stdout)} cannot both go to stdout: give all but one a file", PROGRAM)
        for file in self._files.values():
            if file != STDOUT and not Path(file).parent.is_dir():
                refuse(f"{file} cannot be written: {Path(file).parent} is no directory", PROGRAM)
            if file != STDOUT and Path(file).is_dir():
                refuse(f"{file} cannot be written: Is a directory", PROGRAM)
        output = stderr() if to_stdout else stdout()
        self._is_watched = output.is_terminal
        self.console = output.console()

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[AssertionResult], None]]:
        """Shows progress in a line; only people at a terminal see it."""
        from rich.text import Text

        if not self._is_watched:
            yield lambda result: None
            return
        done = 0
        with self.console.status("starting") as status:

            def show(result: AssertionResult) -> None:
                nonlocal done
                done += 1
                line = f"{done}/{total}  {result.assertion.id}  {result.assertion.sentence}"
                text = Text(line)
                text.truncate(self.console.width - SPINNER_COLUMNS, overflow="ellipsis")
                status.update(text)

            yield show

    def write(self, report: ConformanceReport) -> None:
        """Prints the table, then writes the other forms: a full disk costs only those."""
        from coupler.conformance.rendering import print_report, to_html, to_json, to_junit

        make = {"json": to_json, "junit": to_junit, "html": to_html}
        print_report(report, self.console, is_verbose=self._verbose)
        self._advise(report)
        for form, file in self._files.items():
            _write(file, make[form](report))

    def _advise(self, report: ConformanceReport) -> None:
        failed = next((result for result in report.results if result.is_mandatory_failure), None)
        if failed is not None and not self._verbose:
            advice = f"Add --only {failed.assertion.id} -v to look at one failure with all its frames."
            self.console.print(advice, style="dim", soft_wrap=True)


def _write(file: str, text: str) -> None:
    if file == STDOUT:
        output = stdout()
        output.data(text)
        output.flush()
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        refuse(f"{file} cannot be written: {error.strerror}", PROGRAM)


def exit_code(report: ConformanceReport) -> int:
    """0 if the subject passes, 1 if it does not, and 2 if too little could be judged to say so."""
    if report.passes:
        return DONE
    return FAILED if report.fails else WRONG_USAGE


def save_traces(traces: Sequence[Trace], directory: Path | None, env: Mapping[str, str] | None) -> None:
    """Writes the traces, if a directory is given, without the secrets in the subject's variables."""
    if directory is None:
        return
    from coupler.redaction.sources import secrets_in_environment

    secrets = secrets_in_environment(env or {})
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for number, trace in enumerate(traces, 1):
            trace.save(directory / f"{number:03}-{trace.label}.ndjson", secrets)
    except OSError as error:
        refuse(f"the traces cannot be written to {directory}: {error.strerror}", PROGRAM)

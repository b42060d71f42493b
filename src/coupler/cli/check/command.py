"""`coupler check`: whether an agent, or a recording of one, keeps to the protocol."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coupler.cli.check.options import DEFAULT_TIMEOUT, PROGRAM, CheckOptions
from coupler.cli.exit_codes import DONE, INTERRUPTED
from coupler.cli.options import pairs, seconds
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.cli.check.output import Output
    from coupler.conformance.candidate import Candidate
    from coupler.conformance.report import Report

INSTEAD = "as in `coupler check -- my-agent`, or else a recording with --trace"

AGENT_OPTIONS = ("auth", "prompt", "slow_prompt", "env", "timeout", "save_traces")
"""What is about a command that is started."""

PROJECT = {
    "README.md": "# Coupler's conformance kit\n\nA project for an agent to look at while it is checked.\n",
    "app.py": 'def greet(name: str) -> str:\n    return f"Hello, {name}!"\n\n\nprint(greet("world"))\n',
}
"""The files of the directory that sessions are opened in."""


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
    help="Judge these assertions alone: A28,A34. May be repeated.",
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
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
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
        from coupler.cli.check.client import main as check_client

        return check_client(command, options)
    return _check_agent(command, options)


def _list(command: list[str], options: CheckOptions, *, is_client: bool) -> int:
    from coupler.cli.check.output import Output
    from coupler.conformance.rendering import print_assertions

    if command:
        refuse("--list takes no command", PROGRAM)
    options.refuse_unused("with --list", *AGENT_OPTIONS, "traces", "json", "junit", "html", "verbose")
    print_assertions(options.chosen("client" if is_client else "agent"), Output(options).console)
    return DONE


def _check_agent(command: list[str], options: CheckOptions) -> int:
    from coupler.cli.check.output import Output, exit_code

    if not command:
        refuse(f"give the agent's command, {INSTEAD}", PROGRAM)
    output = Output(options)
    report = _examine(command, options, output)
    output.write(report)
    return exit_code(report)


def _grade(command: list[str], options: CheckOptions, *, is_client: bool) -> int:
    from coupler.cli.check.output import Output, exit_code
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
    Output(options).write(report)
    return exit_code(report)


def _examine(command: list[str], options: CheckOptions, output: Output) -> Report:
    from coupler.cli.check.output import save_traces
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
    from coupler.client_api import startable, usual_startup_timeout
    from coupler.conformance.candidate import Candidate

    prompt = {} if options.prompt is None else {"prompt": options.prompt}
    return Candidate(
        [*startable(command)],
        project,
        env=options.env,
        timeout=options.timeout,
        startup_timeout=usual_startup_timeout(command) * options.timeout / DEFAULT_TIMEOUT,
        auth=options.auth,
        slow_prompt=options.slow_prompt,
        **prompt,
    )


def _project(directory: Path) -> Path:
    for name, text in PROJECT.items():
        (directory / name).write_text(text)
    return directory.resolve()

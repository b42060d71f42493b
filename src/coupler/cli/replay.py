"""`coupler replay`: plays a recording again, as the agent or as the client."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coupler.cli.exit_codes import DONE, FAILED, INTERRUPTED, print_error, refuse
from coupler.cli.main import interrupt_on_signals, seconds
from coupler.cli.output import stdout

if TYPE_CHECKING:
    from coupler.recording.traces import Trace


PROGRAM = "coupler replay"
DEFAULT_TIMEOUT = 60.0
FASTEST_PACE = 1000.0


def _pace(context: click.Context, parameter: click.Parameter, value: str) -> float:
    if value in ("none", "real"):
        return 0.0 if value == "none" else 1.0
    try:
        pace = float(value)
    except ValueError:
        pace = -1.0
    if not 0.0 <= pace <= FASTEST_PACE:
        raise click.BadParameter(f"{value!r} is neither real, none nor a factor such as 0.5")
    return pace


@click.command(
    short_help="Play a recording again, as the agent or as the client.",
    context_settings={"max_content_width": 80},
)
@click.option("--client", is_flag=True, help="Play the client's side against the agent that COMMAND starts.")
@click.option(
    "--timing",
    "pace",
    default="none",
    callback=_pace,
    show_default=True,
    metavar="real|none|FACTOR",
    help="Take the recorded time, none, or that many times as long; for the agent's side.",
)
@click.option(
    "--timeout",
    type=float,
    default=DEFAULT_TIMEOUT,
    callback=seconds,
    show_default=True,
    metavar="SECONDS",
    help="With --client: how long an answer may take.",
)
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.pass_context
def replay(
    context: click.Context, client: bool, pace: float, timeout: float, trace: Path, command: tuple[str, ...]
) -> None:
    """Play a recording again.

    TRACE is a file that `coupler record` wrote, or a recording of acpx or of
    the Rust conductor. It is served to an editor over stdin and stdout, as the
    agent that it is a recording of.

    With --client it is the client that is played, against an agent, and what
    the agent does otherwise than recorded is shown.

    \b
    Examples:
      coupler replay session.ndjson --timing real
      coupler replay --client session.ndjson -- my-agent --acp

    Exit codes: 0, with --client 1 if something differs, 2 for wrong usage,
    130 when interrupted.
    """
    words = [*command]
    given = {name for name in ("pace", "timeout") if _is_given(context, name)}
    if client and not words:
        refuse("give the agent's command, as in: coupler replay --client session.ndjson -- my-agent", PROGRAM)
    if client and "pace" in given:
        refuse("--timing is for the agent's side: with --client the agent takes its own time", PROGRAM)
    if not client and words:
        refuse("a command is only for --client: without it, the recording itself is the agent", PROGRAM)
    if not client and "timeout" in given:
        refuse("--timeout is for --client", PROGRAM)
    recording = _load(trace)
    sys.exit(_play_client(recording, words, timeout) if client else _serve(recording, pace))


def _load(path: Path) -> Trace:
    from coupler.recording.traces import Trace, TraceError

    try:
        trace = Trace.load(path)
    except TraceError as error:
        refuse(str(error), PROGRAM)
    if trace.missing:
        _say(f"{path} is not complete: {trace.missing} frames are missing, and are not played")
    return trace


def _serve(trace: Trace, pace: float) -> int:
    from coupler.wire.stdio import StdioIsTerminal, take_over

    try:
        descriptors = take_over()
    except StdioIsTerminal as error:
        refuse(str(error), PROGRAM)

    async def run() -> None:
        from coupler.agent.startup.shutdown import ending_signals
        from coupler.recording.replay import ReplayedAgent
        from coupler.wire.pipe_transport import PipeTransport

        task = asyncio.current_task()
        assert task is not None
        for number in ending_signals():
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(task.cancel))
        loop = asyncio.get_running_loop()
        await ReplayedAgent(trace, PipeTransport(*descriptors), pace=pace, say=_say).run()

    try:
        asyncio.run(run())
    except asyncio.CancelledError:
        return DONE
    return DONE


def _play_client(trace: Trace, command: list[str], timeout: float) -> int:
    from coupler.client.errors import AgentError
    from coupler.client_api import link_to
    from coupler.recording.replay import ReplayedClient
    from coupler.recording.replay_difference import differences
    from coupler.runtime.process import last_lines

    interrupt_on_signals()

    async def run() -> ReplayedClient:
        client = ReplayedClient(trace, link_to(command), timeout=timeout)
        await client.run()
        return client

    try:
        client = asyncio.run(run())
    except AgentError as error:
        refuse(str(error), PROGRAM)
    except KeyboardInterrupt:
        return INTERRUPTED
    output, is_same = stdout(), True
    for difference in differences(trace, client.trace):
        is_same &= difference.is_same
        output.line(f"{'=' if difference.is_same else '≠'} {difference.title}")
        for line in difference.lines:
            output.line(f"    {line}")
    if client.stopped_because:
        is_same = False
        output.line(f"≠ {client.stopped_because}")
        if client.trace.stderr:
            output.text(f"    {last_lines(client.trace.stderr)}")
    output.line("the agent does what was recorded" if is_same else "the agent differs from the recording")
    return DONE if is_same else FAILED


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def _say(sentence: str) -> None:
    print_error(sentence, PROGRAM)

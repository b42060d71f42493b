"""Plays one scenario over stdin and stdout: the program that a client under test starts as its agent."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from coupler.conformance.assertion import Scenario, scenarios
from coupler.conformance.peers import ScriptError
from coupler.conformance.scripted_agent import RecordedTrace, ScriptedAgent
from coupler.wire.pipe_transport import PipeTransport
from coupler.wire.stdio import StdioIsTerminal, take_over

MODULE = "coupler.conformance.play"

LOGIN_VARIABLE = "COUPLER_CHECK_LOGIN"
LOGGED_IN = "logged-in"


def command_of(scenario: Scenario, folder: Path, timeout: float) -> list[str]:
    """Return the command that plays a scenario; -P keeps the client's directory off the module path."""
    words = ["--scenario", scenario.name, "--folder", str(folder), "--timeout", f"{timeout:g}"]
    return [sys.executable, "-P", "-m", MODULE, *words]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="coupler.conformance.play")
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="keeps what the scenario notes")
    parser.add_argument("--timeout", type=float, default=5.0)
    parser.add_argument("--log-in", action="store_true", help="what the terminal login of a scenario runs")
    options = parser.parse_args(arguments)
    if options.log_in:
        return _log_in(options.folder)
    chosen = next(each for each in scenarios() if each.name == options.scenario)
    try:
        incoming, outgoing = take_over()
    except StdioIsTerminal as error:
        print(error, file=sys.stderr)
        return 2
    # Ctrl-C, which `ScriptedAgent.interrupt` presses, is meant for the client.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_play(chosen, PipeTransport(incoming, outgoing), options.folder, options.timeout))
    return 0


async def _play(scenario: Scenario, transport: PipeTransport, folder: Path, limit: float) -> None:
    trace = RecordedTrace(scenario.name, folder / f"{_next_number(folder)}-{os.getpid()}.ndjson")
    agent = ScriptedAgent(transport, trace, timeout=limit, folder=folder)
    agent.pipe.open()
    try:
        await scenario.play(agent)
        await agent.stay()
    except ScriptError as error:
        # The client left or stayed silent, which the trace shows. It may still be reading.
        print(f"scenario {scenario.name}: {error}", file=sys.stderr)
        await agent.quiet(limit)
    finally:
        agent.pipe.close()


def _next_number(folder: Path) -> int:
    return len([*folder.glob("*.ndjson")]) + 1


def _log_in(folder: Path) -> int:
    """Note the login and return 0; 1 if the client did not set the variable that the method asks for."""
    if os.environ.get(LOGIN_VARIABLE) != "1":
        return 1
    (folder / LOGGED_IN).touch()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Asserts how clients run terminals for the agent."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import MUST, TASTE, Case, RuleFinding, fault_unless, rule, scenario
from coupler.conformance.client.open_world import begin, finish
from coupler.conformance.reading import shown, value_at
from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import Trace, TraceExchange

OUTPUT = "begin" + "€" * 400 + "end"
LIMIT = 100
"""Bytes of output to keep; a euro sign has three, so that a careless cut falls inside of one."""

WRITES = f"import sys; sys.stdout.buffer.write({OUTPUT!r}.encode())"
SLEEPS = "import time; print('awake', flush=True); time.sleep(60)"
TELLS = (
    "import os, sys; is_there = os.path.samefile(os.curdir, sys.argv[2]); "
    "print(sys.argv[1], os.environ.get('COUPLER_CHECK'), 'here' if is_there else os.getcwd())"
)
TOLD = "an argument set here"
DIRECTORY = "coupler-check-directory"
"""Name of the directory for a command, other than the client's own, which is the default."""

SOON = 2.0
"""Seconds in which a terminal is created, however long its command runs."""


@scenario(
    "terminals",
    "Runs commands in terminals: one with much output, one that runs long and is killed.",
    *("C14", "C15", "X04", "X07", "X08"),
    look="Allow what you are asked, if you are asked.",
)
async def terminals(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    if agent.trace.client_capabilities.get("terminal") is True:
        await _run_to_its_end(agent)
        await _run_in_surroundings(agent)
        await _kill_and_release(agent)
    await finish(agent, turn)


async def _run_to_its_end(agent: ScriptedAgent) -> None:
    terminal = await _create(agent, WRITES, outputByteLimit=LIMIT)
    if terminal is not None:
        await agent.call("terminal/wait_for_exit", terminal)
        await agent.call("terminal/output", terminal)
        await agent.call("terminal/release", terminal)


async def _run_in_surroundings(agent: ScriptedAgent) -> None:
    directory = agent.directory / DIRECTORY
    with contextlib.suppress(OSError):
        directory.mkdir()
    try:
        cwd, env = str(directory), [{"name": "COUPLER_CHECK", "value": "set"}]
        terminal = await _create(agent, TELLS, "an argument", cwd, env=env, cwd=cwd)
        if terminal is not None:
            await agent.call("terminal/wait_for_exit", terminal)
            await agent.call("terminal/output", terminal)
            await agent.call("terminal/release", terminal)
    finally:
        with contextlib.suppress(OSError):
            directory.rmdir()


async def _kill_and_release(agent: ScriptedAgent) -> None:
    terminal = await _create(agent, SLEEPS)
    if terminal is None:
        return
    waiting = agent.ask("terminal/wait_for_exit", {"sessionId": agent.session_id, **terminal})
    await agent.call("terminal/output", terminal)
    await agent.call("terminal/kill", terminal)
    await agent.answer_to(waiting)
    await agent.call("terminal/output", terminal)
    await agent.call("terminal/release", terminal)
    await agent.call("terminal/output", terminal)
    await agent.call("terminal/kill", terminal)


async def _create(
    agent: ScriptedAgent, program: str, *arguments: str, **params: Any
) -> dict[str, str] | None:
    command = {"command": sys.executable, "args": ["-c", program, *arguments], **params}
    answer = await agent.call("terminal/create", command)
    terminal = value_at(answer, "result.terminalId")
    return {"terminalId": terminal} if isinstance(terminal, str) else None


@rule(
    "C14",
    MUST,
    "a terminal is there at once, and the end of its output is kept, cut between characters, as truncated",
    "terminals",
    "The Client returns a Terminal ID immediately without waiting for completion. The "
    "Client MUST ensure truncation happens at a character boundary to maintain valid "
    "string output.",
    absent="the client does not advertise terminal",
    side="client",
)
def keeps_the_end_of_the_output(trace: Trace) -> Iterator[Case]:
    for create in _created(trace):
        answered = create.answer is not None and isinstance(value_at(create.result, "terminalId"), str)
        yield fault_unless(answered, f"terminal/create was {_described(create)}", create.request)
        if create.answer is not None:
            took = create.answer.at - create.request.at
            yield fault_unless(took < SOON, f"terminal/create took {took:.1f} s", create.request)
    for output in _about(trace, WRITES, "terminal/output"):
        yield from _judge_cut(output)


def _judge_cut(output: TraceExchange) -> Iterator[Case]:
    text, request = value_at(output.result, "output"), output.request
    if not isinstance(text, str):
        yield RuleFinding(f"terminal/output was {_described(output)}", (request,))
        return
    size = len(text.encode(errors="surrogatepass"))
    yield fault_unless(size <= LIMIT, f"outputByteLimit is {LIMIT}, the output has {size} bytes", request)
    yield fault_unless("\ufffd" not in text, f"a character was cut in two: {shown(text, 100)}", request)
    kept = bool(text) and OUTPUT.endswith(text.replace("\r", ""))
    yield fault_unless(kept, f"the output is not the end of what was written: {shown(text, 100)}", request)
    truncated = value_at(output.result, "truncated")
    yield fault_unless(truncated is True, f"truncated is {shown(truncated)}", request)


@rule(
    "C15",
    MUST,
    "kill keeps a terminal's id usable; after release every call on it fails",
    "terminals",
    "The `terminal/kill` method terminates a command without releasing the terminal. "
    "After release the terminal ID becomes invalid for all other `terminal/*` methods.",
    absent="the client does not advertise terminal, or its terminals cannot be created",
    side="client",
)
def voids_a_terminal_when_released(trace: Trace) -> Iterator[Case]:
    calls = [
        each
        for method in ("terminal/kill", "terminal/release", "terminal/output", "terminal/wait_for_exit")
        for each in _about(trace, SLEEPS, method)
    ]
    released = [each.request.number for each in calls if each.method == "terminal/release"]
    for call in calls:
        is_void = bool(released) and call.request.number > released[0]
        what = "after its release" if is_void else "before its release"
        yield fault_unless(
            call.error is not None if is_void else isinstance(call.result, dict),
            f"{call.method} on a terminal {what} was {_described(call)}",
            call.request,
        )


@rule(
    "X07",
    MUST,
    "a terminal's command gets its arguments, environment and directory, and its exit code is told",
    "terminals",
    "`args`: Array of command arguments. `env`: Environment variables for the command. "
    "`cwd`: Working directory for the command.",
    absent="the client does not advertise terminal, or its terminals cannot be created",
    side="client",
)
def runs_as_asked(trace: Trace) -> Iterator[Case]:
    for wait in _about(trace, TELLS, "terminal/wait_for_exit"):
        good = value_at(wait.result, "exitCode") == 0
        yield fault_unless(good, f"terminal/wait_for_exit was {_described(wait)}", wait.request)
    for output in _about(trace, TELLS, "terminal/output"):
        told = str(value_at(output.result, "output")).strip()
        message = (
            f"of argument, environment and directory the command told {shown(told)} instead of {shown(TOLD)}"
        )
        yield fault_unless(told == TOLD, message, output.request)


@rule(
    "X08",
    TASTE,
    "a pending wait_for_exit does not keep the client from serving the kill that ends it",
    "terminals",
    absent="the client does not advertise terminal, or its terminals cannot be created",
    side="client",
)
def serves_while_it_waits(trace: Trace) -> Iterator[Case]:
    waits, kills = (_about(trace, SLEEPS, name) for name in ("terminal/wait_for_exit", "terminal/kill"))
    for wait, kill in zip(waits, kills, strict=False):
        good = kill.answer is not None and wait.answer is not None
        message = f"terminal/kill was {_described(kill)}, wait_for_exit {_described(wait)}"
        yield fault_unless(good, message, wait.request, kill.request)


def _created(trace: Trace) -> list[TraceExchange]:
    return trace.exchanges("terminal/create", "agent") if trace.label == "terminals" else []


def _about(trace: Trace, program: str, method: str) -> list[TraceExchange]:
    """Return the calls of a method on the terminal of this program: those until the next terminal."""
    found: list[TraceExchange] = []
    is_meant = False
    for exchange in trace.exchanges(sender="agent") if trace.label == "terminals" else []:
        if exchange.method == "terminal/create":
            is_meant = program in (exchange.params.get("args") or [])
        elif is_meant and exchange.method == method:
            found.append(exchange)
    return found


def _described(exchange: TraceExchange) -> str:
    if exchange.answer is None:
        return "not answered"
    return f"answered with {shown(exchange.error or exchange.result)}"

"""Asserts how clients read and write files, and run terminals, for the agent."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coupler.conformance.assertion import MUST, TASTE, Case, RuleFinding, client_rule, fault_unless, scenario
from coupler.conformance.client.robustness import begin, finish
from coupler.conformance.reading import shown, value_at
from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import Trace, TraceExchange

CONTENT = "one\ntwo — zwei\nthree\nfour\n"
CHANGED = "coupler-check: this was written outside of the session's directory\n"
SECRET = "coupler-check: nobody who asks for this over the wire may have it\n"
INSIDE, LINK, MISSING, OUTSIDE = (
    "coupler-check-inside.txt",
    "coupler-check-link.txt",
    "coupler-check-missing.txt",
    "coupler-check-outside.txt",
)
ON_DISK = "_coupler/on_disk"
"""Notification by which the agent notes in the trace that a write left something unexpected on the disk."""


@scenario(
    "files",
    "Writes a file, reads it in parts, and tries files outside of the session's directory.",
    *("C13", "X04", "X06"),
    look="Allow what you are asked, if you are asked.",
)
async def files(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    advertised = value_at(agent.trace.client_capabilities, "fs")
    directory, outside = agent.directory, agent.folder / OUTSIDE
    _lay_out(directory, outside)
    if value_at(advertised, "writeTextFile") is not True:
        (directory / INSIDE).write_text(CONTENT, encoding="utf-8")
    try:
        if value_at(advertised, "writeTextFile") is True:
            await _write(agent, directory, outside)
        if value_at(advertised, "readTextFile") is True:
            await _read(agent, directory, outside)
    finally:
        for file in (directory / INSIDE, directory / LINK, outside):
            file.unlink(missing_ok=True)
    await finish(agent, turn)


def _lay_out(directory: Path, outside: Path) -> None:
    """Create a file that nobody may touch, and a link that leads to it."""
    outside.write_text(SECRET)
    with contextlib.suppress(OSError):  # not everybody may make links
        (directory / LINK).unlink(missing_ok=True)
        (directory / LINK).symlink_to(outside)


async def _write(agent: ScriptedAgent, directory: Path, outside: Path) -> None:
    inside = str(directory / INSIDE)
    answer = await agent.call("fs/write_text_file", {"path": inside, "content": CONTENT})
    if "result" in answer and (found := _on_disk(directory / INSIDE)) != CONTENT:
        agent.notify(ON_DISK, {"path": inside, "content": found})
    for path in (outside, directory / LINK):
        await agent.call("fs/write_text_file", {"path": str(path), "content": CHANGED})
        if (found := _on_disk(outside)) != SECRET:
            agent.notify(ON_DISK, {"path": str(path), "content": found})
        _lay_out(directory, outside)


def _on_disk(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


async def _read(agent: ScriptedAgent, directory: Path, outside: Path) -> None:
    inside = str(directory / INSIDE)
    await agent.call("fs/read_text_file", {"path": inside})
    await agent.call("fs/read_text_file", {"path": inside, "line": 2, "limit": 2})
    await agent.call("fs/read_text_file", {"path": inside, "line": 3})
    await agent.call("fs/read_text_file", {"path": inside, "limit": 1})
    await agent.call("fs/read_text_file", {"path": str(outside)})
    await agent.call("fs/read_text_file", {"path": str(directory / LINK)})
    await agent.call("fs/read_text_file", {"path": str(directory / MISSING)})


@client_rule(
    "C13",
    MUST,
    "a write makes the file, a read keeps to line and limit, and nothing outside of the roots is touched",
    "file-system",
    "The Client MUST create the file if it doesn't exist.",
    absent="the client advertises neither fs.readTextFile nor fs.writeTextFile",
)
def serves_files(trace: Trace) -> Iterator[Case]:
    if trace.label != "files":
        return
    for exchange in _asked(trace, "fs/write_text_file", INSIDE):
        good = isinstance(exchange.result, dict)
        yield fault_unless(good, f"the write was {_described(exchange)}", exchange.request)
    for exchange in _asked(trace, "fs/read_text_file", INSIDE):
        expected = _excerpt(exchange.params.get("line"), exchange.params.get("limit"))
        content = value_at(exchange.result, "content")
        # Whether the last line's end belongs to an excerpt is not said anywhere.
        good = isinstance(content, str) and content.removesuffix("\n") == expected.removesuffix("\n")
        asked = {key: exchange.params[key] for key in ("line", "limit") if key in exchange.params}
        message = f"a read with {asked} was {_described(exchange)}; the file has {shown(expected)} there"
        yield fault_unless(good, message, exchange.request)
    for method in ("fs/write_text_file", "fs/read_text_file"):
        for name, what in ((OUTSIDE, "a file outside of the roots"), (LINK, "a link that leads outside")):
            for exchange in _asked(trace, method, name):
                message = f"{method} of {what} was {_described(exchange)}"
                yield fault_unless(_keeps_out(exchange), message, exchange.request)
    for note in trace.notifications(ON_DISK):
        found = value_at(note.params, "content")
        there = "there is no file" if found is None else f"the file holds {shown(found, 100)}"
        yield RuleFinding(f"after the write to {value_at(note.params, 'path')} {there}", (note,))


@client_rule(
    "X06",
    TASTE,
    "reading a file that does not exist is an error, not an empty text",
    "file-system",
    absent="the client does not advertise fs.readTextFile",
)
def says_that_a_file_is_missing(trace: Trace) -> Iterator[Case]:
    for exchange in _asked(trace, "fs/read_text_file", MISSING):
        yield fault_unless(
            exchange.error is not None, f"the read was {_described(exchange)}", exchange.request
        )


def _asked(trace: Trace, method: str, name: str) -> list[TraceExchange]:
    return [each for each in trace.exchanges(method, "agent") if str(each.params.get("path")).endswith(name)]


def _keeps_out(exchange: TraceExchange) -> bool:
    """True if a file outside of the roots was kept out of reach.

    A write to a link may also succeed by replacing the link with a file: then the disk shows whether it did.
    """
    if exchange.method == "fs/write_text_file" and str(exchange.params.get("path")).endswith(LINK):
        return exchange.answer is not None
    return exchange.error is not None


def _excerpt(line: int | None, limit: int | None) -> str:
    first = (line or 1) - 1
    lines = CONTENT.splitlines(keepends=True)
    return "".join(lines[first : None if limit is None else first + limit])


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


@client_rule(
    "C14",
    MUST,
    "a terminal is there at once, and the end of its output is kept, cut between characters, as truncated",
    "terminals",
    "The Client returns a Terminal ID immediately without waiting for completion. The "
    "Client MUST ensure truncation happens at a character boundary to maintain valid "
    "string output.",
    absent="the client does not advertise terminal",
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


@client_rule(
    "C15",
    MUST,
    "kill keeps a terminal's id usable; after release every call on it fails",
    "terminals",
    "The `terminal/kill` method terminates a command without releasing the terminal. "
    "After release the terminal ID becomes invalid for all other `terminal/*` methods.",
    absent="the client does not advertise terminal, or its terminals cannot be created",
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


@client_rule(
    "X07",
    MUST,
    "a terminal's command gets its arguments, environment and directory, and its exit code is told",
    "terminals",
    "`args`: Array of command arguments. `env`: Environment variables for the command. "
    "`cwd`: Working directory for the command.",
    absent="the client does not advertise terminal, or its terminals cannot be created",
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


@client_rule(
    "X08",
    TASTE,
    "a pending wait_for_exit does not keep the client from serving the kill that ends it",
    "terminals",
    absent="the client does not advertise terminal, or its terminals cannot be created",
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

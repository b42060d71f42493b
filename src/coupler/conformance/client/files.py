"""Asserts how clients read and write files for the agent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from coupler.conformance.assertion import MUST, TASTE, Case, RuleFinding, fault_unless, rule, scenario
from coupler.conformance.client.open_world import begin, finish
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


@rule(
    "C13",
    MUST,
    "a write makes the file, a read keeps to line and limit, and nothing outside of the roots is touched",
    "file-system",
    "The Client MUST create the file if it doesn't exist.",
    absent="the client advertises neither fs.readTextFile nor fs.writeTextFile",
    side="client",
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


@rule(
    "X06",
    TASTE,
    "reading a file that does not exist is an error, not an empty text",
    "file-system",
    absent="the client does not advertise fs.readTextFile",
    side="client",
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


def _described(exchange: TraceExchange) -> str:
    if exchange.answer is None:
        return "not answered"
    return f"answered with {shown(exchange.error or exchange.result)}"

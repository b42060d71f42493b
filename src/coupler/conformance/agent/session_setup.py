"""Asserts how agents open sessions: ids, working directory, MCP servers and additional directories."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coupler.conformance import mcp_witness
from coupler.conformance.agent.lifecycle import LIST, need_way_to_reopen, pages_of, reopen
from coupler.conformance.assertion import (
    MUST,
    TASTE,
    Case,
    Fault,
    RuleFinding,
    Skip,
    fault_unless,
    probe,
    require,
    rule,
)
from coupler.conformance.candidate import Candidate, advertises, describe, expect_error, expect_result, need
from coupler.conformance.reading import objects, shown, value_at
from coupler.conformance.scripted_client import RequestAnswer, ScriptedClient
from coupler.recording.traces import INVALID_PARAMS, Trace, TraceEntry

WITNESS_ARGUMENTS = ["an argument", "--another=ü"]
WITNESS_VALUE = "a value"

UNUSED_SERVER_LIMIT = 0.5
"""Seconds to wait for an MCP server if nothing shows that the agent uses tools at all."""

UNIQUE_IDS = (
    "A21",
    MUST,
    "each session/new gives an id of its own that is not empty",
    "session-setup",
    "The Agent MUST respond with a unique Session ID that identifies this conversation.",
)


@rule(*UNIQUE_IDS, absent="no session/new was answered with a result")
def unique_ids(trace: Trace) -> Iterator[Case]:
    seen = set[str]()
    for exchange in trace.exchanges("session/new"):
        if exchange.answer is None or exchange.result is None:
            continue
        session = exchange.result.get("sessionId") if isinstance(exchange.result, dict) else None
        if not isinstance(session, str) or not session:
            yield RuleFinding(f"the sessionId is {shown(session)}", (exchange.answer,))
            continue
        yield fault_unless(session not in seen, f"the sessionId {shown(session)} came twice", exchange.answer)
        seen.add(session)


@probe(*UNIQUE_IDS)
async def several_sessions(agent: Candidate) -> None:
    """Open some sessions at the same time; the rule then looks at their ids.

    This is also where an agent fails that opens none: all that needs a session is skipped then.
    """
    async with agent.ready() as client:
        setup = {"cwd": str(client.directory), "mcpServers": []}
        for request in [client.ask("session/new", setup) for _ in range(3)]:
            answer = await client.answer(request)
            agent.skip_without_login(client, answer)
            expect_result(answer, "session/new gave")


@probe("A22", TASTE, "a relative cwd is refused as bad params (-32602)", "session-setup#working-directory")
async def relative_directory(agent: Candidate) -> None:
    async with agent.conversation() as (client, _):
        answer = await client.new_session(cwd="relative/directory")
        expect_error(answer, 'the cwd "relative/directory" was answered with', INVALID_PARAMS)


@probe(
    "A23",
    MUST,
    "tools work in the session's directory, not in the process's",
    "session-setup#working-directory",
    "This directory MUST be used for the session regardless of where the Agent subprocess was spawned.",
)
async def session_directory(agent: Candidate) -> None:
    here, project, home = Path.cwd(), agent.project.resolve(), Path.home()
    if any(each.is_relative_to(here) for each in (project, home)) or here.is_relative_to(project):
        raise Skip(
            f"nothing can be told in {here}: run the kit in a directory that has nothing to do with "
            f"{project}, and is not your home"
        )
    async with agent.conversation() as (client, session):
        await agent.take_turn(client, session)
        named = [*_paths_named(client.trace)]
        for path, use, entry in named:
            message = f"the session works in {project}, but {use} is {path}, where the process runs"
            require(not _is_inside(path, here), message, entry)
        if not named:
            raise Skip("the agent used no path; pass --prompt with a text that makes it use files")


def _is_inside(path: str, directory: Path) -> bool:
    return Path(os.path.normpath(path)).is_relative_to(directory)


def _paths_named(trace: Trace) -> Iterator[tuple[str, str, TraceEntry]]:
    """Yield every absolute path that the agent named, with its use and the message."""
    for entry in trace.entries:
        params = entry.params if entry.sender == "agent" and isinstance(entry.params, dict) else {}
        for path, use in _places(entry.method, params):
            if isinstance(path, str) and Path(path).is_absolute():
                yield path, use, entry


def _places(method: str | None, params: dict[str, Any]) -> list[tuple[Any, str]]:
    """Return the values of a message that may be paths, each with its use."""
    match method:
        case "fs/read_text_file" | "fs/write_text_file":
            return [(params.get("path"), f"the path of {method}")]
        case "terminal/create":
            return [(params.get("cwd"), "the cwd of terminal/create")]
        case "session/update":
            return _places_in_call(params.get("update"))
        case "session/request_permission":
            return _places_in_call(params.get("toolCall"))
    return []


def _places_in_call(call: Any) -> list[tuple[Any, str]]:
    call = call if isinstance(call, dict) else {}
    return [
        (item.get("path"), use)
        for key, use in (("locations", "a tool call's location"), ("content", "a diff's path"))
        for item in (call[key] if isinstance(call.get(key), list) else [])
        if isinstance(item, dict)
    ]


@probe(
    "A24", TASTE, "mcpServers must be there (else -32602), and null means none", "schema: NewSessionRequest"
)
async def servers_required(agent: Candidate) -> None:
    async with agent.conversation() as (client, _):
        missing = await client.call("session/new", {"cwd": str(agent.project)})
        expect_error(missing, "session/new without mcpServers was answered with", INVALID_PARAMS)
        null = await client.new_session(mcpServers=None)
        expect_result(null, "session/new with mcpServers null was answered with")


@probe(
    "A25",
    MUST,
    "an MCP server is started with its args and env, whatever stands beside it",
    "session-setup#mcp-servers",
    "All Agents MUST support connecting to MCP servers via stdio (standard input/output).",
)
async def server_started(agent: Candidate) -> None:
    with tempfile.TemporaryDirectory(prefix="coupler-check-") as directory:
        file = Path(directory, "testimony.json")
        async with agent.conversation() as (client, _):
            beside = await client.new_session(mcpServers=[{"name": 5}, _witness(file)])
            session = await agent.open_session(client, mcpServers=[_witness(file)])
            await agent.take_turn(client, session)
            try:
                testimony = await _testimony(client, session, file)
            except Skip:
                _require_tolerance(beside)
                raise
    told = {"arguments": WITNESS_ARGUMENTS, "variable": WITNESS_VALUE}
    require(
        testimony == told,
        f"the server should have been given {shown(told)}, and was given {shown(testimony)}",
    )
    _require_tolerance(beside)


def _require_tolerance(answer: RequestAnswer) -> None:
    """Require that session/new works with a bad entry beside a good one.

    The newest schema leaves it to the agent what a bad entry does; to lose all servers serves nobody.
    """
    expect_result(answer, "with a bad entry beside a good one session/new was answered with", level=TASTE)


def _witness(file: Path) -> dict[str, Any]:
    return {
        "name": "coupler-check-witness",
        "command": sys.executable,
        "args": ["-I", mcp_witness.__file__, str(file), *WITNESS_ARGUMENTS],
        "env": [{"name": mcp_witness.VARIABLE, "value": WITNESS_VALUE}],
    }


async def _testimony(client: ScriptedClient, session: str, file: Path) -> Any:
    """Wait for what the witness writes; skips if it writes nothing and the agent showed no tool call."""
    uses_tools = bool(client.trace.updates(session, "tool_call"))
    try:
        async with asyncio.timeout(client.timeout if uses_tools else UNUSED_SERVER_LIMIT):
            # The witness is the agent's child, not ours: only its file says that it runs.
            while (testimony := _read(file)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        if uses_tools:
            raise Fault("a turn with tool calls went by, and the MCP server was not started") from None
        raise Skip(
            "the MCP server was not started; no tool call was seen either, so nothing tells that this agent "
            "uses tools: pass --prompt with a text that makes it do so"
        ) from None
    return testimony


def _read(file: Path) -> Any:
    return json.loads(file.read_bytes()) if file.exists() else None


@probe(
    "A26",
    MUST,
    "additionalDirectories with an empty or relative entry are refused as a whole",
    "RFD: additional directories",
    "The agent MUST NOT silently ignore invalid, unauthorized, or unsupported entries "
    "and proceed with a reduced root set.",
)
async def bad_roots(agent: Candidate) -> None:
    async with agent.conversation() as (client, _):
        need(client, "sessionCapabilities.additionalDirectories")
        with tempfile.TemporaryDirectory(prefix="coupler-check-") as directory:
            good = await client.new_session(additionalDirectories=[directory])
            expect_result(good, "a good entry was answered with")
            for bad in ("", "relative/directory"):
                for roots in ([bad], [directory, bad]):
                    answer = await client.new_session(additionalDirectories=roots)
                    expect_error(answer, f"additionalDirectories {shown(roots)} was answered with")


@probe(
    "A27",
    MUST,
    "load and resume without additionalDirectories revive no stored ones",
    "RFD: additional directories",
    "Agents MUST NOT implicitly reactivate stored additional roots that were not "
    "supplied on the `session/load` or `session/resume` request.",
)
async def stored_roots(agent: Candidate) -> None:
    async with agent.ready() as client:
        need(client, "sessionCapabilities.additionalDirectories")
        need(client, LIST)
        methods = need_way_to_reopen(client)
        with tempfile.TemporaryDirectory(prefix="coupler-check-") as directory:
            for method in methods:
                await _reopen_without_roots(agent, client, method, directory)


async def _reopen_without_roots(
    agent: Candidate, client: ScriptedClient, method: str, directory: str
) -> None:
    session = await agent.open_session(client, additionalDirectories=[directory])
    await agent.take_turn(client, session)
    if await _listed_roots(client, session) != [directory]:
        raise Skip("session/list does not tell the additionalDirectories of a session")
    if advertises(client, "sessionCapabilities.close"):
        await client.call("session/close", {"sessionId": session})
    answer = await reopen(client, method, session)
    if answer.error is not None:
        raise Skip(f"{method} was answered with {describe(answer)}")
    roots = await _listed_roots(client, session)
    require(
        not roots,
        f"after {method} without additionalDirectories the session has {shown(roots)}",
        answer.entry,
    )


async def _listed_roots(client: ScriptedClient, session: str) -> Any:
    """Return a session's additional directories as session/list shows them; skips if it is not listed."""
    async for page in pages_of(client, client.directory):
        for each in objects(value_at(page.result, "sessions")):
            if each.get("sessionId") == session:
                return each.get("additionalDirectories") or []
    raise Skip("session/list does not show a session that was just used")

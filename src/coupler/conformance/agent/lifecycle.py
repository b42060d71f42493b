"""Asserts how agents store, load, resume, list, delete and close sessions."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from coupler.conformance.agent.prompting import begin_slow_turn, goes_on, too_short
from coupler.conformance.assertion import MUST, SHOULD, TASTE, Skip, probe, require
from coupler.conformance.candidate import Candidate, advertises, describe, expect_error, expect_result, need
from coupler.conformance.peers import ScriptError
from coupler.conformance.reading import (
    CONVERSATION_UPDATES,
    is_absolute,
    items,
    objects,
    shown,
    text_of_chunks,
    value_at,
)
from coupler.conformance.scripted_client import RequestAnswer, ScriptedClient
from coupler.recording.traces import TraceUpdate

REOPENING = {"session/load": "loadSession", "session/resume": "sessionCapabilities.resume"}
"""The methods that open a session again, each with its capability."""

LIST = "sessionCapabilities.list"

MOST_PAGES = 100
"""Pages of a list after which it counts as endless."""

LEAVING = 5.0
"""Seconds that an agent has to store its sessions and end; whether it ends at all is another assertion."""


@probe(
    "A28",
    MUST,
    "a load replays the whole conversation, the user's part and the agent's, and answers after it",
    "session-setup#loading-sessions",
    "The Agent MUST replay the entire conversation to the Client in the form of "
    "`session/update` notifications. When all the conversation entries have been "
    "streamed to the Client, the Agent MUST respond to the original `session/load` "
    "request.",
)
async def load_replays_everything(agent: Candidate) -> None:
    stored = await store_session(agent, "loadSession")
    async with agent.ready() as client:
        answer = await reopen(client, "session/load", stored.session)
        expect_result(answer, "a session with one turn could not be loaded in a new process:")
        await client.quiet(0.3)
        replay, late = _before_and_after(answer, client.trace.updates(stored.session, *CONVERSATION_UPDATES))
        in_time = not late or _is_new(late, stored)
        message = "a part of the conversation came after the answer"
        require(in_time, message, answer.entry, *(update.entry for update in late[:1]))
        _require_conversation(replay, agent.prompt, stored.agent_text, answer)


@probe(
    "A29",
    TASTE,
    "a load or resume of an unknown session is refused, without updates, and makes no session",
    "session-setup",
)
async def unknown_sessions_are_refused(agent: Candidate) -> None:
    async with agent.ready() as client:
        for method in need_way_to_reopen(client):
            await _require_unknown(client, method, str(uuid.uuid4()))


@probe(
    "A30",
    MUST,
    "a resume replays nothing before its answer; a prompt then works, and a load then shows all turns",
    "session-setup#resuming-sessions",
    "Unlike `session/load`, the Agent MUST NOT replay the conversation history via "
    "`session/update` notifications before responding. Instead, it restores the session "
    "context.",
)
async def resume_replays_nothing(agent: Candidate) -> None:
    stored = await store_session(agent, REOPENING["session/resume"])
    async with agent.ready() as client:
        answer = await reopen(client, "session/resume", stored.session)
        expect_result(answer, "a session with one turn could not be resumed in a new process:")
        replay, _ = _before_and_after(answer, client.trace.updates(stored.session, *CONVERSATION_UPDATES))
        require(not replay, "the conversation was replayed", *(update.entry for update in replay[:1]))
        turn = await agent.take_turn(client, stored.session)
        expect_result(turn.answer, "a prompt then got")
        can_load = advertises(client, "loadSession")
        await leave(client)
    if can_load:
        await _require_both_turns(agent, stored)


@probe(
    "A31",
    MUST,
    "a list is an array even if it is empty, its directories are absolute, and it has those asked for alone",
    "session-list",
    "Only sessions with a matching `cwd` are returned. When no sessions match the "
    "criteria, the Agent MUST return an empty `sessions` array.",
)
async def list_keeps_to_a_directory(agent: Candidate) -> None:
    with _new_directory() as empty, _new_directory() as other:
        async with agent.ready() as client:
            need(client, LIST)
            session = await agent.open_session(client)
            await agent.take_turn(client, session)
            await agent.open_session(client, cwd=str(other))
            await _require_list_of(client, empty, 0)
            await _require_list_of(client, other)
            here = await _require_list_of(client, agent.project)
            for page in await _pages(client):
                for entry in objects(page.result["sessions"]):
                    missing = entry.get("cwd") == str(agent.project) and entry.get("sessionId") not in here
                    message = f"{entry.get('sessionId')} is not in the list of its own cwd"
                    require(not missing, message, page.entry)
            # Nothing says when a session is first listed; but an empty list keeps to everything.
            message = "a session that has had a turn is in no list"
            require(session in here, message, page.entry, level=SHOULD)


@probe(
    "A32",
    SHOULD,
    "a list's pages come to an end and repeat nothing; a forged cursor is refused",
    "session-list#pagination",
    "Agents SHOULD return an error if the cursor is invalid.",
)
async def pages_end(agent: Candidate) -> None:
    async with agent.ready() as client:
        need(client, LIST)
        for _ in range(3):
            await agent.open_session(client)
        pages = await _pages(client, agent.project)
        sessions = _sessions_in(pages)
        twice = next((session for session in sessions if sessions.count(session) > 1), None)
        require(twice is None, f"the session {shown(twice, 100)} is listed twice")
        cursor = pages[-1].result.get("nextCursor")
        require(cursor is None, f"the list had no end after {len(pages)} pages", pages[-1].entry)
        answer = await client.call("session/list", {"cursor": f"forged-{uuid.uuid4()}"})
        expect_error(answer, "a forged cursor got")


@probe(
    "A33",
    SHOULD,
    "deleting a session twice, or an unknown one, succeeds; it is no longer listed",
    "session-delete",
    "Deleted sessions no longer appear in future `session/list` results. Deleting an "
    "already-deleted session, or a session that never existed, SHOULD succeed silently.",
)
async def deletes_quietly(agent: Candidate) -> None:
    stored = await store_session(agent, "sessionCapabilities.delete")
    async with agent.ready() as client:
        for session, which in (
            (stored.session, "a session"),
            (stored.session, "it again"),
            (str(uuid.uuid4()), "an unknown one"),
        ):
            answer = await client.call("session/delete", {"sessionId": session})
            expect_result(answer, f"deleting {which} got")
        if advertises(client, LIST):
            listed = _sessions_in(await _pages(client, agent.project))
            require(stored.session not in listed, "the deleted session is still listed")


@probe(
    "A34",
    MUST,
    "a close during a prompt cancels it, and the session takes no more prompts",
    "session-setup#closing-active-sessions",
    "The Agent MUST cancel any ongoing work for that session as if `session/cancel` had "
    "been called, then free the resources associated with the session.",
)
async def close_cancels(agent: Candidate) -> None:
    async with agent.conversation() as (client, session):
        need(client, "sessionCapabilities.close")
        prompt = await begin_slow_turn(agent, client, session, "the session could be closed")
        closed = await client.call("session/close", {"sessionId": session})
        expect_result(closed, "the close got")
        ended = await client.answer(prompt)
        if value_at(ended.result, "stopReason") == "end_turn" and not agent.has_slow_prompt:
            close = client.trace.exchanges("session/close")[-1].request
            went_on = goes_on(client.trace, session, close, ended.entry)
            require(not went_on, "the turn went on after the close", close, *went_on[:1], ended.entry)
            raise Skip(too_short("the session was closed"))
        cancelled = value_at(ended.result, "stopReason") == "cancelled"
        require(cancelled, f"the prompt got {describe(ended)}", ended.entry)
        later = (await client.prompt(session, agent.prompt)).answer
        expect_error(later, "a prompt after the close got", level=TASTE)


def _before_and_after(
    answer: RequestAnswer, updates: list[TraceUpdate]
) -> tuple[list[TraceUpdate], list[TraceUpdate]]:
    """Split the updates into those before the answer and those after it."""
    before = [update for update in updates if update.entry.number < answer.entry.number]
    return before, updates[len(before) :]


def _is_new(late: list[TraceUpdate], stored: Stored) -> bool:
    """True if the late updates are no replay, but new words of the agent, such as a welcome."""
    words = _squeezed(text_of_chunks(late, "agent_message_chunk"))
    speaks = all(update.kind == "agent_message_chunk" for update in late)
    return speaks and words not in _squeezed(stored.agent_text)


def _require_conversation(
    replay: list[TraceUpdate], prompt: str, agent_text: str, answer: RequestAnswer
) -> None:
    """Require the prompt and then the agent's text in the replay, however it is cut into chunks.

    The protocol lets an agent speak before the first prompt, and then this comes first in the replay too.
    """
    replayed = _squeezed(text_of_chunks(replay, "user_message_chunk"))
    require(_squeezed(prompt) in replayed, "the user's prompt was not replayed", answer.entry)
    replayed, spoken = _squeezed(text_of_chunks(replay, "agent_message_chunk")), _squeezed(agent_text)
    require(spoken in replayed, "what the agent said was not replayed", answer.entry)
    first = next((place for place, each in enumerate(replay) if each.kind == "user_message_chunk"), 0)
    behind = _squeezed(text_of_chunks(replay[first:], "agent_message_chunk"))
    # A greeting that took its time is in the agent's text as well.
    in_order = spoken in behind or (behind and spoken.endswith(behind))
    out_of_order = "the agent's words were replayed before the user's"
    require(in_order, out_of_order, *(update.entry for update in replay[:1]))


async def _require_both_turns(agent: Candidate, stored: Stored) -> None:
    """Load the session once more; a replay that does not show both of its turns is a fault.

    The context of a resumed session is invisible, but one that lost its first turn cannot replay it.
    """
    async with agent.ready() as client:
        answer = await reopen(client, "session/load", stored.session)
        replay = client.trace.updates(stored.session, *CONVERSATION_UPDATES)
        prompts = _squeezed(text_of_chunks(replay, "user_message_chunk")).count(_squeezed(agent.prompt))
        seen = "one of the two turns" if prompts else "neither of the two turns"
        require(prompts >= 2, f"a load after the resume shows {seen}", answer.entry)


async def _require_unknown(client: ScriptedClient, method: str, session: str) -> None:
    answer = await reopen(client, method, session)
    expect_error(answer, f"{method} got")
    await client.quiet(0.2)
    updates = client.trace.updates(session)
    require(not updates, "there are updates of it", *(update.entry for update in updates[:1]))
    if advertises(client, LIST):
        listed = _sessions_in(await _pages(client, client.directory))
        require(session not in listed, f"after the refused {method} the session is listed")


@contextmanager
def _new_directory() -> Iterator[Path]:
    """Make a temporary directory, in which no session has been yet."""
    with TemporaryDirectory() as directory:
        yield Path(directory).resolve()


async def _require_list_of(client: ScriptedClient, directory: Path, most: float = float("inf")) -> list[Any]:
    """Return the ids listed for a directory; more than `most`, or one of another directory, is a fault."""
    pages = await _pages(client, directory)
    entries = [entry for page in pages for entry in objects(page.result["sessions"])]
    strange = next((entry for entry in entries if entry.get("cwd") != str(directory)), None)
    require(strange is None, f"the list of {directory} has a session of {shown(value_at(strange, 'cwd'))}")
    require(len(entries) <= most, f"the list of {directory} is not empty: {shown(entries)}")
    return _sessions_in(pages)


async def _pages(client: ScriptedClient, directory: Path | None = None) -> list[RequestAnswer]:
    """Return the pages of the list of all sessions, or of a directory's; each must be valid."""
    return [_checked(page) async for page in pages_of(client, directory)]


def _checked(page: RequestAnswer) -> RequestAnswer:
    sessions = value_at(page.result, "sessions")
    require(isinstance(sessions, list), f"session/list got {describe(page)}", page.entry)
    for entry in items(sessions):
        cwd = value_at(entry, "cwd")
        require(is_absolute(cwd), f"a session is listed with the cwd {shown(cwd)}", page.entry)
    return page


def _sessions_in(pages: list[RequestAnswer]) -> list[Any]:
    return [entry.get("sessionId") for page in pages for entry in objects(page.result["sessions"])]


def _squeezed(text: str) -> str:
    return "".join(text.split())


class Stored(NamedTuple):
    """A session with one turn, whose process has ended."""

    session: str
    agent_text: str


async def store_session(agent: Candidate, capability: str) -> Stored:
    """Run one turn in a process and let it end, so that the session is stored; skips if that cannot be."""
    async with agent.ready() as client:
        need(client, capability)
        session = await agent.open_session(client)
        turn = await agent.take_turn(client, session)
        if turn.answer.result is None:
            raise Skip(f"the first turn got {describe(turn.answer)}; pass a --prompt that works")
        await leave(client)
        return Stored(session, turn.text)


async def leave(client: ScriptedClient) -> None:
    """Close the agent's input and let it end by itself."""
    client.close_input()
    with suppress(ScriptError):
        await client.exit(within=LEAVING)


def ways_to_reopen(client: ScriptedClient) -> list[str]:
    """Return the methods by which this agent opens a session again."""
    return [method for method, capability in REOPENING.items() if advertises(client, capability)]


def need_way_to_reopen(client: ScriptedClient) -> list[str]:
    """Return the methods by which this agent opens a session again; skips if there is none."""
    methods = ways_to_reopen(client)
    if not methods:
        raise Skip(f"the agent advertises neither {' nor '.join(REOPENING.values())}")
    return methods


async def reopen(client: ScriptedClient, method: str, session: str) -> RequestAnswer:
    """Load or resume a session in its directory."""
    return await client.call(method, {"sessionId": session, "cwd": str(client.directory), "mcpServers": []})


async def pages_of(client: ScriptedClient, directory: Path | None) -> AsyncIterator[RequestAnswer]:
    """Yield the pages of the list of all sessions, or of a directory's, up to a limit."""
    params: dict[str, Any] = {} if directory is None else {"cwd": str(directory)}
    for _ in range(MOST_PAGES):
        page = await client.call("session/list", params)
        yield page
        cursor = value_at(page.result, "nextCursor")
        if cursor is None:
            return
        params = {**params, "cursor": cursor}


async def hold_bare_conversation(agent: Candidate) -> None:
    """Hold a conversation as a client without capabilities, once: all rules look at the same traces."""
    await agent.do_once(_converse)


async def _converse(agent: Candidate) -> None:
    """Run a turn and set an option to its own value; if advertised, load and resume in new processes."""
    async with agent.conversation({}) as (client, session):
        await agent.take_turn(client, session)
        result = client.trace.exchanges("session/new")[-1].result
        for option in objects(value_at(result, "configOptions"))[:1]:
            change = {"configId": option.get("id"), "value": option.get("currentValue")}
            await client.call("session/set_config_option", {"sessionId": session, **change})
        methods = ways_to_reopen(client)
        await leave(client)
    for method in methods:
        async with agent.ready({}) as client:
            await reopen(client, method, session)

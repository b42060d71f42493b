"""Asserts what agents write to stdout, which answer belongs to which request, and how agents end."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import (
    MUST,
    SHOULD,
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
from coupler.conformance.candidate import NO_SUCH_SESSION, Candidate, expect_error, expect_result
from coupler.conformance.peers import UNFLUSHED, ScriptError
from coupler.conformance.reading import shown
from coupler.conformance.scripted_client import RequestAnswer, ScriptedClient
from coupler.recording.traces import METHOD_NOT_FOUND, PARSE_ERROR, Trace, TraceEntry, TraceExchange
from coupler.runtime.process import ProcessIdentity, processes_below, still_alive

LONG_LINE = 8 * 1024 * 1024
"""Bytes of a long line, as with a photo or a long file in a prompt."""

EXIT_LIMIT = 5.0
"""Seconds that an agent may take to exit when its client has left."""

ORPHAN_LIMIT = 2.0
"""Seconds that the agent's own children may outlive it."""

NOTICEABLE = 1.0
"""Seconds more than without a turn that a request must take to show that it waited for the turn."""

LARGEST_SAFE = 2**53 - 1
"""The largest integer that every JSON parser keeps."""

ONLY_MESSAGES = (
    "A08",
    MUST,
    "stdout holds JSON-RPC messages in UTF-8, one a line, and nothing else",
    "transports",
    "Messages are delimited by newlines (`\\n`), and MUST NOT contain embedded newlines. "
    "The agent MUST NOT write anything to its `stdout` that is not a valid ACP message.",
)
SAME_ID = (
    "A12",
    MUST,
    "an answer has the id of its request, in value and type",
    "schema: RequestId",
    "It MUST be the same as the value of the id member in the Request Object.",
)
NO_ANSWER = (
    "A13",
    MUST,
    "a notification is never answered, not even a malformed one",
    "overview#error-handling",
    "The Server MUST NOT reply to a Notification, including those that are within a batch request.",
)


@rule(*ONLY_MESSAGES, absent="the agent wrote nothing", any_version=True)
def only_messages(trace: Trace) -> Iterator[Case]:
    if trace.unreadable and trace.unreadable != UNFLUSHED:
        yield RuleFinding(
            trace.unreadable, tuple(entry for entry in trace.entries if entry.sender == "agent")
        )
        return
    for entry in trace.entries:
        if entry.sender == "agent":
            flaw = _flaw(entry)
            line = entry.line[:200].decode(errors="backslashreplace")
            yield fault_unless(flaw is None, f"a line {flaw}: {line}", entry)


def _flaw(entry: TraceEntry) -> str | None:
    """Return what keeps a line from being a JSON-RPC message; None if nothing does."""
    message = entry.message
    try:
        entry.line.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    if not message:
        return "is no JSON object"
    if message.get("jsonrpc") != "2.0":
        return 'lacks "jsonrpc": "2.0"'
    if "method" in message:
        return None if entry.method is not None else "has a method that is no text"
    if not entry.is_answer:
        return "is neither a request nor an answer"
    if "result" in message and "error" in message:
        return "has both a result and an error"
    return None if "id" in message else "is an answer without an id"


@probe(*ONLY_MESSAGES)
async def only_messages_on_errors(agent: Candidate) -> None:
    """Provoke errors; the rule then judges what the agent wrote."""
    async with agent.conversation() as (client, session):
        for method, params in (
            ("session/prompt", {"sessionId": session, "prompt": 5}),
            ("session/prompt", {"sessionId": NO_SUCH_SESSION, "prompt": [{"type": "text", "text": "?"}]}),
            ("session/new", {"cwd": 5, "mcpServers": "none"}),
            ("session/new", []),
            ("_coupler/no_such_method", {}),
        ):
            await client.call(method, params)


@probe("A09", TASTE, "a line of 8 MiB is processed", "transports")
async def long_line(agent: Candidate) -> None:
    async with agent.conversation() as (client, _):
        answer = await client.new_session(_meta={"coupler.check/filling": "x" * LONG_LINE})
        expect_result(answer, "session/new with 8 MiB of _meta was answered with")


@probe("A10", TASTE, "a line that is no JSON does no harm: -32700 with id null, or silence", "JSON-RPC 2.0")
async def broken_line(agent: Candidate) -> None:
    async with agent.conversation() as (client, _):
        for line in (b'{"jsonrpc": "2.0", "id": 7, "method":', b"hello", b"\xff\xfe{"):
            client.write(line + b"\n")
            await _serves_on(client, f"the line {shown(line)}")
        unasked = _unasked_answers(client.trace)
        for stray in client.trace.stray_answers:
            fits = stray not in unasked and RequestAnswer(stray).code == PARSE_ERROR
            require(fits, f"a broken line was answered with {shown(stray.message)}", stray)


@probe(
    "A11",
    MUST,
    "an unknown request is refused with -32601, an unknown notification passed over",
    "extensibility",
    "Upon receiving a custom request, implementations MUST respond accordingly with the "
    "provided `id`. If the receiving end doesn't recognize the custom method name, it "
    'should respond with the standard "Method not found" error. Implementations SHOULD '
    "ignore unrecognized notifications.",
)
async def unknown_methods(agent: Candidate) -> None:
    async with agent.ready() as client:
        for method in ("_coupler.check/unknown", "$/coupler_check_unknown", "coupler_check_unknown"):
            client.notify(method, {})
        for method in ("coupler_check_unknown", "_coupler.check/unknown"):
            answer = await client.call(method, {})
            cause = f"the request {shown(method)} was answered with"
            expect_error(answer, cause)
            expect_error(answer, cause, METHOD_NOT_FOUND, level=SHOULD)
        for stray in client.trace.stray_answers:
            raise Fault(f"an unknown notification was answered with {shown(stray.message)}", stray)


@rule(*SAME_ID, absent="no answer was seen", any_version=True)
def same_id(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges():
        if exchange.answer is not None:
            yield None
    for stray in _unasked_answers(trace):
        given = stray.message.get("id")
        if given is not None:
            rounded = _may_be_rounded(given)
            message = f"an answer has the id {shown(given)}, which no open request has"
            if rounded:
                message += ": it was rounded, as JavaScript does beyond 2^53"
            yield RuleFinding(message, (stray,), level=TASTE if rounded else None)


@probe(*SAME_ID)
async def ids_of_all_kinds(agent: Candidate) -> None:
    setup = {"cwd": str(agent.project), "mcpServers": []}
    async with agent.ready() as client:
        for name in (0, "a", LARGEST_SAFE, LARGEST_SAFE + 2):
            client.send({"id": name, "method": "session/new", "params": setup})
            await client.new_session()
            _require_own_id(client, name)
            try:
                await client.answer(name)
            except ScriptError:
                # It may have come behind the answer to what was asked later, under another id.
                _require_own_id(client, name)
                raise


def _require_own_id(client: ScriptedClient, name: Any) -> None:
    for stray in _unasked_answers(client.trace):
        message = f"the request with the id {shown(name)} was answered as {shown(stray.message.get('id'))}"
        raise Fault(message, stray, level=TASTE if _may_be_rounded(name) else None)


def _may_be_rounded(name: Any) -> bool:
    """True if JavaScript, in which many agents are written, cannot hold this number exactly."""
    return isinstance(name, int | float) and abs(name) > LARGEST_SAFE


@rule(*NO_ANSWER, absent="no notification of a client was seen", any_version=True)
def no_answer(trace: Trace) -> Iterator[Case]:
    for entry in trace.entries:
        if entry.sender == "client" and entry.is_notification:
            yield None
    unanswered = [exchange.request.number for exchange in trace.exchanges() if exchange.answer is None]
    first_unanswered = min(unanswered, default=len(trace.entries))
    for stray in _unasked_answers(trace):
        # Behind an unanswered request it may be that one's answer, whose id was lost.
        if stray.message.get("id") is None and stray.number < first_unanswered:
            yield RuleFinding(f"nothing was asked, and this answered: {shown(stray.message)}", (stray,))


def _unasked_answers(trace: Trace) -> list[TraceEntry]:
    """Return the agent's answers to no open request, except errors about a line that was no message."""
    garbage = [entry for entry in trace.entries if entry.sender == "client" and _is_garbage(entry)]
    found: list[TraceEntry] = []
    for stray in trace.stray_answers:
        cause = next((line for line in garbage if _may_complain(stray, line)), None)
        if cause is not None:
            garbage.remove(cause)
        elif stray.sender == "agent":
            found.append(stray)
    return found


def _is_garbage(entry: TraceEntry) -> bool:
    message = entry.message
    if message.get("jsonrpc") != "2.0" or not (entry.is_request or entry.is_notification or entry.is_answer):
        return True
    id_fits = type(message.get("id")) in (int, str, type(None))
    return not id_fits or not isinstance(message.get("params", {}), dict | list)


def _may_complain(stray: TraceEntry, line: TraceEntry) -> bool:
    """True if the answer is an error about that line: its id is null, or can be read in the line."""
    given = stray.message.get("id")
    is_about_it = given is None or json.dumps(given).encode() in line.line
    return "error" in stray.message and stray.number > line.number and is_about_it


@probe(*NO_ANSWER)
async def malformed_notifications(agent: Candidate) -> None:
    async with agent.conversation() as (client, _):
        for method, params in (
            ("session/cancel", {}),
            ("session/cancel", []),
            ("session/cancel", {"sessionId": 5}),
            ("session/cancel", {"sessionId": NO_SUCH_SESSION}),
            ("session/prompt", {"sessionId": NO_SUCH_SESSION, "prompt": []}),
            ("session/update", {"sessionId": NO_SUCH_SESSION, "update": {"sessionUpdate": "plan"}}),
            ("initialize", {"protocolVersion": "one"}),
            ("$/cancel_request", {"requestId": {}}),
        ):
            client.notify(method, params)
        client.send({"method": "session/cancel"})
        await _serves_on(client, "malformed notifications")
        for stray in client.trace.stray_answers:
            raise Fault(f"a notification was answered with {shown(stray.message)}", stray)


async def _serves_on(client: ScriptedClient, after: str) -> None:
    """Require that session/new works; once it is answered, everything that was sent before was read."""
    try:
        answer = await client.new_session()
    except ScriptError as error:
        raise Fault(f"after {after} {error}") from None
    expect_result(answer, f"after {after} session/new gave")


@probe(
    "A14",
    MUST,
    "while a turn runs, other requests are answered and a cancel is read",
    "prompt-turn",
    "As a baseline, all Agents MUST support `session/new`, `session/prompt`, "
    "`session/cancel`, and `session/update`. Clients MAY cancel an ongoing prompt turn "
    "at any time.",
)
async def live_reader(agent: Candidate) -> None:
    async with agent.conversation() as (client, session):
        turn = client.ask_prompt(session, agent.slow_prompt)
        other = await _session_meanwhile(client, turn)
        client.notify("session/cancel", {"sessionId": session})
        try:
            await client.answer(turn)
        except ScriptError as error:
            raise Fault(f"the turn was cancelled, and {error}", other.entry) from None


async def _session_meanwhile(client: ScriptedClient, turn: int) -> RequestAnswer:
    """Open a session during the turn; skips if the turn was too short to tell."""
    idle = _seconds(client.trace.exchanges("session/new")[0])
    bearable = NOTICEABLE + 2 * idle
    try:
        other = await client.new_session(within=client.timeout + bearable)
    except ScriptError as error:
        raise Fault(f"while a turn ran {error}", level=SHOULD) from None
    expect_result(other, "a second session/new gave")
    prompt = next(each for each in client.trace.exchanges() if each.request.message["id"] == turn)
    if prompt.answer is not None and prompt.answer.number < other.entry.number:
        waited = _seconds(client.trace.exchanges("session/new")[-1])
        if waited < bearable:
            raise Skip(
                f"the turn ended before a second session was opened, which takes {idle:.1f} s without one; "
                "pass a --slow-prompt that makes the agent work for longer"
            )
        message = (
            f"session/new was answered only after the turn, and took {waited:.1f} s instead of {idle:.1f} s"
        )
        raise Fault(message, prompt.answer, other.entry, level=SHOULD)
    return other


def _seconds(exchange: TraceExchange) -> float:
    """Return the seconds that a request waited for its answer; infinite without one."""
    return math.inf if exchange.answer is None else exchange.answer.at - exchange.request.at


@probe(
    "A15",
    TASTE,
    "at the end of its input the agent exits within seconds and leaves no children",
    "transports",
)
async def end_of_input(agent: Candidate) -> None:
    async with agent.conversation() as (client, session):
        if client.pid is None:
            raise Skip("the agent has no process of its own")
        await agent.take_turn(client, session)
        if agent.has_slow_prompt:
            client.ask_prompt(session, agent.slow_prompt)
            await client.new_session()
        children = processes_below(client.pid)
        client.close_input()
        await client.exit(within=EXIT_LIMIT)
        orphans = await _orphans(children)
        numbers = ", ".join(str(orphan.pid) for orphan in orphans)
        require(not orphans, f"the agent has ended, but not what it had started: process {numbers}")


async def _orphans(children: set[ProcessIdentity]) -> set[ProcessIdentity]:
    """Wait for processes to end, and return those that still live after ORPHAN_LIMIT seconds."""
    try:
        async with asyncio.timeout(ORPHAN_LIMIT):
            # No system call waits for a process that is not one's own child.
            while still_alive(children):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        return still_alive(children)
    return set()

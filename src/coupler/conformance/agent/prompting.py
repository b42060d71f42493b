"""Asserts which blocks agents accept, how turns end, and how agents cancel turns and requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from coupler.conformance.agent.tool_calls import PERMISSION, begin_asking, signs_of_running
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
from coupler.conformance.candidate import (
    NO_SUCH_SESSION,
    Candidate,
    advertises,
    describe,
    expect_error,
    expect_result,
)
from coupler.conformance.peers import ScriptError, cancel, hold
from coupler.conformance.reading import CONVERSATION_UPDATES, RequestSpan, shown, spans, value_at
from coupler.conformance.scripted_client import (
    TURN_PATIENCE,
    RequestAnswer,
    ScriptedClient,
    ScriptedTurn,
    prompt_params,
)
from coupler.recording.traces import CANCELLED, INVALID_PARAMS, Trace, TraceEntry, TraceUpdate

STOP_REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="

GATED_BLOCKS: dict[str, dict[str, Any]] = {
    "image": {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    "audio": {"type": "audio", "data": SILENCE, "mimeType": "audio/wav"},
    "embeddedContext": {"type": "resource", "resource": {"uri": "file:///notes.txt", "text": "A note."}},
}
"""A content block for each prompt capability, which must be advertised to allow it."""

BEGINNING = 1.0
"""Seconds to wait for the first update of a turn, after which it counts as running."""

BARRIER = "_coupler.check/are_you_there"
"""A request that no agent knows: its answer tells that what was sent before it has been read."""

MANY = 3
"""Updates behind the answer to a request after a cancel that show that the turn goes on."""

READING = 0.25
"""Seconds in which every agent has read a cancel."""

BAD_BLOCKS: tuple[dict[str, Any], ...] = ({"type": "text"}, {"type": "nope"})

SENTENCE_ENDS = (".", "!", "?", ":", ";", "…")

ENOUGH_SPLITS = 2
"""Sentences that must be split over two ids before it counts as no accident."""

CHUNKS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")


@probe(
    "A41",
    MUST,
    "text and links to resources are always accepted in a prompt",
    "initialization#prompt-capabilities",
    "As a baseline, all Agents MUST support `ContentBlock::Text` and "
    "`ContentBlock::ResourceLink` in `session/prompt` requests.",
)
async def accepts_baseline_blocks(agent: Candidate) -> None:
    agent.need_working("session/prompt")
    async with agent.conversation() as (client, session):
        answer = await _prompt_with(agent, client, session, _link_in(agent.project))
        expect_result(answer, "the answer is")


@probe(
    "A42",
    TASTE,
    "a block of a kind that the agent does not advertise is refused (-32602), and no turn begins",
    "content",
)
async def refuses_unadvertised_blocks(agent: Candidate) -> None:
    agent.need_working("session/prompt")
    async with agent.conversation() as (client, session):
        hidden = [
            block
            for name, block in GATED_BLOCKS.items()
            if not advertises(client, f"promptCapabilities.{name}")
        ]
        if not hidden:
            raise Skip("the agent advertises every kind of block")
        for block in hidden:
            why = f"{block['type']} is not advertised"
            answer = await _require_refusal(agent, client, session, block, why)
            expect_error(answer, f"{why}, but the answer is", INVALID_PARAMS)


@probe("A43", TASTE, "a malformed block is refused, not left out", "schema: PromptRequest")
async def refuses_malformed_blocks(agent: Candidate) -> None:
    agent.need_working("session/prompt")
    async with agent.conversation() as (client, session):
        for block in BAD_BLOCKS:
            await _require_refusal(agent, client, session, block, f"{shown(block)} is malformed")


@rule(
    "A44",
    MUST,
    "a turn ends with one of the five stop reasons",
    "prompt-turn#stop-reasons",
    "When an Agent stops a turn, it must specify the corresponding `StopReason`.",
    absent="no prompt was answered with a result",
)
def ends_with_a_known_reason(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("session/prompt"):
        if exchange.result is not None and exchange.answer is not None:
            reason = value_at(exchange.result, "stopReason")
            yield fault_unless(
                reason in STOP_REASONS, f"the stop reason is {shown(reason, 100)}", exchange.answer
            )


A45 = (
    "A45",
    MUST,
    "nothing of a turn comes after the answer to its prompt",
    "prompt-turn#cancellation",
    "The Agent MAY send `session/update` notifications with content or tool call updates "
    "after receiving the `session/cancel` notification, but it MUST ensure that it does "
    "so before responding to the `session/prompt` request.",
)


@probe(*A45)
async def cancels_a_turn(agent: Candidate) -> None:
    """Cancel a turn, after which late updates are likeliest; the rule judges whether there are any."""
    async with agent.conversation() as (client, session):
        prompt = await begin_slow_turn(agent, client, session, "it could be cancelled")
        await cancel_turn(client, session, prompt)
        await client.quiet(0.3)


@rule(*A45, absent="no prompt was answered")
def says_all_before_the_answer(trace: Trace) -> Iterator[Case]:
    prompts = spans(trace, "session/prompt")
    yield from (None for prompt in prompts if prompt.exchange.answer is not None)
    times = prompts + spans(trace, "session/load", "session/resume")
    changes = spans(trace, "session/set_mode", "session/set_config_option")
    for update in trace.updates():
        prompt = _prompt_before(update, times)
        if prompt is not None and not _is_of_a_change(update, prompt, changes):
            yield _lateness(update, prompt)


def _prompt_before(update: TraceUpdate, times: list[RequestSpan]) -> RequestSpan | None:
    """Return the last prompt before an update, if it was over by then.

    None if it came in a prompt, or since a load or resume.
    """
    before = [time for time in times if time.session == update.session and time.begin < update.entry.number]
    if not before or any(time.holds(update) for time in before):
        return None
    last = max(before, key=lambda time: time.end)
    return last if last.exchange.method == "session/prompt" else None


def _is_of_a_change(update: TraceUpdate, prompt: RequestSpan, changes: list[RequestSpan]) -> bool:
    """True if the update reports a mode or options, and the client has changed some since the prompt."""
    return update.kind in ("current_mode_update", "config_option_update") and any(
        change.session == update.session and prompt.end < change.begin < update.entry.number
        for change in changes
    )


def _lateness(update: TraceUpdate, prompt: RequestSpan) -> RuleFinding:
    assert prompt.exchange.answer is not None
    return RuleFinding(
        f"{update.kind} came after the answer to the prompt",
        (prompt.exchange.answer, update.entry),
        level=None if update.kind in CONVERSATION_UPDATES else TASTE,
    )


async def start_slow_turn(agent: Candidate, client: ScriptedClient, session: str) -> int:
    """Send a slow prompt and return its id once it runs, has had time to begin, or is over."""
    prompt = client.ask_prompt(session, agent.slow_prompt)
    with suppress(ScriptError):
        await client.update(session, *CONVERSATION_UPDATES, within=BEGINNING)
    return prompt


async def begin_slow_turn(agent: Candidate, client: ScriptedClient, session: str, what: str) -> int:
    """Start a slow turn; skips if it is over too soon for `what`."""
    prompt = await start_slow_turn(agent, client, session)
    if is_over(client, prompt):
        raise Skip(too_short(what))
    return prompt


async def cancel_turn(client: ScriptedClient, session: str, prompt: int) -> None:
    """Cancel a turn and wait for its end, so that this is not blamed on the end of the process."""
    client.notify("session/cancel", {"sessionId": session})
    with suppress(ScriptError):
        await client.answer(prompt)


def goes_on(trace: Trace, session: str, stop: TraceEntry, end: TraceEntry) -> list[TraceEntry]:
    """Return the updates between a cancel or close and a turn's end, if they show that it was ignored.

    What was already on its way proves nothing, and an agent may end a turn in the moment in which it is
    cancelled. Many updates behind the answer to a request that followed the cancel do prove it, and so do
    updates when any agent has long read it.
    """
    later = [
        update.entry
        for update in trace.updates(session, *CONVERSATION_UPDATES)
        if stop.number < update.entry.number < end.number
    ]
    read = [each.answer for each in trace.exchanges(BARRIER) if each.request.number > stop.number]
    behind = [entry for entry in later if read and read[0] is not None and entry.number > read[0].number]
    is_ignored = len(behind) >= MANY or any(entry.at - stop.at > READING for entry in later)
    return later if is_ignored else []


def is_over(client: ScriptedClient, prompt: int) -> bool:
    """True if a prompt has been answered."""
    return any(
        exchange.request.message["id"] == prompt and exchange.answer is not None
        for exchange in client.trace.exchanges("session/prompt")
    )


def too_short(what: str) -> str:
    """Return why an assertion about a running turn is skipped."""
    return f"the turn ended before {what}; pass --slow-prompt with a text that keeps the agent busy"


def _link_in(directory: Path) -> dict[str, Any]:
    """Create a file and return a link to it, because an agent may look."""
    file = directory / "linked.txt"
    file.write_text("This file is linked in a prompt.\n")
    return {"type": "resource_link", "uri": file.as_uri(), "name": file.name}


async def _require_refusal(
    agent: Candidate, client: ScriptedClient, session: str, block: dict[str, Any], why: str
) -> RequestAnswer:
    before = len(client.trace.updates(session, *CONVERSATION_UPDATES))
    answer = await _prompt_with(agent, client, session, block)
    expect_error(answer, f"{why}, but the answer is")
    begun = client.trace.updates(session, *CONVERSATION_UPDATES)[before:]
    require(not begun, f"{why}, but a turn began", *(update.entry for update in begun[:1]))
    return answer


async def _prompt_with(
    agent: Candidate, client: ScriptedClient, session: str, block: dict[str, Any]
) -> RequestAnswer:
    blocks = [{"type": "text", "text": agent.prompt}, block]
    patience = TURN_PATIENCE * client.timeout
    return await client.call("session/prompt", {"sessionId": session, "prompt": blocks}, patience)


@rule(
    "A51",
    SHOULD,
    "all chunks of a message have one messageId, and the next message has another",
    "prompt-turn",
    "Chunks with the same `messageId` belong to the same message; a changed `messageId` "
    "indicates a new message.",
    absent="no chunk with a messageId was seen",
)
def messages_have_one_id(trace: Trace) -> Iterator[Case]:
    for session in {update.session for update in trace.updates() if isinstance(update.session, str)}:
        yield from _message_ids(trace, session)


def _message_ids(trace: Trace, session: str) -> Iterator[Case]:
    """Judge the chunks of a session in runs: of one kind, with nothing of the conversation between them.

    A `place` is a turn, and who speaks. An id in two of them belongs to two messages, but for a load, which
    may show the same messages again, with the same ids or with others.
    """
    turns = {span.begin for span in spans(trace, "session/prompt") if span.session == session}
    loads = {span.begin for span in spans(trace, "session/load") if span.session == session}
    places: dict[str, tuple[int, bool]] = {}
    joints: list[tuple[TraceUpdate, TraceUpdate]] = []
    turn, last = 0, None
    passed = 0
    for update in trace.updates(session, *CONVERSATION_UPDATES):
        between = range(passed, update.entry.number)
        passed = update.entry.number
        if any(begin in between for begin in loads):
            places.clear()
        is_user = update.kind == "user_message_chunk"
        speaks_again = is_user and last is not None and last.kind != "user_message_chunk"
        if speaks_again or any(begin in between for begin in turns | loads):
            turn, last = turn + 1, None
        if update.kind in CHUNKS:
            if last is not None and last.kind == update.kind:
                joints.append((last, update))
            yield from _use_of_id(update, places, (turn, is_user))
        last = update
    yield from _changes_of_id(joints)


def _use_of_id(
    update: TraceUpdate, places: dict[str, tuple[int, bool]], place: tuple[int, bool]
) -> Iterator[Case]:
    message = update.body.get("messageId")
    if isinstance(message, str):
        reused = places.setdefault(message, place) != place
        yield fault_unless(
            not reused, f"the id {shown(message, 100)} belongs to a message before", update.entry
        )


def _changes_of_id(joints: list[tuple[TraceUpdate, TraceUpdate]]) -> Iterator[Case]:
    """Judge changes of the id between adjacent chunks, which may be two messages even if they read like one.

    Only an agent that never gives two such chunks one id shows that it does not know what a message is.
    """
    splits: list[tuple[TraceEntry, TraceEntry]] = []
    for last, update in joints:
        before, after = last.body.get("messageId"), update.body.get("messageId")
        met = last.entry, update.entry
        if before == after:
            continue
        if before is None or after is None:
            yield RuleFinding("some chunks of a message have an id and some have none", met)
        elif _read_like_one(last, update):
            splits.append(met)
            yield RuleFinding("the id changes in the midst of a sentence", met, level=TASTE)
    if len(splits) >= ENOUGH_SPLITS and not any(map(_share_an_id, joints)):
        yield RuleFinding("every chunk has an id of its own, also in the midst of a sentence", splits[0])


def _share_an_id(joint: tuple[TraceUpdate, TraceUpdate]) -> bool:
    before, after = (update.body.get("messageId") for update in joint)
    return before is not None and before == after


def _read_like_one(last: TraceUpdate, update: TraceUpdate) -> bool:
    """True if the second chunk continues a sentence: a space is between, and no end of one before it."""
    before, after = value_at(last.body, "content.text"), value_at(update.body, "content.text")
    if not isinstance(before, str) or not isinstance(after, str):
        return False
    return (before.endswith(" ") or after.startswith(" ")) and not before.rstrip().endswith(SENTENCE_ENDS)


@probe(
    "A52",
    MUST,
    "a cancelled turn ends with the stop reason cancelled, neither with an error nor as if it were done",
    "prompt-turn#cancellation",
    "After all ongoing operations have been successfully aborted and pending updates "
    "have been sent, the Agent MUST respond to the original `session/prompt` request "
    "with the `cancelled` stop reason.",
)
async def cancelled_turn(agent: Candidate) -> None:
    agent.need_working("session/prompt")
    async with agent.conversation() as (client, session):
        prompt = await start_slow_turn(agent, client, session)
        was_over = is_over(client, prompt)
        turn, went_on = await cancel_and_watch(client, session, prompt)
        if turn.stop_reason == "end_turn" and not went_on and (was_over or not agent.has_slow_prompt):
            turn, went_on = await _cancel_at_once(agent, client, session)
            if turn.stop_reason == "end_turn" and not went_on:
                raise Skip(too_short("it could be cancelled"))
        message = f"the turn ended with {_end(turn)}"
        if went_on:
            message = f"{len(went_on)} updates came after the cancel, and {message}"
        entries = (*went_on[:1], turn.answer.entry)
        require(turn.stop_reason == "cancelled", message, *entries)


@probe(
    "A53",
    TASTE,
    "a cancel without a turn, or for an unknown session, is ignored, and the next prompt is answered",
    "prompt-turn#cancellation",
)
async def idle_cancel(agent: Candidate) -> None:
    async with agent.conversation() as (client, session):
        for target in (session, session, NO_SUCH_SESSION):
            client.notify("session/cancel", {"sessionId": target})
        turn = await agent.take_turn(client, session)
        _require_no_answer_to_notifications(client)
        normal = turn.answer.result is not None and turn.stop_reason != "cancelled"
        require(normal, f"the prompt after it ended with {_end(turn)}", turn.answer.entry)


@probe(
    "A54",
    MUST,
    "a cancel while permission is asked for ends the turn as cancelled, and the tool does not run",
    "tool-calls#requesting-permission",
    "After all ongoing operations have been successfully aborted and pending updates "
    "have been sent, the Agent MUST respond to the original `session/prompt` request "
    "with the `cancelled` stop reason.",
)
async def cancelled_question(agent: Candidate) -> None:
    async with agent.conversation() as (client, session):
        await _cancel_question(agent, client, session)


@probe(
    "A55",
    MUST,
    "$/cancel_request for a prompt leaves it with exactly one answer, and is ignored for an unknown id",
    "cancellation",
    "The implementation MUST send one of these responses for the original request: a "
    "valid response with appropriate data, or an error response with code `-32800` "
    "(Request Cancelled).",
)
async def cancelled_request(agent: Candidate) -> None:
    agent.need_working("session/prompt")
    async with agent.conversation() as (client, session):
        prompt = await start_slow_turn(agent, client, session)
        client.notify("$/cancel_request", {"requestId": prompt})
        answer = await _end_at_last(client, session, prompt)
        fits = isinstance(answer.result, dict) or answer.code == CANCELLED
        require(fits, f"the prompt was answered with {describe(answer)}", answer.entry)
        for unknown in (prompt, 987_654, "no-such-request"):
            client.notify("$/cancel_request", {"requestId": unknown})
        turn = await agent.take_turn(client, session)
        _require_no_answer_to_notifications(client)
        require(turn.answer.result is not None, f"the next prompt ended with {_end(turn)}", turn.answer.entry)


async def cancel_and_watch(
    client: ScriptedClient, session: str, prompt: int
) -> tuple[ScriptedTurn, list[TraceEntry]]:
    """Cancel a turn and wait for its end; returns also the updates that show that it went on.

    A request follows the cancel. Once it is answered, the agent has read both.
    """
    begin = len(client.trace.entries)
    client.notify("session/cancel", {"sessionId": session})
    client.ask(BARRIER, {})
    turn = await client.end_of_turn(session, prompt)
    return turn, goes_on(client.trace, session, client.trace.entries[begin], turn.answer.entry)


async def _cancel_at_once(
    agent: Candidate, client: ScriptedClient, session: str
) -> tuple[ScriptedTurn, list[TraceEntry]]:
    """Send a prompt and its cancel in one write: the only way to interrupt a very fast agent."""
    prompt = {"id": 987_654, "method": "session/prompt", "params": prompt_params(session, agent.slow_prompt)}
    cancel = {"method": "session/cancel", "params": {"sessionId": session}}
    begin = len(client.trace.entries)
    lines = (json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in (prompt, cancel))
    client.write("".join(lines).encode())
    turn = await client.end_of_turn(session, 987_654, begin)
    return turn, goes_on(client.trace, session, client.trace.entries[begin + 1], turn.answer.entry)


async def _cancel_question(agent: Candidate, client: ScriptedClient, session: str) -> None:
    client.desk.services[PERMISSION] = hold
    prompt = await begin_asking(agent, client, session)
    client.notify("session/cancel", {"sessionId": session})
    client.desk.services[PERMISSION] = cancel
    client.answer_held(PERMISSION)
    answered = len(client.trace.entries)
    turn = await client.end_of_turn(session, prompt)
    require(turn.stop_reason == "cancelled", f"the turn ended with {_end(turn)}", turn.answer.entry)
    for question in client.trace.exchanges(PERMISSION, "agent"):
        signs = signs_of_running(client.trace, question)
        require(not signs, "the tool ran although the turn was cancelled", question.request, *signs)
    for entry in client.trace.entries[answered:]:
        acts = entry.sender == "agent" and entry.method in ("fs/write_text_file", "terminal/create")
        require(not acts, f"the cancelled turn went on with {entry.method}", entry)


async def _end_at_last(client: ScriptedClient, session: str, prompt: int) -> RequestAnswer:
    """Wait for the prompt's answer. An agent may ignore $/cancel_request; then the turn is cancelled."""
    try:
        return await client.answer(prompt, within=min(2.0, client.timeout))
    except ScriptError as error:
        if error.kind != "silent":
            raise
    client.notify("session/cancel", {"sessionId": session})
    return (await client.end_of_turn(session, prompt)).answer


def _require_no_answer_to_notifications(client: ScriptedClient) -> None:
    if stray := client.trace.stray_answers:
        raise Fault("there is an answer that belongs to no open request", *stray)


def _end(turn: ScriptedTurn) -> str:
    return shown(turn.stop_reason) if turn.answer.result is not None else describe(turn.answer)

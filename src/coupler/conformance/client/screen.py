"""Asserts how clients show updates, forms and URLs; much of it only a person at the screen can judge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import MUST, SHOULD, Case, RuleFinding, client_rule, fault_unless, scenario
from coupler.conformance.client.robustness import begin, finish, survives
from coupler.conformance.reading import shown, value_at
from coupler.conformance.scripted_agent import HeldPrompt, ScriptedAgent
from coupler.recording.traces import INVALID_PARAMS, METHOD_NOT_FOUND, Trace

BY_HAND = "not visible on the wire; serve `coupler check --client` to an editor and look: "

REPLACED = "is the plan exactly one entry, “the new plan”, and does “Tool” hold only the text “new content”?"
KEPT = "is the tool call still titled “A title that stays”, and is the session's title gone?"
OPTIONS = (
    "is there a choice “Depth” with “Shallow” and “Deep”, is no separate mode picker beside it, and is the "
    "option “Hologram” of an unknown type not shown?"
)

MODES = {"currentModeId": "plain", "availableModes": [{"id": "plain", "name": "Plain"}]}


def config_options() -> list[dict[str, Any]]:
    """Return an option in an unknown category, and one of an unknown type."""
    values = [{"value": "shallow", "name": "Shallow"}, {"value": "deep", "name": "Deep"}]
    depth = {"id": "depth", "name": "Depth", "type": "select", "category": "_coupler_depth"}
    return [
        {**depth, "currentValue": "shallow", "options": values},
        {"id": "hologram", "name": "Hologram", "type": "hologram", "currentValue": {}},
    ]


@scenario(
    "shown-replaced", "Sends a plan and a tool's content twice.", "C09", look=REPLACED, needs_person=True
)
async def shown_replaced(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    for name in ("old", "new"):
        entry = {"content": f"the {name} plan", "priority": "high", "status": "pending"}
        turn.update("plan", entries=[entry])
        turn.update(
            "tool_call" if name == "old" else "tool_call_update",
            toolCallId="replaced",
            title="Tool",
            status="completed",
            content=[{"type": "content", "content": {"type": "text", "text": f"{name} content"}}],
        )
    await _ask_person(agent, turn, "C09", REPLACED)


@scenario(
    "shown-null", "Sends null for a tool call's and the session's title.", "C10", look=KEPT, needs_person=True
)
async def shown_null(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    turn.update("tool_call", toolCallId="kept", title="A title that stays", status="pending")
    turn.update("tool_call_update", toolCallId="kept", title=None, status="completed")
    turn.update("session_info_update", title="A title that goes")
    turn.update("session_info_update", title=None)
    await _ask_person(agent, turn, "C10", KEPT)


@scenario("shown-options", "Sends options beside modes.", "C19", look=OPTIONS, needs_person=True)
async def shown_options(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    turn.update("config_option_update", configOptions=config_options())
    await _ask_person(agent, turn, "C19", OPTIONS)


async def _ask_person(agent: ScriptedAgent, turn: HeldPrompt, id: str, question: str) -> None:
    call = {
        "toolCallId": f"question-{id}",
        "title": f"{id}: {question}",
        "kind": "other",
        "status": "pending",
    }
    options = [
        {"optionId": "yes", "name": "Yes, it is so", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    await agent.call("session/request_permission", {"toolCall": call, "options": options})
    turn.end()


@client_rule(
    "C09",
    MUST,
    "plans, lists and a tool's content are replaced by the next ones, not merged",
    "agent-plan",
    "The Client MUST replace the current plan completely.",
    absent=BY_HAND + REPLACED,
)
def shows_replacements(trace: Trace) -> Iterator[Case]:
    yield from _judged_by_person(trace, "C09")


@client_rule(
    "C10",
    MUST,
    "null in a tool call's update leaves the value, in a session's it clears it",
    "tool-calls",
    "`name`: Omitting it or sending `null` both mean that the existing name is left unchanged.",
    absent=BY_HAND + KEPT,
)
def shows_what_null_means(trace: Trace) -> Iterator[Case]:
    yield from _judged_by_person(trace, "C10")


@client_rule(
    "C19",
    SHOULD,
    "options are preferred to modes; an unknown type is ignored, an unknown category is fine",
    "session-config-options",
    "Clients that support config options SHOULD use `configOptions` exclusively and ignore `modes`.",
    absent=BY_HAND + OPTIONS,
)
def shows_options(trace: Trace) -> Iterator[Case]:
    yield from _judged_by_person(trace, "C19")


def _judged_by_person(trace: Trace, id: str) -> Iterator[Case]:
    for exchange in trace.exchanges("session/request_permission", "agent"):
        if value_at(exchange.params, "toolCall.toolCallId") != f"question-{id}":
            continue
        choice = value_at(exchange.result, "outcome.optionId")
        if choice in ("yes", "no"):
            yield fault_unless(choice == "yes", "whoever looked at it said no", exchange.request)


UNKNOWN_MODE = "hologram"
PREFETCHED = "_coupler/prefetched"
"""Notification by which the agent notes in the trace that a URL was fetched without consent."""

FORM: dict[str, Any] = {
    "mode": "form",
    "message": "coupler check: decline this",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}


@scenario(
    "elicitation-modes",
    "Asks the user in a mode that the client did not advertise, and in one that nobody knows.",
    "C16",
    look="No form and no link is shown.",
)
async def modes(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    link = {
        "mode": "url",
        "message": "coupler check",
        "elicitationId": "e0",
        "url": "https://example.invalid/",
    }
    for params in (FORM, link):
        if params["mode"] not in _advertised(agent.trace):
            await agent.call("elicitation/create", params)
    await agent.call("elicitation/create", {"mode": UNKNOWN_MODE, "message": "coupler check", "scene": {}})
    await finish(agent, turn)


@scenario(
    "elicitation-link",
    "Asks the user to open a link, and says twice that one is done which nobody knows.",
    "C17",
    look="The whole link and its host are shown, and nothing is opened before you agree. Decline it.",
)
async def link(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    if "url" in _advertised(agent.trace):
        await _offer_link(agent)
    await finish(agent, turn)


async def _offer_link(agent: ScriptedAgent) -> None:
    visits: list[None] = []

    def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(None)
        writer.close()

    async with await asyncio.start_server(visited, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/coupler-check"
        params = {"mode": "url", "message": "coupler check: decline this", "elicitationId": "e1", "url": url}
        answer = await agent.call("elicitation/create", params)
        if visits and value_at(answer, "result.action") != "accept":
            agent.notify(PREFETCHED, {"url": url})
    for known in ("e1", "e1", "never heard of"):
        agent.notify("elicitation/complete", {"elicitationId": known})


@client_rule(
    "C16",
    MUST,
    "an elicitation in a mode that was not advertised, or that nobody knows, is refused with -32602",
    "elicitation",
    "Requests using a mode the Client has not advertised produce JSON-RPC `-32602` (Invalid params).",
    absent="the client was not asked for an elicitation",
)
def refuses_modes(trace: Trace) -> Iterator[Case]:
    advertised = _advertised(trace)
    # A client that advertises no mode need not know the method.
    codes = {INVALID_PARAMS} if advertised else {INVALID_PARAMS, METHOD_NOT_FOUND}
    for exchange in trace.exchanges("elicitation/create", "agent"):
        mode = exchange.params.get("mode")
        if mode in advertised:
            continue
        if exchange.answer is None:
            yield RuleFinding(f"the mode {shown(mode)} was not answered", (exchange.request,))
        else:
            code = value_at(exchange.error, "code")
            given = f"the error {code}" if exchange.error else f"the result {shown(exchange.result)}"
            message = f"the mode {shown(mode)} is not advertised and was answered with {given}"
            yield fault_unless(code in codes, message, exchange.request, exchange.answer)


@client_rule(
    "C17",
    MUST,
    "a link is not fetched before the user consents, and unknown or repeated completions are ignored",
    "elicitation",
    "Clients MUST NOT prefetch the URL or open it without explicit user consent. Clients "
    "MUST ignore unknown or already-completed IDs.",
    absent="the client does not advertise elicitation.url",
)
def does_not_fetch_links(trace: Trace) -> Iterator[Case]:
    links = [
        each for each in trace.exchanges("elicitation/create", "agent") if each.params.get("mode") == "url"
    ]
    if trace.label != "elicitation-link" or not links:
        return
    yield fault_unless(links[0].answer is not None, "the link was not answered", links[0].request)
    fetched = trace.notifications(PREFETCHED)
    yield fault_unless(not fetched, "the link was fetched although nobody consented", links[0].request)
    yield from survives(trace, "elicitation-link", "completions of unknown links")


def _advertised(trace: Trace) -> list[str]:
    modes = value_at(trace.client_capabilities, "elicitation")
    return [mode for mode in ("form", "url") if isinstance(value_at(modes, mode), dict)]

"""Asserts how clients show forms and URLs to the user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import MUST, Case, RuleFinding, fault_unless, rule, scenario
from coupler.conformance.client.open_world import begin, finish, survives
from coupler.conformance.reading import shown, value_at
from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import INVALID_PARAMS, METHOD_NOT_FOUND, Trace

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


@rule(
    "C16",
    MUST,
    "an elicitation in a mode that was not advertised, or that nobody knows, is refused with -32602",
    "elicitation",
    "Requests using a mode the Client has not advertised produce JSON-RPC `-32602` (Invalid params).",
    absent="the client was not asked for an elicitation",
    side="client",
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


@rule(
    "C17",
    MUST,
    "a link is not fetched before the user consents, and unknown or repeated completions are ignored",
    "elicitation",
    "Clients MUST NOT prefetch the URL or open it without explicit user consent. Clients "
    "MUST ignore unknown or already-completed IDs.",
    absent="the client does not advertise elicitation.url",
    side="client",
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

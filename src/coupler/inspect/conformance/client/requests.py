"""Requests of the agent that a client does not know, and lists in pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coupler.inspect.conformance.assertion import MUST, Case, Finding, fault_unless, rule
from coupler.inspect.conformance.client.survival import begin, finish
from coupler.inspect.conformance.reading import part
from coupler.inspect.conformance.scenario import scenario
from coupler.inspect.desk import Refusal
from coupler.inspect.scripted_agent import METHOD_NOT_FOUND, ScriptedAgent
from coupler.inspect.trace import Trace, id_key

UNKNOWN_METHODS = ("_coupler/unknown", "coupler_unknown")

PAGES: dict[Any, tuple[str, str | None]] = {
    None: ("session_a", "päge/2 + =="),
    "päge/2 + ==": ("session_b", '{"offset": 20}'),
    '{"offset": 20}': ("session_c", None),
}
"""The sessions by the cursor that leads to them, with the next cursor."""


@scenario(
    "unknown-requests",
    "Sends requests of methods that nobody knows, with ids of every kind.",
    *("C20", "X03"),
    look="Nothing is shown.",
)
async def unknown_requests(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    ids = ["a string", 0, 9007199254740991]
    for index, each in enumerate(ids):
        agent.ask(UNKNOWN_METHODS[index % 2], {"sessionId": agent.session_id}, id=each)
    for each in ids:
        await agent.answer_to(each)
    await finish(agent, turn)


@scenario(
    "pages",
    "Lists its sessions in three pages, with cursors that tempt to be read.",
    "C20",
    needs_connection=True,
)
async def pages(agent: ScriptedAgent) -> None:
    agent.introduction["agentCapabilities"] = {"sessionCapabilities": {"list": {}}}
    agent.services["session/list"] = _page
    turn = await begin(agent)
    await finish(agent, turn)


def _page(params: dict[str, Any]) -> dict[str, Any]:
    cursor = params.get("cursor")
    if cursor is not None and cursor not in PAGES:
        raise Refusal(-32602, f"there is no cursor {cursor!r}")
    session, following = PAGES[cursor]
    page: dict[str, Any] = {"sessions": [{"sessionId": session, "cwd": "/"}]}
    return page if following is None else {**page, "nextCursor": following}


@rule(
    "C20",
    MUST,
    "an unknown request is refused with -32601; a cursor is sent back as it came, and none means the end",
    "extensibility",
    absent="the client got no unknown request and listed no sessions",
    side="client",
)
def refuses_unknown_requests(trace: Trace) -> Iterator[Case]:
    for method in UNKNOWN_METHODS:
        for exchange in trace.exchanges(method, "agent"):
            if exchange.answer is None:
                yield Finding(f"the unknown request {method!r} was not answered", (exchange.request,))
                continue
            code = part(exchange.error, "code")
            result = f"the result {exchange.answer.message.get('result')!r:.100}"
            given = result if exchange.error is None else f"the error {code}"
            message = f"the unknown request {method!r} was answered with {given}"
            yield fault_unless(code == METHOD_NOT_FOUND, message, exchange.request, exchange.answer)
    yield from _judge_paging(trace)


def _judge_paging(trace: Trace) -> Iterator[Case]:
    given: list[Any] = []
    for exchange in trace.exchanges("session/list"):
        cursor = exchange.params.get("cursor")
        good = cursor is None or cursor in given
        yield fault_unless(
            good, f"the cursor {cursor!r} was never given; given were {given}", exchange.request
        )
        given.append(part(exchange.result, "nextCursor"))


@rule(
    "X03",
    MUST,
    "every answer has the id of a request, in value and type, and there is one for each",
    "JSON-RPC",
    absent="the client answered no request",
    side="client",
)
def answers_once(trace: Trace) -> Iterator[Case]:
    if any(exchange.answer is not None for exchange in trace.exchanges(sender="agent")):
        yield None
    for answer in trace.stray_answers:
        # JSON-RPC lets an error without an id say that a line could not be read.
        is_complaint = answer.message.get("id") is None and "error" in answer.message
        if answer.sender == "client" and not is_complaint:
            key = id_key(answer.message.get("id"))
            yield Finding(f"an answer with the id {key}, which no open request has", (answer,))

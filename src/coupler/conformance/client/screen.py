"""Asserts how clients show updates, which only a person at the screen can judge and is asked about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import MUST, SHOULD, Case, fault_unless, rule, scenario
from coupler.conformance.client.open_world import begin
from coupler.conformance.reading import value_at
from coupler.conformance.scripted_agent import HeldPrompt, ScriptedAgent
from coupler.recording.traces import Trace

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


@rule(
    "C09",
    MUST,
    "plans, lists and a tool's content are replaced by the next ones, not merged",
    "agent-plan",
    "The Client MUST replace the current plan completely.",
    absent=BY_HAND + REPLACED,
    side="client",
)
def shows_replacements(trace: Trace) -> Iterator[Case]:
    yield from _judged_by_person(trace, "C09")


@rule(
    "C10",
    MUST,
    "null in a tool call's update leaves the value, in a session's it clears it",
    "tool-calls",
    "`name`: Omitting it or sending `null` both mean that the existing name is left unchanged.",
    absent=BY_HAND + KEPT,
    side="client",
)
def shows_what_null_means(trace: Trace) -> Iterator[Case]:
    yield from _judged_by_person(trace, "C10")


@rule(
    "C19",
    SHOULD,
    "options are preferred to modes; an unknown type is ignored, an unknown category is fine",
    "session-config-options",
    "Clients that support config options SHOULD use `configOptions` exclusively and ignore `modes`.",
    absent=BY_HAND + OPTIONS,
    side="client",
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

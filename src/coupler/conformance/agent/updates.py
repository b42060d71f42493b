"""Asserts that an agent's plans, usage, optional updates and all its messages are valid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coupler.conformance.agent.lifecycle import hold_bare_conversation
from coupler.conformance.assertion import MUST, TASTE, Case, RuleFinding, fault_unless, probe, rule
from coupler.conformance.candidate import Candidate
from coupler.conformance.reading import (
    CONVERSATION_UPDATES,
    OPTIONAL_UPDATES,
    STATE_UPDATES,
    RequestSpan,
    is_count,
    is_null_for_nothing,
    items,
    shown,
    spans,
    value_at,
)
from coupler.recording.traces import Trace, TraceEntry, TraceUpdate, schema_problems
from coupler.schema.methods import METHODS

PRIORITIES = ("high", "medium", "low")
STATUSES = ("pending", "in_progress", "completed")


@rule(
    "A49",
    MUST,
    "every plan has all its entries, whole",
    "agent-plan",
    "The Agent MUST send a complete list of all plan entries in each update and their current status.",
    absent="no plan was seen",
)
def plans_are_complete(trace: Trace) -> Iterator[Case]:
    prompts = spans(trace, "session/prompt")
    last: dict[tuple[str, int], list[Any]] = {}
    for update in trace.updates(None, "plan"):
        entries = update.body.get("entries")
        bad = [entry for entry in items(entries) if not _is_plan_entry(entry)]
        if not isinstance(entries, list) or bad:
            yield RuleFinding(f"this is no whole plan: {shown(bad or entries)}", (update.entry,))
            continue
        turn = str(update.session), _turn_number(update, prompts)
        patches = _is_patch(entries, last.get(turn, []))
        last[turn] = entries
        yield fault_unless(
            not patches, "the plan has one entry of the plan before, with another status", update.entry
        )


@rule(
    "A50",
    MUST,
    "usage is counted in integers from 0, and a cost has an amount and a currency",
    "prompt-turn",
    "`used` and `size` are required and non-null token counts for the current session "
    "context. `cost` is optional and, if present, `amount` and `currency` are required.",
    absent="no usage was seen",
)
def usage_is_counted(trace: Trace) -> Iterator[Case]:
    for update in trace.updates(None, "usage_update"):
        used, size, cost = (update.body.get(name) for name in ("used", "size", "cost"))
        counted = is_count(used) and is_count(size)
        yield fault_unless(counted, f"used is {shown(used, 100)}, size is {shown(size, 100)}", update.entry)
        yield fault_unless(cost is None or _is_cost(cost), f"the cost is {shown(cost)}", update.entry)


N01 = (
    "N01",
    MUST,
    "compaction is shown only to a client with session.compaction",
    "schema: CompactionCapabilities",
    "Agents MUST only send this update when the Client advertised `ClientSessionCapabilities::compaction`.",
)


N02 = (
    "N02",
    MUST,
    "notices are given only to a client with session.notices",
    "schema: NoticeCapabilities",
    "Omitted or `null` both mean the client does not advertise support. Clients and "
    "Agents MUST treat all capabilities omitted in the `initialize` request as "
    "UNSUPPORTED.",
)


@probe(*N01)
async def compacts_for_a_bare_client(agent: Candidate) -> None:
    """Hold a conversation as a client without capabilities, for the rule to judge."""
    await hold_bare_conversation(agent)


@rule(*N01, absent="no turn without session.compaction was seen")
def compaction_is_asked_for(trace: Trace) -> Iterator[Case]:
    yield from _unasked(trace, "session.compaction")


@probe(*N02)
async def gives_notice_to_a_bare_client(agent: Candidate) -> None:
    """Hold a conversation as a client without capabilities, for the rule to judge."""
    await hold_bare_conversation(agent)


@rule(*N02, absent="no turn without session.notices was seen")
def notices_are_asked_for(trace: Trace) -> Iterator[Case]:
    yield from _unasked(trace, "session.notices")


@rule(
    "S01",
    MUST,
    "everything that the agent says is valid by the published schema",
    "schema",
    "Clients and Agents MUST agree on a protocol version and act according to its specification.",
    absent="the agent said nothing",
)
def everything_is_valid(trace: Trace) -> Iterator[Case]:
    for entry in trace.entries:
        if entry.sender == "agent" and entry.message and not _is_unknown_update(entry):
            yield _validity(entry, trace)


@rule(
    "T11",
    TASTE,
    "no update is about a session whose id the client has not been given yet",
    "session-setup",
    absent="no session/new was answered with a session",
)
def sessions_begin_with_their_answer(trace: Trace) -> Iterator[Case]:
    known: set[str] = set()
    for exchange in trace.exchanges("session/new"):
        session = value_at(exchange.result, "sessionId")
        if not isinstance(session, str) or exchange.answer is None or session in known:
            continue
        known.add(session)
        yield None
        for update in trace.updates(session):
            if update.entry.number < exchange.answer.number:
                message = f"{shown(update.kind, 100)} came before the answer to session/new"
                yield RuleFinding(message, (update.entry, exchange.answer))


def _is_plan_entry(entry: Any) -> bool:
    return (
        isinstance(value_at(entry, "content"), str)
        and value_at(entry, "priority") in PRIORITIES
        and value_at(entry, "status") in STATUSES
    )


def _is_patch(entries: list[Any], before: list[Any]) -> bool:
    """True if the plan is one entry of the plan before with a new status, and others were dropped undone."""
    if len(entries) != 1 or len(before) < 2:
        return False
    dropped = [entry for entry in before if entry["content"] != entries[0]["content"]]
    if all(entry["status"] == "completed" for entry in dropped):
        return False
    statuses = [entry["status"] for entry in before if entry["content"] == entries[0]["content"]]
    return bool(statuses) and entries[0]["status"] not in statuses


def _turn_number(update: TraceUpdate, prompts: list[RequestSpan]) -> int:
    return sum(prompt.session == update.session and prompt.begin < update.entry.number for prompt in prompts)


def _is_cost(cost: Any) -> bool:
    amount, currency = value_at(cost, "amount"), value_at(cost, "currency")
    return type(amount) in (int, float) and isinstance(currency, str) and bool(currency)


def _unasked(trace: Trace, capability: str) -> Iterator[Case]:
    if isinstance(value_at(trace.client_capabilities, capability), dict) or not trace.exchanges("initialize"):
        return
    yield from (None for prompt in trace.exchanges("session/prompt") if prompt.answer is not None)
    kinds = [kind for kind, gate in OPTIONAL_UPDATES.items() if gate == capability]
    for update in trace.updates(None, *kinds):
        yield RuleFinding(f"{update.kind} was sent to a client without {capability}", (update.entry,))


def _is_unknown_update(entry: TraceEntry) -> bool:
    """True if this is an update of a kind that the schema lacks, which another assertion judges."""
    kind = value_at(entry.params, "update.sessionUpdate")
    return (
        entry.method == "session/update"
        and isinstance(kind, str)
        and kind not in CONVERSATION_UPDATES + STATE_UPDATES
    )


def _validity(entry: TraceEntry, trace: Trace) -> Case:
    if entry.method is not None and not entry.method.startswith(("_", "$/")):
        method = METHODS.get(entry.method)
        if method is None or method.direction == "agent":
            return RuleFinding(f"clients have no method {shown(entry.method, 100)}", (entry,))
    wrong = [problem for problem in schema_problems(entry, trace) if not problem.is_stray_key]
    if [problem.path for problem in wrong] == ["result"] and is_null_for_nothing(entry, trace):
        return RuleFinding("a result is null where the schema has an object", (entry,), level=TASTE)
    return fault_unless(not wrong, "; ".join(map(str, wrong)), entry)

"""Asserts that what an agent sends is valid: plans, usage, updates, `_meta`, and no keys of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from coupler.conformance.agent.lifecycle import hold_bare_conversation
from coupler.conformance.assertion import MUST, TASTE, Case, RuleFinding, fault_unless, probe, require, rule
from coupler.conformance.candidate import Candidate, describe
from coupler.conformance.peers import FULL_CAPABILITIES, INFO, Service
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
from coupler.conformance.scripted_client import TURN_PATIENCE, ScriptedClient, prompt_params
from coupler.recording.traces import Trace, TraceEntry, TraceUpdate, schema_problems
from coupler.schema import v1
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


probe(*N01)(hold_bare_conversation)


@rule(*N01, absent="no turn without session.compaction was seen")
def compaction_is_asked_for(trace: Trace) -> Iterator[Case]:
    yield from _unasked(trace, "session.compaction")


probe(*N02)(hold_bare_conversation)


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


TOLERANCE = (
    "A60",
    MUST,
    "_meta and unknown fields are let through, and the agent makes up no keys and no updates",
    "extensibility",
    "Implementations MUST NOT add any custom fields at the root of a type that's part of "
    "the specification. All types in the protocol include a `_meta` field.",
)

EXTRAS: dict[str, Any] = {"_meta": {"coupler.check": {"nested": [1, None]}}, "couplerCheck": {"a": ["b"]}}

STABLE_UPDATES = frozenset(kind.__struct_config__.tag for kind in get_args(v1.SessionUpdate))


@rule(*TOLERANCE, absent="the agent sent nothing")
def nothing_made_up(trace: Trace) -> Iterator[Case]:
    for entry in trace.entries:
        if entry.sender == "agent" and entry.message:
            yield None
            for problem in schema_problems(entry, trace):
                if problem.is_stray_key:
                    yield RuleFinding(str(problem), (entry,), level=TASTE if problem.is_draft else None)
    for update in trace.updates():
        yield fault_unless(
            _may_be_sent(update, trace), f"the client knows no update {shown(update.kind)}", update.entry
        )


@probe(*TOLERANCE)
async def lets_extras_through(agent: Candidate) -> None:
    agent.need_working("initialize")
    async with agent.start() as client:
        client.desk.services = {name: _with_extras(each) for name, each in client.desk.services.items()}
        await _initialize_with_extras(agent, client)
        # What fails without extra fields as well is not to be found fault with here.
        await agent.take_turn(client, await agent.open_session(client))
        session = (await _accepted(client, "session/new", _new_session(client))).get("sessionId")
        require(isinstance(session, str), f"session/new with extra fields gave the session {shown(session)}")
        params = prompt_params(str(session), agent.prompt)
        params["prompt"][0] |= EXTRAS
        await _accepted(client, "session/prompt", params, within=TURN_PATIENCE * client.timeout)


async def _initialize_with_extras(agent: Candidate, client: ScriptedClient) -> None:
    hello = {
        "protocolVersion": 1,
        "clientCapabilities": {**FULL_CAPABILITIES, **EXTRAS},
        "clientInfo": {**INFO, **EXTRAS},
    }
    client.introduction = await _accepted(client, "initialize", hello, within=agent.startup_timeout)
    if agent.auth is not None:
        await _accepted(client, "authenticate", {"methodId": agent.auth})


async def _accepted(
    client: ScriptedClient, method: str, params: dict[str, Any], within: float | None = None
) -> dict[str, Any]:
    """Send a request with extra fields and return its result; a refusal is a fault."""
    answer = await client.call(method, params | EXTRAS, within)
    refused = f"{method} with extra fields was answered with {describe(answer)}"
    require(isinstance(answer.result, dict), refused, answer.entry)
    return dict(answer.result)


def _new_session(client: ScriptedClient) -> dict[str, Any]:
    return {"cwd": str(client.directory), "mcpServers": []}


def _with_extras(service: Service) -> Service:
    return lambda params: service(params) | EXTRAS


def _may_be_sent(update: TraceUpdate, trace: Trace) -> bool:
    if not isinstance(update.kind, str):
        return False
    if (gate := OPTIONAL_UPDATES.get(update.kind)) is None:
        return update.kind in STABLE_UPDATES
    return isinstance(value_at(trace.client_capabilities, gate), dict)

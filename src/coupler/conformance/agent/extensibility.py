"""Asserts that agents tolerate `_meta` and unknown fields, and send no keys or updates of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from coupler.conformance.assertion import MUST, TASTE, Case, RuleFinding, fault_unless, probe, require, rule
from coupler.conformance.candidate import Candidate, describe
from coupler.conformance.peers import FULL_CAPABILITIES, INFO, Service
from coupler.conformance.reading import OPTIONAL_UPDATES, shown, value_at
from coupler.conformance.scripted_client import TURN_PATIENCE, ScriptedClient, prompt_params
from coupler.recording.traces import Trace, TraceUpdate, schema_problems
from coupler.schema import v1

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

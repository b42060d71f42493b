"""Asserts how agents ask their editor for files, terminals and forms, and what they do when it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coupler.conformance.agent.prompting import cancel_turn, is_over
from coupler.conformance.agent.tool_calls import NOT_ASKED, PERMISSION, signs_of_running
from coupler.conformance.assertion import MUST, Case, Skip, fault_unless, probe, require, rule
from coupler.conformance.candidate import Candidate
from coupler.conformance.peers import RequestRefused, ScriptError, Service, decline, hold, reject
from coupler.conformance.reading import shown, value_at
from coupler.conformance.scripted_client import ScriptedClient
from coupler.recording.traces import INTERNAL_ERROR, Trace, TraceEntry, TraceExchange

ELICITATION = "elicitation/create"
GATES = ("fs.readTextFile", "fs.writeTextFile", "terminal", "elicitation.form", "elicitation.url")
PROPERTY_TYPES = ("string", "number", "integer", "boolean", "array")

LITTLE_OFFERED: tuple[dict[str, Any], ...] = (
    {"elicitation": {}},
    {"elicitation": {"url": {}}, "fs": {"readTextFile": True}},
)
"""Capabilities that are easily misread: an empty object offers nothing, nor does one of a pair the other."""

RELEASING = 1.0
"""Seconds after a turn in which its terminals must be released."""

ONLY_OFFERED = (
    "A56",
    MUST,
    "files, terminals and elicitation are used only as far as the client offers them",
    "file-system, terminals, elicitation",
    "If `readTextFile` or `writeTextFile` is `false` or not present, the Agent MUST NOT "
    "attempt to call the corresponding filesystem method. If `terminal` is `false` or "
    "not present, the Agent MUST NOT attempt to call any terminal methods. Agents MUST "
    "NOT request a mode the Client has not advertised.",
)
NO_TERMINAL = "no terminal was created, or nothing was seen after the turn"
RELEASED = (
    "A57",
    MUST,
    "every terminal that was created is released, also when the turn is cancelled",
    "terminals#releasing-terminals",
    "The Agent MUST release the terminal using `terminal/release` when it's no longer needed.",
)
WELL_FORMED = (
    "A59",
    MUST,
    "an elicitation has a mode, one scope and a flat schema; decline, cancel and errors block no turn",
    "elicitation",
    "ACP also requires `mode` explicitly. Agents MUST NOT assume an elicitation "
    "succeeds. They MUST handle `decline`, `cancel`, and failures by safely falling "
    "back, retrying, or failing the originating operation as appropriate.",
)


@rule(
    *ONLY_OFFERED,
    absent="no turn was seen in which the client did not offer everything",
)
def only_what_is_offered(trace: Trace) -> Iterator[Case]:
    if not trace.exchanges("initialize"):
        return
    for exchange in trace.exchanges(sender="agent"):
        if (gate := _gate(exchange)) is not None:
            message = f"{exchange.method} was called, and the client does not offer {gate}"
            yield fault_unless(_offers(trace.client_capabilities, gate), message, exchange.request)
    if not all(_offers(trace.client_capabilities, gate) for gate in GATES):
        yield from (None for turn in trace.exchanges("session/prompt") if turn.answer is not None)


@probe(*ONLY_OFFERED)
async def little_is_offered(agent: Candidate) -> None:
    """Run a turn with each of LITTLE_OFFERED, for the rule to judge."""
    for capabilities in LITTLE_OFFERED:
        async with agent.conversation(capabilities) as (client, session):
            await agent.take_turn(client, session)


@rule(*RELEASED, absent=NO_TERMINAL)
def terminals_are_released(trace: Trace) -> Iterator[Case]:
    released = [each.params.get("terminalId") for each in trace.exchanges("terminal/release", "agent")]
    for created in trace.exchanges("terminal/create", "agent"):
        terminal = value_at(created.result, "terminalId")
        end = _end_of_turn_around(created, trace)
        if isinstance(terminal, str) and end is not None and (terminal in released or _goes_on(trace, end)):
            message = f"the turn is over, and {terminal} was not released"
            yield fault_unless(terminal in released, message, created.request, end)


@probe(*RELEASED)
async def releases_at_the_end(agent: Candidate) -> None:
    async with agent.conversation() as (client, session):
        await agent.take_turn(client, session)
        await _require_releases(client)
    async with agent.conversation() as (client, session):
        _play_endless_command(client)
        prompt = client.ask_prompt(session, agent.prompt)
        await _wait_for_terminal(client, prompt)
        await cancel_turn(client, session, prompt)
        if not is_over(client, prompt):
            raise Skip("the turn did not end when it was cancelled, so its terminal may still be in use")
        await _require_releases(client)


@probe(
    "A58",
    MUST,
    "a tool does not run if the user rejects it, or if the answer is an option that was not offered",
    "tool-calls#requesting-permission",
    "The Agent MAY request permission from the user before executing a tool call. "
    "`reject_once`: Reject this operation only this time.",
)
async def rejected_tools(agent: Candidate) -> None:
    for answer in (reject, choose_unknown_option):
        async with agent.conversation() as (client, session):
            client.desk.services[PERMISSION] = answer
            await agent.take_turn(client, session)
            questions = client.trace.exchanges(PERMISSION, "agent")
            if not questions:
                raise Skip(NOT_ASKED)
            for question in questions:
                signs = signs_of_running(client.trace, question)
                require(not signs, "the tool ran without permission", question.request, *signs)


@rule(*WELL_FORMED, absent="the agent elicited nothing")
def well_formed_elicitations(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges(ELICITATION, "agent"):
        wrong = [*_elicitation_problems(exchange.params)]
        yield fault_unless(not wrong, "; ".join(wrong), exchange.request)


@probe(*WELL_FORMED)
async def unwilling_user(agent: Candidate) -> None:
    async with agent.conversation() as (client, session):
        for answer in (decline, dismiss, fail):
            client.desk.services[ELICITATION] = answer
            await client.prompt(session, agent.prompt)
            if not client.trace.exchanges(ELICITATION, "agent"):
                raise Skip("the prompt made the agent elicit nothing; pass a --prompt that does")


def choose_unknown_option(params: dict[str, Any]) -> dict[str, Any]:
    """Select an option that was not offered."""
    return {"outcome": {"outcome": "selected", "optionId": "coupler-check-no-such-option"}}


def dismiss(params: dict[str, Any]) -> dict[str, Any]:
    """Close a form without an answer."""
    return {"action": "cancel"}


def fail(params: dict[str, Any]) -> dict[str, Any]:
    """Answer a form with an error."""
    raise RequestRefused(INTERNAL_ERROR, "the form could not be shown")


def _gate(exchange: TraceExchange) -> str | None:
    """Return the path of the capability that a request needs."""
    match exchange.method.split("/"):
        case ["fs", "read_text_file"]:
            return "fs.readTextFile"
        case ["fs", "write_text_file"]:
            return "fs.writeTextFile"
        case ["terminal", _]:
            return "terminal"
        case ["elicitation", "create"]:
            mode = exchange.params.get("mode")
            return f"elicitation.{mode if isinstance(mode, str) else 'form'}"
    return None


def _offers(capabilities: dict[str, Any], gate: str) -> bool:
    value = value_at(capabilities, gate)
    return isinstance(value, dict) if gate.startswith("elicitation") else value is True


def _end_of_turn_around(exchange: TraceExchange, trace: Trace) -> TraceEntry | None:
    """Return the answer that ended the turn in which a request was made; None if there is none."""
    for turn in trace.exchanges("session/prompt"):
        is_same = turn.params.get("sessionId") == exchange.params.get("sessionId")
        if is_same and turn.answer and turn.request.number < exchange.request.number < turn.answer.number:
            return turn.answer
    return None


def _goes_on(trace: Trace, end: TraceEntry) -> bool:
    """True if the trace goes on for RELEASING seconds after the end of a turn."""
    return trace.entries[-1].at - end.at >= RELEASING


async def _require_releases(client: ScriptedClient) -> None:
    """Require that every terminal is released, which may happen just after the turn."""
    if client.desk.terminals:
        await client.request_of_agent("terminal/release")
    if client.desk.open_terminals:
        await client.quiet(RELEASING)
    left = ", ".join(client.desk.open_terminals)
    require(not left, f"the turn is over, and {left} was not released")


def _play_endless_command(client: ScriptedClient) -> None:
    """Simulate a command that ends only when it is killed or released.

    Whoever waits for it is answered then.
    """
    services = client.desk.services

    def ending(service: Service) -> Service:
        def end(params: dict[str, Any]) -> dict[str, Any]:
            services["terminal/wait_for_exit"] = lambda params: {"signal": "SIGKILL"}
            client.answer_held("terminal/wait_for_exit")
            return service(params)

        return end

    services["terminal/wait_for_exit"] = hold
    services["terminal/output"] = lambda params: {"output": "", "truncated": False}
    for method in ("terminal/kill", "terminal/release"):
        services[method] = ending(services[method])


async def _wait_for_terminal(client: ScriptedClient, prompt: int) -> None:
    """Wait for a terminal, and up to a second for a request about it; skips if none is created."""
    reason = "the prompt made the agent create no terminal; pass a --prompt that does"
    try:
        created = await client.request_in_turn(prompt, "terminal/create")
    except ScriptError as error:
        if error.kind == "silent":
            raise Skip(f"{reason} within {client.timeout:g} s") from None
        raise
    if created is None:
        raise Skip(reason)
    try:
        await client.request_in_turn(prompt, "terminal/wait_for_exit", "terminal/output", within=1.0)
    except ScriptError as error:
        if error.kind != "silent":
            raise


def _elicitation_problems(params: dict[str, Any]) -> Iterator[str]:
    mode = params.get("mode")
    if not isinstance(mode, str):
        yield f"the mode is {shown(mode)}"
    scopes = [name for name in ("sessionId", "requestId") if params.get(name) is not None]
    if len(scopes) != 1:
        yield f"it needs one scope, sessionId or requestId, and has {' and '.join(scopes) or 'none'}"
    if mode == "form":
        yield from _form_problems(params.get("requestedSchema"))
    if mode == "url":
        for name in ("elicitationId", "url"):
            if not isinstance(params.get(name), str):
                yield f"{name} is {shown(params.get(name))}"


def _form_problems(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield 'requestedSchema is no schema of the type "object"'
        return
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        yield "requestedSchema has no properties"
        return
    for name, value in properties.items():
        if not _is_flat(value):
            yield f"the property {shown(name)} is neither a plain value nor a list of choices"


def _is_flat(property: Any) -> bool:
    if not isinstance(property, dict) or property.get("type") not in PROPERTY_TYPES:
        return False
    if property["type"] != "array":
        return True
    items = property.get("items")
    return isinstance(items, dict) and any(isinstance(items.get(key), list) for key in ("enum", "anyOf"))

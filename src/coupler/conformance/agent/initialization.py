"""Asserts how agents answer `initialize`: versions, capabilities and methods; and how they log users in."""

from __future__ import annotations

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
from coupler.conformance.candidate import (
    NO_SUCH_SESSION,
    Candidate,
    advertises,
    describe,
    expect_error,
    expect_result,
)
from coupler.conformance.reading import OPTIONAL_UPDATES, shown, value_at
from coupler.conformance.scripted_client import ScriptedClient
from coupler.recording.traces import AUTH_REQUIRED, METHOD_NOT_FOUND, Trace, TraceEntry, schema_problems


@rule(
    "A01",
    MUST,
    "initialize with version 1 is answered with version 1 and a valid result",
    "initialization",
    "If the Agent supports the requested version, it MUST respond with the same version.",
    absent="no answer to initialize was seen",
    any_version=True,
)
def version_one(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("initialize"):
        if exchange.params.get("protocolVersion") != 1 or schema_problems(exchange.request):
            continue
        if exchange.answer is None:
            # An agent may hang up on a client that says something else first.
            if all(entry.sender == "agent" for entry in trace.entries[: exchange.request.number]):
                reason = f": {trace.unreadable}" if trace.unreadable else ""
                yield RuleFinding(f"initialize was not answered{reason}", (exchange.request,))
            continue
        answered = exchange.result.get("protocolVersion") if isinstance(exchange.result, dict) else None
        yield fault_unless(
            type(answered) is int and answered == 1,
            f"version 1 was asked for and {shown(answered)} answered",
            exchange.answer,
        )
        wrong = [problem for problem in schema_problems(exchange.answer, trace) if not problem.is_stray_key]
        yield fault_unless(not wrong, "; ".join(map(str, wrong)), exchange.answer)


@probe(
    "A02",
    MUST,
    "a version that is too new is answered with the agent's newest, not with an error",
    "initialization#version-negotiation",
    "Otherwise, the Agent MUST respond with the latest version it supports.",
)
async def newest_version(agent: Candidate) -> None:
    agent.need_working("initialize")
    async with agent.start() as client:
        answer = await client.initialize(version=65535, within=agent.startup_timeout)
        expect_result(answer, "the answer is")
        version = value_at(answer.result, "protocolVersion")
        require(type(version) is int, f"the version answered is {shown(version)}", answer.entry)
        require(version != 65535, "the agent claims to speak version 65535", answer.entry)


@probe(
    "A03",
    TASTE,
    "a version that is no integer from 0 to 65535 is refused",
    "schema: ProtocolVersion",
)
async def bad_version(agent: Candidate) -> None:
    agent.need_working("initialize")
    for version in ("1", 70_000):
        async with agent.start() as client:
            answer = await client.call(
                "initialize", {"protocolVersion": version}, within=agent.startup_timeout
            )
            expect_error(answer, f"{shown(version)} was answered with")


@probe(
    "A04",
    MUST,
    "a client without capabilities is served, and asked for nothing optional",
    "initialization",
    "Clients and Agents MUST treat all capabilities omitted in the `initialize` request as UNSUPPORTED.",
)
async def bare_client(agent: Candidate) -> None:
    async with agent.start({}) as client:
        await _initialize(agent, client, {"protocolVersion": 1})
        await agent.take_turn(client, await agent.open_session(client))
        for exchange in client.trace.exchanges(sender="agent"):
            optional = exchange.method != "session/request_permission" and not exchange.method.startswith("_")
            require(not optional, f"the agent asked for {exchange.method}", exchange.request)
        for update in client.trace.updates(None, *OPTIONAL_UPDATES):
            raise Fault(f"the agent sent the update {update.kind}", update.entry)


@probe(
    "A05",
    SHOULD,
    "a malformed capability counts as missing, and its neighbours still count",
    "schema: ClientCapabilities",
    "`fs`, `readTextFile`, `writeTextFile`, `terminal`: `x-deserialize-default-on-error`: true",
)
async def malformed_capability(agent: Candidate) -> None:
    trace = await _turn_with(agent, {"fs": {"readTextFile": "yes", "writeTextFile": True}, "terminal": 5})
    for exchange in trace.exchanges(sender="agent"):
        method = exchange.method
        malformed = method == "fs/read_text_file" or method.startswith("terminal/")
        require(not malformed, f"{method} was used, but is not advertised", exchange.request)
    edit = _edit_past_the_client(trace)
    if edit is not None:
        # An agent may want both to write by the client: then it does not matter that one is malformed.
        one_missing = await _turn_with(agent, {"fs": {"writeTextFile": True}})
        message = "a file was edited past fs/write_text_file, which is used if its neighbour is only missing"
        require(not one_missing.exchanges("fs/write_text_file", "agent"), message, edit)


async def _turn_with(agent: Candidate, capabilities: dict[str, Any]) -> Trace:
    """Return the trace of a turn for a client with just these capabilities."""
    async with agent.start(capabilities) as client:
        await _initialize(agent, client, {"protocolVersion": 1, "clientCapabilities": capabilities})
        await agent.take_turn(client, await agent.open_session(client))
        return client.trace


def _edit_past_the_client(trace: Trace) -> TraceEntry | None:
    """Return the end of a completed edit, if the agent wrote no file through the client."""
    if trace.exchanges("fs/write_text_file", "agent"):
        return None
    calls = trace.updates(None, "tool_call", "tool_call_update")
    edits = {str(call.body.get("toolCallId")) for call in calls if call.body.get("kind") == "edit"}
    for call in calls:
        if call.body.get("status") == "completed" and str(call.body.get("toolCallId")) in edits:
            return call.entry
    return None


async def _initialize(agent: Candidate, client: ScriptedClient, params: dict[str, Any]) -> None:
    """Initialize with exactly these params, and log in."""
    agent.need_working("initialize")
    answer = await client.call("initialize", params, within=agent.startup_timeout)
    require(isinstance(answer.result, dict), f"initialize was answered with {describe(answer)}", answer.entry)
    client.introduction = answer.result
    await agent.log_in(client)


@rule(
    "A06",
    SHOULD,
    "agentInfo has a name and a version",
    "initialization",
    "It SHOULD also provide a name and version to the Client as well.",
    absent="no initialize was seen",
)
def introduces_itself(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("initialize"):
        if isinstance(exchange.result, dict) and exchange.answer is not None:
            info = exchange.result.get("agentInfo")
            named = isinstance(info, dict) and bool(info.get("name")) and bool(info.get("version"))
            yield fault_unless(named, f"agentInfo is {shown(info)}", exchange.answer)


@probe("A07", TASTE, "session/new before initialize is refused, and the agent lives on", "session-setup")
async def session_before_hello(agent: Candidate) -> None:
    agent.need_working("initialize")
    async with agent.start() as client:
        answer = await client.new_session(within=agent.startup_timeout)
        expect_error(answer, "the answer is")
        hello = await client.initialize()
        expect_result(hello, "initialize then failed:")


@probe(
    "A20",
    MUST,
    "the method of each advertised capability exists; others are unknown (-32601)",
    "initialization",
    "Supplying `{}` means the Agent supports the method.",
)
async def methods_as_advertised(agent: Candidate) -> None:
    async with agent.conversation() as (client, _):
        calls = _harmless_calls(agent)
        for capability in sorted(calls, key=lambda name: not advertises(client, name)):
            await _method_as_advertised(client, capability, *calls[capability])


async def _method_as_advertised(
    client: ScriptedClient, capability: str, method: str, params: dict[str, Any]
) -> None:
    answer = await client.call(method, params)
    if advertises(client, capability):
        message = f"{capability} is advertised, but {method} was answered with {describe(answer)}"
        require(answer.code != METHOD_NOT_FOUND, message, answer.entry)
    else:
        expect_error(
            answer,
            f"{capability} is not advertised, but {method} was answered with",
            METHOD_NOT_FOUND,
            level=TASTE,
        )


def _harmless_calls(agent: Candidate) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a method with harmless params for each capability; `logout` has an assertion of its own."""
    session = {"sessionId": NO_SUCH_SESSION}
    setup = {**session, "cwd": str(agent.project), "mcpServers": []}
    return {
        "loadSession": ("session/load", setup),
        "sessionCapabilities.resume": ("session/resume", setup),
        "sessionCapabilities.list": ("session/list", {}),
        "sessionCapabilities.close": ("session/close", session),
        "sessionCapabilities.delete": ("session/delete", session),
    }


NO_SUCH_METHOD = "coupler-check-no-such-method"

TERMINAL_LOGIN = (
    "A16",
    MUST,
    "a login in a terminal is offered only to a client with auth.terminal",
    "authentication",
    "Agents MUST advertise this method only when the client enabled its terminal authentication capability.",
)


@rule(*TERMINAL_LOGIN, absent="every client that was seen has auth.terminal")
def terminal_login(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("initialize"):
        capabilities = exchange.params.get("clientCapabilities")
        auth = capabilities.get("auth") if isinstance(capabilities, dict) else None
        offered = isinstance(auth, dict) and auth.get("terminal") is True
        if offered or exchange.answer is None or not isinstance(exchange.result, dict):
            continue
        terminal = _terminal_methods(exchange.result)
        yield fault_unless(not terminal, f"offered without auth.terminal: {shown(terminal)}", exchange.answer)


@probe(*TERMINAL_LOGIN)
async def terminal_login_unasked(agent: Candidate) -> None:
    """Initialize as clients without auth.terminal; the rule then judges what was offered."""
    for capabilities in ({}, {"auth": {"terminal": False}}):
        async with agent.start(capabilities) as client:
            await agent.initialize(client)


@probe(
    "A17",
    TASTE,
    "authenticate with an unknown method, or one for the terminal, is refused",
    "authentication",
)
async def unknown_login(agent: Candidate) -> None:
    async with agent.start() as client:
        await agent.initialize(client)
        for method in (NO_SUCH_METHOD, *(each.get("id") for each in _terminal_methods(client.introduction))):
            answer = await client.call("authenticate", {"methodId": method})
            expect_error(answer, f"authenticate with {shown(method)} was answered with")


@probe(
    "A18",
    MUST,
    "without a login session/new is refused with -32000; after authenticate it works",
    "authentication",
    "After successful authentication, the Client can create new sessions without "
    "receiving an `auth_required` error for authentication-gated requests.",
)
async def login_opens(agent: Candidate) -> None:
    async with agent.start() as client:
        await agent.initialize(client)
        refused = await client.new_session()
        if refused.error is None:
            raise Skip("session/new works without a login")
        if agent.auth is None:
            raise Skip("pass --auth with the id of a login that needs no terminal")
        expect_error(refused, "without a login session/new was answered with", AUTH_REQUIRED)
        await agent.log_in(client)
        opened = await client.new_session()
        expect_result(opened, "after the login session/new was answered with")


@probe(
    "A19",
    MUST,
    "logout, if advertised, makes a login necessary again; if not, it is unknown",
    "authentication",
    "After a successful `logout`, new sessions that require authentication will require "
    "the user to complete one of the advertised authentication flows again.",
)
async def logout(agent: Candidate) -> None:
    async with agent.start() as client:
        await agent.initialize(client)
        if agent.auth is None and (
            advertises(client, "auth.logout") or client.introduction.get("authMethods")
        ):
            raise Skip("would log you out: pass --auth, so that the kit can log in again")
        if advertises(client, "auth.logout"):
            await _log_out(agent, client)
            return
        answer = await client.call("logout", {})
        expect_error(answer, "logout is not advertised, but was answered with", METHOD_NOT_FOUND, level=TASTE)


async def _log_out(agent: Candidate, client: ScriptedClient) -> None:
    needs_login = (await client.new_session()).code == AUTH_REQUIRED
    await agent.log_in(client)
    left = await client.call("logout", {})
    require(isinstance(left.result, dict), f"logout was answered with {describe(left)}", left.entry)
    answer = await client.new_session()
    # Whoever was logged in before the check is so afterwards.
    await agent.log_in(client)
    if needs_login:
        expect_error(answer, "after the logout session/new was answered with", AUTH_REQUIRED)


def _terminal_methods(introduction: dict[str, Any]) -> list[dict[str, Any]]:
    methods = introduction.get("authMethods")
    return [
        method
        for method in (methods if isinstance(methods, list) else [])
        if isinstance(method, dict) and method.get("type") == "terminal"
    ]

"""Asserts how clients begin a connection and log in, and that they use only what the agent advertises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import (
    MUST,
    PLAIN_TURN,
    SHOULD,
    Case,
    RuleFinding,
    client_rule,
    fault_unless,
    scenario,
)
from coupler.conformance.candidate import KILLED
from coupler.conformance.client.robustness import begin, finish, play_turn
from coupler.conformance.peers import RequestRefused
from coupler.conformance.play import LOGGED_IN, LOGIN_VARIABLE
from coupler.conformance.reading import is_absolute, items, objects, shown, value_at
from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import AUTH_REQUIRED, INVALID_PARAMS, Trace, TraceExchange

FUTURE_VERSION = 99


@scenario(
    PLAIN_TURN,
    "A turn in which nothing is odd: a thought, a plan, a tool call with a permission, and text.",
    *("C01", "C05", "X01", "X02", "X03", "X04"),
    look="You see text, a plan with one entry, and a finished tool call. Allow it when you are asked.",
)
async def plain_turn(agent: ScriptedAgent) -> None:
    if not agent.is_watched:
        # Something sent on top of initialize is only seen if the answer is not already out.
        agent.held.add("initialize")
        hello = await agent.take("initialize", within=60)
        await agent.quiet(0.3)
        agent.held.discard("initialize")
        agent.answer(hello, agent.introduction)
    turn = await begin(agent)
    turn.update("agent_thought_chunk", content={"type": "text", "text": "A thought."})
    turn.update("plan", entries=[{"content": "Be plain", "priority": "high", "status": "in_progress"}])
    turn.update("tool_call", toolCallId="call_1", title="Do nothing", kind="other", status="pending")
    await agent.call("session/request_permission", permission("call_1", "Do nothing"))
    turn.update("tool_call_update", toolCallId="call_1", status="completed")
    await finish(agent, turn)


def permission(call: str, title: str) -> dict[str, Any]:
    """Return the params of a permission request, without the session."""
    return {
        "toolCall": {"toolCallId": call, "title": title, "kind": "other", "status": "pending"},
        "options": [
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ],
    }


@client_rule(
    "C01",
    MUST,
    "the first message is initialize with an integer version, and nothing follows until it is answered",
    "initialization",
    "Before a Session can be created, Clients MUST initialize the connection by calling "
    "the `initialize` method.",
    absent="the client sent nothing",
)
def begins_with_initialize(trace: Trace) -> Iterator[Case]:
    sent = [entry for entry in trace.entries if entry.sender == "client"]
    if not sent:
        if trace.exit_code is not None:
            yield RuleFinding("the client sent nothing")
        return
    yield fault_unless(sent[0].method == "initialize", f"the first message is {shown(sent[0].line)}", sent[0])
    for exchange in trace.exchanges("initialize"):
        version = exchange.params.get("protocolVersion")
        good = type(version) is int and 1 <= version <= 65535
        yield fault_unless(good, f"protocolVersion is {shown(version)}", exchange.request)
        answered = exchange.answer.number if exchange.answer is not None else len(trace.entries)
        early = [entry for entry in sent if exchange.request.number < entry.number < answered]
        yield fault_unless(not early, "a message was sent before initialize was answered", *early)


@scenario(
    "future-version",
    f"initialize is answered with version {FUTURE_VERSION}, which no client speaks.",
    "C02",
    needs_connection=True,
)
async def future_version(agent: ScriptedAgent) -> None:
    agent.introduction["protocolVersion"] = FUTURE_VERSION
    await play_turn(agent)


@client_rule(
    "C02",
    SHOULD,
    "a version that the client does not speak makes it disconnect and tell the user",
    "initialization#version-negotiation",
    "If the Client does not support the version specified by the Agent in the "
    "`initialize` response, the Client SHOULD close the connection and inform the user "
    "about it.",
    absent="no version was answered that the client had not asked for",
)
def leaves_a_future_version(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("initialize"):
        asked, answered = exchange.params.get("protocolVersion"), value_at(exchange.result, "protocolVersion")
        if type(asked) is not int or type(answered) is not int or answered <= asked:
            continue
        assert exchange.answer is not None
        later = [each for each in trace.entries if each.number > exchange.answer.number]
        went_on = [each for each in later if each.sender == "client" and each.method is not None]
        yield fault_unless(
            not went_on, f"the agent answered version {answered} and the client went on", *went_on[:1]
        )
        if trace.exit_code is not None and not went_on:
            yield fault_unless(trace.exit_code != KILLED, "the client did not end", exchange.answer)
            told = trace.exit_code != 0 and (trace.stderr + trace.stdout).strip()
            yield fault_unless(
                told, f"the client told nobody: its exit code is {trace.exit_code}", exchange.answer
            )


@scenario(
    "terminal-login",
    "session/new wants a login; one that runs in a terminal is offered if the client can do that.",
    "C18",
    needs_connection=True,
)
async def terminal_login(agent: ScriptedAgent) -> None:
    is_logged_in = (agent.folder / LOGGED_IN).exists()
    agent.services["initialize"] = lambda params: {**agent.introduction, "authMethods": _methods(params)}
    agent.services["authenticate"] = _authenticate
    if not is_logged_in:
        agent.services["session/new"] = _want_login
    await play_turn(agent)


def _methods(hello: dict[str, Any]) -> list[dict[str, Any]]:
    if value_at(hello, "clientCapabilities.auth.terminal") is not True:
        return [{"id": "elsewhere", "name": "Log in elsewhere"}]
    return [
        {
            "id": "terminal",
            "type": "terminal",
            "name": "Log in in a terminal",
            "args": ["--log-in"],
            "env": {LOGIN_VARIABLE: "1"},
        }
    ]


def _want_login(params: dict[str, Any]) -> dict[str, Any]:
    raise RequestRefused(AUTH_REQUIRED, "log in first")


def _authenticate(params: dict[str, Any]) -> dict[str, Any]:
    raise RequestRefused(INVALID_PARAMS, "nobody can log in here in this way")


@client_rule(
    "C18",
    MUST,
    "a login in a terminal is never passed to authenticate",
    "authentication",
    "The Client MUST NOT send an `authenticate` request for a terminal method.",
    absent="the client does not advertise auth.terminal, so that it was offered no such login",
)
def keeps_terminal_logins_out_of_the_wire(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("initialize"):
        methods = objects(value_at(exchange.result, "authMethods"))
        terminal = {each.get("id") for each in methods if each.get("type") == "terminal"}
        if not terminal:
            continue
        yield None
        for login in trace.exchanges("authenticate"):
            method = login.params.get("methodId")
            yield fault_unless(
                not isinstance(method, str) or method not in terminal,
                f"authenticate was called with the terminal method {shown(method)}",
                login.request,
            )


GATES = {
    "session/load": "loadSession",
    "session/resume": "sessionCapabilities.resume",
    "session/list": "sessionCapabilities.list",
    "session/delete": "sessionCapabilities.delete",
    "session/close": "sessionCapabilities.close",
    "logout": "auth.logout",
}
BLOCK_GATES = {"image": "image", "audio": "audio", "resource": "embeddedContext"}
SETUP = ("session/new", "session/load", "session/resume")

SWITCHED_OFF: dict[str, Any] = {
    "loadSession": False,
    "promptCapabilities": {"image": False, "audio": False, "embeddedContext": False},
    "mcpCapabilities": {"http": False, "sse": False},
    "sessionCapabilities": {
        "list": None,
        "delete": None,
        "resume": None,
        "close": None,
        "additionalDirectories": None,
    },
    "auth": {"logout": None},
}
MALFORMED: dict[str, Any] = {
    "loadSession": "yes",
    "promptCapabilities": "all",
    "mcpCapabilities": {"http": 1},
    "sessionCapabilities": {"list": True, "resume": "yes", "close": 1},
    "auth": [],
}


@scenario(
    "nothing-advertised",
    "The agent advertises nothing: every flag is false or null.",
    *("C03", "C04", "C05", "C06"),
    needs_connection=True,
)
async def nothing_advertised(agent: ScriptedAgent) -> None:
    agent.introduction["agentCapabilities"] = SWITCHED_OFF
    await play_turn(agent)


@scenario(
    "directories-advertised",
    "The agent takes additional directories.",
    "C06",
    needs_connection=True,
)
async def directories_advertised(agent: ScriptedAgent) -> None:
    agent.introduction["agentCapabilities"] = {"sessionCapabilities": {"additionalDirectories": {}}}
    await play_turn(agent)


@scenario(
    "malformed-flags",
    "The agent's capabilities have values of wrong types, which count as absent.",
    *("C03", "C12"),
    needs_connection=True,
)
async def malformed_flags(agent: ScriptedAgent) -> None:
    agent.introduction["agentCapabilities"] = MALFORMED
    await play_turn(agent)


@client_rule(
    "C03",
    MUST,
    "load, resume, list, delete, close and logout are only called when advertised; null means no",
    "session-setup",
    "If `loadSession` is `false` or not present, the Agent does not support loading "
    "sessions and Clients MUST NOT attempt to call `session/load`.",
    absent="the client opened no session with an agent that advertises none of them",
)
def calls_only_what_is_advertised(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges():
        gate = GATES.get(exchange.method)
        if gate is not None:
            yield fault_unless(
                _is_advertised(trace, gate),
                f"{exchange.method} was called and {gate} is "
                f"{shown(value_at(trace.agent_capabilities, gate))}",
                exchange.request,
            )
    if trace.exchanges("session/new") and not any(_is_advertised(trace, gate) for gate in GATES.values()):
        yield None


@client_rule(
    "C04",
    MUST,
    "a prompt holds only blocks that the agent takes",
    "content",
    "Clients MUST restrict types of content according to the Prompt Capabilities "
    "established during initialization.",
    absent="the client sent no prompt",
)
def sends_only_blocks_that_are_taken(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("session/prompt"):
        yield None
        for block in objects(exchange.params.get("prompt")):
            gate = BLOCK_GATES.get(str(block.get("type")))
            if gate is not None:
                yield fault_unless(
                    value_at(trace.agent_capabilities, f"promptCapabilities.{gate}") is True,
                    f"a block of type {block.get('type')} was sent and promptCapabilities.{gate} is not true",
                    exchange.request,
                )


@client_rule(
    "C05",
    MUST,
    "a session is opened with an absolute cwd and mcpServers, http and sse ones only when advertised",
    "session-setup",
    "Before using HTTP or SSE transports, Clients MUST verify the Agent's capabilities "
    "during initialization. All file paths in the protocol MUST be absolute.",
    absent="the client opened no session",
)
def opens_sessions_properly(trace: Trace) -> Iterator[Case]:
    for exchange in _setups(trace):
        params, request = exchange.params, exchange.request
        yield fault_unless(is_absolute(params.get("cwd")), f"cwd is {shown(params.get('cwd'))}", request)
        if exchange.method != "session/resume":
            servers = params.get("mcpServers", "missing")
            yield fault_unless(isinstance(servers, list), f"mcpServers is {shown(servers)}", request)
        for server in objects(params.get("mcpServers")):
            kind = server.get("type")
            if kind in ("http", "sse"):
                advertised = value_at(trace.agent_capabilities, f"mcpCapabilities.{kind}") is True
                message = f"an MCP server of type {kind} was sent and is not advertised"
                yield fault_unless(advertised, message, request)


@client_rule(
    "C06",
    MUST,
    "additionalDirectories are only sent when advertised, and are absolute",
    "session-setup",
    "Clients MUST only send `additionalDirectories` when the Agent advertises "
    "`sessionCapabilities.additionalDirectories`.",
    absent="the client opened no session",
)
def adds_directories_only_when_advertised(trace: Trace) -> Iterator[Case]:
    for exchange in _setups(trace):
        directories = exchange.params.get("additionalDirectories")
        if directories is None:
            yield None
            continue
        advertised = _is_advertised(trace, "sessionCapabilities.additionalDirectories")
        yield fault_unless(advertised, f"additionalDirectories is {shown(directories)}", exchange.request)
        for directory in items(directories):
            yield fault_unless(
                is_absolute(directory), f"{shown(directory)} is not absolute", exchange.request
            )


def _setups(trace: Trace) -> list[TraceExchange]:
    return [exchange for exchange in trace.exchanges() if exchange.method in SETUP]


def _is_advertised(trace: Trace, gate: str) -> bool:
    value = value_at(trace.agent_capabilities, gate)
    return value is True if gate == "loadSession" else isinstance(value, dict)

"""Asserts that clients use only what the agent advertises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import MUST, Case, fault_unless, rule, scenario
from coupler.conformance.client.open_world import begin, finish
from coupler.conformance.reading import is_absolute, items, objects, shown, value_at
from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import Trace, TraceExchange

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
    turn = await begin(agent)
    await finish(agent, turn)


@scenario(
    "directories-advertised",
    "The agent takes additional directories.",
    "C06",
    needs_connection=True,
)
async def directories_advertised(agent: ScriptedAgent) -> None:
    agent.introduction["agentCapabilities"] = {"sessionCapabilities": {"additionalDirectories": {}}}
    turn = await begin(agent)
    await finish(agent, turn)


@scenario(
    "malformed-flags",
    "The agent's capabilities have values of wrong types, which count as absent.",
    *("C03", "C12"),
    needs_connection=True,
)
async def malformed_flags(agent: ScriptedAgent) -> None:
    agent.introduction["agentCapabilities"] = MALFORMED
    turn = await begin(agent)
    await finish(agent, turn)


@rule(
    "C03",
    MUST,
    "load, resume, list, delete, close and logout are only called when advertised; null means no",
    "session-setup",
    "If `loadSession` is `false` or not present, the Agent does not support loading "
    "sessions and Clients MUST NOT attempt to call `session/load`.",
    absent="the client opened no session with an agent that advertises none of them",
    side="client",
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


@rule(
    "C04",
    MUST,
    "a prompt holds only blocks that the agent takes",
    "content",
    "Clients MUST restrict types of content according to the Prompt Capabilities "
    "established during initialization.",
    absent="the client sent no prompt",
    side="client",
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


@rule(
    "C05",
    MUST,
    "a session is opened with an absolute cwd and mcpServers, http and sse ones only when advertised",
    "session-setup",
    "Before using HTTP or SSE transports, Clients MUST verify the Agent's capabilities "
    "during initialization. All file paths in the protocol MUST be absolute.",
    absent="the client opened no session",
    side="client",
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


@rule(
    "C06",
    MUST,
    "additionalDirectories are only sent when advertised, and are absolute",
    "session-setup",
    "Clients MUST only send `additionalDirectories` when the Agent advertises "
    "`sessionCapabilities.additionalDirectories`.",
    absent="the client opened no session",
    side="client",
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

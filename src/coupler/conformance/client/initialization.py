"""Asserts how clients begin a connection and log in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import (
    MUST,
    PLAIN_TURN,
    SHOULD,
    Case,
    RuleFinding,
    fault_unless,
    rule,
    scenario,
)
from coupler.conformance.candidate import KILLED
from coupler.conformance.client.open_world import begin, finish
from coupler.conformance.peers import RequestRefused
from coupler.conformance.play import LOGGED_IN, LOGIN_VARIABLE
from coupler.conformance.reading import objects, shown, value_at
from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import AUTH_REQUIRED, INVALID_PARAMS, Trace

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


@rule(
    "C01",
    MUST,
    "the first message is initialize with an integer version, and nothing follows until it is answered",
    "initialization",
    "Before a Session can be created, Clients MUST initialize the connection by calling "
    "the `initialize` method.",
    absent="the client sent nothing",
    side="client",
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
    turn = await begin(agent)
    await finish(agent, turn)


@rule(
    "C02",
    SHOULD,
    "a version that the client does not speak makes it disconnect and tell the user",
    "initialization#version-negotiation",
    "If the Client does not support the version specified by the Agent in the "
    "`initialize` response, the Client SHOULD close the connection and inform the user "
    "about it.",
    absent="no version was answered that the client had not asked for",
    side="client",
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
    turn = await begin(agent)
    await finish(agent, turn)


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


@rule(
    "C18",
    MUST,
    "a login in a terminal is never passed to authenticate",
    "authentication",
    "The Client MUST NOT send an `authenticate` request for a terminal method.",
    absent="the client does not advertise auth.terminal, so that it was offered no such login",
    side="client",
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

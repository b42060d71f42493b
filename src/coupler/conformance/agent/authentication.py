"""Asserts how agents log users in and out.

A login may belong to the user of this machine. It is given up only if `--auth` says how to get it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import MUST, TASTE, Case, Skip, fault_unless, probe, require, rule
from coupler.conformance.candidate import Candidate, advertises, describe
from coupler.conformance.reading import shown
from coupler.conformance.scripted_client import ScriptedClient
from coupler.recording.traces import AUTH_REQUIRED, METHOD_NOT_FOUND, Trace

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
            message = f"authenticate with {shown(method)} was answered with {describe(answer)}"
            require(answer.error is not None, message, answer.entry)


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
        message = f"without a login session/new was answered with {describe(refused)}"
        require(refused.code == AUTH_REQUIRED, message, refused.entry)
        await agent.log_in(client)
        opened = await client.new_session()
        message = f"after the login session/new was answered with {describe(opened)}"
        require(opened.result is not None, message, opened.entry)


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
        message = f"logout is not advertised, but was answered with {describe(answer)}"
        require(answer.code == METHOD_NOT_FOUND, message, answer.entry, level=TASTE)


async def _log_out(agent: Candidate, client: ScriptedClient) -> None:
    needs_login = (await client.new_session()).code == AUTH_REQUIRED
    await agent.log_in(client)
    left = await client.call("logout", {})
    require(isinstance(left.result, dict), f"logout was answered with {describe(left)}", left.entry)
    answer = await client.new_session()
    # Whoever was logged in before the check is so afterwards.
    await agent.log_in(client)
    if needs_login:
        message = f"after the logout session/new was answered with {describe(answer)}"
        require(answer.code == AUTH_REQUIRED, message, answer.entry)


def _terminal_methods(introduction: dict[str, Any]) -> list[dict[str, Any]]:
    methods = introduction.get("authMethods")
    return [
        method
        for method in (methods if isinstance(methods, list) else [])
        if isinstance(method, dict) and method.get("type") == "terminal"
    ]

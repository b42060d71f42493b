"""A conversation with a client that can do nothing: what the rules about optional things need to see."""

from __future__ import annotations

from coupler.inspect.conformance.agent.stored_sessions import leave, reopen, ways_to_reopen
from coupler.inspect.conformance.candidate import Candidate
from coupler.inspect.conformance.reading import objects, part


async def hold_bare_conversation(agent: Candidate) -> None:
    """Hold it, unless it was held before: all rules look at the same traces."""
    await agent.do_once(_converse)


async def _converse(agent: Candidate) -> None:
    """A session, a turn, a changed option; then, as far as the agent can, a load and a resume elsewhere."""
    async with agent.conversation({}) as (client, session):
        await agent.take_turn(client, session)
        result = client.trace.exchanges("session/new")[-1].result
        for option in objects(part(result, "configOptions"))[:1]:
            change = {"configId": option.get("id"), "value": option.get("currentValue")}
            await client.call("session/set_config_option", {"sessionId": session, **change})
        methods = ways_to_reopen(client)
        await leave(client)
    for method in methods:
        async with agent.ready({}) as client:
            await reopen(client, method, session)

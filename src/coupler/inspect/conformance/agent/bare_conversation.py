"""A conversation with a client that can do nothing: what the rules about optional things need to see."""

from __future__ import annotations

from coupler.inspect.conformance.agent.lifecycle import GATES, leave, reopen
from coupler.inspect.conformance.candidate import Candidate, advertises
from coupler.inspect.conformance.reading import objects, part


async def hold_bare_conversation(agent: Candidate) -> None:
    """A session, a turn, a changed option; then, as far as the agent can, a load and a resume elsewhere."""
    async with agent.conversation({}) as (client, session):
        await agent.take_turn(client, session)
        result = client.trace.exchanges("session/new")[-1].result
        for option in objects(part(result, "configOptions"))[:1]:
            change = {"configId": option.get("id"), "value": option.get("currentValue")}
            await client.call("session/set_config_option", {"sessionId": session, **change})
        methods = [method for method, gate in GATES.items() if advertises(client, gate)]
        await leave(client)
    for method in methods:
        async with agent.ready({}) as client:
            await reopen(client, method, session)

"""What an agent advertises it has, and what it does not advertise it has not."""

from __future__ import annotations

from typing import Any

from coupler.inspect.codes import METHOD_NOT_FOUND
from coupler.inspect.conformance.assertion import MUST, ROBUST, probe, require
from coupler.inspect.conformance.candidate import NO_SUCH_SESSION, Candidate, advertises, describe
from coupler.inspect.scripted_client import ScriptedClient


@probe(
    "A20",
    MUST,
    "the method of each advertised capability exists; others are unknown (-32601)",
    "initialization",
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
        message = f"{capability} is not advertised, but {method} was answered with {describe(answer)}"
        require(answer.code == METHOD_NOT_FOUND, message, answer.entry, level=ROBUST)


def _harmless_calls(agent: Candidate) -> dict[str, tuple[str, dict[str, Any]]]:
    """A call for each capability; `logout`, which may do harm, has its own assertion."""
    session = {"sessionId": NO_SUCH_SESSION}
    setup = {**session, "cwd": str(agent.project), "mcpServers": []}
    return {
        "loadSession": ("session/load", setup),
        "sessionCapabilities.resume": ("session/resume", setup),
        "sessionCapabilities.list": ("session/list", {}),
        "sessionCapabilities.close": ("session/close", session),
        "sessionCapabilities.delete": ("session/delete", session),
    }

"""What servers ask in the middle of a call, in both ways that MCP has for it.

Imports the `mcp` package: to be imported on use. Newer versions of MCP answer a call with what is still to be
asked, and the call is sent again with the answers; older ones send a request of their own meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
)
from pydantic import TypeAdapter

from coupler.mcp.attendance import Attended, Reply

MOST_ROUNDS = 10
"""How often a server may ask for more before it has to answer a call."""

PAUSE = 0.25
"""Seconds until a server that asks nothing, and only wants to be called again, is called again."""

_Answered: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)


async def sent_until_answered(
    client: Client, params: CallToolRequestParams, attended: Attended | None
) -> CallToolResult:
    """Send a call, and send it again with what its server wants to know, until there is a result."""
    told = attended.attendant.hear_progress if attended is not None else None
    for _ in range(MOST_ROUNDS):
        result = await client.session.send_request(
            CallToolRequest(params=params), _Answered, progress_callback=told
        )
        if isinstance(result, CallToolResult):
            return result
        answers = await _answers(result, attended)
        params = params.model_copy(update={"input_responses": answers, "request_state": result.request_state})
    raise MCPError(INVALID_REQUEST, f"it asked for more than {MOST_ROUNDS} times, and gave no answer")


async def answer_to(params: ElicitRequestParams, attended: Attended | None) -> ElicitResult:
    """The answer to one question; without anybody to ask it is declined."""
    if attended is None:
        return ElicitResult(action="decline")
    reply = await attended.asked(_reply(params, attended))
    return ElicitResult(action=reply.action, content=reply.content if reply.action == "accept" else None)


async def _answers(result: InputRequiredResult, attended: Attended | None) -> dict[str, Any] | None:
    if not result.input_requests:
        await asyncio.sleep(PAUSE)
        return None
    answers: dict[str, Any] = {}
    for key, request in result.input_requests.items():
        if not isinstance(request, ElicitRequest):
            raise MCPError(INVALID_REQUEST, f"it asked for {request.method}, which is not offered")
        answers[key] = await answer_to(request.params, attended)
    return answers


async def _reply(params: ElicitRequestParams, attended: Attended) -> Reply:
    if isinstance(params, ElicitRequestFormParams):
        return await attended.attendant.ask(params.message, dict(params.requested_schema))
    return await attended.attendant.ask_url(params.message, params.url)

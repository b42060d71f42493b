"""What the middleware costs a tool call, over a thousand calls: served to a client, and not served at all.

The calls go through our middleware, and through as many that do nothing; the difference is shared among the
calls. Served, this happens in a node of a graph that answers a prompt, with calls that the client knows. The
best of several rounds counts, in the processor's time. Written to stdout as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from langchain.agents.middleware.types import AgentMiddleware, ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph, add_messages
from typing_extensions import TypedDict

from coupler import acp, connect

Call = Callable[[ToolCallRequest], Awaitable[Any]]


class Nothing(AgentMiddleware[Any, Any, Any]):
    """Wraps calls, and does nothing about them."""

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


@tool
def nothing() -> str:
    """Do nothing."""
    return ""


async def carried_out(request: ToolCallRequest) -> ToolMessage:
    return ToolMessage("", tool_call_id=request.tool_call["id"])


def wrapped(middleware: list[AgentMiddleware[Any, Any, Any]]) -> Call:
    """A call, with the first of the middleware outermost, as LangChain does it."""
    call: Call = carried_out
    for each in reversed(middleware):
        call = partial(each.awrap_tool_call, handler=call)
    return call


OURS = wrapped([acp.tools(), acp.permissions({"nothing": "allow"}), acp.modes(), acp.plan()])
NONE = wrapped([Nothing(), Nothing(), Nothing(), Nothing()])


async def seconds(call: Call, calls: int) -> float:
    """The processor's time for so many calls."""
    served = acp.current()
    ids = [f"call_{time.perf_counter_ns()}_{number}" for number in range(calls)]
    for each in ids if served is not None else ():
        served.calls.announce(each, "nothing", {})
    await asyncio.sleep(0)
    began = time.process_time()
    for each in ids:
        request = {"name": "nothing", "args": {}, "id": each, "type": "tool_call"}
        await call(ToolCallRequest(request, nothing, {}, None))
    return time.process_time() - began


async def added(calls: int, rounds: int) -> float:
    """Seconds that our middleware adds to a call."""
    ours, none = [], []
    for _ in range(rounds):
        none.append(await seconds(NONE, calls))
        ours.append(await seconds(OURS, calls))
    return (min(ours) - min(none)) / calls


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def served(calls: int, rounds: int) -> float:
    """The same, in a node of a graph that is served."""
    found: list[float] = []

    async def work(state: State) -> dict[str, Any]:
        found.append(await added(calls, rounds))
        return {"messages": [AIMessage("done")]}

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    async with connect(graph.compile()) as agent:
        await (await agent.new()).prompt("go")
    return found[0]


async def main(calls: int, rounds: int) -> None:
    print(json.dumps({"unserved": await added(calls, rounds), "served": await served(calls, rounds)}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))

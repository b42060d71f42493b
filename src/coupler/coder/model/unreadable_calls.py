"""`UnreadableCalls`: a model whose tool calls cannot be read is told so, and tries again.

Arguments that are no JSON object make a call that nobody can carry out. An answer with nothing else in it
would end the turn without a word; small models write such answers now and then, and do better when told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, hook_config
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

MOST_IN_A_ROW = 3
"""Such answers after which a model is not told any more."""


class UnreadableCalls(AgentMiddleware[Any, Any, Any]):
    """Answers calls that were not made."""

    @hook_config(can_jump_to=["model"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Have the model asked again, if its answer is nothing but such calls."""
        messages = state["messages"]
        if not messages or not _is_unreadable(messages[-1]) or _is_enough(messages):
            return None
        told = [
            ToolMessage(
                "The call was not made: its arguments are not a JSON object. Write them again, as "
                "one object with the names that the tool's description has.",
                tool_call_id=call["id"],
                name=call["name"] or "tool",
                status="error",
            )
            for call in messages[-1].invalid_tool_calls
            if call["id"]
        ]
        return {"messages": told, "jump_to": "model"} if told else None


def _is_enough(messages: Sequence[BaseMessage]) -> bool:
    return in_a_row(messages, _is_unreadable) > MOST_IN_A_ROW


def _is_unreadable(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.invalid_tool_calls) and not message.tool_calls


def in_a_row(messages: Sequence[BaseMessage], is_such: Callable[[BaseMessage], object]) -> int:
    """How many answers at the end are such."""
    count = 0
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            continue
        if not is_such(message):
            break
        count += 1
    return count

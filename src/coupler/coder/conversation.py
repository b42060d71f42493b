"""The state of one conversation: a long one costs little more than a short one."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Annotated, Any, Required, cast

from langchain.agents.middleware.types import AgentState
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict


def conversation_state() -> type[AgentState[Any]]:
    """Return the type of the state of an agent with one conversation."""
    messages = Required[Annotated[list[AnyMessage], AddMessages().add]]
    fields = {**AgentState.__annotations__, "messages": messages}
    return cast("type[AgentState[Any]]", TypedDict("ConversationState", fields))  # type: ignore[operator]


class AddMessages:
    """Adds messages to those of a state, as LangGraph's `add_messages`; for the state of one conversation.

    LangGraph looks at every message four times a step. Here the messages before are not looked at as long as
    only others come after them.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[list[Any], set[str]]] = deque(maxlen=4)
        """Lists of messages that were made, with the ids of their messages."""

    def add(self, left: Any, right: Any) -> Any:
        """Return the messages of the left with those of the right."""
        ids = next((ids for known, ids in self._recent if known is left and len(ids) == len(known)), None)
        if ids is not None and _comes_after(right, ids):
            added: Any = add_messages([], right)
            merged, ids = [*left, *added], {*ids, *(message.id for message in added)}
        else:
            merged = add_messages(left, right)  # type: ignore[assignment]
            ids = {message.id for message in merged}
        self._recent.append((merged, ids))
        return merged


def _comes_after(messages: Any, ids: Container[str]) -> bool:
    """Tell whether none of the messages stands for one with these ids, or removes any."""
    return all(
        isinstance(message, AIMessage | ToolMessage | HumanMessage) and message.id not in ids
        for message in (messages if isinstance(messages, list) else [messages])
    )

"""A conversation that broke off, mended before a model reads it again.

Providers refuse a history in which a tool call has no result. A cancel leaves such calls behind; so does a
limit of steps. They get a message that says what is known of them, and an answer that was cut off gets its
beginning back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

LOST = "This call was interrupted before it returned: it is not known how much of it was done."


def mending(
    messages: Sequence[BaseMessage],
    kept: Iterable[ToolMessage] = (),
    unfinished: str = "",
    more: Sequence[BaseMessage] = (),
) -> list[BaseMessage]:
    """What has to be added behind the messages so that they can be gone on with; nothing for most.

    `kept` are results that had come when it broke off, but had not been written into the state; `more` are
    messages of the same kind. If calls without results are not at the end, the messages are stated anew as a
    whole.
    """
    messages = [*messages, *more]
    results = {message.tool_call_id: message for message in kept}
    mended: list[BaseMessage] = []
    has_gap = False
    added: list[BaseMessage] = []
    for at, message in enumerate(messages):
        if added and not isinstance(message, ToolMessage):
            mended, added, has_gap = [*mended, *added], [], True
        if isinstance(message, AIMessage) and any(not call["id"] for call in message.tool_calls):
            # No result can name such a call.
            message, has_gap = _with_ids(message), True
        mended.append(message)
        open_calls = _open_calls(message, messages, at)
        added += [results.get(call_id) or _lost(call_id, name) for call_id, name in open_calls]
    last = [AIMessage(unfinished, id=f"msg_{os.urandom(8).hex()}")] if unfinished else []
    if has_gap:
        return [RemoveMessage(REMOVE_ALL_MESSAGES), *mended, *added, *last]
    return [*more, *added, *last]


def continued(messages: Sequence[BaseMessage], inside: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What was said in a graph inside of the one that has these messages, and goes on with them.

    Nothing, if it leads a conversation of its own: that of a helper is no part of this one.
    """
    known = [message.id for message in messages]
    goes_on = [message.id for message in inside[: len(known)]] == known
    return [*inside[len(known) :]] if goes_on else []


def calls_without_result(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    """The ids and tools of the calls that nobody has answered."""
    found = (_open_calls(message, messages, at) for at, message in enumerate(messages))
    return [call for calls in found for call in calls]


def _open_calls(message: BaseMessage, messages: Sequence[BaseMessage], at: int) -> list[tuple[str, str]]:
    """Its calls that have no result before the model says more: it may count its calls from nothing then."""
    calls = _calls(message) if isinstance(message, AIMessage) else []
    if not calls:
        return []
    answered: set[str] = set()
    for each in messages[at + 1 :]:
        if isinstance(each, AIMessage):
            break
        if isinstance(each, ToolMessage):
            answered.add(each.tool_call_id)
    return [call for call in calls if call[0] not in answered]


def results_in(checkpoint: CheckpointTuple | None) -> list[ToolMessage]:
    """Results of tools that have come, although the step that they belong to was never completed."""
    found: list[ToolMessage] = []
    for _, _, value in (checkpoint.pending_writes if checkpoint is not None else None) or ():
        values = value if isinstance(value, list | tuple) else [value]
        found += [each for each in values if isinstance(each, ToolMessage)]
    return found


def _calls(message: AIMessage) -> list[tuple[str, str]]:
    calls: list[Any] = [*message.tool_calls, *message.invalid_tool_calls]
    return [(call["id"], call.get("name") or "tool") for call in calls if call.get("id")]


def _with_ids(message: AIMessage) -> AIMessage:
    calls = [{**call, "id": call["id"] or f"call_{os.urandom(8).hex()}"} for call in message.tool_calls]
    return message.model_copy(update={"tool_calls": calls})


def _lost(id: str, name: str) -> ToolMessage:
    return ToolMessage(LOST, tool_call_id=id, name=name, status="error")

"""A conversation as the model sees it: after a summary of its earlier part, and with no part too large.

The state of the graph keeps every message. What is left out is left out of the model's sight only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from langchain.agents.middleware.types import AgentState, PrivateStateAttr
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from typing_extensions import TypedDict

from coupler.coder.shortening import without_middle

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

COMPACTED = "compacted"
"""Where the state says what was left out."""

CHARACTERS_PER_TOKEN = 3
"""As few as code has, so that what is cut to so many tokens fits."""

LARGEST_PART = 0.25
"""Part of the window that one message may fill."""

LARGEST_STEP = 0.5
"""Part of it for all results of calls that were made together."""


class Compacted(TypedDict):
    """The earlier part of a conversation, in short."""

    until: str
    """The id of the last message that the text stands for."""
    seen: str
    """The id of the last message when it was written; what later answers have used, they used with it."""
    text: str
    read: list[str]
    """Files that were read in that part, and those that were changed."""
    changed: list[str]


class CompactedState(AgentState[Any]):
    """The state of an agent whose conversations are compacted."""

    compacted: NotRequired[Annotated[Compacted | None, PrivateStateAttr]]


def visible_messages(state: Mapping[str, Any]) -> list[AnyMessage]:
    """What the model still sees of the messages in a state."""
    messages: list[AnyMessage] = [*state.get("messages", ())]
    compacted: Compacted | None = state.get(COMPACTED)
    if compacted is None:
        return messages
    for at, message in enumerate(messages):
        if message.id == compacted["until"]:
            return [summary_message(compacted), *messages[at + 1 :]]
    return messages


def summary_message(compacted: Compacted) -> HumanMessage:
    """The summary as the model reads it."""
    return HumanMessage(
        compacted["text"],
        id=f"summary-of-{compacted['until']}",
        additional_kwargs={"lc_source": "summarization"},
    )


def fitting(messages: Sequence[AnyMessage], window: int) -> list[AnyMessage]:
    """The messages with texts cut in the middle that would fill too much of the window.

    Results that came together share what they may fill. It depends on nothing that comes later, so that
    providers recognize what they have read before.
    """
    shown: list[AnyMessage] = []
    for results, group in groupby(messages, lambda message: isinstance(message, ToolMessage)):
        together = [*group]
        part = min(LARGEST_PART, LARGEST_STEP / len(together)) if results else LARGEST_PART
        longest = int(window * part) * CHARACTERS_PER_TOKEN
        shown += [_shortened(message, longest) for message in together]
    return shown


def expected_tokens(
    messages: Sequence[AnyMessage],
    system: SystemMessage | None = None,
    tools: list[BaseTool | dict[str, Any]] | None = None,
) -> int:
    """How much of a window they take, by their lengths."""
    first = [] if system is None else [system]
    return count_tokens_approximately([*first, *messages], tools=tools)


def beginning_to_summarize(messages: Sequence[AnyMessage], keep: int) -> int:
    """How many messages a summary is to stand for, so that about `keep` tokens of the last ones stay.

    Calls and their results stay together. What the model has not seen yet stays: a prompt, or the results
    of its last calls.
    """
    cut = _unseen(messages)
    size = 0
    for at in range(len(messages) - 1, -1, -1):
        size += count_tokens_approximately([messages[at]])
        if size > keep:
            break
        if not isinstance(messages[at], ToolMessage):
            cut = min(cut, at)
    return cut


def _unseen(messages: Sequence[AnyMessage]) -> int:
    """Where that begins which waits for an answer; after all of it, if nothing does."""
    if not messages or isinstance(messages[-1], AIMessage):
        return len(messages)
    at = len(messages) - 1
    while at > 0 and isinstance(messages[at], ToolMessage):
        at -= 1
    return at


def reported_tokens(messages: Sequence[AnyMessage], compacted: Compacted | None) -> int:
    """What the last answer has used as its provider says, and what has come since; 0 if that is not known."""
    ids = [message.id for message in messages]
    since = ids.index(compacted["seen"]) + 1 if compacted is not None and compacted["seen"] in ids else 0
    for at in range(len(messages) - 1, since - 1, -1):
        message = messages[at]
        if isinstance(message, AIMessage) and message.usage_metadata is not None:
            total = message.usage_metadata.get("total_tokens") or 0
            return total + count_tokens_approximately(messages[at + 1 :]) if total > 0 else 0
    return 0


def _shortened(message: AnyMessage, longest: int) -> AnyMessage:
    content: Any = message.content
    if isinstance(content, str):
        if len(content) <= longest:
            return message
        return message.model_copy(update={"content": without_middle(content, longest)})
    parts = [_shortened_part(part, longest) for part in content]
    return message if parts == content else message.model_copy(update={"content": parts})


def _shortened_part(part: Any, longest: int) -> Any:
    if isinstance(part, str):
        return without_middle(part, longest)
    if isinstance(part, Mapping) and isinstance(part.get("text"), str) and len(part["text"]) > longest:
        return {**part, "text": without_middle(part["text"], longest)}
    return part

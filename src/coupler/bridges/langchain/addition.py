"""Messages with a text added behind what they have: content is one text, or a list of blocks."""

from __future__ import annotations

from typing import Any, TypeVar

from langchain_core.messages import BaseMessage, SystemMessage

M = TypeVar("M", bound=BaseMessage)


def with_text(message: M, text: str) -> M:
    """The same message, and a paragraph more."""
    content: Any = message.content
    if isinstance(content, str):
        more: Any = f"{content}\n\n{text}" if content else text
    else:
        more = [*content, {"type": "text", "text": text}]
    return message.model_copy(update={"content": more})


def with_prompt(message: SystemMessage | None, prompt: str) -> SystemMessage:
    """The system message, and what else the model is to heed."""
    return SystemMessage(prompt) if message is None else with_text(message, prompt)

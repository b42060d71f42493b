"""The model of all agents in this benchmark: a prompt "N" is answered with N chunks of text.

It needs nothing but LangChain, so that each package has the same work to do before it. Its chunks are made
once and told again: what a model does itself is no cost of a bridge. Asked for "fresh N" it makes new ones.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

FRESH = "fresh"


class CountingModel(BaseChatModel):
    """Counts to the number that it is asked for."""

    _made: list[ChatGenerationChunk] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "counting"

    def bind_tools(self, tools: Any, **_: Any) -> "CountingModel":
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        text = "".join(f"token {number} " for number in range(asked(messages)))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    async def _astream(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        chunks = made(asked(messages)) if FRESH in messages[-1].text else self._told_again(asked(messages))
        for chunk in chunks:
            yield chunk

    def _told_again(self, number: int) -> Iterator[ChatGenerationChunk]:
        self._made += made(number, len(self._made))
        for chunk in self._made[:number]:
            # Past pydantic's own way to set it, which is slow: LangChain gives every answer an id of its own.
            chunk.message.__dict__["id"] = None
            yield chunk


def made(until: int, since: int = 0) -> Iterator[ChatGenerationChunk]:
    """Chunks that no answer has had before."""
    return (
        ChatGenerationChunk(message=AIMessageChunk(content=f"token {number} "))
        for number in range(since, until)
    )


def asked(messages: list[BaseMessage]) -> int:
    """The number in the last prompt that has one."""
    words = messages[-1].text.split()
    return int(words[-1]) if words and words[-1].isdigit() else 1

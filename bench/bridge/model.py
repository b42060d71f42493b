"""The model of all agents in this benchmark: a prompt "N" is answered with N chunks of text.

It needs nothing but LangChain, so that each package has the same work to do before it.
"""

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult


class CountingModel(BaseChatModel):
    """Counts to the number that it is asked for."""

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
        for number in range(asked(messages)):
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"token {number} "))


def asked(messages: list[BaseMessage]) -> int:
    """The number in the last prompt that has one."""
    words = messages[-1].text.split()
    return int(words[-1]) if words and words[-1].isdigit() else 1

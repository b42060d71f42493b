"""A chat model that says what a script tells it: real LangChain, and no network.

A script is a list of answers, one for each call of the model; the last is repeated. An answer is a list of
steps: text, `think(…)`, `call(…)`, `used(…)`, `finish(…)`, `wait(…)`, `fail(…)` or a chunk of one's own.
Calls of a model that has answered everything it was told say so. What it was asked is in `asked`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field


class Wait(NamedTuple):
    """Nothing comes for so many seconds."""

    seconds: float


class Fail(NamedTuple):
    """The model raises this."""

    error: Exception


Step = str | AIMessageChunk | Wait | Fail
Answer = Sequence[Step | list[AIMessageChunk]]
Script = Sequence[Answer] | Callable[[list[BaseMessage]], Answer]


def think(text: str) -> AIMessageChunk:
    """A piece of reasoning."""
    return AIMessageChunk(content=[{"type": "reasoning", "reasoning": text, "index": 0}])


def call(name: str, id: str, *, index: int = 0, pieces: int = 3, **arguments: Any) -> list[AIMessageChunk]:
    """A tool call whose arguments come in fragments."""
    text = json.dumps(arguments)
    size = max(len(text) // pieces, 1)
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    first = {"name": name, "args": "", "id": id, "index": index, "type": "tool_call_chunk"}
    rest = [{"name": None, "args": p, "id": None, "index": index, "type": "tool_call_chunk"} for p in parts]
    return [AIMessageChunk(content="", tool_call_chunks=[chunk]) for chunk in (first, *rest)]


def used(input: int, output: int, **details: Any) -> AIMessageChunk:
    """What the call has used, in tokens."""
    usage = {"input_tokens": input, "output_tokens": output, "total_tokens": input + output, **details}
    return AIMessageChunk(content="", usage_metadata=usage)


def finish(reason: str) -> AIMessageChunk:
    """Why the model stopped, as OpenAI spells it."""
    return AIMessageChunk(content="", response_metadata={"finish_reason": reason})


def wait(seconds: float) -> Wait:
    """A pause."""
    return Wait(seconds)


def fail(error: Exception) -> Fail:
    """An error in the middle of an answer."""
    return Fail(error)


class ScriptedModel(BaseChatModel):
    """Answers by a script; with `streams=False` in one piece."""

    script: Any
    streams: bool = True
    asked: list[list[BaseMessage]] = Field(default_factory=list)
    bound: list[list[str]] = Field(default_factory=list)
    """The names of the tools that it was given, for each binding."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> ScriptedModel:
        self.bound.append([getattr(tool, "name", str(tool)) for tool in tools])
        return self

    def _steps(self, messages: list[BaseMessage]) -> Iterator[AIMessageChunk | Wait | Fail]:
        self.asked.append(messages)
        if callable(self.script):
            answer = self.script(messages)
        else:
            answer = self.script[min(len(self.asked), len(self.script)) - 1]
        for step in answer:
            if isinstance(step, str):
                yield AIMessageChunk(content=step)
            elif isinstance(step, list):
                yield from step
            else:
                yield step

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        for step in self._steps(messages):
            if isinstance(step, Wait):
                time.sleep(step.seconds)
            elif isinstance(step, Fail):
                raise step.error
            else:
                yield ChatGenerationChunk(message=step.model_copy())

    async def _astream(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for step in self._steps(messages):
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, Fail):
                raise step.error
            else:
                yield ChatGenerationChunk(message=step.model_copy())

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        whole: AIMessageChunk = AIMessageChunk(content="")
        for chunk in self._stream(messages):
            whole = whole + chunk.message
        message = AIMessage(
            content=whole.content,
            tool_calls=whole.tool_calls,
            usage_metadata=whole.usage_metadata,
            response_metadata=whole.response_metadata,
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _should_stream(self, **kwargs: Any) -> bool:
        return self.streams and super()._should_stream(**kwargs)

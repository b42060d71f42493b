"""Chat completions as they are streamed: pieces of a message in, text, thoughts and wanted tool calls out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from coupler.events import Text, Thought
from coupler.providers.loose import Loose
from coupler.providers.parsing import Reading, StreamParser
from coupler.providers.said import Said, Tokens

FINISH_REASONS = {"length": "max_tokens", "content_filter": "refusal"}

MOST_CALLS = 128
"""Tool calls in one message."""

LONGEST_ARGUMENTS = 10 * 1024 * 1024
"""Characters of one call's arguments."""


class Wanted(NamedTuple):
    """A tool call that the model wants to be made."""

    id: str
    name: str
    arguments: str

    def as_message(self) -> dict[str, Any]:
        """The call as the conversation keeps it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class OpenAIStream(StreamParser):
    """Reads one message, in pieces or whole, of today's shape and of the one with `function_call`."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        """All that the message says."""
        self._wanted: dict[int, dict[str, str]] = {}

    @property
    def wanted(self) -> list[Wanted]:
        """The tool calls of the message, in order."""
        return [
            Wanted(call["id"] or self.new_id("call"), call["name"], call["arguments"])
            for _, call in sorted(self._wanted.items())
        ]

    @staticmethod
    def kind_of(line: Loose) -> str:
        # Many servers send an error where a piece should be, and some leave the name of pieces out.
        if line.object("error") or line.text("error"):
            return "error"
        return line.text("object") or "chat.completion.chunk"

    def piece(self, line: Loose) -> Iterator[Said]:
        if usage := line.object("usage"):
            self.outcome.tokens = _tokens(usage)
            self.outcome.cost = usage.amount("cost")
        for choice in line.objects("choices")[:1]:
            message = choice.object("delta", "message")
            if thought := message.text("reasoning_content", "reasoning"):
                yield Thought(thought, "thought")
            if text := message.text("content", "refusal"):
                self.text += text
                yield Text(text, "message")
            self._gather_calls(message)
            if message.text("refusal"):
                self.outcome.stop_reason = "refusal"
            if reason := FINISH_REASONS.get(choice.text("finish_reason")):
                self.outcome.stop_reason = reason

    def failed(self, line: Loose) -> Iterator[Said]:
        error = line.object("error")
        self.outcome.error = (
            error.text("message", "code", "type") or line.text("error") or "it gave no reason"
        )
        yield from ()

    def _gather_calls(self, message: Loose) -> None:
        old = message.object("function_call")
        calls = message.objects("tool_calls") or (
            [Loose({"index": 0, "function": old.members})] if old else []
        )
        for position, call in enumerate(calls):
            index = call.count("index")
            number = position if index is None else index
            if number not in self._wanted and len(self._wanted) >= MOST_CALLS:
                continue
            kept = self._wanted.setdefault(number, {"id": "", "name": "", "arguments": ""})
            function = call.object("function")
            kept["id"] = kept["id"] or call.text("id")
            kept["name"] = kept["name"] or function.text("name")
            if len(kept["arguments"]) < LONGEST_ARGUMENTS:
                kept["arguments"] += function.text("arguments")

    KINDS: ClassVar[Mapping[str, Reading]] = {
        "chat.completion.chunk": piece,
        "chat.completion": piece,
        "error": failed,
    }


def _tokens(usage: Loose) -> Tokens:
    read = usage.object("prompt_tokens_details").count("cached_tokens")
    thought = usage.object("completion_tokens_details").count("reasoning_tokens")
    whole_input, whole_output = usage.count("prompt_tokens") or 0, usage.count("completion_tokens") or 0
    return Tokens(
        max(whole_input - (read or 0), 0),
        max(whole_output - (thought or 0), 0),
        read,
        thought=thought,
        total=usage.count("total_tokens"),
    )

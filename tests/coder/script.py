"""What the model of a test says, over real HTTP, and what it was told.

    model.plays(use("read_file", path="a.py"), (use("search", pattern="x"), use("fetch", url="…")), "Done.")

An answer is a text, a use of a tool, several of these together, a reply of the model server, or a function of
the request that returns one of them. A request too many is refused: no test passes by a repeated answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from labs.langchain.model_server import ModelServer, Reply, call_deltas, refuses


class Use(NamedTuple):
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None


def use(name: str, /, *, call_id: str | None = None, **arguments: Any) -> Use:
    """The model calls a tool; without an id it is `call-` and the number of the call in the script."""
    return Use(name, arguments, call_id)


class Asked(dict[str, Any]):
    """One request, as the model got it."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self["messages"]
        return messages

    @property
    def system(self) -> str:
        """The system prompt."""
        return "\n".join(_text(each) for each in self.messages if each["role"] in ("system", "developer"))

    @property
    def prompts(self) -> list[str]:
        """What the user said, in order."""
        return [_text(each) for each in self.messages if each["role"] == "user"]

    @property
    def results(self) -> list[str]:
        """What tools have answered, in order."""
        return [_text(each) for each in self.messages if each["role"] == "tool"]

    @property
    def result(self) -> str:
        """What the last tool has answered."""
        return self.results[-1]

    @property
    def tools(self) -> set[str]:
        """The tools that were offered."""
        return {each["function"]["name"] for each in self.get("tools", ())}

    @property
    def text(self) -> str:
        """All of its messages."""
        return "\n".join(_text(each) for each in self.messages)


Part = str | Use
Answer = Part | tuple[Part, ...] | Reply
Scripted = Answer | Callable[[Asked], Answer]


class ScriptedModel:
    """One model server, with the script of the test that runs."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        server.replies = [self._reply]
        self._lock = threading.Lock()
        self._calls = 0
        self._script: list[Scripted] = []
        self._next = 0
        self._rest: Callable[[Asked], Answer] | None = None
        self.asked: list[Asked] = []

    def plays(self, *answers: Scripted) -> None:
        """Begin a new script."""
        self.server.hold()
        with self._lock:
            self._script, self._next, self.asked = [*answers], 0, []
            self._calls, self._rest = 0, None

    def improvises(self, answer: Callable[[Asked], Answer]) -> None:
        """Answer every request by this function, as often as it is asked."""
        self.plays()
        self._rest = answer

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    @property
    def is_over(self) -> bool:
        """Whether all of the script was asked for, and no more."""
        return self._rest is not None or self._next == len(self._script)

    def _reply(self, request: dict[str, Any]) -> Reply:
        asked = Asked(request)
        with self._lock:
            self.asked.append(asked)
            self._next += 1
            rest = self._rest or (lambda _: refuses(400, f"the script has {len(self._script)} answers"))
            answer = self._script[self._next - 1] if self._next <= len(self._script) else rest
        return self._told(answer(asked) if callable(answer) else answer)

    def _told(self, answer: Answer) -> Reply:
        if isinstance(answer, Reply):
            return answer
        parts = (answer,) if isinstance(answer, str | Use) else answer
        deltas: list[dict[str, Any]] = [{"content": part} for part in parts if isinstance(part, str)]
        uses = [part for part in parts if isinstance(part, Use)]
        for index, part in enumerate(uses):
            deltas += call_deltas(index, part.id or self._new_id(), part.name, part.arguments)
        return Reply(deltas, "tool_calls" if uses else "stop")

    def _new_id(self) -> str:
        with self._lock:
            self._calls += 1
            return f"call-{self._calls}"


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)

"""Talks with a LangChain agent in this process, over the bridge and both sides of the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from client.stage import run
from coupler import connect
from coupler.agent.factory import adapt


class Talk(NamedTuple):
    """What was answered, and everything that was told meanwhile."""

    replies: list[Any]
    events: list[Any]

    @property
    def last(self) -> Any:
        return self.replies[-1]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def talk(graph: Any, *prompts: Any, cwd: Path | str = ".", **options: Any) -> Talk:
    """The replies to these prompts of one session; a function among them is called in between."""

    async def converse() -> Talk:
        events: list[Any] = []
        replies: list[Any] = []

        def hear(observed: Any) -> None:
            events.append(getattr(observed, "event", None))

        async with connect(adapt(graph), on_event=hear, cwd=cwd, **options) as agent:
            session = await agent.new(cwd=cwd)
            for prompt in prompts:
                if callable(prompt):
                    prompt()
                else:
                    replies.append(await session.prompt(prompt, commands=True))
        return Talk(replies, events)

    return run(converse())

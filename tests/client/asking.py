"""An agent that sends what its prompts say, and what the client answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from client.stage import Frame, Scripted, run
from coupler.client.remote import RemoteAgent
from coupler.client.session import RemoteSession

Script = Callable[[str], Scripted]

# The prompt is Python that makes frames; those with an id are answered before the turn ends.
ASKS = """
    for prompt in prompts():
        frames = eval(text_of(prompt))
        frames = [frames] if isinstance(frames, dict) else frames
        send(*frames)
        waiting = {frame["id"] for frame in frames if "id" in frame}
        answers = {}
        while waiting - answers.keys():
            frame = read()
            if "method" not in frame:
                answers[frame["id"]] = frame
        text = json.dumps([answers[id] for id in sorted(waiting)])
        send(say(text, prompt["params"]["sessionId"]), end(prompt))
"""


class Asked:
    """A session with such an agent."""

    def __init__(self, remote: RemoteAgent, session: RemoteSession) -> None:
        self.remote = remote
        self.session = session
        self._last = 0

    async def send(self, text: str) -> list[Frame]:
        """The answers to frames that are written as Python."""
        answers: list[Frame] = json.loads((await self.session.prompt(text)).text)
        return answers

    async def request(self, method: str, **params: Any) -> Any:
        """The result of a request of the session, or its error with the code as `code`."""
        self._last += 1
        params = {"sessionId": self.session.id, **params}
        [answer] = await self.send(f"request({self._last}, {method!r}, **{params!r})")
        return answer.get("result", answer.get("error"))


def ask(
    script: Script,
    story: Callable[[Asked], Awaitable[None]],
    *,
    complains: list[dict[str, Any]] | None = None,
    session: dict[str, Any] | None = None,
    **offer: Any,
) -> Scripted:
    """Play a story with an agent to whom this is offered; `complains` gets what the loop is told of."""
    agent = script(ASKS)

    async def play() -> None:
        if complains is not None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complains.append(context))
        async with agent.connect(**offer) as remote:
            await story(Asked(remote, await remote.new(**(session or {}))))

    run(play())
    return agent


def advertised(agent: Scripted) -> dict[str, Any]:
    """What the client said that it offers."""
    capabilities: dict[str, Any] = agent.received_of("initialize")[0]["params"]["clientCapabilities"]
    return capabilities

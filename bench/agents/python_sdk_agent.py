"""The benchmark agent on the official Python SDK: a prompt "N" streams N text chunks."""

import asyncio
from itertools import count
from typing import Any

from acp import (
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    run_agent,
    text_block,
    update_agent_message,
)


class Chunks(Agent):
    def __init__(self) -> None:
        self.numbers = count()

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, **_: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id=f"session-{next(self.numbers)}")

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        for i in range(int(prompt[0].text)):
            update = update_agent_message(text_block(f"hello token {i}"))
            await self.client.session_update(session_id=session_id, update=update)
        return PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(run_agent(Chunks()))

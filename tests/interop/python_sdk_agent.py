"""An agent on the official Python SDK. What it does is what the prompt's text says:

"N" streams N text chunks, "slow" says "started" and waits to be cancelled, "ask" asks for permission to
delete a file and says "allowed" or "rejected", "cancels" says how many turns were cancelled.
"""

import asyncio
from itertools import count
from typing import Any

from acp import (
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    run_agent,
    start_tool_call,
    update_agent_message_text,
    update_tool_call,
)
from acp.schema import PermissionOption, ToolCallUpdate

TITLE = "Delete notes.txt"
OPTIONS = [
    PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]


class InteropAgent:
    """Not a subclass of the SDK's Agent, whose stubs would answer unimplemented methods with null."""

    def __init__(self) -> None:
        self.numbers = count(1)
        self.cancels: dict[str, asyncio.Event] = {}
        self.cancelled_turns = 0

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id=f"session-{next(self.numbers)}")

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session_id in self.cancels:
            self.cancels[session_id].set()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        match prompt[0].text:
            case "slow":
                return await self.wait_for_cancel(session_id)
            case "ask":
                await self.ask_permission(session_id)
            case "cancels":
                await self.say(session_id, str(self.cancelled_turns))
            case chunks:
                for i in range(int(chunks)):
                    await self.say(session_id, f"{i} ")
        return PromptResponse(stop_reason="end_turn")

    async def wait_for_cancel(self, session_id: str) -> PromptResponse:
        cancelled = self.cancels[session_id] = asyncio.Event()
        await self.say(session_id, "started")
        await cancelled.wait()
        self.cancelled_turns += 1
        return PromptResponse(stop_reason="cancelled")

    async def ask_permission(self, session_id: str) -> None:
        started = start_tool_call("call-1", TITLE, kind="delete", status="pending")
        await self.client.session_update(session_id=session_id, update=started)
        answer = await self.client.request_permission(
            session_id=session_id,
            tool_call=ToolCallUpdate(tool_call_id="call-1", title=TITLE, kind="delete"),
            options=OPTIONS,
        )
        allowed = getattr(answer.outcome, "option_id", None) == "yes"
        ended = update_tool_call("call-1", status="completed" if allowed else "failed")
        await self.client.session_update(session_id=session_id, update=ended)
        await self.say(session_id, "allowed" if allowed else "rejected")

    async def say(self, session_id: str, text: str) -> None:
        await self.client.session_update(session_id=session_id, update=update_agent_message_text(text))


if __name__ == "__main__":
    asyncio.run(run_agent(InteropAgent()))

"""A client on the official Python SDK: python_sdk_client.py PROMPT PERMISSION COMMAND…

Starts the agent, prompts it once, and prints what it saw as one line of JSON, as node/client.mjs does.
PERMISSION is the kind of option that it picks when asked. The prompt "slow" is cancelled at its first chunk.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from acp import RequestPermissionResponse, spawn_agent_process, text_block
from acp.schema import AgentMessageChunk, AllowedOutcome


def as_json(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class InteropClient:
    """Not a subclass of the SDK's Client, whose stubs would answer unimplemented methods with null."""

    def __init__(self, prompt: str, permission: str) -> None:
        self.prompt = prompt
        self.permission = permission
        self.chunks: list[str] = []
        self.updates: list[Any] = []
        self.asked: list[Any] = []

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if not isinstance(update, AgentMessageChunk):
            self.updates.append(as_json(update))
            return
        self.chunks.append(update.content.text)
        if self.prompt == "slow" and len(self.chunks) == 1:
            await self.agent.cancel(session_id=session_id)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        choices = [as_json(option) for option in options]
        self.asked.append({"sessionId": session_id, "toolCall": as_json(tool_call), "options": choices})
        chosen = next(option.option_id for option in options if option.kind == self.permission)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))


async def main(prompt: str, permission: str, command: list[str]) -> None:
    client = InteropClient(prompt, permission)
    async with spawn_agent_process(client, *command, env=os.environ) as (agent, _process):
        initialized = await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd=str(Path.cwd()), mcp_servers=[])
        started = time.perf_counter()
        answer = await agent.prompt(session_id=session.session_id, prompt=[text_block(prompt)])
        report = {
            "initialized": as_json(initialized),
            "sessionId": session.session_id,
            "stopReason": answer.stop_reason,
            "seenAtAnswer": len(client.chunks),
            "seconds": time.perf_counter() - started,
            "chunks": client.chunks,
            "updates": client.updates,
            "asked": client.asked,
        }
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

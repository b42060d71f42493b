"""A client on the official Python SDK, as its documentation shows one: with_python_sdk.py COMMAND…"""

import asyncio
import os
import sys
from pathlib import Path

from acp import RequestPermissionResponse, spawn_agent_process, text_block
from acp.schema import AgentMessageChunk, AllowedOutcome


class SdkClient:
    """Not a subclass of the SDK's Client, whose stubs would answer unimplemented methods with null."""

    async def session_update(self, session_id, update, **_):
        if isinstance(update, AgentMessageChunk):
            print(getattr(update.content, "text", ""), end="", flush=True)

    async def request_permission(self, session_id, tool_call, options, **_):
        chosen = next(option.option_id for option in options if option.kind == "allow_once")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))


async def main(command):
    async with spawn_agent_process(SdkClient(), *command, env=os.environ) as (agent, _process):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd=str(Path.cwd()), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=[text_block("hello")])
    print()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

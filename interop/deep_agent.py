"""An agent for deepagents-acp, which has none of its own: run by the Python that it is installed for."""

import asyncio
import os

from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from deepagents_acp.server import AgentServerACP, AgentSessionContext, run_acp_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import MemorySaver

checkpointer = MemorySaver()


def build(context: AgentSessionContext):  # type: ignore[no-untyped-def]
    return create_deep_agent(
        model=ChatOpenAI(
            model="scripted", base_url=os.environ["MODEL_URL"], api_key="none", stream_usage=True
        ),
        backend=FilesystemBackend(root_dir=context.cwd, virtual_mode=False),
        checkpointer=checkpointer,
        interrupt_on={"write_file": True},
    )


asyncio.run(run_acp_agent(AgentServerACP(agent=build)))

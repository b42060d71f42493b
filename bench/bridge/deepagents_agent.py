"""The same agent, served by deepagents-acp."""

import asyncio

from acp import run_agent
from deepagents_acp.server import AgentServerACP
from langchain.agents import create_agent
from langgraph.checkpoint.memory import MemorySaver
from model import CountingModel

# It asks for a checkpointer; one in memory costs the least.
agent = create_agent(CountingModel(), [], checkpointer=MemorySaver())

if __name__ == "__main__":
    asyncio.run(run_agent(AgentServerACP(agent)))

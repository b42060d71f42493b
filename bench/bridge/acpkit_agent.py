"""The same agent, served by acpkit's langchain-acp."""

from langchain.agents import create_agent
from langchain_acp import run_acp
from langgraph.checkpoint.memory import MemorySaver
from model import CountingModel

agent = create_agent(CountingModel(), [], checkpointer=MemorySaver())

if __name__ == "__main__":
    run_acp(agent)

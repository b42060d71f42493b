"""The agent, served by Coupler."""

from langchain.agents import create_agent
from model import CountingModel

agent = create_agent(CountingModel(), [])

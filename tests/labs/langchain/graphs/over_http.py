"""An agent whose model is behind the address in MODEL_URL."""

import asyncio
import os

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


model = ChatOpenAI(
    model="scripted",
    base_url=os.environ["MODEL_URL"],
    api_key="key-of-the-tests",
    max_retries=int(os.environ.get("MODEL_RETRIES", "0")),
    stream_usage=True,
)
agent = create_agent(model, [add, wait])

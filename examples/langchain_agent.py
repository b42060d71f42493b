"""A LangChain agent in the editor: the editor's files and terminals, its MCP servers, modes and a plan.

    pip install "coupler[langchain]" langchain-openai
    coupler serve examples/langchain_agent.py

It uses any model that `init_chat_model` knows, by the name in AGENT_MODEL, and that model's own key.
"""

import os

from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware

from coupler import acp, serve

agent = create_agent(
    os.environ.get("AGENT_MODEL", "openai:gpt-5"),
    acp.editor_tools(),
    system_prompt="You help in the project that the user has open. Read before you change something.",
    middleware=[TodoListMiddleware(), acp.tools(), acp.modes(default="interactive"), acp.plan()],
    name="langchain-example",
)

if __name__ == "__main__":
    serve(agent)

"""A LangChain agent whose tools are those of MCP servers: the editor's, and those of `coupler.toml`.

    pip install "coupler[langchain]" langchain-openai
    coupler serve examples/langchain_mcp.py

It uses any model that `init_chat_model` knows, by the name in AGENT_MODEL, and that model's own key. For a
server to try it with, see `mcp_notes.py`.

The servers of a session are connected when it is opened and stay so; one that fails costs only its own tools.
Each use is asked about, unless a rule of the user's allows it: `allow = ["mcp:notes(find_*)"]`.
"""

import os
from typing import Any

from langchain.agents import create_agent

from coupler import Session, acp, serve


async def agent_for(session: Session) -> Any:
    """Each session has an agent of its own, because each can have other servers.

    If the names of the servers do not matter, `middleware=[acp.tools()]` does the same without a factory.
    """
    tools = await acp.mcp_tools(session, prefix="always")  # `notes_add_note`: the model sees whose tool it is
    return create_agent(
        os.environ.get("AGENT_MODEL", "openai:gpt-5"),
        tools,
        system_prompt=f"You work in {session.cwd}. Use your tools before you say that you do not know.\n"
        f"They are: {', '.join(tool.name for tool in tools) or 'none, and the user should hear that'}.",
        name="langchain-mcp",
    )


serve(factory=agent_for)  # not below an `if`: this line tells `coupler serve` that it is a factory

"""An agent for each session, made as the file `order.py` in its directory says.

The order is Python with `agent_with(*middleware)` at hand: an agent that calls the tools that its prompt
names (a JSON list of `[tool, arguments]`) and then says what they answered, as a JSON list of `[status,
content]`. To a prompt that is no JSON it says which tools it was offered, which system prompt it has, and the
name of its model.
"""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, TodoListMiddleware
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import interrupt
from pydantic import BaseModel

from coupler import acp, serve
from labs.langchain.scripted_model import ScriptedModel, call, think

__all__ = ["Annotated", "Any", "BaseModel", "HumanInTheLoopMiddleware", "Literal", "TodoListMiddleware"]
__all__ += ["TypedDict", "acp", "asyncio", "interrupt", "think"]


@tool
async def write_file(path: str, content: str, mode: int = 420) -> str:
    """Write a file."""
    return f"wrote {content!r} to {path} with {mode}"


@tool
async def read_file(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


@tool
async def run_command(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


@tool
async def lookup(topic: str) -> str:
    """Look something up."""
    return f"about {topic}"


@tool
async def store(record: dict[str, Any], api_key: str = "") -> str:
    """Keep a record."""
    return f"stored {json.dumps(record)} with {api_key!r}"


TOOLS = [write_file, read_file, run_command, lookup, store]


def scripted(name: str = "usual", **more: Any) -> ScriptedModel:
    model = ScriptedModel(script=None, **more)

    def obey(messages: list[Any]) -> list[Any]:
        if isinstance(messages[-1], HumanMessage):
            return told(messages) if not messages[-1].text.startswith("[") else asked(messages)
        answers: list[Any] = []
        for message in reversed(messages):
            if not isinstance(message, ToolMessage):
                break
            answers.insert(0, [message.status, message.content])
        return [json.dumps(answers)]

    def asked(messages: list[Any]) -> list[Any]:
        turn = sum(isinstance(message, HumanMessage) for message in messages)
        return [
            call(name, f"call_{turn}_{number}", index=number, **arguments)
            for number, (name, arguments) in enumerate(json.loads(messages[-1].text))
        ]

    def told(messages: list[Any]) -> list[Any]:
        system = [message.text for message in messages if isinstance(message, SystemMessage)]
        offered = model.bound[-1] if model.bound else []
        return [json.dumps({"model": name, "tools": offered, "system": system})]

    model.script = obey
    return model


def agent_with(*middleware: Any, tools: Any = TOOLS, model: Any = None, **more: Any) -> Any:
    return create_agent(model or scripted(), tools, middleware=middleware, **more)


def make(session: Any) -> Any:
    scope = {**globals(), "session": session}
    exec(compile((Path(session.cwd) / "order.py").read_text(), "order.py", "exec"), scope)
    return scope["agent"]


serve(factory=make)

"""An agent whose prompts are scripts: Python for a list of answers, one for each call of the model.

`messages` in a script is what the model was given. Its tools do what tools do: return, fail, take their time.
"""

import asyncio
import time

from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tools import tool

from coupler import acp
from labs.langchain import scripted_model
from labs.langchain.scripted_model import ScriptedModel

SCOPE = {**vars(scripted_model), "AIMessageChunk": AIMessageChunk}


def act(messages):
    last = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
    done = sum(isinstance(message, AIMessage) for message in messages[last:])
    content = messages[last].content
    script = content if isinstance(content, str) else content[0]["text"]
    answers = eval(script, {**SCOPE, "messages": messages})
    return answers[min(done, len(answers) - 1)]


model = ScriptedModel(script=act)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def broken(path: str) -> str:
    """Fail, always."""
    raise ValueError(f"no such file: {path}")


@tool
async def slow(seconds: float) -> str:
    """Take time, as a coroutine."""
    await asyncio.sleep(seconds)
    return "slept"


@tool
def block(seconds: float) -> str:
    """Take time, as a plain function in a thread."""
    time.sleep(seconds)
    return "slept"


@tool
def late(seconds: float) -> str:
    """Take time, and report afterwards."""
    time.sleep(seconds)
    acp.current().progress("late")
    return "late"


@tool
async def stream(words: list[str], runtime: ToolRuntime) -> str:
    """Say words one after the other."""
    for word in words:
        runtime.emit_output_delta(word)
        await asyncio.sleep(0)
    return "".join(words)


@tool
def report(steps: list[str]) -> str:
    """Report steps while working, as a plain function."""
    for step in steps:
        acp.current().progress(f"{step}\n")
    return "reported"


@tool
async def areport(step: str) -> str:
    """Report a step, as a coroutine."""
    await acp.current().progress(f"{step}\n")
    return "reported"


@tool
async def delegate(task: str) -> str:
    """Have another agent do it."""
    answer = await helper.ainvoke({"messages": [HumanMessage(task)]})
    return answer["messages"][-1].text


@tool
def picture() -> list:
    """Return a picture and a word."""
    return [{"type": "text", "text": "a dot"}, {"type": "image", "base64": "aaaa", "mime_type": "image/gif"}]


@tool(response_format="content_and_artifact")
def measured() -> tuple[str, dict]:
    """Return a text for the model, and numbers for programs."""
    return "about three", {"value": 3.1}


helper = create_agent(model, [add], name="helper")
agent = create_agent(
    model,
    [add, broken, slow, block, late, stream, report, areport, delegate, picture, measured],
    name="actor",
).with_config(recursion_limit=20)

"""An agent that calls the coder's own tools as its prompt says, and then says what they answered.

The prompt is a JSON list of `[tool, arguments]`, the answer a JSON list of `[status, content]`. To the prompt
`[]` the answer is what the model was given as the prompt.
"""

import json
import os
import sys
from pathlib import Path

# Not by a variable: a process with one of Python's own could not be a fork.
sys.path.insert(0, str(Path(__file__).parents[2]))

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool

from coupler import acp
from coupler.agent.agent import Agent
from coupler.coder.assembly import JobNews, KeptOutputs
from coupler.coder.tools.background_jobs import BackgroundJobs
from coupler.coder.tools.outputs import SessionOutputs
from coupler.coder.tools.sandbox import Sandbox
from coupler.coder.tools.shell import shell_tools
from coupler.coder.tools.web import fetch_tools
from coupler.langchain.graph_agent import GraphAgent
from coupler.langchain.messages import DisplayOptions
from labs.langchain.scripted_model import ScriptedModel


def obey(messages):
    if isinstance(messages[-1], HumanMessage):
        text = messages[-1].text
        named, _ = json.JSONDecoder().raw_decode(text)
        if not named:
            return [json.dumps([["prompt", text]])]
        turn = sum(isinstance(message, HumanMessage) for message in messages)
        return [
            called(name, f"call_{turn}_{number}", number, arguments)
            for number, (name, arguments) in enumerate(named)
        ]
    answers = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        answers.insert(0, [message.status, message.content])
    return [json.dumps(answers)]


def called(name, id, index, arguments):
    chunk = {"name": name, "args": json.dumps(arguments), "id": id, "index": index, "type": "tool_call_chunk"}
    return AIMessageChunk(content="", tool_call_chunks=[chunk])


@tool
def repeat(text: str, times: int, blocks: bool = False) -> str | list:
    """Say something so many times."""
    said = text * times
    return [{"type": "text", "text": said}, {"type": "text", "text": "short"}] if blocks else said


class Worker(Agent):
    async def opened(self, session):
        outputs = SessionOutputs(session)
        self.jobs = BackgroundJobs(session, outputs)
        self.sandbox = Sandbox(session, [outputs.directory], setting=os.environ.get("SANDBOX", "off"))
        graph = create_agent(
            ScriptedModel(script=obey),
            [
                *shell_tools(session, self.jobs, outputs, self.sandbox),
                *fetch_tools(session),
                repeat,
                *(tool for tool in acp.editor_tools(session) if tool.name == "read_file"),
            ],
            middleware=[acp.tools(), JobNews(self.jobs), KeptOutputs(outputs)],
        )
        self.graph = GraphAgent(graph, ("worker", "worker"), "worker", look=DisplayOptions(), store=None)
        await self.graph.opened(session)

    async def perform(self, turn):
        return await self.graph.perform(turn)

    async def closed(self, session):
        await self.jobs.close()
        self.sandbox.close()
        await self.graph.closed(session)

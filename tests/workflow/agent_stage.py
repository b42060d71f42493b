"""Runs with real agents and a journal in memory: what steps make of agents that are scripts or stubs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from client.stage import Scripted, run
from coupler.client.elicitation import FormAnswer, FormRequest
from coupler.events import Text
from coupler.store.store import Store
from coupler.workflow.agents.agents import Agents
from coupler.workflow.engine.front import UserMessage
from coupler.workflow.engine.interpreter import RunState
from coupler.workflow.engine.performers import Performing
from coupler.workflow.engine.run import Engine
from coupler.workflow.errors import Parked
from coupler.workflow.expressions.expression import FlowExpressions
from coupler.workflow.journal.run_events import (
    AgentEvent,
    Decided,
    Happening,
    Noted,
    Place,
    Result,
    RunFinished,
    StepFinished,
)
from coupler.workflow.language.inputs import bind_inputs
from coupler.workflow.language.library import build_bundle
from coupler.workflow.language.model import Workflow
from coupler.workflow.language.reader import read_text
from workflow.stage import Answering, Memo

H = TypeVar("H", bound=Happening)
E = TypeVar("E")
Script = Callable[[str], Scripted]
"""Makes an agent of a few lines; see `client/agents/bare.py` for its words."""


class Remembering(Memo):
    """A journal in memory that agents can look into."""

    def decisions(self, what: str) -> dict[Place, Any]:
        return {
            each.place: each.value
            for each in self.all
            if isinstance(each, Decided) and each.what == what and each.place is not None
        }


class Talking(Answering):
    """Says these messages, one after the other; then nobody is there any more."""

    def __init__(self, *messages: str | None, **answers: object) -> None:
        super().__init__(answers)
        self.messages = list(messages)
        self.heard: list[str] = []

    @property
    def shows_forms(self) -> bool:
        return True

    async def fill_in(self, place: Place, form: FormRequest, call: str | None) -> FormAnswer:
        if str(place) not in self.answers:
            return False
        return {field.name: self.answers[str(place)] for field in form.fields}

    async def message(self, place: Place, reply: str) -> UserMessage | None:
        self.heard.append(reply)
        if not self.messages:
            raise Parked(f"{place} waits for a message")
        message = self.messages.pop(0)
        return None if message is None else UserMessage(message)


class AgentStage:
    """One workflow in a directory, run and resumed with agents that are there for it."""

    def __init__(self, directory: Path, text: str) -> None:
        self.workflow: Workflow = read_text(text, str(directory / "main.yaml"))
        self.cwd = str(directory)
        self.memory = Remembering()
        self.front = Talking()
        self.store: Store | None = None
        self.while_it_runs: Callable[[Engine], object] = lambda engine: None

    def run(self, **inputs: object) -> RunFinished:
        return run(self.finished(**inputs))

    def resume(self, upto: int | None = None) -> RunFinished:
        """As another process does it, with the journal so far, or with so much of it."""
        self.memory = Remembering(self.memory.all[:upto])
        return self.run()

    async def finished(self, **inputs: object) -> RunFinished:
        bundle = build_bundle(self.workflow, lambda name, caller: caller)
        store = Store.open(None)
        try:
            async with Agents(
                store=store,
                bundle=bundle,
                limits=self.workflow.budget,
                journal=self.memory,
                front=self.front,
            ) as agents:
                running = RunState(
                    id="main-12345",
                    bundle=bundle,
                    memory=self.memory,
                    expressions=FlowExpressions(),
                    performer=Performing(),
                    agents=agents,
                    front=self.front,
                    cwd=self.cwd,
                    secrets={},
                    most_steps=self.workflow.max_steps,
                )
                engine = Engine(running, bind_inputs(self.workflow, inputs, self.cwd))
                self.while_it_runs(engine)
                return await engine.run()
        finally:
            store.close()

    def result(self, path: str) -> Result:
        """What became of a step in the last run."""
        found = [each for each in self.all(StepFinished) if str(each.place) == path]
        return found[-1].result

    def all(self, kind: type[H]) -> list[H]:
        """What happened of one kind in the last run."""
        return [each for each in self.memory.noted if isinstance(each, kind)]

    @property
    def said(self) -> str:
        return "".join(each.text for each in self.told(Text))

    def told(self, kind: type[E]) -> list[E]:
        """The events of one kind of the agents in the last run."""
        return [each.event for each in self.all(AgentEvent) if isinstance(each.event, kind)]

    @property
    def notes(self) -> list[str]:
        return [each.text for each in self.all(Noted)]


def stage_of(agent: Scripted, tmp_path: Path, text: str) -> AgentStage:
    """A workflow in which AGENT stands for the agent."""
    return AgentStage(tmp_path, text.replace("AGENT", json.dumps(shlex.join(agent.command))))


ECHO = """
for prompt in prompts():
    send(say(f"I heard: {text_of(prompt)}", prompt["params"]["sessionId"]), end(prompt))
"""


LOADING = """
HELLO["agentCapabilities"] = {"loadSession": True}
opened = 0
while True:
    frame = read()
    match frame["method"]:
        case "initialize":
            send(result(frame, HELLO))
        case "session/new":
            opened += 1
            send(result(frame, {"sessionId": f"s{os.getpid()}-{opened}"}))
        case "session/load":
            session = frame["params"]["sessionId"]
            send(say("of before", session), result(frame, {}))
        case "session/prompt":
            session = frame["params"]["sessionId"]
            send(say(f"in {session}", session), end(frame))
"""
FORGETFUL = LOADING.replace('{"loadSession": True}', "{}")

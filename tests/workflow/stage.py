"""A run without a store and without processes: what the interpreter makes of a workflow, in milliseconds.

The scripts of `run` steps are played: `say TEXT` writes it, `fail CODE TEXT` fails, `hang` waits to be
cancelled, `pause` lets others go first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec

from coupler.client.reply import Budget
from coupler.workflow.engine.attempt import Attempt
from coupler.workflow.engine.front import Approval, FrontEnd, PermissionQuestion, QuestionAnswer, UserMessage
from coupler.workflow.engine.interpreter import RunState
from coupler.workflow.engine.performers import Pause, Performing, Rehearsing
from coupler.workflow.engine.run import Engine
from coupler.workflow.errors import Parked, StepError
from coupler.workflow.expressions.expression import FlowExpressions, RehearsedExpressions
from coupler.workflow.journal.run_events import (
    Decided,
    Happening,
    Place,
    Result,
    RunFinished,
    StepFinished,
    StepStarted,
)
from coupler.workflow.language.inputs import bind_inputs
from coupler.workflow.language.library import build_bundle
from coupler.workflow.language.model import Agent, Input, Run, Step, Workflow
from coupler.workflow.language.reader import read_text


class Memo:
    """A journal in memory. `of` makes one that knows what another one has noted, as after a crash."""

    def __init__(self, noted: list[Happening] | None = None) -> None:
        self.earlier = list(noted or [])
        self.noted: list[Happening] = []

    @property
    def all(self) -> list[Happening]:
        return self.earlier + self.noted

    def result(self, place: Place, kind: str | None = None) -> Result | None:
        result = self._last(place, kind)
        return None if result is None or result.status == "cancelled" else result

    def has_begun(self, place: Place) -> bool:
        return any(isinstance(each, StepStarted) and each.place == place for each in self.all)

    def cancelled(self, place: Place) -> Result | None:
        result = self._last(place)
        return result if result is not None and result.status == "cancelled" else None

    def _last(self, place: Place, kind: str | None = None) -> Result | None:
        for each in reversed(self.all):
            if isinstance(each, StepFinished) and each.place == place and kind in (None, each.kind):
                return each.result
        return None

    def decision(self, place: Place, what: str) -> Any:
        for each in reversed(self.all):
            if isinstance(each, Decided) and each.place == place and each.what == what:
                return each.value
        return msgspec.UNSET

    def note(self, happening: Happening) -> None:
        self.noted.append(happening)

    async def durable(self) -> None:
        await asyncio.sleep(0)

    def stop_waiting_for_locks(self) -> None:
        pass


class Played:
    """Plays `run` and `agent` steps, and remembers which."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.running = 0
        self.most_at_once = 0
        self.attempts: dict[str, int] = {}

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        match step:
            case Run():
                return await self._play(str(attempt.place), attempt.text(step.script or ""))
            case Agent():
                return await self._play(str(attempt.place), attempt.text(step.set_up.prompt or ""))
            case _:
                return await Performing().perform(step, attempt)

    async def _play(self, place: str, script: str) -> Result:
        self.ran.append(place)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            return await self._do(place, script)
        finally:
            self.running -= 1

    async def _do(self, place: str, script: str) -> Result:
        verb, _, rest = script.strip().partition(" ")
        match verb:
            case "say":
                await asyncio.sleep(0)
                return Result(status="success", stdout=f"{rest}\n", stderr="", text=rest, exit_code=0)
            case "fail":
                code, _, words = rest.partition(" ")
                partial = Result(status="failed", stdout=words, stderr="", exit_code=int(code or 1))
                raise StepError("exit", f"it ended with {code}", exit_code=int(code or 1), result=partial)
            case "fail_until":
                self.attempts[place] = self.attempts.get(place, 0) + 1
                if self.attempts[place] < int(rest):
                    raise StepError("provider", f"attempt {self.attempts[place]}")
                return Result(status="success", text=f"after {self.attempts[place]}")
            case "pause":
                for _ in range(20):
                    await asyncio.sleep(0)
                return Result(status="success", stdout=rest)
            case "hang":
                await asyncio.Event().wait()
        raise AssertionError(f"no such script: {script}")


class Answering(FrontEnd):
    """Answers by the paths of steps; nobody is there for others."""

    def __init__(self, answers: Mapping[str, object] | None = None) -> None:
        self.answers = dict(answers or {})
        self.asked: list[str] = []

    async def approve(
        self, place: Place, question: str, default: bool | None, wish: PermissionQuestion | None = None
    ) -> Approval:
        self.asked.append(question)
        if str(place) in self.answers:
            return Approval(bool(self.answers[str(place)]), "user")
        return Approval(bool(default), "nobody" if default is None else "default")

    async def ask(self, place: Place, question: str, answer: Input) -> QuestionAnswer:
        self.asked.append(question)
        if str(place) not in self.answers:
            raise Parked(f"{place} waits for an answer")
        value = self.answers[str(place)]
        return QuestionAnswer(str(value), value, "user")

    async def message(self, place: Place, reply: str) -> UserMessage | None:
        raise Parked


class Stage:
    """One workflow, and the workflows that it may call."""

    def __init__(self, text: str, **called: str) -> None:
        self.workflow = read_text(text, "/project/main.yaml")
        self._called = {name: read_text(each, f"/project/{name}.yaml") for name, each in called.items()}
        self.memory = Memo()
        self.played = Played()
        self.pause: Pause | None = None
        self._expressions = FlowExpressions()
        self.front = Answering()
        self.seconds: float | None = None
        """That the whole run may take."""
        self.mask: Callable[[str], str] = str
        self.bundle = build_bundle(self.workflow, self._find)

    def rehearse(self) -> None:
        """From now on nothing is started."""
        self.played = Rehearsing()  # type: ignore[assignment]
        self._expressions = RehearsedExpressions()

    def _find(self, name: str, caller: Workflow) -> Workflow:
        return self._called[name]

    def engine(self, **inputs: object) -> Engine:
        running = RunState(
            id="main-12345",
            bundle=self.bundle,
            memory=self.memory,
            expressions=self._expressions,
            performer=self.played,
            pause=self.pause,
            agents=SimpleNamespace(usage=None, spending=SimpleNamespace(budget=Budget())),  # type: ignore[arg-type]
            front=self.front,
            cwd="/",
            secrets={},
            most_steps=self.workflow.max_steps,
            deadline=None if self.seconds is None else time.monotonic() + self.seconds,
            mask=self.mask,
        )
        return Engine(running, bind_inputs(self.workflow, inputs, "/"))

    def run(self, **inputs: object) -> RunFinished:
        async def run() -> RunFinished:
            return await self.engine(**inputs).run()

        return asyncio.run(run())

    def resume(self, upto: int | None = None, **inputs: object) -> RunFinished:
        """Run again with the journal so far, or with so much of it."""
        self.memory = Memo(self.memory.all[:upto])
        self.played = Played()
        return self.run(**inputs)

    @property
    def ended(self) -> dict[str, str]:
        """The status of each step that is over, by its path."""
        return {
            str(each.place): each.result.status
            for each in self.memory.noted
            if isinstance(each, StepFinished)
        }

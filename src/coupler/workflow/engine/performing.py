"""What the steps do that are made of no others."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from coupler.workflow.engine.gates import ask_approval, denied_result
from coupler.workflow.journal.happenings import AnswerAsked, AnswerGiven
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Agent, Approve, Ask, Converse, Run, Set, Step, Stop

if TYPE_CHECKING:
    from coupler.runtime.guard import Watch
    from coupler.workflow.engine.attempt import Attempt


FILES_OF_COMMAND = 5
"""Files that are open here for a command that runs: the ends of its pipes, and some while it starts."""

OTHER_FILES = 40
"""Those that a run needs besides."""


def most_commands() -> int:
    """How many commands may run at once, so that the files that this process may open are enough for all."""
    if sys.platform == "win32":
        return 64
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return 1024
    return max(1, (most - OTHER_FILES) // FILES_OF_COMMAND)


class Performing:
    """Does it really: starts commands and agents, and asks."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch
        self._room = asyncio.Semaphore(most_commands())

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        match step:
            case Run():
                from coupler.workflow.commands.command import perform_command

                async with self._room:
                    return await perform_command(step, attempt, self._watch)
            case Agent():
                from coupler.workflow.agents.step import perform_agent

                return await perform_agent(step, attempt)
            case Converse():
                from coupler.workflow.agents.conversation import perform_conversation

                return await perform_conversation(step, attempt)
            case Approve():
                return await _approve(step, attempt)
            case Ask():
                return await _ask(step, attempt)
            case Set():
                return _set(step, attempt)
            case Stop():
                return _stop(step, attempt)
            case _:
                raise AssertionError(f"{step.id} is made of other steps")


async def _approve(step: Approve, attempt: Attempt) -> Result:
    gate = step.question
    approval = await ask_approval(gate, attempt, attempt.text(gate.question or "Go on?"))
    if not approval.approved:
        return denied_result(gate, attempt, approval.by)
    return Result(status="success", approved=True)


async def _ask(step: Ask, attempt: Attempt) -> Result:
    question = attempt.text(step.question)
    async with attempt.asking:
        attempt.emit(AnswerAsked(question=question, choices=step.answer.enum))
        answer = await attempt.front.ask(attempt.place, question, step.answer)
        attempt.emit(AnswerGiven(text=answer.text, by=answer.by))
    return Result(status="success", text=answer.text, output=answer.value)


def _set(step: Set, attempt: Attempt) -> Result:
    values = {name: _evaluated(value, attempt) for name, value in step.values.items()}
    return Result(status="success", output=values)


def _evaluated(value: object, attempt: Attempt) -> object:
    return attempt.expressions.evaluate(value, attempt.names) if isinstance(value, str) else value


def _stop(step: Stop, attempt: Attempt) -> Result:
    output = {"status": step.status, "message": attempt.text(step.message), "exit_code": step.exit_code}
    return Result(status="success", output=output)

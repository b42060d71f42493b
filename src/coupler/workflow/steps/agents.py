"""The kinds `agent` and `converse`: a prompt to an agent, and a conversation with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec
from msgspec import structs

from coupler.runtime.formatting import printable
from coupler.workflow.expressions.expression import is_plain
from coupler.workflow.journal.run_events import Result
from coupler.workflow.language.model import (
    Agent,
    AgentSettings,
    Converse,
    Json,
    Step,
    Workflow,
    all_steps,
    lists_of,
)
from coupler.workflow.steps.kind import StepKind
from coupler.workflow.validation.findings import nearest

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.validation.checks import StepCheck

AgentStep = Agent | Converse
"""A step that an agent works for."""

A = TypeVar("A", Agent, Converse)


class _OfAgents(StepKind[A]):
    """The base of both kinds."""

    works = True
    call_kind = "think"
    is_always_shown = True
    is_detailed = True

    def check(self, step: A, check: StepCheck) -> None:
        if step.set_up.continues is not None:
            _check_continued(step, step.set_up.continues, check)

    def text_file(self, step: A) -> str | None:
        return step.set_up.prompt_file

    def schema(self, step: A) -> Json | None:
        return step.set_up.output

    def agent(self, step: A) -> str | None:
        return step.agent

    def title(self, step: A) -> str:
        prompt = step.set_up.prompt or step.set_up.prompt_file
        return f"{step.agent}: {prompt}" if prompt else f"talk with {step.agent}"

    def rehearsal(self, step: A, attempt: Attempt) -> str:
        agent, set_up = attempt.text(step.agent), step.set_up
        if set_up.prompt is not None:
            return f"{agent}: {attempt.text(set_up.prompt)}"
        return f"{agent}: the prompt in {set_up.prompt_file}" if set_up.prompt_file is not None else agent


class AgentKind(_OfAgents[Agent]):
    """One prompt to an agent, and its answer."""

    struct = Agent
    takes_defaults = True
    shape: ClassVar[tuple[str, str]] = ("(", ")")

    def fields(self, step: Agent, workflow: Workflow) -> Sequence[str]:
        output = ("output",) if _has_output(step, workflow) else ()
        return ("text", *output, "usage", "session_id")

    async def perform(self, step: Agent, attempt: Attempt) -> Result:
        from coupler.workflow.agents.prompts import perform_agent

        return await perform_agent(step, attempt)

    def mocked(self, step: Agent, content: str, attempt: Attempt) -> Result:
        return Result(status="success", text=content, output=_mocked_output(step, content))

    def result_of_done(self, step: Agent) -> Result:
        return structs.replace(super().result_of_done(step), text="")


class ConverseKind(_OfAgents[Converse]):
    """A conversation with an agent."""

    struct = Converse
    asks_user = True
    is_conversation = True
    shape: ClassVar[tuple[str, str]] = ("([", "])")

    def fields(self, step: Converse, workflow: Workflow) -> Sequence[str]:
        return ("text", "output", "usage", "session_id")

    async def perform(self, step: Converse, attempt: Attempt) -> Result:
        from coupler.workflow.agents.prompts import perform_conversation

        return await perform_conversation(step, attempt)

    def mocked(self, step: Converse, content: str, attempt: Attempt) -> Result:
        text = content.removesuffix("\n")
        return Result(status="success", text=text, output=[{"role": "agent", "text": text}])

    def result_of_done(self, step: Converse) -> Result:
        return structs.replace(super().result_of_done(step), text="", output=[])


def _mocked_output(step: Agent, content: str) -> Json | msgspec.UnsetType:
    """Return what an agent would answer, as strictly as from an agent; raises `StepError`."""
    from coupler.workflow.agents.agent_start import output_schema
    from coupler.workflow.errors import StepError
    from coupler.workflow.steps.shell_command import fitting

    if step.set_up.output is None:
        return msgspec.UNSET
    schema = output_schema(step.set_up.output, step.position.file)
    try:
        value = msgspec.json.decode(content.encode(errors="surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StepError("invalid_output", f"the file is no JSON: {error}") from None
    return fitting(schema, value, "the file")


def _check_continued(step: AgentStep, id: str, check: StepCheck) -> None:
    findings = check.findings
    place = findings.place_of(step, "continue")
    before = check.view.find(id)
    if before is None:
        findings.wrong(place, _no_session(id, check))
    elif not isinstance(before, AgentStep):
        findings.wrong(place, f"`{id}` has no session to go on with: `continue` names an `agent` step")
    elif _are_different(step.agent, before.agent, check.workflow):
        findings.warn(
            place,
            f"the session of `{id}` is one of {printable(before.agent, 60)}: {printable(step.agent, 60)} "
            "gets a new one, and is told what was said",
        )


def _no_session(id: str, check: StepCheck) -> str:
    view = check.view
    sessions = [each for each in view.step_ids() if _has_session(view.find(each))]
    if not sessions:
        return f"`continue` names `{printable(id, 60)}`, and no agent has run here yet"
    return f"no agent step `{printable(id, 60)}` has run here yet; {nearest(id, sessions)}"


def _has_session(step: Step | None) -> bool:
    return isinstance(step, AgentStep)


def _are_different(one: str, other: str, workflow: Workflow) -> bool:
    first, second = (base_agent(each, workflow) for each in (one, other))
    return first != second and is_plain(first) and is_plain(second)


def _has_output(step: Agent, workflow: Workflow) -> bool:
    """Tell whether an agent is asked for a value: by its step, a profile, or one not known yet."""
    if step.set_up.output is not None or not is_plain(step.agent):
        return True
    return any(set_up.output is not None for set_up in _set_ups_of(step.agent, workflow))


def _set_ups_of(agent: str, workflow: Workflow) -> list[AgentSettings]:
    """Return the settings of the profiles that a name leads to, the nearest first."""
    return [workflow.agents[name].set_up for name in profiles_of(agent, workflow)]


def agent_steps(workflow: Workflow) -> list[AgentStep]:
    """Return all steps of a workflow that agents work for, with those of its hooks."""
    lists = lists_of(workflow)
    return [step for steps in lists for step in all_steps(steps) if isinstance(step, AgentStep)]


def profiles_of(agent: str, workflow: Workflow) -> list[str]:
    """Return the profiles of the workflow that a name leads to, each once, the nearest first."""
    found: list[str] = []
    while agent in workflow.agents and agent not in found:
        found.append(agent)
        agent = workflow.agents[agent].agent
    return found


def base_agent(agent: str, workflow: Workflow) -> str:
    """Return what a name stands for in the end, without the profiles on the way."""
    profiles = profiles_of(agent, workflow)
    return workflow.agents[profiles[-1]].agent if profiles else agent

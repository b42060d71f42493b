"""What `steps.x` has, by the kind of the step."""

from __future__ import annotations

from coupler.workflow.journal.result import Failure, Usage
from coupler.workflow.language.definition import (
    Agent,
    Approve,
    Ask,
    Call,
    Converse,
    ForEach,
    Prompted,
    Run,
    Set,
    Step,
    While,
    Workflow,
)

OF_ALL = ("status", "error", "duration")
PARTS = {"error": Failure.__struct_fields__, "usage": Usage.__struct_fields__}
"""Fields that have fields of their own."""


def fields_of(step: Step, workflow: Workflow) -> tuple[str, ...]:
    """What a step has once it is over, its own first."""
    return (*_own_fields(step, workflow), *OF_ALL)


def _own_fields(step: Step, workflow: Workflow) -> tuple[str, ...]:
    match step:
        case Run():
            output = ("output",) if step.output is not None else ()
            return ("stdout", "stderr", "exit_code", *output)
        case Agent():
            output = ("output",) if has_output(step, workflow) else ()
            return ("text", *output, "usage", "session_id")
        case Converse():
            return ("text", "output", "usage", "session_id")
        case Approve():
            return ("approved",)
        case Ask():
            return ("text", "output")
        case ForEach() | While():
            return ("results",)
        case Call() | Set():
            return ("output",)
        case _:
            return ()


def has_output(step: Agent | Converse, workflow: Workflow) -> bool:
    """Whether an agent is asked for a value: by its step, by a profile, or by one that is not known yet."""
    from coupler.workflow.expressions.template import is_plain

    if step.set_up.output is not None or not is_plain(step.agent):
        return True
    return any(set_up.output is not None for set_up in set_ups_of(step.agent, workflow))


def set_ups_of(agent: str, workflow: Workflow) -> list[Prompted]:
    """The settings of the profiles that a name leads to, the nearest first."""
    return [workflow.agents[name].set_up for name in profiles_of(agent, workflow)]


def profiles_of(agent: str, workflow: Workflow) -> list[str]:
    """The profiles of the workflow that a name leads to, each once, the nearest first."""
    found: list[str] = []
    while agent in workflow.agents and agent not in found:
        found.append(agent)
        agent = workflow.agents[agent].agent
    return found


def base_agent(agent: str, workflow: Workflow) -> str:
    """What a name stands for in the end, without the profiles on the way."""
    profiles = profiles_of(agent, workflow)
    return workflow.agents[profiles[-1]].agent if profiles else agent

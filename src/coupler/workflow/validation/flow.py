"""The ways through a workflow: where they lead, whether they end, and what no way leads to."""

from __future__ import annotations

from collections.abc import Iterator

from coupler.config.lookup import shown
from coupler.workflow.language.definition import Agent, Converse, Goto, Position, Step, Workflow
from coupler.workflow.language.notes import listed
from coupler.workflow.validation.fields import base_agent
from coupler.workflow.validation.findings import Findings, nearest, scalars_in
from coupler.workflow.validation.succession import targets_of
from coupler.workflow.validation.views import ListView, StepList, Views


def check_flow(workflow: Workflow, views: Views, findings: Findings) -> None:
    """Every `goto`, every step, and every session that goes on."""
    for steps in views.lists:
        _check_ways(steps, views, findings)
        _check_reached(steps, findings)
    for step, view in views:
        if isinstance(step, Agent | Converse) and step.set_up.continues is not None:
            _check_continued(step, step.set_up.continues, view, workflow, findings)


def _check_ways(steps: StepList, views: Views, findings: Findings) -> None:
    numbers = {step.id: number for number, step in enumerate(steps.steps)}
    for number, step in enumerate(steps.steps):
        for target in targets_of(step):
            place = _place_of(target, step, findings)
            if target.step not in numbers:
                findings.wrong(place, _not_a_sibling(target.step, [*numbers], views))
            elif numbers[target.step] <= number and target.most is None and place not in findings.gaps.places:
                findings.wrong(
                    place,
                    f"going back to `{target.step}` may never end: "
                    f"say how often, as in `goto: {{step: {target.step}, max: 3}}`",
                )


def _place_of(target: Goto, step: Step, findings: Findings) -> Position:
    for key in ("goto", "on_error"):
        for node in scalars_in(findings.node_of(step, key)):
            if node.value == target.step:
                return node.position
    return step.position


def _not_a_sibling(id: str, siblings: list[str], views: Views) -> str:
    if views.anywhere.find(id) is not None:
        return f"`{id}` is no step of this list: `goto` leads to one of {listed(siblings)}"
    return f"there is no step `{shown(id, 60)}`; {nearest(id, siblings)}"


def _check_reached(steps: StepList, findings: Findings) -> None:
    """Of several steps in a row that nothing leads to, the first is told."""
    if any(step.position in findings.gaps.mappings for step in steps.steps):
        return  # what was taken out may have been the way
    was_reached = True
    for number, step in enumerate(steps.steps):
        is_reached = number in steps.ways.reached
        if was_reached and not is_reached:
            before = steps.steps[number - 1]
            findings.warn(
                step.position,
                f"`{step.id}` is never reached: the step before, `{before.id}`, "
                f"always {'goes elsewhere' if before.goto else 'stops'}",
            )
        was_reached = is_reached


def _check_continued(
    step: Agent | Converse, id: str, view: ListView, workflow: Workflow, findings: Findings
) -> None:
    place = findings.place_of(step, "continue")
    before = view.find(id)
    if before is None:
        findings.wrong(place, _no_session(id, view))
    elif not isinstance(before, Agent | Converse):
        findings.wrong(place, f"`{id}` has no session to go on with: `continue` names an `agent` step")
    elif _are_different(step.agent, before.agent, workflow):
        findings.warn(
            place,
            f"the session of `{id}` is one of {shown(before.agent, 60)}: {shown(step.agent, 60)} gets "
            "a new one, and is told what was said",
        )


def _no_session(id: str, view: ListView) -> str:
    sessions = [each for each in view.step_ids() if isinstance(view.find(each), Agent | Converse)]
    if not sessions:
        return f"`continue` names `{shown(id, 60)}`, and no agent has run here yet"
    return f"no agent step `{shown(id, 60)}` has run here yet; {nearest(id, sessions)}"


def _are_different(one: str, other: str, workflow: Workflow) -> bool:
    from coupler.workflow.expressions.template import is_plain

    agents: Iterator[str] = (base_agent(each, workflow) for each in (one, other))
    first, second = agents
    return first != second and is_plain(first) and is_plain(second)

"""Workflows that are called: whether they get the inputs that they take."""

from __future__ import annotations

from collections.abc import Mapping

from coupler.config.lookup import shown
from coupler.workflow.errors import InputError
from coupler.workflow.language.definition import Call, Input, Json, Position, Workflow
from coupler.workflow.language.inputs import check_given
from coupler.workflow.language.source import Fields
from coupler.workflow.validation.findings import Findings, nearest
from coupler.workflow.validation.views import Views


def check_calls(
    workflow: Workflow, views: Views, findings: Findings, called: Mapping[tuple[str, str], Workflow]
) -> None:
    """The inputs of every `call`; a workflow that was not found is told elsewhere."""
    for step, _ in views:
        if isinstance(step, Call) and (other := called.get((workflow.file, step.workflow))) is not None:
            _check_inputs(step, other, findings)


def _check_inputs(step: Call, called: Workflow, findings: Findings) -> None:
    for name, value in step.inputs.items():
        place = findings.place_of(step, "inputs", name)
        declared = called.inputs.get(name)
        if declared is None:
            findings.wrong(_place_of_key(step, name, findings), _unknown(name, called))
        else:
            _check_value(declared, value, place, findings)
    if step.position in findings.gaps.mappings:
        return  # what was taken out may have been inputs
    missing = [each.name for each in called.inputs.values() if each.required and each.name not in step.inputs]
    for name in missing:
        findings.wrong(
            findings.place_of(step, "call"),
            f"the workflow `{called.name}` needs the input `{name}`: give it in `inputs`",
        )


def _place_of_key(step: Call, name: str, findings: Findings) -> Position:
    given = findings.node_of(step, "inputs")
    return given.key(name).position if isinstance(given, Fields) else step.position


def _unknown(name: str, called: Workflow) -> str:
    known = [*called.inputs]
    if not known:
        return f"the workflow `{called.name}` takes no inputs"
    return f"the workflow `{called.name}` has no input `{shown(name, 60)}`; {nearest(name, known)}"


def _check_value(declared: Input, value: Json, place: Position, findings: Findings) -> None:
    """What is written out; what a template gives is known when it runs, and so is whether a file is there."""
    if declared.type == "file" or value is None or _has_template(value):
        return
    try:
        check_given(declared, value)
    except InputError as error:
        findings.wrong(place, str(error))


def _has_template(value: Json) -> bool:
    from coupler.workflow.expressions.template import is_plain

    match value:
        case str():
            return not is_plain(value)
        case list():
            return any(map(_has_template, value))
        case dict():
            return any(map(_has_template, value.values()))
        case _:
            return False

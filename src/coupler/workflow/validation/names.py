"""Checks that the names in templates and expressions can mean something where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coupler.runtime.formatting import listed, printable
from coupler.workflow.expressions.expression import Reference, ReferencePath
from coupler.workflow.language.error_recovery import RemovedParts
from coupler.workflow.language.model import Step, Workflow, inner_lists, lists_of, step_tables
from coupler.workflow.steps.kinds import kind_of, with_branches
from coupler.workflow.validation.findings import nearest
from coupler.workflow.validation.views import (
    NESTED_FIELDS,
    ScopeView,
    ScopeViews,
    fields_of,
)

ROOT_NAMES = ("inputs", "secrets", "steps", "vars", "run")
"""The names that every expression knows."""


class Viewpoint(NamedTuple):
    """The place from which a text sees names."""

    view: ScopeView
    rounds: Step | None = None
    """The `while` whose test it is: it may name the steps inside, once there was a round."""
    has_choice: bool = False
    """True if parts of it may not be evaluated."""


class NameCheck:
    """Checks the names that a workflow uses."""

    def __init__(
        self,
        workflow: Workflow,
        views: ScopeViews,
        called: Mapping[tuple[str, str], Workflow],
        gaps: RemovedParts,
    ) -> None:
        self._workflow = workflow
        self._views = views
        self._called = called
        self._gaps = gaps
        self._are_ways_known = not any(
            step.id in gaps.words or (step.position in gaps.mappings and step.goto is not None)
            for step, _ in views
        )
        """True if nothing was removed that may have led from one step to another."""

    def problems(self, references: Sequence[Reference], sight: Viewpoint) -> Iterator[tuple[Reference, str]]:
        """Yield the problem of each name, as seen from a place."""
        guarded = {reference.names[:2] for reference in references if reference.guarded}
        for reference in references:
            is_guarded = reference.names[:2] in guarded
            problem = self._problem(reference.names, sight, is_guarded)
            if problem is not None and not any(map(self._is_lost, reference.names)):
                yield reference, problem

    def _is_lost(self, name: str | int) -> bool:
        return isinstance(name, str) and name not in ROOT_NAMES and self._gaps.hide(name)

    def _is_made_up(self, id: str, sight: Viewpoint) -> bool:
        """True if the step is one that stands in for a removed one, without an id."""
        step = sight.view.find(id)
        if step is None or step.is_named or step.position not in self._gaps.mappings:
            return False
        return kind_of(step).output_names(step) == []

    def _problem(self, names: ReferencePath, sight: Viewpoint, is_guarded: bool) -> str | None:
        view = sight.view
        start, second = names[0], names[1] if len(names) > 1 else None
        if start in view.loop_names():
            return self._loop(names[1:], view.steps_around()) if start == "loop" else None
        if start not in ROOT_NAMES:
            return self._unknown_start(str(start), view)
        if not isinstance(second, str):
            return None
        match start:
            case "inputs":
                return self._unless_known("input", second, [*self._workflow.inputs], "`inputs` has none")
            case "secrets":
                return self._secret(second)
            case "vars":
                return self._variable(second, view, is_guarded)
            case "run":
                return _unless_in(view.run_names(), second, "`run` has no")
            case _:
                return self._step(names, sight, is_guarded)

    def _unknown_start(self, name: str, view: ScopeView) -> str:
        if name in ("item", "index", "loop"):
            return f"`{name}` is there only inside of a loop"
        for where, known in (
            ("inputs", self._workflow.inputs),
            ("steps", view.step_ids()),
            ("vars", view.variables()),
            ("secrets", self._workflow.secrets),
        ):
            if name in known:
                return f"there is no name `{printable(name, 60)}`; did you mean `{where}.{name}`?"
        names = [*ROOT_NAMES, *sorted(view.loop_names())]
        return f"there is no name `{printable(name, 60)}`; {nearest(name, names)}"

    def _loop(self, names: ReferencePath, around: Sequence[Step]) -> str | None:
        """Return the problem of a field of `loop`, or of the loops around, as far as they are known."""
        loops = [step for step in around if kind_of(step).is_loop]
        spelled = "loop"
        for number, field in enumerate(names[: len(loops)]):
            loop, kind = loops[number], kind_of(loops[number])
            if field == "last" and field not in kind.loop_fields:
                return (
                    f"`{spelled}.last` is not known in the `{kind.name}` step `{loop.id}`: whether another "
                    "round comes shows after this one"
                )
            if (problem := _unless_in(kind.loop_fields, str(field), f"`{spelled}` has no")) is not None:
                return problem
            if field != "outer":
                return None
            spelled = f"{spelled}.outer"
            if number + 1 == len(loops):
                return f"`{spelled}` is not there: `{loop.id}` is the outermost loop"
        return None

    def _unless_known(self, what: str, name: str, known: Sequence[str], empty: str) -> str | None:
        if name in known:
            return None
        return f"there is no {what} `{printable(name, 60)}`; {nearest(name, known) if known else empty}"

    def _secret(self, name: str) -> str | None:
        known = self._workflow.secrets
        if name in known:
            return None
        near = nearest(name, known)
        if near.startswith("did"):
            return f"there is no secret `{printable(name, 60)}`; {near}"
        return f"there is no secret `{printable(name, 60)}`: name the environment variable in `secrets`"

    def _variable(self, name: str, view: ScopeView, is_guarded: bool) -> str | None:
        if view.has_variable(name):
            return None
        everywhere = self._views.anywhere.variables()
        if name in everywhere:
            if is_guarded or not self._are_ways_known:
                return None
            return f"`vars.{name}` cannot be set yet: set it before, or write `vars.{name} | default(…)`"
        return self._unless_known("variable", name, sorted(everywhere), "no `set` step makes one")

    def _step(self, names: ReferencePath, sight: Viewpoint, is_guarded: bool) -> str | None:
        name = str(names[1])
        step = sight.view.find(name)
        if step is None and sight.rounds is not None:
            step = _inside(sight.rounds).get(name)
            if step is not None and not (is_guarded or sight.has_choice):
                advice = f"write `steps.{name} is not defined or …`"
                return f"`steps.{name}` is not there before the first round: {advice}"
        if step is not None:
            return self._fields(step, f"steps.{name}", names[2:])
        if self._views.anywhere.find(name) is None:
            ids = [each for each in dict.fromkeys(sight.view.step_ids()) if not self._is_made_up(each, sight)]
            return self._unless_known("step", name, ids, "no step is over here")
        return self._why_hidden(name, sight.view) if self._are_ways_known and not is_guarded else None

    def _why_hidden(self, id: str, view: ScopeView) -> str:
        around = view.steps_around()
        for step, parents in _with_parents(self._workflow, id):
            others = [each for each in parents if not any(each is one for one in around)]
            loops = [each for each in others if kind_of(each).is_loop]
            if loops:
                results = f"steps.{loops[0].id}.results"
                return (
                    f"`{id}` runs inside of the loop `{loops[0].id}`: its results are `{results}[0].{id}` …"
                )
            beside = [each for each in parents if kind_of(each).has_branches and each not in others]
            if beside and not any(step is each for each in around):
                return (
                    f"`{id}` runs beside this, in a branch of `{beside[-1].id}`: use it after that, or let "
                    f"this branch have `needs: [{id}]`"
                )
        return f"`{id}` cannot have run yet here: use it later, or write `steps.{id} is defined`"

    def _fields(self, step: Step, spelled: str, names: ReferencePath) -> str | None:
        """Return the problem of a reference to a field that a step of this kind lacks."""
        if not names or step.position in self._gaps.mappings:
            return None
        field, *rest = names
        known = fields_of(step, self._workflow)
        if field not in known:
            return _no_field(step, spelled, field, known)
        if not rest:
            return None
        first = rest[0]
        if field in NESTED_FIELDS and isinstance(first, str):
            return _unless_in(NESTED_FIELDS[str(field)], first, f"`{spelled}.{field}` has no")
        if field == "results":
            return self._result(step, spelled, rest)
        if field == "output" and isinstance(first, str):
            return self._output(step, spelled, first)
        return None

    def _result(self, loop: Step, spelled: str, names: Sequence[str | int]) -> str | None:
        if isinstance(names[0], str):
            return f"`{spelled}.results` is a list: write `{spelled}.results[0].{printable(names[0], 60)}`"
        if len(names) < 2:
            return None
        inside = _inside(loop)
        step = inside.get(str(names[1]))
        spelled = f"{spelled}.results[{names[0]}]"
        if step is None:
            return _unless_in([*inside], str(names[1]), f"`{spelled}` has no step")
        return self._fields(step, f"{spelled}.{names[1]}", tuple(names[2:]))

    def _output(self, step: Step, spelled: str, name: str) -> str | None:
        kind = kind_of(step)
        if (known := kind.output_names(step)) is not None:
            return _unless_in(known, name, f"`{spelled}.output` has no")
        called = self._called.get((self._workflow.file, kind.called(step) or ""))
        if called is None:
            return None
        if not called.outputs:
            return f"`{spelled}.output` is empty: the workflow `{called.name}` has no `outputs`"
        return _unless_in([*called.outputs], name, f"the workflow `{called.name}` has no output")


def spelling_of(names: ReferencePath) -> re.Pattern[str]:
    """Return a pattern for how a name may be written, to find it in the file."""
    start, *rest = names
    parts = [rf"\b{re.escape(str(start))}\b"]
    for name in rest:
        word = re.escape(str(name))
        parts.append(rf"(?:\s*\.\s*{word}\b|\s*\[\s*[\"']?{word}[\"']?\s*\])")
    return re.compile("".join(parts))


def _inside(loop: Step) -> dict[str, Step]:
    return {each.id: each for steps in inner_lists(loop) for step in steps for each in with_branches(step)}


def _with_parents(workflow: Workflow, id: str) -> Iterator[tuple[Step, tuple[Step, ...]]]:
    """The steps that have an id, each with those that it is inside of, the outermost first."""

    def walk(steps: Sequence[Step], parents: tuple[Step, ...]) -> Iterator[tuple[Step, tuple[Step, ...]]]:
        for step in steps:
            if step.id == id:
                yield step, parents
            for inner in inner_lists(step):
                yield from walk(inner, (*parents, step))

    for steps in lists_of(workflow):
        yield from walk(steps, ())


def _no_field(step: Step, spelled: str, field: str | int, known: Sequence[str]) -> str:
    kind = kind_of(step).name
    if field == "output":
        return f"`{spelled}` has no `output`: say in its step what `output` is, or use one of {listed(known)}"
    near = nearest(str(field), known)
    hint = near if near.startswith("did") else f"it has {listed(known)}"
    title = step_tables()[kind].title
    return f"`{spelled}` has no `{printable(str(field), 60)}`, as it is {title}: {hint}"


def _unless_in(known: Sequence[str], name: str, sentence: str) -> str | None:
    if name in known:
        return None
    return f"{sentence} `{printable(name, 60)}`; {nearest(name, known)}"

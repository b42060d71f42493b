"""Computes what the expressions of each step can see: the same scopes as in a run, worked out from the file.

A view looks into its own list of steps, as far as they can be over, and then into the view around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from coupler.events.events import TurnUsage
from coupler.workflow.journal.run_events import Failure
from coupler.workflow.language.model import (
    ApprovalGate,
    Defaults,
    Goto,
    Hooks,
    OnError,
    SourcePosition,
    Step,
    Workflow,
    all_steps,
    hook_lists,
    inner_lists,
    lists_of,
)
from coupler.workflow.steps.kinds import kind_of, with_branches

RUN_NAMES = ("id", "workflow", "cwd", "directory")
ENDED_RUN_NAMES = (*RUN_NAMES, "status", "message", "step", "error")
"""The fields of `run` in the hooks that come after the steps."""

COMMON_FIELDS = ("status", "error", "duration")
"""The fields of every step."""
NESTED_FIELDS = {"error": Failure.__struct_fields__, "usage": TurnUsage.__struct_encode_fields__}
"""Fields that have fields of their own."""


class ScopeView(Protocol):
    """The names that can be seen from one place of a file."""

    def find(self, id: str) -> Step | None:
        """Return the step that an id means here, if it can be over."""
        ...

    def step_ids(self) -> list[str]: ...

    def variables(self) -> set[str]:
        """Return the variables that can be set by now."""
        ...

    def has_variable(self, name: str) -> bool: ...

    def loop_names(self) -> set[str]: ...

    def run_names(self) -> tuple[str, ...]: ...

    def steps_around(self) -> list[Step]:
        """Return the steps that it is inside of, the innermost first."""
        ...


class WorkflowView:
    """The view before the first step, where none is over."""

    def __init__(self, run_names: tuple[str, ...] = RUN_NAMES) -> None:
        self._run_names = run_names

    def find(self, id: str) -> Step | None:
        return None

    def step_ids(self) -> list[str]:
        return []

    def variables(self) -> set[str]:
        return set()

    def has_variable(self, name: str) -> bool:
        return name in self.variables()

    def loop_names(self) -> set[str]:
        return set()

    def run_names(self) -> tuple[str, ...]:
        return self._run_names

    def steps_around(self) -> list[Step]:
        return []


class OpenView(WorkflowView):
    """The view of templates that belong to no step, such as profiles: everything that some step may see."""

    def __init__(self, workflow: Workflow) -> None:
        super().__init__(ENDED_RUN_NAMES)
        every = [step for steps in lists_of(workflow) for step in all_steps(steps)]
        self._steps = {step.id: step for step in every}
        self._variables = {name for step in every for name in kind_of(step).variables(step)}
        self._loop_names = {"index", "loop"}.union(*(kind_of(step).loop_names(step) for step in every))

    def find(self, id: str) -> Step | None:
        return self._steps.get(id)

    def step_ids(self) -> list[str]:
        return [*self._steps]

    def variables(self) -> set[str]:
        return self._variables

    def loop_names(self) -> set[str]:
        return self._loop_names


class StepList:
    """A list of steps, and the view around it."""

    def __init__(
        self,
        steps: Sequence[Step],
        ways: StepSuccession,
        around: ScopeView,
        *,
        inside: Step | None = None,
        run_names: tuple[str, ...] | None = None,
    ) -> None:
        self.steps = steps
        self.ways = ways
        self.around = around
        self.inside = inside
        """The step that it belongs to."""
        self.run_names = run_names or around.run_names()
        self.found: dict[str, tuple[int, Step]] = {}
        """The steps by id, each with its number; those of branches count as steps of the list."""
        self.variables: dict[str, list[int]] = defaultdict(list)
        for number, step in enumerate(steps):
            self.found.update((each.id, (number, each)) for each in with_branches(step))
            for name in kind_of(step).variables(step):
                self.variables[name].append(number)

    @property
    def is_round(self) -> bool:
        """True if its steps also see those of the round before."""
        return self.inside is not None and kind_of(self.inside).sees_last_round

    @property
    def loop_names(self) -> frozenset[str]:
        return frozenset() if self.inside is None else kind_of(self.inside).loop_names(self.inside)

    @property
    def end(self) -> ListView:
        return ListView(self, len(self.steps))


class ListView:
    """The view at one step of a list, or at its end."""

    def __init__(self, steps: StepList, number: int) -> None:
        self.list = steps
        self._number = number

    def find(self, id: str) -> Step | None:
        return self.find_own(id) or self.list.around.find(id)

    def find_own(self, id: str) -> Step | None:
        """Return the step of this very list that an id means here, if it can be over."""
        number, step = self.list.found.get(id, (-1, None))
        return step if step is not None and self._is_over(number) else None

    def step_ids(self) -> list[str]:
        return [*self.own_ids(), *self.list.around.step_ids()]

    def own_ids(self) -> list[str]:
        """Return the ids of the steps of this very list that can be over."""
        return [name for name, (number, _) in self.list.found.items() if self._is_over(number)]

    def variables(self) -> set[str]:
        own = {name for name, numbers in self.list.variables.items() if any(map(self._is_over, numbers))}
        return own | self.list.around.variables()

    def has_variable(self, name: str) -> bool:
        numbers = self.list.variables.get(name, ())
        return any(map(self._is_over, numbers)) or self.list.around.has_variable(name)

    def loop_names(self) -> set[str]:
        return self.list.around.loop_names() | self.list.loop_names

    def run_names(self) -> tuple[str, ...]:
        return self.list.run_names

    def steps_around(self) -> list[Step]:
        own = [] if self.list.inside is None else [self.list.inside]
        return [*own, *self.list.around.steps_around()]

    def _is_over(self, number: int) -> bool:
        if self.list.is_round:
            return number in self.list.ways.reached
        return self.list.ways.can_precede(number, self._number)


class BranchView:
    """The view around a branch, with the steps of the branches that it needs."""

    def __init__(self, around: ScopeView, needed: Sequence[ListView]) -> None:
        self._around = around
        self._needed = needed

    def find(self, id: str) -> Step | None:
        for each in self._needed:
            if (found := each.find_own(id)) is not None:
                return found
        return self._around.find(id)

    def step_ids(self) -> list[str]:
        own = [name for each in self._needed for name in each.own_ids()]
        return [*own, *self._around.step_ids()]

    def variables(self) -> set[str]:
        return self._around.variables()

    def has_variable(self, name: str) -> bool:
        return self._around.has_variable(name)

    def loop_names(self) -> set[str]:
        return self._around.loop_names()

    def run_names(self) -> tuple[str, ...]:
        return self._around.run_names()

    def steps_around(self) -> list[Step]:
        return self._around.steps_around()


class ScopeViews:
    """The views of all steps of a workflow; a step that an alias repeats has several."""

    def __init__(self, workflow: Workflow) -> None:
        self.lists: list[StepList] = []
        self.anywhere = OpenView(workflow)
        self._workflow = workflow
        self._of_steps: dict[SourcePosition, list[tuple[Step, ListView]]] = defaultdict(list)
        before = self._enter(workflow.hooks.start, WorkflowView()).end
        self.end = self._enter(workflow.steps, before).end
        """The view at the end of the steps, from which outputs are computed."""
        self._enter_hooks(workflow.hooks)
        for profile in workflow.agents.values():
            for steps in hook_lists(profile.hooks or Hooks()):
                self._enter(steps, self.anywhere)

    def of(self, position: SourcePosition) -> list[tuple[Step, ListView]]:
        """Return the steps that are written at a position, and the view of each."""
        return self._of_steps[position]

    def __iter__(self) -> Iterator[tuple[Step, ListView]]:
        for views in self._of_steps.values():
            yield from views

    def _enter_hooks(self, hooks: Hooks) -> None:
        around: ScopeView = self.end
        for steps in (hooks.error, hooks.cancel, hooks.end):
            around = self._enter(steps, around, run_names=ENDED_RUN_NAMES).end

    def _enter(
        self,
        steps: Sequence[Step],
        around: ScopeView,
        *,
        inside: Step | None = None,
        run_names: tuple[str, ...] | None = None,
    ) -> StepList:
        ways = StepSuccession(steps, self._workflow.defaults)
        entered = StepList(steps, ways, around, inside=inside, run_names=run_names)
        self.lists.append(entered)
        for number, step in enumerate(steps):
            view = ListView(entered, number)
            self._of_steps[step.position].append((step, view))
            self._enter_inside(step, view)
        return entered

    def _enter_inside(self, step: Step, view: ListView) -> None:
        inner, order = [*inner_lists(step)], kind_of(step).order(step)
        entered: dict[int, StepList] = {}
        for number, needed in order:
            views = [entered[each].end for each in sorted(needed)]
            around = BranchView(view, views) if views else view
            entered[number] = self._enter(inner[number], around, inside=step)


def fields_of(step: Step, workflow: Workflow) -> tuple[str, ...]:
    """Return the fields of `steps.x`, by the kind of the step, its own first."""
    return (*kind_of(step).fields(step, workflow), *COMMON_FIELDS)


class StepSuccession:
    """The possible orders of a list's steps, by `goto`, `on_error`, `if` and `stop`."""

    def __init__(self, steps: Sequence[Step], defaults: Defaults) -> None:
        self._length = len(steps)
        numbers = {step.id: number for number, step in enumerate(steps)}
        self._next = [_next_of(step, number, numbers, defaults) for number, step in enumerate(steps)]
        self._is_straight = all(ways == (number + 1,) for number, ways in enumerate(self._next))
        self._after: dict[int, frozenset[int]] = {}
        self.reached = self._all_reached()
        """The steps that can come at all."""

    def can_precede(self, earlier: int, later: int) -> bool:
        """Tell whether one step can be over when another one begins; it may be the same, in a round."""
        if self._is_straight:
            return earlier < later
        if later == self._length:
            return earlier in self.reached
        if later not in self.reached:
            # Nothing leads there, which is told by itself: its names are judged as if something did.
            return earlier < later
        return earlier in self.reached and later in self._all_after(earlier)

    def _all_reached(self) -> frozenset[int]:
        if self._is_straight:
            return frozenset(range(self._length))
        return frozenset({0}) | self._all_after(0)

    def _all_after(self, number: int) -> frozenset[int]:
        if number not in self._after:
            found: set[int] = set()
            waiting = [*self._next[number]]
            while waiting:
                each = waiting.pop()
                if each < self._length and each not in found:
                    found.add(each)
                    waiting.extend(self._next[each])
            self._after[number] = frozenset(found)
        return self._after[number]


def _next_of(step: Step, number: int, numbers: Mapping[str, int], defaults: Defaults) -> tuple[int, ...]:
    """Return the numbers of the steps that can follow; the list's length is its end."""
    targets = [target.step for target in targets_of(step)]
    # A target that is not there is told by itself, and does not make the steps after it unreachable.
    goes_straight_on = can_continue(step, defaults) or any(each not in numbers for each in targets)
    return (
        *([number + 1] if goes_straight_on else []),
        *(numbers[each] for each in targets if each in numbers),
    )


def targets_of(step: Step) -> list[Goto]:
    """Return where a step says that it goes on."""
    found = [] if step.goto is None else [step.goto]
    if step.on_error is not None:
        handlings = [step.on_error.default, *step.on_error.of_kinds.values()]
        found += [each for each in handlings if isinstance(each, Goto)]
    return found


def can_continue(step: Step, defaults: Defaults) -> bool:
    """Tell whether the next step of the list can come after this one."""
    if not kind_of(step).leaves_list and step.goto is None:
        return True
    return _can_be_left_out(step) or _continues(on_error_of(step, defaults))


def on_error_of(step: Step, defaults: Defaults) -> OnError | None:
    """Return a step's `on_error`; defaults hold for steps that work, not for questions and blocks."""
    return step.on_error or (defaults.on_error if kind_of(step).takes_defaults else None)


def _can_be_left_out(step: Step) -> bool:
    return step.condition not in (None, True) or any(gate.on_deny == "skip" for gate in _gates(step))


def _gates(step: Step) -> Iterator[ApprovalGate]:
    if (own := kind_of(step).own_gate(step)) is not None:
        yield own
    if step.gate is not None:
        yield step.gate


def _continues(on_error: OnError | None) -> bool:
    return on_error is not None and "continue" in (on_error.default, *on_error.of_kinds.values())

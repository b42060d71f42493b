"""Runs lists of steps from top to bottom, with conditions, retries, error handling and `goto`.

Running and resuming are one: a step whose result the journal has is not run again. Steps that are made of
others are always gone through, so that what is inside of them comes from the journal, too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
from msgspec import UNSET

from coupler.workflow.agents.agent_events import StepBudget
from coupler.workflow.agents.agent_start import agent_hooks
from coupler.workflow.engine.attempt import (
    Attempt,
    NotReached,
    StepFailed,
    StepScope,
    StepsExhausted,
    StepWork,
    Stopped,
)
from coupler.workflow.engine.blocks import BlockRun, ListRunner
from coupler.workflow.engine.front import FrontEnd, ListContext, record_result, span, step_title
from coupler.workflow.engine.performers import (
    begin_once,
    delay_before_next,
    note_waiting,
    pass_gate,
    pause_before,
)
from coupler.workflow.errors import Parked, StepError
from coupler.workflow.journal.run_events import (
    Decided,
    Failure,
    Happening,
    Noted,
    Place,
    Result,
    RetryPlanned,
    RunResumed,
    StepFinished,
    StepStarted,
)
from coupler.workflow.language.library import Bundle
from coupler.workflow.language.model import Call, Defaults, Goto, Hooks, Json, Step, Workflow
from coupler.workflow.language.shapes import TemplateText
from coupler.workflow.steps.kind import BlockKind
from coupler.workflow.steps.kinds import kind_of

if TYPE_CHECKING:
    from coupler.workflow.agents.agents import Agents
    from coupler.workflow.engine.performers import Pause
    from coupler.workflow.expressions.expression import FlowExpressions


CANCEL_HOOK_TIMEOUT = 5.0
"""Seconds that hooks have after a cancel."""

END_HOOK_TIME = 60.0
"""Seconds that each step of an end hook has at least: hooks clean up even if the run's time is over."""

_NO_DEFAULTS = Defaults()
_NO_HOOKS = Hooks()


class StepJournal(Protocol):
    """The journal of a run, as the interpreter uses it."""

    def result(self, place: Place, kind: str) -> Result | None:
        """Return the result of a step of this kind, if it is over; None if it was cancelled."""
        ...

    def has_begun(self, place: Place) -> bool:
        """Tell whether a step was begun, over or not."""
        ...

    def cancelled(self, place: Place) -> Result | None:
        """Return the partial result of a step that was cancelled."""
        ...

    def decision(self, place: Place, what: str) -> Json:
        """Return the last decision of this name at a step, or `UNSET`."""
        ...

    def note(self, event: Happening) -> None:
        """Record an event; events are kept in this order."""
        ...

    async def durable(self) -> None:
        """Return when everything recorded survives the death of this process."""
        ...

    def stop_waiting_for_locks(self) -> None:
        """Let `durable` fail soon while others have locked the file."""
        ...


class Performer(Protocol):
    """Does the work of steps that are made of no others; raises `StepError`."""

    async def perform(self, step: Step, attempt: Attempt) -> Result: ...


@dataclass
class RunState:
    """State that the steps of one run share: journal, agents, front end and limits. Owned by the engine."""

    id: str
    bundle: Bundle
    memory: StepJournal
    expressions: FlowExpressions
    performer: Performer
    agents: Agents
    front: FrontEnd
    cwd: str
    secrets: Mapping[str, str]
    most_steps: int
    pause: Pause | None = None
    """Called before each step that works, if the run goes step by step."""
    deadline: float | None = None
    """The end of the run's time, by the monotonic clock."""
    tries_failures: bool = False
    """True if failures that ended a list of steps in an earlier process are tried again."""
    mask: Callable[[str], str] = str
    """Redacts the run's secrets for people."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _steps: int = 0
    _steps_afterwards: int = 0

    def count_step(self, *, is_afterwards: bool = False) -> None:
        """Count a step; raises `StepsExhausted` beyond the limit. Hooks at the end are counted apart."""
        if is_afterwards:
            self._steps_afterwards += 1
        else:
            self._steps += 1
        if (self._steps_afterwards if is_afterwards else self._steps) > self.most_steps:
            raise StepsExhausted(f"the run took {self.most_steps} steps: see `max_steps`")

    def time_left(self, *, is_afterwards: bool = False) -> float | None:
        """Return the seconds left of the run's time; hooks at the end have at least END_HOOK_TIME."""
        if self.deadline is None:
            return None
        return max(END_HOOK_TIME if is_afterwards else 0.0, self.deadline - time.monotonic())


class Interpreter:
    """Runs the steps of one workflow of a run; a called workflow has an interpreter of its own."""

    def __init__(self, state: RunState, workflow: Workflow) -> None:
        self._state = state
        self._memory = state.memory
        self._workflow = workflow
        self._taken = 0

    async def run_list(self, steps: Sequence[Step], scope: StepScope, context: ListContext) -> None:
        """Run steps in their order; the result of each is put into the scope at once.

        Raises `StepFailed` for a failure that is not handled here, and `Stopped`.
        """
        numbers = {step.id: number for number, step in enumerate(steps)}
        visits: Counter[str] = Counter()
        jumps: Counter[tuple[str, str]] = Counter()
        number = 0
        while number < len(steps):
            await asyncio.sleep(0)  # steps may be done without any waiting, and a cancel has to come through
            step = steps[number]
            visits[step.id] += 1
            place = context.place(step, visits[step.id])
            result = await self._run_step(step, scope, place, context)
            scope.steps[step.id] = result
            self._take_effect(step, result, scope)
            target = self._next(step, place, result)
            if target is None or (target.most is not None and not self._state.expressions.goes_back):
                number += 1
                continue
            jumps[step.id, target.step] += 1
            if target.most is not None and jumps[step.id, target.step] > target.most:
                raise StepFailed(place, _gone_too_often(result, target))
            number = numbers[target.step]

    async def run_called(self, step: Call, attempt: Attempt, context: ListContext) -> Json:
        """Run another workflow, and return its outputs."""
        from coupler.workflow.engine.run import WorkflowRun

        workflow = self._state.bundle.called_by(self._workflow, step.workflow)
        if workflow.budget is not None:
            around = context.budget or self._state.agents.spending.budget
            context = replace(context, budget=StepBudget(workflow.budget, around))
        return await WorkflowRun(self._state, workflow, context).outputs_of_call(
            attempt.value(dict(step.inputs))
        )

    def _take_effect(self, step: Step, result: Result, scope: StepScope) -> None:
        """Apply a step to the list around it, also when its result comes from the journal."""
        if result.status == "success":
            kind_of(step).take_effect(step, result, scope)

    def _next(self, step: Step, place: Place, result: Result) -> Goto | None:
        """Return the `goto` to follow, None for the next step; raises StepFailed for an unhandled failure."""
        if result.status != "failed" or result.error is None:
            return step.goto if result.status == "success" else None
        match self._handling(step, result.error):
            case "continue":
                return None
            case Goto() as target:
                return target
            case _:
                raise StepFailed(place, result)

    def _handling(self, step: Step, failure: Failure) -> Literal["fail", "continue"] | Goto:
        on_error = step.on_error or self._defaults_of(step).on_error
        return on_error.of(failure.kind) if on_error is not None else "fail"

    async def _run_step(self, step: Step, scope: StepScope, place: Place, context: ListContext) -> Result:
        kept = self._memory.result(place, kind_of(step).name)
        if kept is not None and not self._has_another_chance(step, place, context, kept):
            return await self._recalled(step, scope, place, context, kept)
        if context.is_over:
            return await self._left_undone(step, scope, place, context)
        if context.part is not None:
            context.part.begin()
        self._count(context)
        began = time.monotonic()
        work = StepWork()
        try:
            with span(
                f"step {step.id}", {"step.path": str(place), "step.kind": kind_of(step).name}
            ) as current:
                result = await self._try(step, scope, place, context, work)
                record_result(current, result)
        except Parked:
            raise
        except BaseException:
            scope.steps[step.id] = self._note_end(step, place, work.ended_early(), began)
            raise
        result = scope.steps[step.id] = self._note_end(step, place, result, began)
        await self._memory.durable()
        work.raise_cancel()
        return result

    def _count(self, context: ListContext) -> None:
        """Count a step of the run, and of this workflow, which may be one that is called."""
        self._state.count_step(is_afterwards=context.is_afterwards)
        self._taken += not context.is_afterwards
        if self._taken > self._workflow.max_steps:
            raise StepsExhausted(f"{self._workflow.name} took {self._taken - 1} steps: see `max_steps`")

    def _has_another_chance(self, step: Step, place: Place, context: ListContext, kept: Result) -> bool:
        """True if a recorded failure that ended its list is to be tried again; records that it is."""
        if not self._state.tries_failures or context.is_over or kept.error is None:
            return False
        if kept.status != "failed" or self._handling(step, kept.error) != "fail":
            return False
        self._memory.note(RunResumed(reason=f"{place} is tried again", forgets=(place,)))
        return True

    async def _recalled(
        self, step: Step, scope: StepScope, place: Place, context: ListContext, kept: Result
    ) -> Result:
        """Return the journal's result of a step, with the results inside of it collected again."""
        kind = kind_of(step)
        if not isinstance(kind, BlockKind) or kept.status in ("skipped", "denied"):
            return kept
        context = replace(context, is_over=True)
        work = StepWork()
        work.begin(kept.attempts)
        attempt = self._attempt_at(step, scope, place, context, work)
        passage = BlockRun(kind, self, scope, attempt, context)
        await passage.recall(step)
        return msgspec.structs.replace(kept, results=passage.results)

    async def _left_undone(self, step: Step, scope: StepScope, place: Place, context: ListContext) -> Result:
        """Return the result of a step that was cancelled because the step around it was over."""
        cancelled = self._memory.cancelled(place)
        if cancelled is None:
            if not self._memory.has_begun(place):
                raise NotReached
            # The process died before it could say so.
            cancelled = self._note_end(step, place, Result(status="cancelled"), time.monotonic())
        return await self._recalled(step, scope, place, context, cancelled)

    def _note_end(self, step: Step, place: Place, result: Result, began: float) -> Result:
        result = msgspec.structs.replace(result, duration=round(time.monotonic() - began, 6))
        # The results inside of a step were kept one by one.
        kept = msgspec.structs.replace(result, results=None)
        self._memory.note(StepFinished(place=place, id=step.id, kind=kind_of(step).name, result=kept))
        return result

    async def _try(
        self, step: Step, scope: StepScope, place: Place, context: ListContext, work: StepWork
    ) -> Result:
        """Attempt a step until it succeeds or no retry is left."""
        retry = step.retry or self._defaults_of(step).retry
        number = 1
        if (decided := self._memory.decision(place, "attempt")) is not UNSET:
            number = decided
        while True:
            work.begin(number)
            try:
                with span(f"attempt {number}", {"step.path": str(place), "step.attempt": number}):
                    result = await self._attempt(step, scope, place, context, work)
                return msgspec.structs.replace(result, attempts=number)
            except StepError as error:
                failure = Failure(
                    kind=error.kind, message=str(error), exit_code=error.exit_code, step=error.step
                )
                delay = delay_before_next(retry, number, error)
                left = self._state.time_left(is_afterwards=context.is_afterwards)
                if delay is None or retry is None or (left is not None and delay >= left):
                    result = error.result or Result(status="failed")
                    return msgspec.structs.replace(result, status="failed", error=failure, attempts=number)
            number += 1
            self._memory.note(Decided(place=place, what="attempt", value=number))
            self._memory.note(
                RetryPlanned(place=place, attempt=number, attempts=retry.attempts, delay=delay, error=failure)
            )
            await self._memory.durable()
            work.raise_cancel()
            await asyncio.sleep(delay)

    async def _attempt(
        self, step: Step, scope: StepScope, place: Place, context: ListContext, work: StepWork
    ) -> Result:
        if step.condition is not None and not self._state.expressions.test(step.condition, scope.names):
            return Result(status="skipped")
        context = self._settled(step, scope, context)
        attempt = self._attempt_at(step, scope, place, context, work)
        self._memory.note(self._started(step, attempt, context))
        instead = await pass_gate(step, attempt) or await pause_before(step, attempt, self._state.pause)
        if instead is not None:
            return instead
        done = await begin_once(step, attempt)
        if done is not None:
            return await self._recalled(step, scope, place, context, done)
        try:
            return await self._perform(step, scope, attempt, context)
        except Parked:
            note_waiting(step, attempt)
            raise

    async def _perform(self, step: Step, scope: StepScope, attempt: Attempt, context: ListContext) -> Result:
        kind = kind_of(step)
        if isinstance(kind, BlockKind):
            work = BlockRun(kind, self, scope, attempt, context).run(step)
            return await self._within_time(step, attempt, context, work)
        if (agent := kind.agent(step)) is not None:
            return await self._within_hooks(step, agent, scope, attempt, context)
        return await self._within_time(step, attempt, context, self._state.performer.perform(step, attempt))

    async def _within_hooks(
        self, step: Step, agent: TemplateText, scope: StepScope, attempt: Attempt, context: ListContext
    ) -> Result:
        """Run a step's agent, with the hooks of its profile around it."""
        hooks = agent_hooks(attempt.text(agent).strip(), self._workflow, attempt.text) or _NO_HOOKS
        around = context.inside(attempt.place, f"{attempt.name}.")
        hook_runner = HookRunner(hooks, self, self._memory, around)
        scope = scope.inside()
        try:
            await hook_runner.start(scope)
        except StepFailed as failed:
            raise failed.as_error() from None
        try:
            work = self._state.performer.perform(step, attempt)
            result = await self._within_time(step, attempt, context, work)
        except StepError:
            await hook_runner.end("failed", scope)
            raise
        except asyncio.CancelledError:
            await hook_runner.end_cancelled(scope)
            raise
        except Stopped:
            await hook_runner.end("cancelled", scope)
            raise
        # The answer is there: it counts whatever becomes of the hooks.
        attempt.work.result = result
        await hook_runner.end_well(scope, attempt.work)
        return result

    def _settled(self, step: Step, scope: StepScope, context: ListContext) -> ListContext:
        """Return the context with the directory and variables of this step, also for steps inside of it."""
        expressions, defaults = self._state.expressions, self._defaults_of(step)
        own, usual = (
            {name: expressions.text(value, scope.names) for name, value in env.items()}
            for env in (step.env, defaults.env)
        )
        named = step.cwd if step.cwd is not None else defaults.cwd
        cwd = Path(context.cwd) if named is None else Path(context.cwd, expressions.text(named, scope.names))
        if not os.path.isdir(cwd):  # noqa: PTH112 - whose other form raises for a name that is too long
            raise StepError("not_found", f"the directory {cwd} does not exist: see `cwd`")
        return replace(context, cwd=str(cwd), env={**usual, **context.env, **own})

    def _attempt_at(
        self, step: Step, scope: StepScope, place: Place, context: ListContext, work: StepWork
    ) -> Attempt:
        state = self._state
        return Attempt(
            place=place,
            workflow=self._workflow,
            names=scope.names,
            expressions=state.expressions,
            cwd=context.cwd,
            env=context.env,
            memory=state.memory,
            front=state.front,
            asking=state.asking,
            agents=state.agents,
            budget=context.budget,
            number=work.attempts,
            mask=state.mask,
            work=work,
        )

    def _started(self, step: Step, attempt: Attempt, context: ListContext) -> StepStarted:
        retry = step.retry or self._defaults_of(step).retry
        part = context.part
        return StepStarted(
            place=attempt.place,
            id=step.id,
            kind=kind_of(step).name,
            title=step_title(step, attempt),
            attempt=attempt.number,
            attempts=retry.attempts if retry is not None else 1,
            parent=context.parent,
            branch=None if part is None else part.branch,
            iteration=None if part is None else part.iteration,
            agent=_agent_of(step, attempt),
            position=step.position,
        )

    async def _within_time(
        self, step: Step, attempt: Attempt, context: ListContext, work: Awaitable[Result]
    ) -> Result:
        """Wait for a step's work until its time is up, or that of the whole run."""
        own = step.timeout or self._defaults_of(step).timeout
        left = self._state.time_left(is_afterwards=context.is_afterwards)
        is_own = own is not None and (left is None or own <= left)
        try:
            async with asyncio.timeout(own if is_own else left) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
        except asyncio.CancelledError:
            if attempt.work.result is None:
                raise
        if attempt.work.result is not None:
            return attempt.work.result
        there_is = attempt.work.partial
        if is_own:
            raise StepError("timeout", f"it took longer than {own:g} s: see `timeout`", result=there_is)
        raise StepError("budget", "the time of the whole run is spent: see `budget`", result=there_is)

    def _defaults_of(self, step: Step) -> Defaults:
        """Return the workflow's defaults for steps that take them, and none for others."""
        return self._workflow.defaults if kind_of(step).takes_defaults else _NO_DEFAULTS


def _agent_of(step: Step, attempt: Attempt) -> str | None:
    """Return the name of the agent that a step uses; None if it has none, or it cannot be rendered."""
    agent = kind_of(step).agent(step)
    if agent is not None:
        with suppress(StepError):
            return attempt.text(agent)
    return None


def _gone_too_often(result: Result, target: Goto) -> Result:
    message = f"it went to `{target.step}` {target.most} times already: see `max` of its `goto`"
    return msgspec.structs.replace(result, status="failed", error=Failure(kind="budget", message=message))


class HookRunner:
    """Runs the hooks of a workflow, or of one use of an agent: at its start, and however it ends."""

    def __init__(self, hooks: Hooks, lists: ListRunner, memory: StepJournal, context: ListContext) -> None:
        self._hooks = hooks
        self._lists = lists
        self._memory = memory
        self._context = context

    async def start(self, scope: StepScope) -> None:
        """Run the start hooks; raises `StepFailed` if one fails, and then it does not start."""
        await self._run(self._hooks.start, scope, "hooks.start.")

    async def end(self, status: Literal["success", "failed", "cancelled"], scope: StepScope) -> None:
        """Run the hooks for its end; one that fails changes nothing any more."""
        if status == "failed":
            await self._run_anyway(self._hooks.error, scope, "hooks.error.")
        elif status == "cancelled":
            await self._run_anyway(self._hooks.cancel, scope, "hooks.cancel.")
        await self._run_anyway(self._hooks.end, scope, "hooks.end.")

    async def end_well(self, scope: StepScope, work: StepWork) -> None:
        """Run the hooks after work that is over; a cancel leaves them a few seconds, and is raised later."""
        if not self._hooks.end:
            return
        hooks = asyncio.ensure_future(self.end("success", scope))
        try:
            if not work.is_cancelled:
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([hooks])
            if work.is_cancelled:
                await asyncio.wait([hooks], timeout=CANCEL_HOOK_TIMEOUT)
        finally:
            hooks.cancel()
            await asyncio.gather(hooks, return_exceptions=True)
        if not hooks.cancelled():
            hooks.result()

    async def end_cancelled(self, scope: StepScope) -> None:
        """Run the hooks for a cancel, within a few seconds; a second cancel ends them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_HOOK_TIMEOUT):
                await self.end("cancelled", scope)

    async def _run_anyway(self, steps: Sequence[Step], scope: StepScope, prefix: str) -> None:
        try:
            await self._run(steps, scope, prefix, is_afterwards=True)
        except (StepFailed, Stopped, Parked, StepsExhausted) as failed:
            self._memory.note(Noted(text=f"{prefix[:-1]} did not end well: {failed}"))

    async def _run(
        self, steps: Sequence[Step], scope: StepScope, prefix: str, *, is_afterwards: bool = False
    ) -> None:
        if steps:
            context = replace(
                self._context,
                prefix=f"{self._context.prefix}{prefix}",
                is_afterwards=is_afterwards or self._context.is_afterwards,
            )
            await self._lists.run_list(steps, scope, context)

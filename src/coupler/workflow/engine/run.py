"""Starts, resumes and rehearses runs, and runs each from its inputs to its outputs.

A front end gives a bundle, inputs and `EngineOptions`, runs the engine, and follows the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET

from coupler.mcp.servers import named_values
from coupler.permission.offers import Choices
from coupler.redaction.known_secrets import named_secrets
from coupler.redaction.sources import is_too_short
from coupler.runtime.exceptions import exception_text
from coupler.runtime.formatting import printable
from coupler.runtime.guard import one_guard_for_all
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import ImageContent, McpServer
from coupler.store import StoreError
from coupler.store.runs import RunRecord
from coupler.store.store import Store
from coupler.workflow.agents.agents import IMAGES, Agents, image_values
from coupler.workflow.engine.attempt import StepFailed, StepScope, StepsExhausted, Stopped
from coupler.workflow.engine.front import FrontEnd, ListContext, record_failure, span
from coupler.workflow.engine.interpreter import HookRunner, Interpreter, Performer, RunState
from coupler.workflow.engine.performers import Mocked, Pause, Performing, Rehearsing
from coupler.workflow.errors import InputError, Parked, RunChangedError, RunError, StepError, UnknownNameError
from coupler.workflow.expressions.expression import FlowExpressions, RehearsedExpressions
from coupler.workflow.journal.run_events import (
    Decided,
    Failure,
    Noted,
    Place,
    RunFinished,
    RunResumed,
    RunStarted,
    happening_in,
)
from coupler.workflow.journal.run_secrets import RunSecrets
from coupler.workflow.journal.runs import OpenRun, find_run
from coupler.workflow.language.inputs import bind_inputs
from coupler.workflow.language.library import Bundle
from coupler.workflow.language.model import Json, Workflow
from coupler.workflow.language.reader import files_of, load

log = logging.getLogger("coupler.workflow")

DONE, FAILED, BROKEN, PARKED, CANCELLED = 0, 3, 4, 5, 130
"""The exit codes of runs; a `stop` may set another one."""

BY_PATH = "path:"
"""Begins the digest of a run whose workflow the user named by its path, which is consent to its files."""

CANCEL_GRACE = (3.0, 1.3, 0.2)
"""Seconds of each stage after a cancel from outside; an editor learns within six that all is over.

First until what still runs is killed, then until the cancel hooks are ended, then until these are killed.
"""

AGENT_GRACE = 0.8
"""Seconds that agents have afterwards to end by themselves."""


@dataclass(frozen=True)
class EngineOptions:
    """Options of a run, besides what its workflow says."""

    front: FrontEnd
    is_rehearsal: bool = False
    """True for a dry run: nothing is started, and each step reports what it would do."""
    mocks: Mapping[str, Path] = field(default_factory=dict)
    """Files whose contents stand for the results of steps, by the steps' ids or paths."""
    pause: Pause | None = None
    """Asks before each step that does something."""
    session_id: str | None = None
    """The editor's session that the run belongs to."""
    mcp_servers: tuple[McpServer, ...] = ()
    """The caller's servers for all agents; of two with one name, these count."""
    choices: Mapping[str, Choices] = field(default_factory=dict)
    """Permission choices that the user made for good, by the directories that they are about."""

    @property
    def environments(self) -> Iterator[Mapping[str, str]]:
        """Environments with secrets that no workflow declares: our own, and those of servers."""
        yield os.environ
        yield from named_values(self.mcp_servers)


@dataclass(frozen=True)
class StartedRun:
    """A run that this process holds, with the engine that runs it."""

    run: OpenRun
    engine: Engine


@asynccontextmanager
async def start_run(
    store: Store,
    bundle: Bundle,
    inputs: Mapping[str, Json],
    *,
    images: Sequence[ImageContent] = (),
    cwd: str,
    way: EngineOptions,
    by_path: bool = False,
) -> AsyncIterator[StartedRun]:
    """Create a run, with inputs that are bound already; `by_path` if the user named the workflow's file.

    `images` are for the first step whose agent takes images, and are kept with the run.
    """
    named = await in_thread(lambda: named_secrets(cwd))
    declared = declared_secrets_of(bundle, inputs, are_needed=not way.is_rehearsal)
    secrecy = RunSecrets.of({**named, **declared}, *way.environments)
    run = await OpenRun.create(
        store,
        bundle.main,
        inputs,
        sources=bundle_sources(bundle),
        digest=f"{BY_PATH if by_path else ''}{bundle.digest_in(cwd)}",
        cwd=cwd,
        secrecy=secrecy,
        session_id=way.session_id,
    )
    async with run:
        run.log.append(RunStarted(run=run.id, workflow=bundle.main.name, inputs=inputs))
        for name in secrecy.too_short:
            run.log.append(Noted(text=f"{name} is secret, and too short to be masked where it is shown"))
        if images:
            run.journal.note(Decided(what=IMAGES, value=image_values(images)))
            await run.journal.durable()
        async with _ready(store, run, bundle, inputs, way, tries_failures=False) as engine:
            yield StartedRun(run, engine)


@asynccontextmanager
async def resume_run(
    store: Store,
    id: str,
    bundle: Bundle,
    way: EngineOptions,
    *,
    secret_inputs: Mapping[str, Json] | None = None,
    from_step: str | None = None,
    done_steps: Sequence[str] = (),
    is_forced: bool = False,
) -> AsyncIterator[StartedRun]:
    """Open a run that is not over, or failed, from where it was left, or from an earlier step.

    `done_steps` are interrupted steps with `once` that were done. Its bundle is that of its file as it is
    now; raises `RunChangedError` if that has changed, unless forced.
    """
    record = await find_run(store, id)
    check_resumable(record, bundle, is_over_allowed=from_step is not None, is_forced=is_forced)
    named = await in_thread(lambda: named_secrets(record.cwd))
    declared = declared_secrets_of(bundle, secret_inputs or {})
    secrecy = RunSecrets.of({**named, **declared}, *way.environments)
    async with await OpenRun.open(store, record.id, secrecy) as run:
        inputs = run.inputs
        done = _interrupted_places(run, done_steps)
        if from_step is not None:
            if not run.journal.forget_from(_place(from_step)):
                raise RunError(_never_at(from_step, record.id, map(str, run.journal.begun)))
        else:
            run.log.append(RunResumed(reason="interrupted" if record.is_interrupted else record.status))
        tries_failures = record.status in ("failed", "cancelled")
        if tries_failures:
            run.journal.forget_failure(await _failed_step(store, record.id))
        if done:
            run.journal.mark_done(done)
            await run.journal.durable()
        async with _ready(store, run, bundle, inputs, way, tries_failures=tries_failures) as engine:
            yield StartedRun(run, engine)


def check_resumable(record: RunRecord, bundle: Bundle, *, is_over_allowed: bool, is_forced: bool) -> None:
    """Raise `RunError` for a run that has ended well, `RunChangedError` for one whose files have changed."""
    if record.status == "success" and not is_over_allowed:
        raise RunError(f"the run {record.id} has ended well: `--from STEP` does a part of it again")
    if record.digest.removeprefix(BY_PATH) != bundle.digest_in(record.cwd) and not is_forced:
        raise RunChangedError(
            f"{record.file}, or a file that it uses, has changed since the run began: resume it with --force "
            "to go on with the changed one, or start a new run"
        )


def path_of_consent(record: RunRecord, bundle: Bundle) -> str | None:
    """Return the path by which the user named a run's workflow, if its files are still what they were then.

    None if it was named otherwise, or a file has changed: then each file has to be trusted.
    """
    return record.file if record.digest == f"{BY_PATH}{bundle.digest_in(record.cwd)}" else None


@asynccontextmanager
async def _ready(
    store: Store,
    run: OpenRun,
    bundle: Bundle,
    inputs: Mapping[str, Json],
    way: EngineOptions,
    *,
    tries_failures: bool,
) -> AsyncIterator[Engine]:
    main = bundle.main
    limits = main.budget
    with one_guard_for_all():
        async with Agents(
            store=store,
            bundle=bundle,
            limits=limits,
            journal=run.journal,
            front=way.front,
            mcp_servers=way.mcp_servers,
            choices=way.choices,
        ) as agents:
            state = RunState(
                id=run.id,
                bundle=bundle,
                memory=run.journal,
                expressions=RehearsedExpressions() if way.is_rehearsal else FlowExpressions(),
                performer=_performer(way),
                agents=agents,
                front=way.front,
                pause=way.pause,
                cwd=run.record.cwd,
                secrets=_environment_secrets(bundle),
                most_steps=main.max_steps,
                tries_failures=tries_failures,
                mask=run.secrecy.masker.mask,
                deadline=time.monotonic() + limits.time if limits is not None and limits.time else None,
            )
            yield Engine(state, inputs)


def _performer(way: EngineOptions) -> Performer:
    performer: Performer = Rehearsing() if way.is_rehearsal else Performing()
    return Mocked(way.mocks, performer) if way.mocks else performer


class Engine:
    """Runs one run once. Its events go to the journal; `run` returns how it ended."""

    def __init__(self, state: RunState, inputs: Mapping[str, Json]) -> None:
        self._state = state
        self._inputs = inputs
        self._work: asyncio.Task[RunFinished] | None = None

    async def run(self) -> RunFinished:
        """Run to the end; the end is durable when this returns.

        Cancelled from outside, it raises after what runs was ended and the end is durable.
        """
        began = time.monotonic()
        self._work = asyncio.ensure_future(self._to_the_end())
        try:
            await asyncio.wait([self._work])
        except asyncio.CancelledError:
            await self._end_soon(self._work)
            asyncio.get_running_loop().call_later(AGENT_GRACE, self._state.agents.kill)
            await self._tell(self._work, began)
            raise
        finally:
            self._work.cancel()
        return await self._tell(self._work, began)

    async def _end_soon(self, work: asyncio.Task[RunFinished]) -> None:
        for seconds in CANCEL_GRACE:
            self.cancel()
            await asyncio.wait([work], timeout=seconds)
            if work.done():
                return
        self.cancel()
        await asyncio.wait([work])

    @property
    def has_images_left(self) -> bool:
        """True if no agent got the images of the prompt that started the run."""
        return self._state.agents.images.are_left

    def cancel(self) -> None:
        """Cancel the run; asked again, end its cancel hooks, too, and kill agents that do not listen."""
        if self._work is not None:
            if self._work.cancelling():
                self._state.agents.kill()
            self._state.memory.stop_waiting_for_locks()
            self._work.cancel()

    async def _to_the_end(self) -> RunFinished:
        main = self._state.bundle.main
        workflow_run = WorkflowRun(self._state, main, ListContext(cwd=self._state.cwd))
        try:
            with span(f"run {main.name}", {"run.id": self._state.id, "workflow": main.name}) as current:
                ending = await workflow_run.run(self._inputs)
                if ending.status == "failed":
                    record_failure(current, ending.failure.kind if ending.failure is not None else "stop")
            return _told(ending)
        except Parked as parked:
            return RunFinished(status="parked", exit_code=PARKED, message=str(parked))
        except asyncio.CancelledError:
            return RunFinished(status="cancelled", exit_code=CANCELLED, message="it was cancelled")
        except StoreError:
            raise  # the end cannot be kept either
        except Exception as error:
            log.exception("a run broke off")
            return RunFinished(
                status="failed", exit_code=BROKEN, message=f"a fault in Coupler: {exception_text(error)}"
            )

    async def _tell(self, work: asyncio.Task[RunFinished], began: float) -> RunFinished:
        memory = self._state.memory
        finished = msgspec.structs.replace(
            work.result(),
            duration=round(time.monotonic() - began, 3),
            usage=self._state.agents.usage,
        )
        memory.note(finished)
        await memory.durable()
        return finished


_EXIT_CODES = {"success": DONE, "failed": FAILED, "cancelled": CANCELLED}


def _told(ending: WorkflowEnding) -> RunFinished:
    return RunFinished(
        status=ending.status,
        exit_code=_EXIT_CODES[ending.status] if ending.exit_code is None else ending.exit_code,
        message=ending.message,
        outputs=ending.outputs,
        error=ending.failure,
        failed_step=ending.step,
    )


@dataclass(frozen=True)
class WorkflowEnding:
    """The end of a workflow: its status, outputs and failure."""

    status: Literal["success", "failed", "cancelled"]
    outputs: Mapping[str, Json]
    message: str = ""
    exit_code: int | None = None
    """The exit code that a `stop` has set."""
    failure: Failure | None = None
    step: str | None = None
    """The path of the step that failed."""


_STOPPED: Mapping[str, Literal["failed", "cancelled"]] = {"failure": "failed", "cancelled": "cancelled"}


class WorkflowRun:
    """Runs one workflow of a run, the main one or one that is called, with its hooks."""

    def __init__(self, state: RunState, workflow: Workflow, context: ListContext) -> None:
        self._state = state
        self._workflow = workflow
        self._context = context
        self._interpreter = Interpreter(state, workflow)
        self._hooks = HookRunner(workflow.hooks, self._interpreter, state.memory, context)

    async def outputs_of_call(self, given: Mapping[str, Json]) -> Json:
        """Run it for a step that calls it; raises `StepError` if it fails."""
        try:
            inputs = bind_inputs(self._workflow, given, self._context.cwd)
        except InputError as error:
            raise StepError("template", f"the inputs of {self._workflow.name}: {error}") from None
        self._check_secret(inputs)
        ending = await self._within_budget(inputs)
        if ending.status == "success":
            return dict(ending.outputs)
        if ending.failure is not None:
            failure = ending.failure
            raise StepError(failure.kind, ending.message, exit_code=failure.exit_code, step=ending.step)
        kind: Literal["cancelled", "exit"] = "cancelled" if ending.status == "cancelled" else "exit"
        raise StepError(kind, ending.message or f"{self._workflow.name} stopped", exit_code=ending.exit_code)

    async def _within_budget(self, inputs: Mapping[str, Json]) -> WorkflowEnding:
        """Run a called workflow within its own time budget."""
        seconds = None if self._workflow.budget is None else self._workflow.budget.time
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.run(inputs)
        except TimeoutError:
            if not limit.expired():
                raise
        raise StepError("budget", f"{self._workflow.name} took longer than {seconds:g} s: see its `budget`")

    def _check_secret(self, inputs: Mapping[str, Json]) -> None:
        """Refuse secret inputs whose values are no secrets of the run, because nothing would redact them."""
        for name, declared in self._workflow.inputs.items():
            given = str(inputs[name] or "")
            is_masked = self._state.mask(given) != given or is_too_short(given)
            if declared.secret and given and not is_masked:
                called = f"the input `{name}` of {self._workflow.name}"
                raise StepError(
                    "template",
                    f"{called} is secret, and what it gets is not: give it one of `secrets`, or a secret "
                    "input",
                )

    async def run(self, inputs: Mapping[str, Json]) -> WorkflowEnding:
        """Run all of it. Cancelled, it raises after the cancel hooks; parked, it raises at once."""
        scope = self._scope(inputs)
        try:
            ending = await self._steps(scope)
        except asyncio.CancelledError:
            cancelled = WorkflowEnding("cancelled", {}, "it was cancelled")
            await self._hooks.end_cancelled(scope.inside(run=self._names_of_run(cancelled)))
            raise
        await self._hooks.end(ending.status, scope.inside(run=self._names_of_run(ending)))
        return ending

    def _scope(self, inputs: Mapping[str, Json]) -> StepScope:
        secrets = {name: self._state.secrets[name] for name in self._secret_names()}
        return StepScope({"inputs": dict(inputs), "secrets": secrets, "run": self._names_of_run()})

    def _names_of_run(self, ending: WorkflowEnding | None = None) -> dict[str, object]:
        """The fields of `run` in expressions; hooks also see how it ended."""
        names: dict[str, object] = {
            "id": self._state.id,
            "workflow": self._workflow.name,
            "cwd": self._context.cwd,
            "directory": str(Path(self._workflow.file).parent),
        }
        if ending is None:
            return names
        failure = ending.failure
        return {
            **names,
            "status": ending.status,
            "message": ending.message,
            "step": ending.step,
            "error": None if failure is None else {"kind": failure.kind, "message": failure.message},
        }

    def _secret_names(self) -> list[str]:
        return [name for name in self._workflow.secrets if name in self._state.secrets]

    async def _steps(self, scope: StepScope) -> WorkflowEnding:
        try:
            stopped = await self._until_stopped(scope)
            if stopped is not None and stopped.status != "success":
                status = _STOPPED[stopped.status]
                return WorkflowEnding(status, {}, stopped.message, stopped.exit_code)
            outputs = self._outputs(scope, is_complete=stopped is None)
        except StepFailed as failed:
            return WorkflowEnding("failed", {}, str(failed.as_error()), None, failed.failure, failed.step)
        except StepsExhausted as exhausted:
            failure = Failure(kind="budget", message=str(exhausted))
            return WorkflowEnding("failed", {}, failure.message, None, failure)
        except StepError as error:
            failure = Failure(kind=error.kind, message=str(error))
            return WorkflowEnding("failed", {}, f"outputs: {error}", None, failure)
        if stopped is None:
            return WorkflowEnding("success", outputs)
        return WorkflowEnding("success", outputs, stopped.message, stopped.exit_code)

    async def _until_stopped(self, scope: StepScope) -> Stopped | None:
        try:
            await self._hooks.start(scope)
            await self._interpreter.run_list(self._workflow.steps, scope, self._context)
        except Stopped as stopped:
            return stopped
        return None

    def _outputs(self, scope: StepScope, *, is_complete: bool) -> dict[str, Json]:
        """The outputs; after a `stop`, those that depend on steps that were not reached are null."""
        outputs: dict[str, Json] = {}
        for name, template in self._workflow.outputs.items():
            try:
                outputs[name] = self._state.expressions.value(template, scope.names)
            except UnknownNameError:
                if is_complete:
                    raise
                outputs[name] = None
        return outputs


def declared_secrets_of(
    bundle: Bundle, inputs: Mapping[str, Json], *, are_needed: bool = True
) -> dict[str, str]:
    """Return the secrets that a run declares, by the names by which its journal refers to them.

    Raises `InputError` with all variables that are not set, if they are needed.
    """
    secrets = _environment_secrets(bundle)
    missing = [name for name in _secret_names(bundle) if name not in secrets]
    if missing and are_needed:
        raise InputError(f"set the environment variable{'s' * (len(missing) > 1)} {', '.join(missing)} first")
    for name, declared in bundle.main.inputs.items():
        if declared.secret:
            secrets.update(_texts_in(inputs.get(name), f"inputs.{name}"))
    for workflow in bundle.workflows:
        for name, declared in workflow.inputs.items():
            if workflow is not bundle.main and declared.secret and declared.default is not UNSET:
                secrets.update(_texts_in(declared.default, f"{workflow.name}.{name}"))
    return secrets


def _texts_in(value: Json, name: str) -> Iterator[tuple[str, str]]:
    """All texts of a secret value, each with a name; raises `InputError` for what cannot be redacted."""
    match value:
        case str():
            yield name, value
        case list() | tuple():
            for number, item in enumerate(value):
                yield from _texts_in(item, f"{name}.{number}")
        case Mapping():
            for key, item in value.items():
                yield from _texts_in(item, f"{name}.{key}")
        case None | bool():
            pass
        case _:
            raise InputError(f"{name} is a number, which cannot be hidden: write it as text, in quotes")


def _environment_secrets(bundle: Bundle) -> dict[str, str]:
    return {name: os.environ[name] for name in _secret_names(bundle) if name in os.environ}


def _secret_names(bundle: Bundle) -> Iterable[str]:
    return {name: None for workflow in bundle.workflows for name in workflow.secrets}


def bundle_sources(bundle: Bundle) -> dict[str, str]:
    """Return the texts of all files of a bundle, by their paths."""
    return {
        path: load(path).decode(errors="replace")
        for workflow in bundle.workflows
        for path in (workflow.file, *_neighbours(workflow))
    }


def _neighbours(workflow: Workflow) -> list[str]:
    return [str(Path(workflow.file).parent / name) for name, _ in files_of(workflow)]


def _place(step: str) -> Place:
    path, mark, visit = step.rpartition("#")
    return Place(path, int(visit)) if mark and visit.isdigit() else Place(step)


def _interrupted_places(run: OpenRun, steps: Sequence[str]) -> list[Place]:
    """Find interrupted steps with `once` by their names; raises RunError with those that there are."""
    waiting = {str(place): place for place in run.journal.interrupted}
    for step in steps:
        if step not in waiting:
            listed = f"these were: {', '.join(waiting)}" if waiting else "no step of it was"
            raise RunError(
                f"--done {printable(step, 60)}: no step of the run {run.id} that is to run `once` was "
                f"interrupted there: {listed}"
            )
    return [waiting[step] for step in steps]


def _never_at(step: str, id: str, steps: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(step[:60], sorted(steps), n=1)
    hint = f"; did you mean `{near[0]}`?" if near else f": `coupler runs show {id}` has those it was at"
    return f"the run {id} was never at the step {printable(step, 60)}{hint}"


async def _failed_step(store: Store, id: str) -> str | None:
    """The step whose failure ended a run last."""
    entries = await store.runs.entries(id, kinds=("run_finished",), is_whole=True)
    if not entries:
        return None
    finished = happening_in(entries[-1].body)
    return finished.failed_step if isinstance(finished, RunFinished) else None

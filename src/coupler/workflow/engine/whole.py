"""One workflow from its inputs to its outputs, with the hooks beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coupler.workflow.engine.flow import StepFailed, StepsExhausted, Stopped
from coupler.workflow.engine.hooks import Beside
from coupler.workflow.engine.interpreter import Interpreter
from coupler.workflow.engine.running import Running
from coupler.workflow.engine.scope import Scope
from coupler.workflow.engine.where import Where
from coupler.workflow.errors import InputError, StepError, UnknownNameError
from coupler.workflow.journal.result import Failure
from coupler.workflow.language.definition import Json, Workflow
from coupler.workflow.language.inputs import bind


@dataclass(frozen=True)
class Ending:
    """How a workflow ended."""

    status: Literal["success", "failed", "cancelled"]
    outputs: Mapping[str, Json]
    message: str = ""
    exit_code: int | None = None
    """What a `stop` has set."""
    failure: Failure | None = None
    step: str | None = None
    """The path of the step that failed."""


_STOPPED: Mapping[str, Literal["failed", "cancelled"]] = {"failure": "failed", "cancelled": "cancelled"}


class Whole:
    """One workflow of a run: the main one, or one that is called."""

    def __init__(self, running: Running, workflow: Workflow, where: Where) -> None:
        self._running = running
        self._workflow = workflow
        self._where = where
        self._interpreter = Interpreter(running, workflow)
        self._beside = Beside(workflow.hooks, self._interpreter, running.memory, where)

    async def outputs_of_call(self, given: Mapping[str, Json]) -> Json:
        """Run it for a step that calls it; raises `StepError` if it fails."""
        try:
            inputs = bind(self._workflow, given, self._where.cwd)
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

    async def _within_budget(self, inputs: Mapping[str, Json]) -> Ending:
        """What a workflow says that it may use holds for it also when another one calls it."""
        seconds = None if self._workflow.budget is None else self._workflow.budget.time
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.run(inputs)
        except TimeoutError:
            if not limit.expired():
                raise
        raise StepError("budget", f"{self._workflow.name} took longer than {seconds:g} s: see its `budget`")

    def _check_secret(self, inputs: Mapping[str, Json]) -> None:
        """Refuse values that are to be secret and that nothing hides, because nobody knew of them."""
        for name, declared in self._workflow.inputs.items():
            given = str(inputs[name] or "")
            if declared.secret and given and self._running.mask(given) == given:
                called = f"the input `{name}` of {self._workflow.name}"
                raise StepError(
                    "template",
                    f"{called} is secret, and what it gets is not: give it one of `secrets`, or a secret "
                    "input",
                )

    async def run(self, inputs: Mapping[str, Json]) -> Ending:
        """Run all of it. Cancelled, it raises after the hooks for that; parked, it raises at once."""
        scope = self._scope(inputs)
        try:
            ending = await self._steps(scope)
        except asyncio.CancelledError:
            cancelled = Ending("cancelled", {}, "it was cancelled")
            await self._beside.end_cancelled(scope.inside(run=self._names_of_run(cancelled)))
            raise
        await self._beside.end(ending.status, scope.inside(run=self._names_of_run(ending)))
        return ending

    def _scope(self, inputs: Mapping[str, Json]) -> Scope:
        secrets = {name: self._running.secrets[name] for name in self._secret_names()}
        return Scope({"inputs": dict(inputs), "secrets": secrets, "run": self._names_of_run()})

    def _names_of_run(self, ending: Ending | None = None) -> dict[str, object]:
        """What expressions see as `run`; hooks also see how it ended."""
        names: dict[str, object] = {
            "id": self._running.id,
            "workflow": self._workflow.name,
            "cwd": self._where.cwd,
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
        return [name for name in self._workflow.secrets if name in self._running.secrets]

    async def _steps(self, scope: Scope) -> Ending:
        try:
            stopped = await self._until_stopped(scope)
            if stopped is not None and stopped.status != "success":
                status = _STOPPED[stopped.status]
                return Ending(status, {}, stopped.message, stopped.exit_code)
            outputs = self._outputs(scope, is_complete=stopped is None)
        except StepFailed as failed:
            return Ending("failed", {}, str(failed.as_error()), None, failed.failure, failed.step)
        except StepsExhausted as exhausted:
            failure = Failure(kind="budget", message=str(exhausted))
            return Ending("failed", {}, failure.message, None, failure)
        except StepError as error:
            failure = Failure(kind=error.kind, message=str(error))
            return Ending("failed", {}, f"outputs: {error}", None, failure)
        if stopped is None:
            return Ending("success", outputs)
        return Ending("success", outputs, stopped.message, stopped.exit_code)

    async def _until_stopped(self, scope: Scope) -> Stopped | None:
        try:
            await self._beside.start(scope)
            await self._interpreter.run_list(self._workflow.steps, scope, self._where)
        except Stopped as stopped:
            return stopped
        return None

    def _outputs(self, scope: Scope, *, is_complete: bool) -> dict[str, Json]:
        """After a `stop`, what depends on steps that were not reached is null."""
        outputs: dict[str, Json] = {}
        for name, template in self._workflow.outputs.items():
            try:
                outputs[name] = self._running.expressions.value(template, scope.names)
            except UnknownNameError:
                if is_complete:
                    raise
                outputs[name] = None
        return outputs

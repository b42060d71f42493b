"""Runs in this process: begun, resumed or rehearsed, with all that they need around them.

A front end gives a bundle, inputs and a `Front`, runs the engine, and follows the log.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET

from coupler.config.lookup import shown
from coupler.mcp.servers import variables_of
from coupler.permission.engine import Choices
from coupler.runtime.guard import Watch
from coupler.schema.v1 import McpServer
from coupler.store.store import Store
from coupler.workflow.agents.agents import Agents
from coupler.workflow.engine.engine import Engine
from coupler.workflow.engine.front import Front
from coupler.workflow.engine.performing import Performing
from coupler.workflow.engine.rehearsing import Mocked, Rehearsing
from coupler.workflow.engine.running import Performer, Running
from coupler.workflow.engine.stepping import Pause
from coupler.workflow.errors import ChangedError, InputError, RunError
from coupler.workflow.expressions.flow_expressions import FlowExpressions, RehearsedExpressions
from coupler.workflow.journal.happenings import Place, RunResumed, RunStarted
from coupler.workflow.journal.runs import Run, find_run
from coupler.workflow.journal.secrecy import Secrecy
from coupler.workflow.language.bundle import Bundle
from coupler.workflow.language.definition import Json, Workflow
from coupler.workflow.language.reading import files_of, load


@dataclass(frozen=True)
class Way:
    """How a run is done, besides what its workflow says."""

    front: Front
    is_rehearsal: bool = False
    """Nothing is started; what each step would do is told."""
    mocks: Mapping[str, Path] = field(default_factory=dict)
    """Files whose contents stand for the results of steps, by the steps' ids or paths."""
    pause: Pause | None = None
    """Asks before each step that does something."""
    session_id: str | None = None
    """The editor's session that the run belongs to."""
    mcp_servers: tuple[McpServer, ...] = ()
    """Those that whoever runs it has for all agents; of two with one name, these count."""
    choices: Mapping[str, Choices] = field(default_factory=dict)
    """What the user has chosen for good already, by the directories that it is about."""

    @property
    def environments(self) -> Iterator[Mapping[str, str]]:
        """Where secrets may stand that no workflow declares: our own variables, and those of servers."""
        yield os.environ
        yield from variables_of(self.mcp_servers)


@dataclass(frozen=True)
class Started:
    """A run that this process has: its engine runs it, its log tells it."""

    run: Run
    engine: Engine


@asynccontextmanager
async def begun(
    store: Store, bundle: Bundle, inputs: Mapping[str, Json], *, cwd: str, way: Way
) -> AsyncIterator[Started]:
    """A new run, with inputs that are bound already."""
    secrecy = Secrecy.of(secrets_of(bundle, inputs, are_needed=not way.is_rehearsal), *way.environments)
    run = await Run.create(
        store,
        bundle.main,
        inputs,
        sources=sources_of(bundle),
        digest=bundle.digest,
        cwd=cwd,
        secrecy=secrecy,
        session_id=way.session_id,
    )
    async with run:
        run.log.append(RunStarted(run=run.id, workflow=bundle.main.name, inputs=inputs))
        async with _ready(store, run, bundle, inputs, way, tries_failures=False) as engine:
            yield Started(run, engine)


@asynccontextmanager
async def resumed(
    store: Store,
    id: str,
    bundle: Bundle,
    way: Way,
    *,
    secret_inputs: Mapping[str, Json] | None = None,
    from_step: str | None = None,
    is_forced: bool = False,
) -> AsyncIterator[Started]:
    """A run that is not over, or failed, from where it was left, or from an earlier step.

    Its bundle is that of its file as it is now; raises `ChangedError` if that has changed, unless forced.
    """
    record = await find_run(store, id)
    if record.status == "success" and from_step is None:
        raise RunError(f"the run {record.id} has ended well: `--from STEP` does a part of it again")
    if record.digest != bundle.digest and not is_forced:
        raise ChangedError(
            f"{record.file}, or a file that it uses, has changed since the run began: resume it with --force "
            "to go on with the changed one, or start a new run"
        )
    secrecy = Secrecy.of(secrets_of(bundle, secret_inputs or {}), *way.environments)
    async with await Run.open(store, record.id, secrecy) as run:
        inputs = run.inputs
        if from_step is not None:
            if not run.journal.forget_from(_place(from_step)):
                raise RunError(_never_at(from_step, record.id, map(str, run.journal.begun)))
        else:
            run.log.append(RunResumed(reason=record.status))
        tries_failures = record.status in ("failed", "cancelled")
        if tries_failures:
            run.journal.forget_failure(await _failed_step(store, record.id))
        async with _ready(store, run, bundle, inputs, way, tries_failures=tries_failures) as engine:
            yield Started(run, engine)


@asynccontextmanager
async def _ready(
    store: Store, run: Run, bundle: Bundle, inputs: Mapping[str, Json], way: Way, *, tries_failures: bool
) -> AsyncIterator[Engine]:
    main = bundle.main
    limits = main.budget
    with Watch() as watch:
        async with Agents(
            store=store,
            bundle=bundle,
            limits=limits,
            journal=run.journal,
            front=way.front,
            mcp_servers=way.mcp_servers,
            choices=way.choices,
        ) as agents:
            running = Running(
                id=run.id,
                bundle=bundle,
                memory=run.journal,
                expressions=RehearsedExpressions() if way.is_rehearsal else FlowExpressions(),
                performer=_performer(way, watch),
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
            yield Engine(running, inputs)


def _performer(way: Way, watch: Watch) -> Performer:
    performer: Performer = Rehearsing() if way.is_rehearsal else Performing(watch)
    return Mocked(way.mocks, performer) if way.mocks else performer


def secrets_of(bundle: Bundle, inputs: Mapping[str, Json], *, are_needed: bool = True) -> dict[str, str]:
    """The secrets that a run declares, by the names by which its journal refers to them.

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
    """All texts of a secret value, each with a name; raises `InputError` for what cannot be hidden."""
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


def sources_of(bundle: Bundle) -> dict[str, str]:
    """The texts of all files that a bundle is made of, by their paths."""
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


def _never_at(step: str, id: str, steps: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(step[:60], sorted(steps), n=1)
    hint = f"; did you mean `{near[0]}`?" if near else f": `coupler runs show {id}` has those it was at"
    return f"the run {id} was never at the step {shown(step, 60)}{hint}"


async def _failed_step(store: Store, id: str) -> str | None:
    """The step by whose failure a run ended last."""
    from coupler.workflow.journal.happenings import RunFinished
    from coupler.workflow.journal.record import happening_in

    entries = await store.runs.entries(id, kinds=("run_finished",), is_whole=True)
    if not entries:
        return None
    finished = happening_in(entries[-1].body)
    return finished.failed_step if isinstance(finished, RunFinished) else None

"""Runs in a store in memory or in a file, for tests of the log and of what stands on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from coupler.events import Text
from coupler.store.store import Store
from coupler.workflow.journal.run_events import AgentEvent, Place, Result, StepFinished, StepStarted, Wrote
from coupler.workflow.journal.run_secrets import RunSecrets
from coupler.workflow.journal.runs import OpenRun
from coupler.workflow.language.model import Json, Workflow

T = TypeVar("T")

PATIENCE = 20.0
WORKFLOW = Workflow(name="Review it", file="/project/review.yaml", digest="d1", steps=())
STEP = Place("build")


def in_store(play: Callable[[Store], Awaitable[T]], path: str = ":memory:") -> T:
    """Play with a store on an event loop."""

    async def main() -> T:
        store = Store.open(path)
        try:
            async with asyncio.timeout(PATIENCE):
                return await play(store)
        finally:
            store.close()

    return asyncio.run(main())


async def new_run(store: Store, inputs: Mapping[str, Json] | None = None, **options: Any) -> OpenRun:
    given = {"sources": {WORKFLOW.file: "steps: []"}, "cwd": "/project", "secrecy": RunSecrets()}
    return await OpenRun.create(store, WORKFLOW, inputs or {}, digest=WORKFLOW.digest, **(given | options))


def started(place: Place = STEP, **fields: Any) -> StepStarted:
    return StepStarted(place=place, id="x", kind="run", title="a title", **fields)


def finished(place: Place = STEP, status: Any = "success", **fields: Any) -> StepFinished:
    return StepFinished(place=place, id="x", kind="run", result=Result(status=status, **fields))


def said(text: str, place: Place = STEP) -> AgentEvent:
    return AgentEvent(place=place, event=Text(text))


def wrote(text: str, place: Place = STEP, stream: Any = "stdout") -> Wrote:
    return Wrote(place=place, stream=stream, text=text)

"""A whole run: from its first step, or from where it was left, to its end, whatever that is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

import msgspec

from coupler.store import StoreError
from coupler.workflow.engine.running import Running
from coupler.workflow.engine.tracing import note_failure, span
from coupler.workflow.engine.where import Where
from coupler.workflow.engine.whole import Ending, Whole
from coupler.workflow.errors import Parked
from coupler.workflow.journal.happenings import RunFinished
from coupler.workflow.language.definition import Json

log = logging.getLogger("coupler.workflow")

DONE, FAILED, BROKEN, PARKED, CANCELLED = 0, 3, 4, 5, 130
"""The exit codes of runs; a `stop` may set another one."""

PATIENCE = (3.0, 1.3, 0.2)
"""Seconds after a cancel from outside until what has not ended is killed, then until the hooks for it are
ended, and then until they are killed: an editor is told within six that all is over."""

LAST_WORDS = 0.8
"""Seconds that agents have afterwards to end by themselves."""


class Engine:
    """Runs one run once. What happens is told by its memory; this returns how it ended."""

    def __init__(self, running: Running, inputs: Mapping[str, Json]) -> None:
        self._running = running
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
            asyncio.get_running_loop().call_later(LAST_WORDS, self._running.agents.kill)
            await self._tell(self._work, began)
            raise
        finally:
            self._work.cancel()
        return await self._tell(self._work, began)

    async def _end_soon(self, work: asyncio.Task[RunFinished]) -> None:
        for seconds in PATIENCE:
            self.cancel()
            await asyncio.wait([work], timeout=seconds)
            if work.done():
                return
        self.cancel()
        await asyncio.wait([work])

    def cancel(self) -> None:
        """Cancel what runs; asked again, the hooks for that end, too, and agents that do not listen."""
        if self._work is not None:
            if self._work.cancelling():
                self._running.agents.kill()
            self._work.cancel()

    async def _to_the_end(self) -> RunFinished:
        main = self._running.bundle.main
        whole = Whole(self._running, main, Where(cwd=self._running.cwd))
        try:
            with span(f"run {main.name}", {"run.id": self._running.id, "workflow": main.name}) as current:
                ending = await whole.run(self._inputs)
                if ending.status == "failed":
                    note_failure(current, ending.failure.kind if ending.failure is not None else "stop")
            return _told(ending)
        except Parked as parked:
            return RunFinished(status="parked", exit_code=PARKED, message=str(parked))
        except asyncio.CancelledError:
            return RunFinished(status="cancelled", exit_code=CANCELLED, message="it was cancelled")
        except StoreError:
            raise  # the end cannot be kept either
        except Exception as error:
            log.exception("a run broke off")
            return RunFinished(status="failed", exit_code=BROKEN, message=f"a fault in Coupler: {error!r}")

    async def _tell(self, work: asyncio.Task[RunFinished], began: float) -> RunFinished:
        memory = self._running.memory
        finished = msgspec.structs.replace(
            work.result(),
            duration=round(time.monotonic() - began, 3),
            usage=self._running.agents.usage,
        )
        memory.note(finished)
        await memory.durable()
        return finished


_EXIT_CODES = {"success": DONE, "failed": FAILED, "cancelled": CANCELLED}


def _told(ending: Ending) -> RunFinished:
    return RunFinished(
        status=ending.status,
        exit_code=_EXIT_CODES[ending.status] if ending.exit_code is None else ending.exit_code,
        message=ending.message,
        outputs=ending.outputs,
        error=ending.failure,
        failed_step=ending.step,
    )

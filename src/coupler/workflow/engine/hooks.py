"""Steps beside a workflow, or beside each use of an agent: at its start, and however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from coupler.workflow.engine.blocks import Lists
from coupler.workflow.engine.flow import StepFailed, StepsExhausted, Stopped
from coupler.workflow.engine.running import Memory
from coupler.workflow.engine.scope import Scope
from coupler.workflow.engine.where import Where
from coupler.workflow.errors import Parked
from coupler.workflow.journal.happenings import Noted
from coupler.workflow.language.definition import Hooks, Step

CANCEL_TIME = 5.0
"""Seconds that hooks have after a cancel."""


class Beside:
    """The hooks of one thing that starts and ends."""

    def __init__(self, hooks: Hooks, lists: Lists, memory: Memory, where: Where) -> None:
        self._hooks = hooks
        self._lists = lists
        self._memory = memory
        self._where = where

    async def start(self, scope: Scope) -> None:
        """Run those for its start; raises `StepFailed` if one fails, and then it does not start."""
        await self._run(self._hooks.start, scope, "hooks.start.")

    async def end(self, status: Literal["success", "failed", "cancelled"], scope: Scope) -> None:
        """Run those for its end; one that fails changes nothing any more."""
        if status == "failed":
            await self._run_anyway(self._hooks.error, scope, "hooks.error.")
        elif status == "cancelled":
            await self._run_anyway(self._hooks.cancel, scope, "hooks.cancel.")
        await self._run_anyway(self._hooks.end, scope, "hooks.end.")

    async def end_cancelled(self, scope: Scope) -> None:
        """The same in a task that was cancelled, within a few seconds; a second cancel ends it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_TIME):
                await self.end("cancelled", scope)

    async def _run_anyway(self, steps: Sequence[Step], scope: Scope, prefix: str) -> None:
        try:
            await self._run(steps, scope, prefix, is_afterwards=True)
        except (StepFailed, Stopped, Parked, StepsExhausted) as failed:
            self._memory.note(Noted(text=f"{prefix[:-1]} did not end well: {failed}"))

    async def _run(
        self, steps: Sequence[Step], scope: Scope, prefix: str, *, is_afterwards: bool = False
    ) -> None:
        if steps:
            where = replace(
                self._where,
                prefix=f"{self._where.prefix}{prefix}",
                is_afterwards=is_afterwards or self._where.is_afterwards,
            )
            await self._lists.run_list(steps, scope, where)

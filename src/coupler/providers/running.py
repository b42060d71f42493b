"""A program that answers one turn: started, heard line by line, and ended with all that it started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from coupler.runtime.commands import Job
from coupler.runtime.environment import Environment
from coupler.runtime.process import APART, Child
from coupler.wire.frames import DEFAULT_LIMIT, FrameBuffer

LEFT_RUNNING_GRACE = 1.0
"""Seconds that processes have which the program left running when it ended by itself."""

LINGER = 5.0
"""Seconds in which a program must end that has said its last word."""

Hear = Callable[[bytes], Awaitable[bool]]
"""Takes a line; returns whether it was the last one that matters."""


class Invocation(NamedTuple):
    """How a program is started for one turn."""

    arguments: Sequence[str]
    input: bytes = b""
    """What it reads from stdin."""
    env: Mapping[str, str | None] = {}
    """What differs from the session's environment; None removes a variable."""


class Ending(NamedTuple):
    """How a program ended."""

    returncode: int | None
    stderr: str
    oversized: int
    """Lines over the limit, which were dropped."""

    @property
    def exit_code(self) -> int | None:
        """None if a signal ended it."""
        return self.returncode if self.returncode is not None and self.returncode >= 0 else None

    def in_words(self) -> str:
        """How it ended, for a sentence."""
        if self.exit_code is None:
            return f"was ended by signal {-(self.returncode or 0)}"
        return f"ended with exit code {self.exit_code}"


async def run_program(
    program: str,
    invocation: Invocation,
    *,
    cwd: str,
    env: Mapping[str, str | None],
    hear: Hear,
    grace: Callable[[], float],
    line_limit: int = DEFAULT_LIMIT,
) -> Ending:
    """Run the program to its end and hear each of its lines, or raise `SpawnError`.

    Whatever ends this early ends the program and its whole group: SIGTERM, and SIGKILL after the grace.
    """
    # Some programs believe the shell's variable rather than the directory that they are in.
    environment = Environment({**env, "PWD": cwd, **invocation.env}, inherits=False)
    child = Child.spawn([program, *invocation.arguments], cwd=cwd, env=environment, streams=APART)
    job = Job(child, invocation.input)
    reading = _Reading(hear, line_limit)
    try:
        await _follow(job, reading)
        await job.end(LEFT_RUNNING_GRACE)
    except BaseException:
        await job.end(grace())
        raise
    finally:
        job.close()
    return Ending(job.returncode, child.stderr, reading.oversized)


async def _follow(job: Job, reading: _Reading) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as patience:

            async def listen(chunk: bytes) -> None:
                if await reading.take(chunk) and patience.when() is None:
                    patience.reschedule(loop.time() + LINGER)

            await job.hear(listen)
            await reading.finish()
            await job.wait()
    except TimeoutError:
        if not reading.is_over:
            raise  # not ours: somebody's listener gave up


class _Reading:
    """Chunks as lines, for somebody who says when it was the last."""

    def __init__(self, hear: Hear, limit: int) -> None:
        self.oversized = 0
        self.is_over = False
        self._hear = hear
        self._lines = FrameBuffer(limit)

    async def take(self, chunk: bytes) -> bool:
        for line in self._lines.feed(chunk):
            await self._pass_on(line)
        return self.is_over

    async def finish(self) -> None:
        for line in self._lines.end():
            await self._pass_on(line)

    async def _pass_on(self, line: object) -> None:
        if isinstance(line, bytes):
            self.is_over = await self._hear(line) or self.is_over
        else:
            self.oversized += 1

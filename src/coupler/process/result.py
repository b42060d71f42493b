"""What becomes of a command that nobody watches: how it ended, and as much of what it wrote as is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coupler.process.environment import Environment
from coupler.process.job import Job, Listener


class Result(NamedTuple):
    """Of one command."""

    code: int
    output: str
    errors: str
    """What it wrote to stderr, if that was to be heard apart."""


async def result_of(
    command: Sequence[str],
    *,
    cwd: str,
    env: Environment,
    largest: int,
    input: bytes | None = None,
    hears_stderr: bool = False,
) -> Result:
    """Run a command to its end; raises `SpawnError`. Cancelled, it leaves nothing running.

    Of output and errors the first `largest` bytes are kept; the rest is read, so that it does not wait.
    """
    output, errors = bytearray(), bytearray()
    job = Job.start(command, cwd=cwd, env=env, input=input, hears_stderr=hears_stderr)
    try:
        await job.hear(_into(output, largest), _into(errors, largest))
        code = await job.wait()
    finally:
        await job.end(0)
        job.close()
    return Result(code, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))


def _into(kept: bytearray, largest: int) -> Listener:
    async def keep(chunk: bytes) -> None:
        kept.extend(chunk[: largest - len(kept)])

    return keep

"""One run of a hook: a command of the user's that is told what happens, and may object or add something.

It gets JSON on stdin. Exit code 0 lets things go on, and JSON on stdout may hold a `context` for the model; 2
objects, with what is written to stderr as the reason; any other says that the hook itself has failed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from coupler.coder.shortening import cut, one_line
from coupler.runtime.commands import Result, result_of
from coupler.runtime.environment import Environment, SpawnError

if TYPE_CHECKING:
    from coupler.agent.session import Session

LIMIT = 60.0
"""Seconds that a hook has."""

LONGEST = 20_000
"""Characters that a hook can say to the model."""

LARGEST_OUTPUT = 256 * 1024
OBJECTS = 2
"""The exit code that objects."""


class HookResult(NamedTuple):
    """How it ended: with what the model is to know, a reason against it, or what was wrong with the hook."""

    kind: Literal["goes on", "objects", "failed"]
    text: str


async def run_hook(line: str, session: Session, event: Mapping[str, Any]) -> HookResult:
    """Run a command line, for a shell, in the session's directory and environment."""
    told = {"session_id": session.id, "cwd": session.cwd, "mode": session.mode, **event}
    try:
        async with asyncio.timeout(LIMIT):
            code, output, errors = await _run(line, session, msgspec.json.encode(told))
    except TimeoutError:
        return HookResult("failed", f"it took longer than {LIMIT:g} s")
    except SpawnError as error:
        return HookResult("failed", str(error))
    if code == 0:
        return HookResult("goes on", _context(output))
    if code == OBJECTS:
        return HookResult("objects", cut(errors.strip(), LONGEST) or "no reason was given")
    why = one_line(errors, 500)
    return HookResult("failed", f"it ended with {code}" + (f": {why}" if why else ""))


async def _run(line: str, session: Session, told: bytes) -> Result:
    shell = ["cmd", "/c"] if sys.platform == "win32" else ["/bin/sh", "-c"]
    # The session's own variables: those that are withheld, such as the keys of models, are not among them.
    environ = Environment.exact({**session.env})
    return await result_of(
        [*shell, line], cwd=session.cwd, env=environ, largest=LARGEST_OUTPUT, input=told, hears_stderr=True
    )


def _context(output: str) -> str:
    """What the hook wants the model to know; what is no JSON was printed for people."""
    try:
        told = msgspec.json.decode(output.encode()) if output.strip() else None
    except msgspec.DecodeError:
        return ""
    context = told.get("context") if isinstance(told, dict) else None
    return cut(context.strip(), LONGEST) if isinstance(context, str) else ""

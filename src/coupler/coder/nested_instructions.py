"""Gives the model the instructions of directories below the session's, once it works there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain.agents.middleware.types import AgentMiddleware, ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Command

from coupler.coder.compaction import visible_messages
from coupler.coder.instructions import (
    Instruction,
    InstructionDirectory,
    InstructionReader,
    directories_down,
    instructions_at,
    project_directories,
)
from coupler.langchain.current import current
from coupler.langchain.messages import PerMessage
from coupler.langchain.middleware import ToolHandler, with_text
from coupler.langchain.tool_arguments import paths_in
from coupler.runtime.files import OutsideRootsError, find_inside

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn

GIVEN_KEY = "coupler_instructions"
"""Key in a tool message for the instruction files that it has, with digests of their texts."""

NESTED_LEAD = "Instructions for this part of the project:"

Result: TypeAlias = ToolMessage | Command[Any]


class NestedInstructions(AgentMiddleware[Any, Any, Any]):
    """Gives the instructions of directories below with the first tool result that touches them.

    Whether they were given is seen in the messages themselves. So a session that is loaded or forked knows
    it, and what has changed, or was taken from the model's sight by a compaction, is given again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._side_by_side: tuple[str | None, dict[str, str]] = (None, {})
        self._given_with = PerMessage(_given_with)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Result:
        """Run the tool, and add the instructions that hold where it worked."""
        result = await handler(request)
        served = current()
        if served is None or not isinstance(result, ToolMessage) or result.status == "error":
            return result
        given = self._given(request.state)
        found = await _found(served.turn, request.tool_call["args"], given)
        if not found:
            return result
        given.update(_digests(found))
        return _with_instructions(result, found, served.session.cwd)

    def _given(self, state: Any) -> dict[str, str]:
        """Return the files that the model has or gets from a parallel call, with digests."""
        messages = visible_messages(state)
        latest = next((each.id for each in reversed(messages) if isinstance(each, AIMessage)), None)
        if self._side_by_side[0] != latest or latest is None:
            files = [given for given in self._given_with(messages) if given is not None]
            self._side_by_side = (latest, {path: digest for given in files for path, digest in given.items()})
        return self._side_by_side[1]


async def _found(turn: Turn, arguments: Mapping[str, Any], given: Mapping[str, str]) -> list[Instruction]:
    sources = await asyncio.to_thread(_sources, turn.session, arguments)
    if not sources:
        return []
    reader = InstructionReader(turn)
    found = await instructions_at(reader, sources)
    known = _digests(found)
    return [each for each in found if given.get(each.path) != known[each.path]]


def _sources(session: Session, arguments: Mapping[str, Any]) -> list[InstructionDirectory]:
    """The directories around the paths in the arguments, without those that hold for the whole session."""
    standing = {source.directory for source in project_directories(session.cwd, session.roots, session.env)}
    sources: dict[str, InstructionDirectory] = {}
    for path in paths_in(arguments, "read"):
        try:
            inside = Path(find_inside(path, session.cwd, session.roots).shown)
        except (OutsideRootsError, ValueError):
            continue
        around = inside if inside.is_dir() else inside.parent
        for source in directories_down(around, session.roots):
            if source.directory not in standing:
                sources.setdefault(source.directory, source)
    return [*sources.values()]


def _given_with(message: BaseMessage) -> dict[str, str] | None:
    """Return the files that are given with a message, with digests; None without any."""
    given = message.additional_kwargs.get(GIVEN_KEY)
    return given if isinstance(given, dict) and given else None


def _digests(found: Iterable[Instruction]) -> dict[str, str]:
    return {
        each.path: blake2b(each.text.encode("utf-8", "replace"), digest_size=8).hexdigest() for each in found
    }


def _with_instructions(result: ToolMessage, found: list[Instruction], cwd: str) -> ToolMessage:
    text = "\n\n".join([NESTED_LEAD, *(each.shown(cwd) for each in found)])
    named = {**result.additional_kwargs, GIVEN_KEY: _digests(found)}
    return with_text(result, text).model_copy(update={"additional_kwargs": named})

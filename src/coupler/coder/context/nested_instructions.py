"""Instructions of the directories below: given with the result of the first tool call that touches them.

Whether they were given is seen in the messages themselves. So a session that is loaded or forked knows it,
and what has changed, or was taken from the model's sight by a compaction, is given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain.agents.middleware.types import AgentMiddleware, ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Command

from coupler.coder.compaction.conversation import visible_messages
from coupler.coder.context.grounds import Ground, directories_down, project_grounds
from coupler.coder.context.instructions import Instruction, instructions_at
from coupler.coder.context.reading import Reader
from coupler.langchain.current import current
from coupler.langchain.middleware import with_text
from coupler.langchain.tool_arguments import paths_in
from coupler.runtime.files import OutsideRootsError, find_inside

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn

Result: TypeAlias = ToolMessage | Command[Any]

GIVEN = "coupler_instructions"
"""Where a tool's message says which files are in it, with digests of their texts."""

WORDS = "Instructions for this part of the project:"


class NestedInstructions(AgentMiddleware[Any, Any, Any]):
    """Watches what tools touch."""

    def __init__(self) -> None:
        super().__init__()
        self._side_by_side: tuple[str | None, dict[str, str]] = (None, {})

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
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
        """The files that the model has in sight, or gets from a call beside this one, with digests."""
        messages = visible_messages(state)
        latest = next((each.id for each in reversed(messages) if isinstance(each, AIMessage)), None)
        if self._side_by_side[0] != latest or latest is None:
            self._side_by_side = (latest, _named_in(messages))
        return self._side_by_side[1]


async def _found(turn: Turn, arguments: Mapping[str, Any], given: Mapping[str, str]) -> list[Instruction]:
    grounds = await asyncio.to_thread(_grounds, turn.session, arguments)
    if not grounds:
        return []
    reader = Reader(turn)
    found = await instructions_at(reader, grounds)
    known = _digests(found)
    return [each for each in found if given.get(each.path) != known[each.path]]


def _grounds(session: Session, arguments: Mapping[str, Any]) -> list[Ground]:
    """The directories around the paths in the arguments, without those that hold for the whole session."""
    standing = {ground.directory for ground in project_grounds(session.cwd, session.roots, session.env)}
    grounds: dict[str, Ground] = {}
    for path in paths_in(arguments, "read"):
        try:
            inside = Path(find_inside(path, session.cwd, session.roots).shown)
        except (OutsideRootsError, ValueError):
            continue
        around = inside if inside.is_dir() else inside.parent
        for ground in directories_down(around, session.roots):
            if ground.directory not in standing:
                grounds.setdefault(ground.directory, ground)
    return [*grounds.values()]


def _named_in(messages: Iterable[BaseMessage]) -> dict[str, str]:
    named: dict[str, str] = {}
    for message in messages:
        given = message.additional_kwargs.get(GIVEN)
        named |= given if isinstance(given, dict) else {}
    return named


def _digests(found: Iterable[Instruction]) -> dict[str, str]:
    return {
        each.path: blake2b(each.text.encode("utf-8", "replace"), digest_size=8).hexdigest() for each in found
    }


def _with_instructions(result: ToolMessage, found: list[Instruction], cwd: str) -> ToolMessage:
    text = "\n\n".join([WORDS, *(each.shown(cwd) for each in found)])
    named = {**result.additional_kwargs, GIVEN: _digests(found)}
    return with_text(result, text).model_copy(update={"additional_kwargs": named})

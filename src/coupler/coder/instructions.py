"""The project's instructions: AGENTS.md and CLAUDE.md, from the user's own down to where the session works.

Where both say the same, AGENTS.md is given and CLAUDE.md is not: it may be a link to it, a copy of it, or
import it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from langchain.agents.middleware.types import AgentMiddleware, ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Command

from coupler.agent.errors import EditorError
from coupler.agent.files import EditorFiles
from coupler.coder.compaction import visible_messages
from coupler.coder.outputs import cut, fenced
from coupler.config.lookup import is_repository
from coupler.langchain.current import current
from coupler.langchain.middleware import with_text
from coupler.langchain.tool_arguments import paths_in
from coupler.permission.patterns import is_sensitive
from coupler.runtime import files
from coupler.runtime.directories import config_directory, home_directory
from coupler.runtime.files import FilePath, OutsideRootsError, UnsuitableFileError, find_inside

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn


AGENTS, CLAUDE = "AGENTS.md", "CLAUDE.md"

LONGEST = 40_000
"""Characters of one file that are given."""

_IMPORT = re.compile(r"^[ \t]*@(?:\./)?AGENTS\.md[ \t]*$", re.MULTILINE)


class Instruction(NamedTuple):
    """One file."""

    path: str
    text: str
    is_users: bool = False

    def shown(self, cwd: str) -> str:
        """The text as the model gets it."""
        path = Path(self.path)
        name = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else self.path
        whose = "user" if self.is_users else "project"
        return fenced("instructions", self.text, file=name, of=whose)


async def standing_instructions(
    reader: Reader, cwd: str, roots: Sequence[str], environ: Mapping[str, str], room: int
) -> list[Instruction]:
    """What holds for the whole session, the most general first; together they fill no more than `room`."""
    own = user_ground(environ)
    grounds = [*([own] if own is not None else []), *project_grounds(cwd, roots, environ)]
    return _fitted(await instructions_at(reader, grounds), room, reader)


async def instructions_at(reader: Reader, grounds: Iterable[Ground]) -> list[Instruction]:
    """What holds in these directories, in their order."""
    found: dict[str, Instruction] = {}
    for ground in grounds:
        for each in await _in_ground(reader, ground):
            found.setdefault(os.path.realpath(each.path), each)  # noqa: ASYNC240 - a look at a few links
    return [*found.values()]


async def _in_ground(reader: Reader, ground: Ground) -> list[Instruction]:
    agents = await reader.read(ground, AGENTS)
    claude = await reader.read(ground, CLAUDE)
    if claude is not None and agents is not None:
        claude = _without_agents(claude, agents)
    texts = {AGENTS: agents, CLAUDE: claude}
    return [
        Instruction(str(Path(ground.directory, name)), cut(text.strip(), LONGEST), ground.is_users)
        for name, text in texts.items()
        if text is not None and text.strip()
    ]


def _without_agents(claude: str, agents: str) -> str:
    """What CLAUDE.md says besides: it may be the same text, or import it."""
    if claude.strip() == agents.strip():
        return ""
    return _IMPORT.sub("", claude)


def _fitted(found: list[Instruction], room: int, reader: Reader) -> list[Instruction]:
    """The nearest ones are the most wanted, so the others give way."""
    kept: list[Instruction] = []
    for each in reversed(found):
        if room <= 0:
            reader.notes.append(f"{each.path} was left out: there are too many instructions")
            continue
        if len(each.text) > room:
            reader.notes.append(f"{each.path} was cut: there are too many instructions")
        kept.append(each._replace(text=cut(each.text, room)))
        room -= len(each.text)
    return kept[::-1]


# Instructions of the directories below: given with the result of the first tool call that touches them.
#
# Whether they were given is seen in the messages themselves. So a session that is loaded or forked knows it,
# and what has changed, or was taken from the model's sight by a compaction, is given again.


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


# Reads the texts that a model is given unasked: as the editor has them, else from the disk.
#
# A file of the project must not lead out of it, nor to something that is usually kept secret: a link called
# AGENTS.md would otherwise send anything to the model's provider. What cannot be read is noted.


PATIENCE = 2.0
"""Seconds that an editor may take for a file; then the disk is read."""

MARK = "\ufeff"


class Reader:
    """Reads for one turn."""

    def __init__(self, turn: Turn) -> None:
        self.notes: list[str] = []
        """What could not be read, and why."""
        self._session = turn.session
        self._editor = EditorFiles(turn)

    async def read(self, ground: Ground, *names: str) -> str | None:
        """The text of a file below this directory; None if there is none that can be read."""
        path = str(Path(ground.directory, *names))
        try:
            place = await asyncio.to_thread(_find, path, ground.bounds)
            if place is None:
                return None
            text = await self._unsaved(path)
            if text is None:
                text = self._decoded(await asyncio.to_thread(files.read, place), path)
            if "\0" in text:
                raise UnsuitableFileError("it is not text")
        except FileNotFoundError:
            return None
        except (OSError, UnsuitableFileError, OutsideRootsError, ValueError) as error:
            self.notes.append(f"{path} was not read: {_reason(error, path)}")
            return None
        return text.removeprefix(MARK)

    async def _unsaved(self, path: str) -> str | None:
        """The text as the editor has it, for files that it can know."""
        if not self._editor.can_read:
            return None
        try:
            place = await asyncio.to_thread(find_inside, path, self._session.cwd, self._session.roots)
            async with asyncio.timeout(PATIENCE):
                return await self._editor.read_if_there(place)
        except (OSError, ValueError, EditorError, UnsuitableFileError, OutsideRootsError):
            return None

    def _decoded(self, content: bytes, path: str) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError:
            self.notes.append(f"{path} is not UTF-8: some of its characters are wrong")
            return content.decode("utf-8", "replace")


def text_on_disk(path: str, bounds: str | None) -> str:
    """The same without an editor; raises OSError or ValueError with a reason for people. This blocks."""
    try:
        place = _find(path, bounds)
        if place is None:
            raise FileNotFoundError("it is not there")
        content = files.read(place)
    except (OSError, UnsuitableFileError, OutsideRootsError) as error:
        raise ValueError(_reason(error, path)) from None
    if b"\0" in content:
        raise ValueError("it is not text")
    return content.decode("utf-8", "replace")


def _find(path: str, bounds: str | None) -> FilePath | None:
    """The file that the path means, if there is something; raises if that is not to be read."""
    if not os.path.lexists(path):
        return None
    place = find_inside(path, os.path.sep, (bounds or Path(path).anchor,))
    if bounds is not None and any(is_sensitive(name, "read") for name in place.below):
        raise UnsuitableFileError("it leads to a file that is usually kept secret")
    return place


def _reason(error: Exception, path: str) -> str:
    if isinstance(error, OutsideRootsError):
        return "it leads out of the project"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).removeprefix(f"{path!r} ")


# The directories that have a say in a session: the user's own, and those of the project, top down.


class Ground(NamedTuple):
    """A directory, and the one that links in it must not lead out of: None for what is the user's own."""

    directory: str
    bounds: str | None

    @property
    def is_users(self) -> bool:
        """Whether the user has put there what is in it."""
        return self.bounds is None


def project_grounds(cwd: str, roots: Sequence[str], environ: Mapping[str, str]) -> list[Ground]:
    """From the repository's root down to each of the session's directories, each only once."""
    home = home_directory(environ)
    grounds = (ground for root in (cwd, *roots) for ground in _down_to(root, home))
    return [*{os.path.realpath(ground.directory): ground for ground in grounds}.values()]


def user_ground(environ: Mapping[str, str]) -> Ground | None:
    """Coupler's directory of settings; nowhere for a user without a home."""
    directory = config_directory(environ)
    return None if directory is None else Ground(directory, None)


def directories_down(directory: Path, roots: Sequence[str]) -> Iterator[Ground]:
    """The directories on the way from the session's innermost root, without it, down to this one."""
    around = [root for root in roots if directory.is_relative_to(root)]
    if not around:
        return
    root = max(around, key=len)
    reached = Path(root)
    for name in directory.relative_to(root).parts:
        reached /= name
        yield Ground(str(reached), root)


def _down_to(directory: str, home: str | None) -> list[Ground]:
    """Without a repository around it the directory stands for itself; a home is nobody's project."""
    chain = [Path(directory)]
    while not is_repository(str(chain[-1])):
        parent = chain[-1].parent
        if parent == chain[-1] or str(chain[-1]) == home:
            return [Ground(directory, directory)]
        chain.append(parent)
    top = str(chain[-1])
    return [Ground(str(each), top) for each in reversed(chain)]

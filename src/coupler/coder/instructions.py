"""Finds the project's instructions, AGENTS.md and CLAUDE.md, from the user's own down to the session's.

Where both say the same, AGENTS.md is given and CLAUDE.md is not: it may be a link to it, a copy of it, or
import it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coupler.agent.errors import EditorError
from coupler.agent.files import EditorFiles
from coupler.coder.tools.outputs import fenced, truncated
from coupler.config.lookup import is_repository
from coupler.permission.patterns import is_sensitive
from coupler.runtime import files
from coupler.runtime.directories import config_directory, home_directory
from coupler.runtime.files import OutsideRootsError, SessionPath, UnsuitableFileError, find_inside

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

AGENTS, CLAUDE = "AGENTS.md", "CLAUDE.md"

LONGEST = 40_000
"""Characters of one file that are given."""

PATIENCE = 2.0
"""Seconds that an editor may take for a file; then the disk is read."""

BYTE_ORDER_MARK = "\ufeff"

_IMPORT = re.compile(r"^[ \t]*@(?:\./)?AGENTS\.md[ \t]*$", re.MULTILINE)


class Instruction(NamedTuple):
    """One file of instructions."""

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
    reader: InstructionReader, cwd: str, roots: Sequence[str], environ: Mapping[str, str], room: int
) -> list[Instruction]:
    """Return what holds for the whole session, the most general first; at most `room` characters."""
    own = user_directory(environ)
    sources = [*([own] if own is not None else []), *project_directories(cwd, roots, environ)]
    return _fitted(await instructions_at(reader, sources), room, reader)


async def instructions_at(
    reader: InstructionReader, sources: Iterable[InstructionDirectory]
) -> list[Instruction]:
    """Return the instructions in these directories, in their order."""
    found: dict[str, Instruction] = {}
    for source in sources:
        for each in await _instructions_in(reader, source):
            found.setdefault(os.path.realpath(each.path), each)  # noqa: ASYNC240 - a look at a few links
    return [*found.values()]


async def _instructions_in(reader: InstructionReader, source: InstructionDirectory) -> list[Instruction]:
    agents = await reader.read(source, AGENTS)
    claude = await reader.read(source, CLAUDE)
    if claude is not None and agents is not None:
        claude = _without_agents(claude, agents)
    texts = {AGENTS: agents, CLAUDE: claude}
    return [
        Instruction(str(Path(source.directory, name)), truncated(text.strip(), LONGEST), source.is_users)
        for name, text in texts.items()
        if text is not None and text.strip()
    ]


def _without_agents(claude: str, agents: str) -> str:
    """Return CLAUDE.md without what AGENTS.md says: it may be the same text, or import it."""
    if claude.strip() == agents.strip():
        return ""
    return _IMPORT.sub("", claude)


def _fitted(found: list[Instruction], room: int, reader: InstructionReader) -> list[Instruction]:
    """Cut instructions to the room there is; the nearest ones have priority."""
    kept: list[Instruction] = []
    for each in reversed(found):
        if room <= 0:
            reader.notes.append(f"{each.path} was left out: there are too many instructions")
            continue
        if len(each.text) > room:
            reader.notes.append(f"{each.path} was cut: there are too many instructions")
        kept.append(each._replace(text=truncated(each.text, room)))
        room -= len(each.text)
    return kept[::-1]


class InstructionReader:
    """Reads, for one turn, texts that a model is given unasked: as the editor has them, else from the disk.

    A file of the project must not lead out of it, nor to something that is usually kept secret: a link called
    AGENTS.md would otherwise send anything to the model's provider. What cannot be read is noted.
    """

    def __init__(self, turn: Turn) -> None:
        self.notes: list[str] = []
        """The files that could not be read, and why."""
        self._session = turn.session
        self._editor = EditorFiles(turn)

    async def read(self, source: InstructionDirectory, *names: str) -> str | None:
        """The text of a file below this directory; None if there is none that can be read."""
        path = str(Path(source.directory, *names))
        try:
            place = await asyncio.to_thread(_find, path, source.bounds)
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
        return text.removeprefix(BYTE_ORDER_MARK)

    async def _unsaved(self, path: str) -> str | None:
        """Return the text as the editor has it, if the file is in the session's directories."""
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
    """Return a text without asking an editor; raises OSError or ValueError with a reason. This blocks."""
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


def _find(path: str, bounds: str | None) -> SessionPath | None:
    """Find the file at a path; None if there is none, and raises if it must not be read."""
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


class InstructionDirectory(NamedTuple):
    """A directory with instructions, and the one that its links must not leave: None for the user's own."""

    directory: str
    bounds: str | None

    @property
    def is_users(self) -> bool:
        """True if the user has put there what is in it."""
        return self.bounds is None


def project_directories(
    cwd: str, roots: Sequence[str], environ: Mapping[str, str]
) -> list[InstructionDirectory]:
    """Return the directories from the repository's root down to each of the session's, each once."""
    home = home_directory(environ)
    sources = (source for root in (cwd, *roots) for source in _down_to(root, home))
    return [*{os.path.realpath(source.directory): source for source in sources}.values()]


def user_directory(environ: Mapping[str, str]) -> InstructionDirectory | None:
    """Return Coupler's directory of settings; None for a user without a home."""
    directory = config_directory(environ)
    return None if directory is None else InstructionDirectory(directory, None)


def directories_down(directory: Path, roots: Sequence[str]) -> Iterator[InstructionDirectory]:
    """The directories on the way from the session's innermost root, without it, down to this one."""
    around = [root for root in roots if directory.is_relative_to(root)]
    if not around:
        return
    root = max(around, key=len)
    reached = Path(root)
    for name in directory.relative_to(root).parts:
        reached /= name
        yield InstructionDirectory(str(reached), root)


def _down_to(directory: str, home: str | None) -> list[InstructionDirectory]:
    """Return the directories from the repository's root down; without a repository only the directory."""
    chain = [Path(directory)]
    while not is_repository(str(chain[-1])):
        parent = chain[-1].parent
        if parent == chain[-1] or str(chain[-1]) == home:
            return [InstructionDirectory(directory, directory)]
        chain.append(parent)
    top = str(chain[-1])
    return [InstructionDirectory(str(each), top) for each in reversed(chain)]

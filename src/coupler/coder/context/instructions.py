"""The project's instructions: AGENTS.md and CLAUDE.md, from the user's own down to where the session works.

Where both say the same, AGENTS.md is given and CLAUDE.md is not: it may be a link to it, a copy of it, or
import it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coupler.coder.context.fence import fenced
from coupler.coder.context.grounds import Ground, project_grounds, user_ground
from coupler.coder.shortening import cut

if TYPE_CHECKING:
    from coupler.coder.context.reading import Reader

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

"""Markdown that is still being written: what cannot change any more is given out, block by block.

A block is whole when another one has begun after it. Only whole lines are looked at, because the rest of a
line may still make it a part of what stands before.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from coupler.cli.sessions.wording import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

SMALL = 8_192
"""Characters up to which the open text is parsed again for each new line."""

GROWTH = 1.25
"""What is larger is parsed again when it has grown by this factor, so that all of it costs little."""


class OpenText:
    """The text of one message, from the first block that may still change on."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._due = 0
        self._has_line = False

    def add(self, piece: str) -> None:
        """More of the message."""
        self._pieces.append(piece)
        self._length += len(piece)
        self._has_line = self._has_line or "\n" in piece

    def end(self, most: int) -> str:
        """What is still open, clean; of long text the last so many characters."""
        return clean(self._joined()[-most:])

    def take_whole(self) -> list[str]:
        """The blocks that are whole by now, clean; they are not given again."""
        if not self._has_line or self._length < self._due:
            return []
        self._has_line = False
        text = self._joined()
        # A sequence for the terminal ends with its line at the latest, so whole lines can be cleaned.
        end = text.rfind("\n") + 1
        blocks = _blocks(clean(text[:end]))
        self._keep("".join(blocks[-1:]) + text[end:])
        self._due = 0 if self._length < SMALL else int(self._length * GROWTH)
        return blocks[:-1]

    def take_all(self) -> list[str]:
        """The message is over: all blocks that are left of it, clean."""
        blocks = _blocks(clean(self._joined()))
        self._keep("")
        self._due = 0
        return blocks

    def _joined(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def _keep(self, text: str) -> None:
        self._pieces = [text] if text else []
        self._length = len(text)


def _blocks(text: str) -> list[str]:
    """The blocks of a text, which together are the text."""
    starts = [token.map[0] for token in _parser().parse(text) if token.level == 0 and token.map]
    if len(starts) < 2:
        return [text] if text else []
    lines = text.splitlines(keepends=True)
    bounds = [0, *starts[1:], len(lines)]
    return ["".join(lines[begin:end]) for begin, end in pairwise(bounds)]


@cache
def _parser() -> MarkdownIt:
    """Blocks as `rich` sees them; what stands inside of them does not matter here."""
    from markdown_it import MarkdownIt

    return MarkdownIt().enable("table").disable(["inline", "text_join", "linkify", "replacements"], True)

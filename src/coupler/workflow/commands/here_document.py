"""A here-document of a shell script: which line ends it, and whether it is taken as it is."""

from __future__ import annotations

import re
from typing import NamedTuple

from coupler.workflow.commands.shell_command import Command

DELIMITER = re.compile(r"[ \t]*((?:'[^']*'|\"[^\"]*\"|\\.|[^\s;&|<>()'\"\\])*)")
"""What stands behind `<<`, and in its group the word that is the last line."""


class HereDocument(NamedTuple):
    """A here-document whose text begins at the next line."""

    delimiter: str
    strips_tabs: bool
    is_literal: bool
    command: Command

    def end_in(self, text: str, start: int) -> int:
        """Where its last line ends."""
        while start < len(text):
            end = text.find("\n", start)
            line = text[start:] if end < 0 else text[start:end]
            if (line.lstrip("\t") if self.strips_tabs else line) == self.delimiter:
                return start + len(line)
            start += len(line) + 1
        return len(text)

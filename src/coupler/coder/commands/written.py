"""What a command writes, as a model is told it: beginning and end, and the whole in a file if it is long."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from coupler.runtime.commands import Capture

if TYPE_CHECKING:
    from coupler.coder.outputs.outputs import OutputFile, Outputs

HEAD, TAIL = 8_000, 16_000
"""Bytes that a model gets at once: errors stand at the end, and what they are about at the beginning."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)


class Written:
    """The output of one command. Memory is bounded; whoever made it has to close it."""

    def __init__(self, outputs: Outputs, of: str) -> None:
        self.size = 0
        """Bytes that were written."""
        self._outputs = outputs
        self._of = of
        self._new = Capture(HEAD, TAIL)
        self._whole = bytearray()
        self._file: OutputFile | None = None

    def append(self, chunk: bytes) -> None:
        """It has written a piece more."""
        self.size += len(chunk)
        self._new.append(chunk)
        if self._file is not None:
            self._file.append(chunk)
            return
        self._whole += chunk
        if len(self._whole) > HEAD + TAIL:
            self._file = self._outputs.begin(self._of)
            self._file.append(bytes(self._whole))
            self._whole.clear()

    def take(self) -> str:
        """What was written since the last time, shortened if it is long; then it says where the whole is."""
        new, self._new = self._new, Capture(HEAD, TAIL)
        text = plain(new.content().decode("utf-8", "replace")).strip("\n")
        return f"{text}\n{self._where_the_rest_is()}" if new.is_cut else text

    def close(self) -> None:
        """Nothing more comes."""
        if self._file is not None:
            self._file.close()

    def _where_the_rest_is(self) -> str:
        path = self._file.path if self._file is not None else None
        if path is None:
            return "(the rest could not be kept: have the command write less, or into a file)"
        return f"(this is not all: the whole is in {path}, which read_file and search can read)"


def plain(text: str) -> str:
    """The text as a terminal would show it at last: without colours, and of progress bars the last state."""
    text = _ESCAPES.sub("", text)
    return "\n".join(map(_last_state, text.split("\n"))) if "\r" in text else text


def _last_state(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]

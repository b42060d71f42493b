"""What was found, as people read it and as programs do."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from coupler.__about__ import __version__
from coupler.cli.sessions.wording import count, one_line, short_directory

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.findings import Finding
    from coupler.cli.doctor.section import Section

COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}
LEVEL_WIDTH = 9
MOST_INDENT = 24
NARROWEST = 60


class Page:
    """The page, section by section."""

    def __init__(self, circumstances: Circumstances, stream: IO[str]) -> None:
        self._circumstances = circumstances
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._has_colours = self._is_terminal and not os.environ.get("NO_COLOR")
        where = circumstances.directory
        place = "a directory that was deleted" if where is None else short_directory(where)
        self._write(self._styled(f"Coupler {__version__} in {one_line(place)}", bold=True))

    def write(self, section: Section) -> None:
        """One section, as soon as it is there."""
        masker = self._circumstances.masker()
        findings = [*section.findings]
        width = min(MOST_INDENT, max((len(one_line(each.about)) for each in findings), default=0))
        self._write("", self._styled(section.title, bold=True))
        for finding in findings:
            self._write(*self._lines(finding, width, masker.mask))
        self._stream.flush()

    def end(self, sections: Sequence[Section]) -> None:
        """What it all comes to."""
        problems = [each for section in sections for each in section.findings if each.level == "problem"]
        notes = sum(each.level == "note" for section in sections for each in section.findings)
        verdict = "No problem was found." if not problems else f"{count(len(problems), 'problem')}."
        if notes:
            verdict += f" {count(notes, 'note')}."
        colour = COLOURS["problem" if problems else "ok"]
        self._write("", self._styled(verdict, fg=colour, bold=True))

    def _lines(self, finding: Finding, width: int, mask: Any) -> list[str]:
        about, sentence = one_line(mask(finding.about)), one_line(mask(finding.sentence))
        level = self._styled(f"{finding.level:<{LEVEL_WIDTH}}", fg=COLOURS[finding.level])
        indent = " " * (LEVEL_WIDTH + width + 4)
        first, *more = self._wrapped(sentence, indent)
        lines = [f"  {level}{about:<{width}}  {first}", *(f"{indent}{each}" for each in more)]
        if finding.remedy is not None:
            first, *more = self._wrapped(one_line(mask(finding.remedy)), f"{indent}   ")
            lines += [f"{indent}-> {first}", *(f"{indent}   {each}" for each in more)]
        return lines

    def _wrapped(self, text: str, indent: str) -> list[str]:
        """Only for a terminal: who reads it from a file may want to copy whole lines."""
        if not self._is_terminal:
            return [text]
        room = max(NARROWEST, shutil.get_terminal_size().columns) - len(indent)
        return textwrap.wrap(text, max(room, 20), break_long_words=False, break_on_hyphens=False) or [""]

    def _styled(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if self._has_colours else text

    def _write(self, *lines: str) -> None:
        self._stream.write("".join(f"{line}\n" for line in lines))


def write_json(sections: Sequence[Section], circumstances: Circumstances, stream: IO[str]) -> None:
    """One object."""
    mask = circumstances.masker().mask
    whole = {
        "version": __version__,
        "python": sys.version.partition(" ")[0],
        "directory": circumstances.directory,
        "is_healthy": all(section.is_healthy for section in sections),
        "sections": [section.as_object() for section in sections],
    }
    stream.write(json.dumps(_masked(whole, mask), indent=2, default=str) + "\n")


def _masked(value: Any, mask: Any) -> Any:
    match value:
        case str():
            return mask(value)
        case dict():
            return {key: _masked(each, mask) for key, each in value.items()}
        case list() | tuple():
            return [_masked(each, mask) for each in value]
    return value

"""What stands on a terminal after all that was written to it, as far as progress is drawn with it.

Whatever else a terminal could be told is an error: only colours, and going up to draw over what stands there.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

_TOKENS = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|\r|\n|\x1b|[^\x1b\r\n]+")


def screen_of(written: str, width: int = 80) -> list[str]:
    """The lines of it, those that have scrolled away included."""
    lines, row, column = [""], 0, 0
    for token in _TOKENS.finditer(written):
        match token[2] or token[0]:
            case "m":
                continue
            case "A":
                row -= int(token[1] or 1)
                assert row >= 0, "above the first line"
            case "J":
                lines[row] = lines[row][:column]
                del lines[row + 1 :]
            case "\r":
                column = 0
            case "\n":
                row, column = row + 1, 0
                if row == len(lines):
                    lines.append("")
            case text:
                assert text.isprintable(), f"a terminal would obey {text!r}"
                lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
                column += len(text)
                assert cell_len(lines[row]) <= width, f"longer than the line: {lines[row]!r}"
    return [line.rstrip() for line in lines]

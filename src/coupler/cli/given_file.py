"""Files that are named on the command line: read whole, or the command ends with a sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from coupler.cli.refusal import refuse

STDIN = "-"


def text_of(file: str, program: str) -> str:
    """The text of a file, or of stdin."""
    try:
        if file == STDIN:
            return sys.stdin.buffer.read().decode("utf-8", "replace")
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        refuse(f"{file} cannot be read: {error.strerror}", program)


def json_of(file: str, option: str, program: str) -> Any:
    """The JSON in a file that an option names."""
    text = text_of(file, program)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        refuse(f"{option}: {file} is no JSON: {error}", program)

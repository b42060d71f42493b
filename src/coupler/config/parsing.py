"""The text of a `coupler.toml` as values and places, or a sentence with line and column."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from coupler.config.errors import ConfigError, shown
from coupler.config.positions import Position, Positions, TooComplexError

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def parse(path: str, content: bytes) -> tuple[dict[str, Any], Positions]:
    """What the file says, and where; raises ConfigError. The path is for the message only."""
    # A byte order mark, as some editors write it, is no part of the text.
    text = _decoded(path, content).removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        positions = Positions.of(text)
        return tomllib.loads(text), positions
    except TooComplexError as error:
        raise _no_toml(path, str(error), error.position) from None
    except tomllib.TOMLDecodeError as error:
        raise _no_toml(path, *_place(str(error), text)) from None
    except (ValueError, RecursionError):
        # Python refuses numbers of more than some thousand digits with an error of its own.
        raise _no_toml(path, "a number in it is too long, or it is nested too deep", None) from None


def _decoded(path: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        position = Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        raise _no_toml(path, "it is not UTF-8", position) from None


def _place(message: str, text: str) -> tuple[str, Position]:
    """What `tomllib` says, and where."""
    found = _PLACE.search(message)
    if found is None or found[1] is None:
        lines = text.rstrip("\n").split("\n")
        position = Position(len(lines), len(lines[-1]) + 1)
    else:
        position = Position(int(found[1]), int(found[2]))
    return message[: found.start()] if found else message, position


def _no_toml(path: str, problem: str, position: Position | None) -> ConfigError:
    place = "" if position is None else f" line {position.line}, column {position.column}"
    sentence = shown(problem[:1].lower() + problem[1:])
    return ConfigError("syntax", [f"{shown(path, 1000)}{place}: {sentence}"])

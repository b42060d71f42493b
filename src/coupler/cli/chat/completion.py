"""What can be completed at the cursor: commands, their values, and files that are mentioned."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from coupler.cli.chat.own_commands import OWN, OWN_NAMES
from coupler.cli.sessions.wording import one_line
from coupler.client.session import Settings, values_of
from coupler.schema.v1 import AvailableCommand, SessionConfigBoolean, SessionConfigSelect

MOST_FILES = 50

_WORD = re.compile(r"/(\S*)")
_ARGUMENT = re.compile(r"/(mode|model|option|load)\s+(\S*)")
_OPTION_VALUE = re.compile(r"/option\s+(\S+)\s+(\S*)")
_MENTION = re.compile(r"(?:^|\s)@(\S*)$")


class Suggestion(Struct, frozen=True):
    """Text that takes the place of the last `replaces` characters, and what it means."""

    text: str
    replaces: int
    meaning: str = ""


class Scene(Struct, frozen=True):
    """What is known when somebody types."""

    settings: Settings
    commands: Sequence[AvailableCommand] = ()
    session_ids: Sequence[str] = ()
    cwd: str = "."


def suggestions(before: str, scene: Scene) -> Iterator[Suggestion]:
    """What the text before the cursor may go on with."""
    if match := _WORD.fullmatch(before):
        yield from _commands(match[1], scene)
    elif match := _OPTION_VALUE.fullmatch(before):
        yield from _matching(match[2], _values(match[1], scene.settings))
    elif match := _ARGUMENT.fullmatch(before):
        yield from _matching(match[2], _arguments(match[1], scene))
    elif match := _MENTION.search(before):
        yield from _files(match[1], scene.cwd)


def _commands(begun: str, scene: Scene) -> Iterator[Suggestion]:
    theirs = [(one_line(command.name), _meaning(command)) for command in scene.commands]
    ours = [(own.name, f"{own.description} (chat)") for own in OWN]
    for name, meaning in [*theirs, *ours]:
        if name in OWN_NAMES and (name, meaning) not in ours:
            name = f"/{name}"  # chat's own command goes first, and two slashes lead to the agent's
        if name.startswith(begun):
            yield Suggestion(f"/{name}", len(begun) + 1, meaning)


def _meaning(command: AvailableCommand) -> str:
    hint = f" [{one_line(command.input.hint)}]" if command.input else ""
    return f"{one_line(command.description)}{hint}"


def _arguments(command: str, scene: Scene) -> list[tuple[str, str]]:
    settings = scene.settings
    match command:
        case "mode":
            named = {mode.id: one_line(mode.name) for mode in settings.modes}
            return [(mode, named.get(mode, "")) for mode in settings.offered_modes]
        case "model":
            return [(model, "") for model in settings.offered_models]
        case "load":
            return [(session, "") for session in scene.session_ids]
        case _:
            return [(option.id, one_line(option.name)) for option in known_options(settings)]


def known_options(settings: Settings) -> list[SessionConfigSelect | SessionConfigBoolean]:
    """The options that this version knows how to set."""
    kinds = (SessionConfigSelect, SessionConfigBoolean)
    return [option for option in settings.options if isinstance(option, kinds)]


def _values(id: str, settings: Settings) -> list[tuple[str, str]]:
    for option in known_options(settings):
        if option.id == id and isinstance(option, SessionConfigSelect):
            return [(value, "") for value in values_of(option.options)]
        if option.id == id:
            return [("on", ""), ("off", "")]
    return []


def _matching(begun: str, words: Sequence[tuple[str, str]]) -> Iterator[Suggestion]:
    for word, meaning in words:
        # What cannot be typed as one word, or is not what it looks like, is not offered.
        if word.startswith(begun) and word == one_line(word) and " " not in word:
            yield Suggestion(word, len(begun), meaning)


def _files(begun: str, cwd: str) -> Iterator[Suggestion]:
    directory, _, name = begun.rpartition("/")
    place = Path(cwd, f"{directory}/" if begun.startswith("/") else Path(directory).expanduser())
    try:
        with os.scandir(place) as found:
            entries = sorted((entry.name, entry.is_dir()) for entry in found)
    except OSError:
        return
    shown = [entry for entry in entries if entry[0].startswith(name) and (name or entry[0][0] != ".")]
    for entry, is_directory in shown[:MOST_FILES]:
        if entry == one_line(entry) and " " not in entry:
            path = f"{directory}/{entry}" if "/" in begun else entry
            yield Suggestion(f"{path}/" if is_directory else path, len(begun))

"""Parses a line that the user types: completions, mentioned files, and chat's own slash commands.

Chat's own commands are told from the agent's and from plain text; what they list is made here. A file that
is mentioned with an @ is attached in the richest form that the agent accepts.
"""

from __future__ import annotations

import contextlib
import difflib
import mimetypes
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from msgspec import UNSET, Struct

from coupler.cli.chat.menu import Menu
from coupler.cli.chat.transcript import Listing, ListingItem, Remark
from coupler.cli.terminal import LARGEST_IMAGE, image_content, image_type
from coupler.client.session import RemoteSettings, values_of
from coupler.runtime.formatting import shortened, size
from coupler.runtime.terminal_text import one_line
from coupler.schema.v1 import (
    AvailableCommand,
    ContentBlock,
    EmbeddedResource,
    PromptCapabilities,
    ResourceLink,
    SessionConfigBoolean,
    SessionConfigSelect,
    SessionInfo,
    TextContent,
    TextResourceContents,
)

MOST_FILES = 50

LARGEST_TEXT = 256 * 1024
"""Bytes of a file that goes along with the prompt; a larger one is linked."""

LONGEST_TITLE = 50
"""Characters of a session's title in a menu."""

_WORD = re.compile(r"/(\S*)")
_ARGUMENT = re.compile(r"/(mode|model|option|load|effort|thinking)\s+(\S*)")
_OPTION_VALUE = re.compile(r"/option\s+(\S+)\s+(\S*)")
_OPEN_MENTION = re.compile(r"(?:^|\s)@(\S*)$")

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_AFTER_A_NAME = ".,;:!?)]}'\""

_COMMAND = re.compile(r"/([^\s/]+)(?:\s+(.*))?", re.DOTALL)
_SHELL = re.compile(r"!(!?)(?!\[)(.*)", re.DOTALL)
_SHELL_WORD = re.compile(r"!!?\s*(?:(\S*)|.*\s(\S*))", re.DOTALL)
_COMMAND_NAME = re.compile(r"[a-z][\w-]*")

KEYS = (
    ListingItem("Enter", "send; Alt-Enter or Ctrl-J begins another line"),
    ListingItem("@file", "attach a file, an image or a directory"),
    ListingItem("!command", "run a command here; its output is sent with the next prompt"),
    ListingItem("!!command", "run a command here, and tell the agent nothing of it"),
    ListingItem("Ctrl-O", "show the last tool call in full"),
    ListingItem("Ctrl-T", "show or hide thoughts"),
    ListingItem("Ctrl-C", "cancel the turn; twice within a second leaves"),
    ListingItem("Ctrl-D", "leave"),
)


class OwnCommand(Struct, frozen=True):
    """A command of chat itself."""

    name: str
    hint: str
    description: str


OWN_COMMANDS = (
    OwnCommand("mode", "[MODE]", "list the agent's modes, or change the mode"),
    OwnCommand("model", "[MODEL]", "list the models, or change the model"),
    OwnCommand("effort", "[LEVEL]", "list the levels of thinking, or change the level"),
    OwnCommand("option", "[NAME VALUE]", "list the options, or set one"),
    OwnCommand("sessions", "", "list the earlier sessions in this directory"),
    OwnCommand("load", "[N|ID]", "resume an earlier session; without a number choose one"),
    OwnCommand("new", "", "begin a new session"),
    OwnCommand("clear", "", "begin a new session with an empty screen"),
    OwnCommand("thinking", "[on|off]", "show or hide thoughts"),
    OwnCommand("show", "[N|plan]", "show a tool call or thought in full; the last call without a number"),
    OwnCommand("help", "", "list the commands and the keys"),
    OwnCommand("quit", "", "leave"),
)
OWN_NAMES = frozenset(own.name for own in OWN_COMMANDS)


class OwnCommandCall(Struct, frozen=True):
    """A command of chat's own that was typed."""

    name: str
    argument: str = ""


class PromptLine(Struct, frozen=True):
    """A line for the agent."""

    text: str


class UserCommandLine(Struct, frozen=True):
    """A command line for the shell; what comes of it is told to the agent if it is shared."""

    command: str
    is_shared: bool = True


class UnknownCommand(Struct, frozen=True):
    """A command that neither chat nor the agent has."""

    name: str
    near: str = ""
    """The command that is spelled nearly the same, if there is one."""


ParsedLine: TypeAlias = OwnCommandCall | PromptLine | UserCommandLine | UnknownCommand


def parse_line(line: str, agents: Iterable[str], *, has_shell: bool = True) -> ParsedLine:
    """Parses a line; `agents` are the names of the agent's commands.

    Chat's own commands go first; with two slashes a command goes to the agent in any case. A path at the
    beginning of a line is no command, and an image of Markdown none for the shell. Without a shell a line
    that begins with a `!` is for the agent.
    """
    line = line.strip()
    if has_shell and (shell := _SHELL.fullmatch(line)):
        return UserCommandLine(shell[2].strip(), is_shared=not shell[1])
    if line.startswith("//"):
        return PromptLine(line[1:])
    match = _COMMAND.fullmatch(line)
    if match is None:
        return PromptLine(line)
    name, argument = match[1], (match[2] or "").strip()
    if name in OWN_NAMES:
        return OwnCommandCall(name, argument)
    known = [*agents]
    if name in known or not _COMMAND_NAME.fullmatch(name):
        return PromptLine(line)
    near = difflib.get_close_matches(name, [*OWN_NAMES, *known], n=1)
    return UnknownCommand(name, near[0] if near else "")


def unknown_command_part(unknown: UnknownCommand, theirs: Sequence[AvailableCommand]) -> Remark | Listing:
    """Says which command was meant, or lists them all."""
    as_it_is = f"//{unknown.name} is sent to the agent as it is."
    if unknown.near:
        meant = f"There is no command /{unknown.name}: did you mean /{one_line(unknown.near)}? {as_it_is}"
        return Remark(meant, severity="warning")
    return Listing(f"There is no command /{unknown.name}. These there are:", _all_commands(theirs), as_it_is)


def attach_files(text: str, cwd: str, accepts: PromptCapabilities) -> tuple[list[ContentBlock], list[str]]:
    """The blocks of a prompt, and a sentence for each file that goes along. The text stays as it is."""
    files = [_attachment(path, accepts) for path in dict.fromkeys(mentioned_files(text, cwd))]
    return [TextContent(text), *(file.block for file in files)], [file.told for file in files]


def mentioned_files(text: str, cwd: str) -> Iterator[Path]:
    """The files and directories that are mentioned and exist; nothing but those can be read safely."""
    for match in _MENTION.finditer(text):
        spelled = [match[1]] if match[1] else [match[2], match[2].rstrip(_AFTER_A_NAME)]
        for spelling in spelled:
            path = _existing(spelling, cwd)
            if path is not None:
                yield path
                break


def _existing(spelling: str, cwd: str) -> Path | None:
    if not spelling:
        return None
    try:
        path = Path(os.path.normpath(Path(cwd, Path(spelling).expanduser())))
        mode = path.stat().st_mode
    except (OSError, ValueError, RuntimeError):
        return None
    return path if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None


class Attachment(Struct, frozen=True):
    """A file as a content block, and the sentence that tells of it."""

    block: ContentBlock
    told: str


def _attachment(path: Path, accepts: PromptCapabilities) -> Attachment:
    kind = mimetypes.guess_type(path.name)[0]
    try:
        if path.is_dir():
            return _link(path, None)
        image = image_type(path.name) if accepts.image else None
        if image is not None and path.stat().st_size <= LARGEST_IMAGE:
            return _image(path, image)
        if accepts.embedded_context and path.stat().st_size <= LARGEST_TEXT:
            return _embedded(path, kind)
    except (OSError, UnicodeDecodeError):
        pass  # what cannot be read here, or is no text, the agent may still be able to use
    return _link(path, kind)


def _image(path: Path, kind: str) -> Attachment:
    content = path.read_bytes()
    block = image_content(content, kind, path)
    return Attachment(block, f"{path.name} is attached as an image ({size(len(content))}).")


def _embedded(path: Path, kind: str | None) -> Attachment:
    text = path.read_bytes().decode()
    block = EmbeddedResource(TextResourceContents(text, path.as_uri(), kind or UNSET))
    return Attachment(block, f"{path.name} is attached ({size(len(text.encode()))}).")


def _link(path: Path, kind: str | None) -> Attachment:
    try:
        length = path.stat().st_size if path.is_file() else UNSET
    except OSError:
        length = UNSET
    block = ResourceLink(path.name or str(path), path.as_uri(), mime_type=kind or UNSET, size=length)
    return Attachment(block, f"{path.name or path} is attached as a link.")


class Suggestion(Struct, frozen=True):
    """Text that takes the place of the last `replaces` characters, and what it means."""

    text: str
    replaces: int
    meaning: str = ""


class CompletionContext(Struct, frozen=True):
    """The settings, commands, sessions and directory that completions come from."""

    settings: RemoteSettings
    commands: Sequence[AvailableCommand] = ()
    session_ids: Sequence[str] = ()
    cwd: str = "."


def suggestions(before: str, context: CompletionContext) -> Iterator[Suggestion]:
    """Completions for the text before the cursor."""
    if match := _SHELL_WORD.fullmatch(before):
        program, word = match[1], match[2]
        if program and "/" not in program:
            yield from _programs(program, os.environ.get("PATH", ""))
        yield from _files(program if word is None else word, context.cwd)
    elif match := _WORD.fullmatch(before):
        yield from _commands(match[1], context)
    elif match := _OPTION_VALUE.fullmatch(before):
        yield from _matching(match[2], _values(match[1], context.settings))
    elif match := _ARGUMENT.fullmatch(before):
        yield from _matching(match[2], _arguments(match[1], context))
    elif match := _OPEN_MENTION.search(before):
        yield from _files(match[1], context.cwd)


def _commands(begun: str, context: CompletionContext) -> Iterator[Suggestion]:
    theirs = [(one_line(command.name), _meaning(command)) for command in context.commands]
    ours = [(own.name, f"{own.description} (chat)") for own in OWN_COMMANDS]
    for name, meaning in [*theirs, *ours]:
        if name in OWN_NAMES and (name, meaning) not in ours:
            name = f"/{name}"  # chat's own command goes first, and two slashes lead to the agent's
        if name.startswith(begun):
            yield Suggestion(f"/{name}", len(begun) + 1, meaning)


def _meaning(command: AvailableCommand) -> str:
    hint = f" [{one_line(command.input.hint)}]" if command.input else ""
    return f"{one_line(command.description)}{hint}"


def _arguments(command: str, context: CompletionContext) -> list[tuple[str, str]]:
    settings = context.settings
    match command:
        case "mode":
            named = {mode.id: one_line(mode.name) for mode in settings.modes}
            return [(mode, named.get(mode, "")) for mode in settings.offered_modes]
        case "model":
            return [(model, "") for model in settings.offered_models]
        case "load":
            return [(session, "") for session in context.session_ids]
        case "effort":
            option = settings.effort_option
            return [] if option is None else [(value, "") for value in values_of(option.options)]
        case "thinking":
            return [("on", ""), ("off", "")]
        case _:
            return [(option.id, one_line(option.name)) for option in known_options(settings)]


def known_options(settings: RemoteSettings) -> list[SessionConfigSelect | SessionConfigBoolean]:
    """The config options that this version knows how to set."""
    kinds = (SessionConfigSelect, SessionConfigBoolean)
    return [option for option in settings.options if isinstance(option, kinds)]


def _values(id: str, settings: RemoteSettings) -> list[tuple[str, str]]:
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


def _programs(begun: str, path: str) -> Iterator[Suggestion]:
    found = (name for name in _programs_on(path) if name.startswith(begun))
    for name in islice(found, MOST_FILES):
        yield Suggestion(name, len(begun), "program")


@cache
def _programs_on(path: str) -> list[str]:
    """The programs in the directories of a PATH whose names can be typed as one word."""
    names: set[str] = set()
    for directory in path.split(os.pathsep):
        with contextlib.suppress(OSError):
            names.update(entry.name for entry in Path(directory).iterdir() if os.access(entry, os.X_OK))
    return sorted(name for name in names if name == one_line(name) and " " not in name)


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


def modes_listing(settings: RemoteSettings) -> Listing:
    """Lists the modes of the session."""
    described = {mode.id: _described(mode.name, mode.description) for mode in settings.modes}
    option = settings.mode_option
    current = settings.mode if settings.modes or option is None else option.current_value
    choices = [_choice(mode, described.get(mode, ""), mode == current) for mode in settings.offered_modes]
    return _listing("Modes", choices, "/mode MODE changes it", "The agent offers no modes.")


def models_listing(settings: RemoteSettings) -> Listing:
    """Lists the models that can be used."""
    choices = [_choice(model, "", model == settings.model) for model in settings.offered_models]
    return _listing("Models", choices, "/model MODEL changes it", "The agent offers no models.")


def efforts_listing(settings: RemoteSettings) -> Listing:
    """Lists the levels of thinking that can be chosen."""
    option = settings.effort_option
    values = () if option is None else values_of(option.options)
    current = None if option is None else option.current_value
    choices = [_choice(value, "", value == current) for value in values]
    return _listing("Effort", choices, "/effort LEVEL changes it", "The agent offers no levels of effort.")


def options_listing(settings: RemoteSettings) -> Listing:
    """Lists the config options with their values."""
    choices = [_option(option) for option in known_options(settings)]
    return _listing("Options", choices, "/option NAME VALUE sets one", "The agent offers no options.")


def sessions_listing(found: Sequence[SessionInfo], current: str) -> Listing:
    """Lists earlier sessions, by number."""
    choices = [
        ListingItem(f"{number}", _session(session), session.session_id == current)
        for number, session in enumerate(found, 1)
    ]
    none = "The agent knows no earlier session in this directory."
    return _listing("Sessions", choices, "/load N resumes one", none)


def sessions_menu(found: Sequence[SessionInfo], current: str) -> Menu:
    """A menu of earlier sessions; the latest that is not open is preselected."""
    others = (number for number, session in enumerate(found) if session.session_id != current)
    return Menu(tuple(map(_session_in_menu, found)), next(others, 0))


def _session_in_menu(session: SessionInfo) -> str:
    title = one_line(session.title or "") or "(no title)"
    when = one_line(str(session.updated_at or ""))[: len("2030-01-01T12:00")].replace("T", " ")
    shown = shortened(title, LONGEST_TITLE)
    return f"{shown}  {when}".rstrip()


def commands_listing(theirs: Sequence[AvailableCommand]) -> Listing:
    """Lists all commands that can be typed, and the keys."""
    return Listing(
        "Commands and keys", (*_all_commands(theirs), *KEYS), "//NAME sends a command to the agent as it is"
    )


def _all_commands(theirs: Sequence[AvailableCommand]) -> tuple[ListingItem, ...]:
    known = (_choice(f"/{command.name}", command.description) for command in theirs)
    ours = (
        ListingItem(" ".join(filter(None, [f"/{own.name}", own.hint])), f"{own.description} (chat)")
        for own in OWN_COMMANDS
    )
    return (*known, *ours)


def newest_first(found: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Sorts sessions by their last change; those without a time keep their order, at the end."""
    return sorted(found, key=lambda session: session.updated_at or "", reverse=True)


def _listing(title: str, choices: list[ListingItem], hint: str, none: str) -> Listing:
    return Listing(title, tuple(choices), hint) if choices else Listing(none, ())


def _choice(word: str, meaning: str, is_current: bool = False) -> ListingItem:
    return ListingItem(one_line(word), one_line(meaning), is_current)


def _described(name: str, description: object) -> str:
    return f"{name}: {description}" if isinstance(description, str) and description else name


def _option(option: SessionConfigSelect | SessionConfigBoolean) -> ListingItem:
    if isinstance(option, SessionConfigSelect):
        return _choice(option.id, f"{option.current_value} (of {', '.join(values_of(option.options))})")
    return _choice(option.id, f"{'on' if option.current_value else 'off'} (of on, off)")


def _session(session: SessionInfo) -> str:
    title = one_line(session.title or "") or "(no title)"
    when = "" if session.updated_at in (UNSET, None) else f"  {one_line(str(session.updated_at))}"
    return f"{title}  {one_line(session.session_id)}{when}"

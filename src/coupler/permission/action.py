"""Describes what a tool wants to do, and limits the work of judging it."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable
from typing import get_args

from msgspec import Struct

from coupler.schema.v1 import PermissionOption, ToolKind

KINDS: tuple[str, ...] = get_args(ToolKind)
"""ACP's kinds of tools; a kind that is not among them counts as `other`."""

ALLOWING = ("allow_once", "allow_always")
"""Kinds of options that say yes."""

OPTION_WORDS = {
    "allow_once": "Allow once",
    "allow_always": "Allow always",
    "reject_once": "Reject once",
    "reject_always": "Reject always",
}
"""The words for each kind of a permission request's option."""

COMMAND_NAMES = ("command", "cmd", "commands", "shell_command", "script")
"""The usual names of a tool's arguments that hold a command."""
_COMMAND_NAME = re.compile(r"(?:.*_)?(?:commands?|cmds?|cmdline|commandline|command_line|script|argv)")
URL_NAMES = ("url", "uri", "urls", "href", "link", "address")
"""Names of a tool's arguments that hold an address; a `link` or an `address` may be something else."""
_PATH_NAME = re.compile(
    r"(?:.*_)?(?:path|file|filename|filepath|dir|directory|folder)s?|(?:.*_)?(?:directories|filenames)"
)


def snake_case(name: str) -> str:
    """Return the name of an argument in small letters, with `_` between its words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


def is_command_name(name: str) -> bool:
    """True if an argument of this name holds a command."""
    return _COMMAND_NAME.fullmatch(snake_case(name)) is not None


def is_path_name(name: str) -> bool:
    """True if an argument of this name holds a path."""
    return _PATH_NAME.fullmatch(snake_case(name)) is not None


def is_url(name: str, text: str) -> bool:
    """True if the text of an argument of this name is an address."""
    return name in URL_NAMES and (name not in {"link", "address"} or "://" in text)


PATH_KINDS = frozenset({"read", "edit", "delete", "move", "search"})
"""Kinds whose paths are judged by that kind; the paths of any other kind are judged as edits."""

READING_KINDS = frozenset({"read", "search", "think"})
"""Kinds of tools that say of themselves that they change nothing."""


class Action(Struct, frozen=True, kw_only=True):
    """Everything that one tool use would touch; whatever is not listed is not judged and must not be done."""

    kind: str
    name: str | None = None
    """The tool's programmatic name."""
    server: str | None = None
    """The MCP server of the tool, if any; the kind that a server claims for its tool does not allow it."""
    aliases: tuple[tuple[str | None, str], ...] = ()
    """Other names that it may have, each with its MCP server: they count against it, never for it."""
    is_handed_over: bool = False
    """True if it is a call of a tool that the user gave to the agent."""
    paths: tuple[str, ...] = ()
    """Absolute paths that it would touch; for a move the source and the destination."""
    command: str | tuple[str, ...] | None = None
    """A text for a shell, or the words of a program that is started without one."""
    more_commands: tuple[str | tuple[str, ...], ...] = ()
    """Further commands, each by itself."""
    claimed_commands: tuple[str, ...] = ()
    """Texts that may be its command: they count against it, and never for it."""
    urls: tuple[str, ...] = ()
    env: tuple[str | tuple[str, str], ...] = ()
    """Environment variables of the command: name and value, or the name of one that is unset or unknown."""
    cwd: str | None = None
    """Working directory of the command."""
    roots: tuple[str, ...] = ()
    """The directories of the session: its own, and the additional ones."""
    leaves_out_denied: bool = False
    """True if it is a search that leaves out what may not be read, so that rules about that are kept to."""
    is_gated: bool = False
    """True if its provider wants it asked about where it is allowed by default; rules can still allow it."""
    is_off_disk: bool = False
    """True if the files of the tool are on no disk, so that no rule with a path means it."""

    @property
    def commands(self) -> tuple[str | tuple[str, ...], ...]:
        """All commands, each of which must be allowed."""
        return () if self.command is None else (self.command, *self.more_commands)

    @property
    def variables(self) -> dict[str, str | None]:
        """The variables by name, with their values as far as they are known."""
        return dict(each if isinstance(each, tuple) else (each, None) for each in self.env)

    def includes(self, other: Action) -> bool:
        """True if a yes to this is a yes to the other, which is done without a question of its own."""
        if other.command is not None:
            lines = _lines(other.command) if not other.more_commands else ()
            is_same = any(_line(command) in lines for command in self.commands)
            return is_same and self.cwd == other.cwd and {*other.env} <= {*self.env}
        if self.command is not None or not other.paths or not {*other.paths} <= {*self.paths}:
            return False
        return other.kind == "read" or _path_kind(other.kind) == _path_kind(self.kind)


class Grants:
    """The actions that were allowed in a turn; what an agent then does through us needs no other answer."""

    def __init__(self) -> None:
        self._actions: list[Action] = []

    def add(self, action: Action) -> None:
        """Note that an action was allowed."""
        self._actions.append(action)

    def include(self, action: Action) -> bool:
        """True if a yes of this turn is a yes to the action."""
        return any(granted.includes(action) for granted in self._actions)

    def clear(self) -> None:
        """Drop them, because the turn is over."""
        self._actions.clear()


GRANTED = "allowed in this turn"
"""Reason for what a yes of the same turn allows."""


def option_for(options: Iterable[PermissionOption], *, is_given: bool) -> PermissionOption | None:
    """Return the option that answers a permission request by a decision: for once, and never for good."""
    wanted = "allow_once" if is_given else "reject_once"
    return next((option for option in options if option.kind == wanted), None)


def _path_kind(kind: str) -> str:
    return kind if kind in PATH_KINDS else "edit"


def _line(command: str | tuple[str, ...]) -> str:
    return command.strip() if isinstance(command, str) else shlex.join(command)


def _lines(command: str | tuple[str, ...]) -> set[str]:
    """Return a command line and what a shell in it runs: agents ask for one and run the other."""
    lines = {_line(command)}
    if isinstance(command, tuple):
        lines.add(" ".join(command))
        if len(command) == 3 and command[1] in ("-c", "-lc"):
            lines.add(command[2].strip())
    return lines


def given_variables(variables: Iterable[tuple[object, object]]) -> tuple[str | tuple[str, str], ...]:
    """Return environment variables as `Action.env` has them; a value that is no text counts as unknown."""
    return tuple((str(name), value) if isinstance(value, str) else str(name) for name, value in variables)


def option_label(kind: str, name: str) -> str:
    """The words for an option that an agent offers: what it does, and then what the agent calls it.

    An agent names its options as it likes: one that allows everything for ever may be called "Reject". A name
    that begins with our words, in any order, says enough, as those do that another Coupler has labelled.
    """
    words = OPTION_WORDS.get(kind, kind)
    ours = {*words.lower().split()}
    said = re.findall(r"\w+", name.lower())
    if {*said[: len(ours)]} == ours:
        return name
    return words if {*said} <= ours else f"{words}: {name}"


MOST_WORDS = 6_000
"""Most words that are read for one judgement, in all readings of all commands."""
MOST_CHARACTERS = 100_000
"""Most characters of texts within a command line that are read as commands."""
MOST_FILES = 20_000
"""Most directory entries that are looked at for the wildcards of one judgement."""
LONGEST_TIME = 0.5
"""Most seconds that one judgement may take."""


class Budget:
    """Limits the work for one judgement: words, characters, files and time.

    Whoever does work takes it off first, and leaves it undone if nothing is left. An action whose budget is
    spent was not judged as a whole, and so is asked about.
    """

    def __init__(self) -> None:
        self.is_spent = False
        """True if something was left undone."""
        self._left = {"words": MOST_WORDS, "characters": MOST_CHARACTERS, "files": MOST_FILES}
        self._end = time.monotonic() + LONGEST_TIME

    def take(self, *, words: int = 0, characters: int = 0, files: int = 0) -> bool:
        """Take work off the budget; True if it may be done."""
        for name, number in (("words", words), ("characters", characters), ("files", files)):
            self._left[name] -= number
            self.is_spent = self.is_spent or self._left[name] < 0
        self.is_spent = self.is_spent or time.monotonic() > self._end
        return not self.is_spent

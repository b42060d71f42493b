"""Splits an action into claims: each path, command and URL that must be allowed."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from coupler.permission.action import KINDS, PATH_KINDS, Action, Budget
from coupler.permission.command_words import Line, Target, Word
from coupler.permission.expansion import Scope
from coupler.permission.floor import findings
from coupler.permission.patterns import CommandForm, Url
from coupler.permission.places import Places, Reading
from coupler.permission.reach import Reach, Surroundings
from coupler.permission.shell import read_line
from coupler.permission.variables import is_harmless
from coupler.runtime.paths import (
    ResolvedPath,
    UnresolvablePathError,
    is_below,
    real_directories,
    resolve_path,
)

LONGEST_SHOWN = 300
"""Characters of a command, path or address that a reason quotes."""

_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


class PathClaim(Struct, frozen=True):
    """A file or directory that is touched."""

    kind: str
    place: ResolvedPath

    def __str__(self) -> str:
        return f"{self.kind} {_shown(self.place.shown)}"


class CommandClaim(Struct, frozen=True, dict=True):
    """A program that is started with these words."""

    words: tuple[Word, ...]
    is_wrapper: bool
    is_at_project: bool
    """True if it runs in the project's directory, so that `./script` is the program that a rule names."""
    reach: Reach
    """Finds the files and secrets that it reaches; none for a wrapper."""
    moves: bool = False
    """True if its line changes the directory."""

    @cached_property
    def form(self) -> CommandForm:
        """The words as patterns compare them."""
        return CommandForm(self.words)

    def __str__(self) -> str:
        return f"`{_shown(' '.join(word.source or word.text or '…' for word in self.words))}`"


class UrlClaim(Struct, frozen=True):
    """A URL that is fetched."""

    url: Url

    def __str__(self) -> str:
        return _shown(self.url.text)


class ToolClaim(Struct, frozen=True):
    """The use of the tool itself, apart from what it touches."""

    kind: str
    name: str | None
    server: str | None
    is_needed: bool
    """True if the tool itself must be allowed: nothing else is known of the action, or a server made it."""
    aliases: tuple[tuple[str | None, str], ...] = ()
    is_off_disk: bool = False
    """True if the tool works on files that are on no disk."""

    @property
    def all_names(self) -> tuple[tuple[str | None, str], ...]:
        """All names that the tool may go by, each with its MCP server."""
        own = () if self.name is None and self.server is None else ((self.server, self.name or ""),)
        return (*own, *self.aliases)

    def __str__(self) -> str:
        whose = f" of the MCP server `{_shown(self.server)}`" if self.server is not None else ""
        return f"the tool `{_shown(self.name or self.kind)}`{whose}"


class Doubt(Struct, frozen=True):
    """Something that cannot be judged, and so needs an answer each time."""

    what: str
    why: str
    is_vital: bool = False
    """True if it may be what nobody may allow: it is denied where nobody can be asked."""

    def __str__(self) -> str:
        return f"{self.what} {self.why}"


class Destruction(Struct, frozen=True):
    """Something that nobody may let an agent do: no rule, mode, choice or answer allows it."""

    what: str
    would: str

    def __str__(self) -> str:
        return f"{self.what} {_shown(self.would)}"


Claim = PathClaim | CommandClaim | UrlClaim | ToolClaim | Doubt | Destruction


def claims_of(action: Action, project: str, roots: Sequence[str], budget: Budget) -> list[Claim]:
    """Return the claims of an action, which is allowed only if all of them are."""
    kind = action.kind if action.kind in KINDS else "other"
    claims: list[Claim] = [_path_claim(kind if kind in PATH_KINDS else "edit", path) for path in action.paths]
    claims += _destroyed(kind, action.paths, roots)
    for command in action.commands:
        claims += _command_claims(command, action.cwd, project, roots, budget)
    for text in action.claimed_commands:
        claims += _against_only(_command_claims(text, action.cwd, project, roots, budget))
    claims += [
        Doubt("the command", f"is given {_shown(name)}, which may change what it does")
        for name, value in (each if isinstance(each, tuple) else (each, None) for each in action.env)
        if not is_harmless(name, value)
    ]
    for text in action.urls:
        url = Url.parse(text)
        claims.append(UrlClaim(url))
        if url.doubt is not None:
            claims.append(Doubt(f"the address {_shown(text)}", url.doubt))
    is_needed = not claims or action.server is not None or bool(action.claimed_commands)
    claims.append(ToolClaim(kind, action.name, action.server, is_needed, action.aliases, action.is_off_disk))
    return claims


def _against_only(claims: Iterable[Claim]) -> Iterator[Claim]:
    """Yield what can count against an action, of a text that may be its command."""
    for claim in claims:
        if isinstance(claim, Destruction):
            yield claim
        elif isinstance(claim, CommandClaim):
            yield replace(claim, is_wrapper=True)  # needs no allowance, and can be denied


def _destroyed(kind: str, paths: Sequence[str], roots: Sequence[str]) -> list[Claim]:
    """Return destructions: vital files that would change, protected places that would be deleted or moved.

    All of the session's own directory or its `.git` is in doubt.
    """
    if kind in {"read", "search"}:
        return []
    places = Places(roots, os.sep)
    found: list[Claim] = []
    for path in paths:
        lost = places.vital(path) or (places.whole(path) if kind in {"delete", "move"} else None)
        verb = {"delete": "delete", "move": "move away"}.get(kind, "overwrite")
        if lost is not None:
            found.append(Destruction("this", f"would {verb} {lost}"))
        elif kind in {"delete", "move"} and (own := places.own(Reading(path))) is not None:
            found.append(Doubt("this", f"would {verb} {own}", is_vital=True))
    return found


def _path_claim(kind: str, path: str) -> Claim:
    try:
        return PathClaim(kind, resolve_path(path))
    except UnresolvablePathError as error:
        return Doubt(_shown(path), str(error))


def _command_claims(
    command: str | Sequence[str], cwd: str | None, project: str, roots: Sequence[str], budget: Budget
) -> list[Claim]:
    line = read_line(command)
    [directory] = real_directories([cwd or ""]) or [None]
    is_at_project = directory == project and not line.moves
    surroundings = Surroundings(line, Scope(line, Places(roots, directory)), roots, _entered(line, directory))
    directories = tuple(dict.fromkeys((directory or os.sep, *surroundings.entered)))
    claims: list[Claim] = [
        CommandClaim(
            each.words,
            each.is_wrapper,
            is_at_project,
            Reach(() if each.is_wrapper else each.words, surroundings, directories, budget),
            line.moves > 0,
        )
        for each in line.commands
    ]
    claims += [Doubt("the command", reason) for reason in line.doubts]
    if line.moves > 1 or (line.moves and line.has_loop):
        claims.append(Doubt("the command", "changes its directory more than once"))
    if directory is None or not any(is_below(directory, root) for root in roots):
        claims.append(Doubt("the command", "runs outside of the session's directories"))
    for target in line.targets:
        claims += _target_claims(target, line, directory, roots)
    for finding in findings(command, line, directory or _known(cwd), roots, budget):
        if finding.is_fatal:
            claims.append(Destruction("the command", finding.reason))
        else:
            claims.append(Doubt("the command", finding.reason, is_vital=True))
    return claims


def _known(cwd: str | None) -> str | None:
    """Return a directory that cannot be resolved, as it is written; None if nobody can say which it is."""
    return cwd if cwd is not None and cwd.isprintable() else None


def _entered(line: Line, directory: str | None) -> list[str]:
    """Return the directories that a line changes to, as far as they are known."""
    named = (target.word.text for target in line.targets if target.kind == "enter" and target.word.is_plain)
    return [os.path.join(directory or os.sep, text) for text in named]


def _target_claims(target: Target, line: Line, cwd: str | None, roots: Sequence[str]) -> list[Claim]:
    """Return the claims of a redirection or `cd`; even a guessed path is compared with what is denied."""
    text = target.word.text
    if text in _HARMLESS_TARGETS and target.word.is_plain:
        return []
    claims: list[Claim] = []
    if not target.word.is_plain or not text:
        claims.append(Doubt("the command", "opens a file that is only known when it runs"))
    elif text.startswith(("/dev/tcp", "/dev/udp", "/proc/")):
        claims.append(Doubt("the command", f"opens {text}, which is no file"))
    elif line.moves and target.kind != "enter" and not os.path.isabs(text):
        claims.append(Doubt("the command", "opens a file in a directory that it has changed to"))
    path = os.path.expanduser(text) if not target.word.is_certain else text
    if text and (cwd is not None or os.path.isabs(path)):
        kind = "read" if target.kind == "enter" else target.kind
        claim = _path_claim(kind, os.path.join(cwd or os.sep, path))
        claims.append(claim)
        # To read what is there may be allowed, but the commands that follow are meant for the project.
        if target.kind == "enter" and isinstance(claim, PathClaim) and not claim.place.is_inside(roots):
            claims.append(Doubt("the command", "runs outside of the session's directories"))
    return claims


def _shown(text: str) -> str:
    """Return the text on one line, cut to LONGEST_SHOWN, with unprintable characters escaped."""
    short = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)

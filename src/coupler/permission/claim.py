"""What an action comes down to: each path, command and address that must be allowed, one by one."""

from __future__ import annotations

import os.path
from collections.abc import Sequence

from msgspec import Struct

from coupler.permission.action import KINDS, PATH_KINDS, Action
from coupler.permission.floor.judgement import findings
from coupler.permission.floor.place import Places
from coupler.permission.floor.scope import Scope
from coupler.permission.line import Line, Target
from coupler.permission.reach import named_places
from coupler.permission.shell import read_line
from coupler.permission.url import Url
from coupler.permission.variable import is_harmless
from coupler.permission.word import Word
from coupler.runtime.paths import Place, UnjudgeablePathError, is_below, locate, real_directories

LONGEST_SHOWN = 300
"""Characters of what is told of a command, path or address in a reason."""

_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


class PathClaim(Struct, frozen=True):
    """A file or directory that is touched."""

    kind: str
    place: Place

    def __str__(self) -> str:
        return f"{self.kind} {_shown(self.place.shown)}"


class CommandClaim(Struct, frozen=True):
    """A program that is started with these words."""

    words: tuple[Word, ...]
    is_wrapper: bool
    is_at_project: bool
    """Whether it runs in the project's own directory, so that `./script` is the one that a rule means."""
    places: tuple[Place, ...] = ()
    """The files that its words name."""

    def __str__(self) -> str:
        return f"`{_shown(' '.join(word.text or '…' for word in self.words))}`"


class UrlClaim(Struct, frozen=True):
    """An address that is fetched."""

    url: Url

    def __str__(self) -> str:
        return _shown(self.url.text)


class ToolClaim(Struct, frozen=True):
    """The use of the tool as such."""

    kind: str
    name: str | None
    server: str | None
    is_needed: bool
    """Whether it needs an allowance of its own: if nothing else is known of it, or if a server made it."""

    def __str__(self) -> str:
        whose = f" of the MCP server `{_shown(self.server)}`" if self.server is not None else ""
        return f"the tool `{_shown(self.name or self.kind)}`{whose}"


class Doubt(Struct, frozen=True):
    """Something that cannot be judged, and so needs an answer each time."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} {self.why}"


class Destruction(Struct, frozen=True):
    """Something that nobody may let an agent do: no rule, mode, choice or answer allows it."""

    what: str
    would: str

    def __str__(self) -> str:
        return f"{self.what} {_shown(self.would)}"


Claim = PathClaim | CommandClaim | UrlClaim | ToolClaim | Doubt | Destruction


def claims_of(action: Action, project: str, roots: Sequence[str]) -> list[Claim]:
    """Everything that must be allowed for the action to be."""
    kind = action.kind if action.kind in KINDS else "other"
    claims: list[Claim] = [_path_claim(kind if kind in PATH_KINDS else "edit", path) for path in action.paths]
    claims += _destroyed(kind, action.paths, roots)
    if action.command is not None:
        claims += _command_claims(action.command, action.cwd, project, roots)
    claims += [
        Doubt("the command", f"is given {_shown(name)}, which may change what it does")
        for name in action.env
        if not is_harmless(name)
    ]
    for text in action.urls:
        url = Url.parse(text)
        claims.append(UrlClaim(url))
        if url.doubt is not None:
            claims.append(Doubt(f"the address {_shown(text)}", url.doubt))
    claims.append(ToolClaim(kind, action.name, action.server, not claims or action.server is not None))
    return claims


def _destroyed(kind: str, paths: Sequence[str], roots: Sequence[str]) -> list[Claim]:
    """The files among these that nobody lets an agent change, and directories that nobody lets it delete."""
    if kind in {"read", "search"}:
        return []
    places = Places(roots, None)
    found: list[Claim] = []
    for path in paths:
        lost = places.vital(path) or (places.whole(path) if kind in {"delete", "move"} else None)
        if lost is not None:
            verb = {"delete": "delete", "move": "move away"}.get(kind, "overwrite")
            found.append(Destruction("this", f"would {verb} {lost}"))
    return found


def _path_claim(kind: str, path: str) -> Claim:
    try:
        return PathClaim(kind, locate(path))
    except UnjudgeablePathError as error:
        return Doubt(_shown(path), str(error))


def _command_claims(
    command: str | Sequence[str], cwd: str | None, project: str, roots: Sequence[str]
) -> list[Claim]:
    line = read_line(command)
    [directory] = real_directories([cwd or ""]) or [None]
    is_at_project = directory == project and not line.moves
    scope = Scope(line, Places(roots, directory))
    entered = _entered(line, directory)
    claims: list[Claim] = [
        CommandClaim(
            command.words,
            command.is_wrapper,
            is_at_project,
            () if command.is_wrapper else _reached(command.words, scope, directory, entered),
        )
        for command in line.commands
    ]
    claims += [Doubt("the command", reason) for reason in line.doubts]
    if line.moves > 1 or (line.moves and line.has_loop):
        claims.append(Doubt("the command", "changes its directory more than once"))
    if directory is None or not any(is_below(directory, root) for root in roots):
        claims.append(Doubt("the command", "runs outside of the session's directories"))
    for target in line.targets:
        claims += _target_claims(target, line, directory, roots)
    for finding in findings(command, line, directory or cwd, roots):
        kind = Destruction if finding.is_fatal else Doubt
        claims.append(kind("the command", finding.reason))
    return claims


def _entered(line: Line, directory: str | None) -> list[str]:
    """The directories that a line changes to, as far as they are known."""
    named = (target.word.text for target in line.targets if target.kind == "enter" and target.word.is_plain)
    return [os.path.join(directory or os.sep, text) for text in named]


def _reached(
    words: Sequence[Word], scope: Scope, directory: str | None, entered: Sequence[str]
) -> tuple[Place, ...]:
    """What a command names, and where it may run: what it does there may need no name."""
    named = named_places(words, scope, (directory or os.sep, *entered))
    places = (_path_claim("read", path) for path in entered)
    return (*named, *(claim.place for claim in places if isinstance(claim, PathClaim)))


def _target_claims(target: Target, line: Line, cwd: str | None, roots: Sequence[str]) -> list[Claim]:
    """The file that the shell opens, as a path; also a guess is worth comparing with what is denied."""
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
    """The text as one line that can be read, and hides nothing."""
    short = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)

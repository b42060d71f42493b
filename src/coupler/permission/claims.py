"""Splits an action into claims: each path, command and URL that must be allowed."""

from __future__ import annotations

import glob
import itertools
import os.path
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from coupler.permission.action import KINDS, PATH_KINDS, Action, Budget
from coupler.permission.command_words import Line, Target, Word, is_harmless
from coupler.permission.expansion import Scope
from coupler.permission.floor import findings
from coupler.permission.patterns import Url
from coupler.permission.places import UNKNOWN, Places
from coupler.permission.programs import inline_code_at, is_starter, program_name
from coupler.permission.shell import read_line
from coupler.runtime.paths import (
    LONGEST_PATH,
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


class CommandClaim(Struct, frozen=True):
    """A program that is started with these words."""

    words: tuple[Word, ...]
    is_wrapper: bool
    is_at_project: bool
    """True if it runs in the project's directory, so that `./script` is the program that a rule names."""
    places: tuple[ResolvedPath, ...] = ()
    """Paths that its words may name, and directories that its line enters; none for a wrapper."""

    def __str__(self) -> str:
        return f"`{_shown(' '.join(word.text or '…' for word in self.words))}`"


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
    if action.command is not None:
        claims += _command_claims(action.command, action.cwd, project, roots, budget)
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
    """Return destructions: vital files that would change, protected places that would be deleted or moved."""
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
        return PathClaim(kind, resolve_path(path))
    except UnresolvablePathError as error:
        return Doubt(_shown(path), str(error))


def _command_claims(
    command: str | Sequence[str], cwd: str | None, project: str, roots: Sequence[str], budget: Budget
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
    for finding in findings(command, line, directory or cwd, roots, budget):
        if finding.is_fatal:
            claims.append(Destruction("the command", finding.reason))
        else:
            claims.append(Doubt("the command", finding.reason, is_vital=True))
    return claims


def _entered(line: Line, directory: str | None) -> list[str]:
    """Return the directories that a line changes to, as far as they are known."""
    named = (target.word.text for target in line.targets if target.kind == "enter" and target.word.is_plain)
    return [os.path.join(directory or os.sep, text) for text in named]


def _reached(
    words: Sequence[Word], scope: Scope, directory: str | None, entered: Sequence[str]
) -> tuple[ResolvedPath, ...]:
    """Return the paths that a command names, and the directories that its line enters."""
    named = named_places(words, scope, (directory or os.sep, *entered))
    places = (_path_claim("read", path) for path in entered)
    return (*named, *(claim.place for claim in places if isinstance(claim, PathClaim)))


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


PRIVILEGED = frozenset({"sudo", "doas", "su", "pkexec", "runuser", "run0"})
"""Programs that run others as another user."""

_TEXTUAL = frozenset({"echo", "printf", "tr", "cut", "expr", "basename", "dirname", "test", "["})
"""Programs whose words are not taken for paths."""
MOST_FOUND = 2000
"""Most files that the wildcards of one word are expanded to; with more, the word counts as the root."""
DEEPEST_PATTERN = 40
"""Most directories in a pattern whose wildcards are expanded; a deeper one counts as the root."""
_DEVICES = re.compile(r"/dev/(?:null|zero|full|u?random|std(?:in|out|err)|tty|fd/\d+)")


def named_places(words: Sequence[Word], scope: Scope, directories: Sequence[str]) -> tuple[ResolvedPath, ...]:
    """Return the paths that these words may name, from any of the directories in which the command may run.

    Only modes need them. A rule allows a command with any words; a mode allows all commands at once but means
    those in the project, so the paths in their words are judged as well.
    """
    if not words or program_name(words[0].text) in _TEXTUAL:
        return ()
    texts = dict.fromkeys(text for word in words[1:] for text in _texts(word, scope))
    return tuple(
        place
        for directory in directories
        for text in texts
        for path in _paths(text, directory)
        if (place := _place(path)) is not None
    )


def hides_code(words: Sequence[Word]) -> bool:
    """True if what the command starts has code in its words, or starts others: `uv run python -c …`."""
    return any(
        inline_code_at(words[place:]) is not None
        or (is_starter(program_name(words[place].text)) and _may_be_started(words, place))
        for place in range(2, len(words))
    )


def _may_be_started(words: Sequence[Word], place: int) -> bool:
    """True if a program's name may stand here: as the third word, or behind an option and its value."""
    return place == 2 or any(word.text.startswith("-") for word in words[place - 2 : place])


def _texts(word: Word, scope: Scope) -> Iterator[str]:
    """Yield the parts of a word that may be paths, as glob patterns that end where the text is unknown."""
    for reading in (reading for words in scope.readings(word) for reading in words):
        for text in _parts(reading.text):
            plain = os.path.expanduser(text).split(UNKNOWN)[0]
            yield plain if reading.is_pattern else glob.escape(plain)


def _parts(text: str) -> Iterator[str]:
    """Split a word as programs may take it apart: `--file=x`, `-ox`, `-d@x`, `host:x`, `file://x`."""
    if "://" in text:
        _, is_file, path = text.partition("file://")
        yield from [path.removeprefix("localhost")] if is_file else ()
        return
    for part in re.split(r"[=:,@]", text):
        if not part.startswith("-"):
            yield part
        elif not part.startswith("--"):
            yield part[2:]


def _paths(pattern: str, directory: str) -> Iterator[str]:
    """Yield the paths that a glob pattern may name in a directory.

    The root stands for more than MOST_FOUND matches. The path in front of the first `*` is yielded as well.
    """
    plain = _without_escapes(pattern)
    if not plain:
        return
    if plain != pattern or not glob.has_magic(pattern):
        yield from [path] if _is_path(plain, path := os.path.join(directory, plain)) else ()
        return
    if pattern.count(os.sep) > DEEPEST_PATTERN:
        yield os.sep
        return
    before = plain.split("*")[0]
    whole = os.path.join(glob.escape(directory), pattern.replace("[^", "[!"))
    found = [*itertools.islice(glob.iglob(whole), MOST_FOUND + 1)]
    # Nobody looks at so many: it is as if they were anywhere.
    yield from found if len(found) <= MOST_FOUND else [os.sep]
    if before and _is_path(before, path := os.path.join(directory, before)):
        yield path


def _without_escapes(pattern: str) -> str:
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def _place(path: str) -> ResolvedPath | None:
    try:
        return resolve_path(path)
    except UnresolvablePathError:
        if len(path) > LONGEST_PATH or not path.isprintable():
            return None  # a word that no file can be called
        # It means another file to each program, as in `/proc`, and so none of the project's.
        plain = os.path.normpath(path)
        return ResolvedPath(path, (plain,), (plain,))


def _is_path(text: str, path: str) -> bool:
    if _DEVICES.fullmatch(text):
        return False
    if os.path.isabs(text):
        # An expression like `/one/d` is none, if nothing of that name is at the root.
        first = text.strip(os.sep).split(os.sep)[0]
        return os.path.lexists(os.sep + first)
    return os.sep in text or "." in text or os.path.lexists(path)

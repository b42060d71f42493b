"""Says what an "always" answer remembers, what the user is offered, and keeps what was remembered.

A `Scope` is the rule that an answer would remember, an `Offer` one answer in a dialog, and `Choices` are the
answers that hold for a session: its own in memory, the project's in the store.
"""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from coupler.permission.claims import Claim, CommandClaim, PathClaim, ToolClaim, UrlClaim
from coupler.permission.command_words import Word
from coupler.permission.programs import GROUPS, is_interpreter, starts_others
from coupler.permission.rules import Rule
from coupler.runtime.paths import is_below
from coupler.store.choices import ChoiceRecord

Lifetime = Literal["session", "project"]

LONGEST = 100
"""Most characters of a remembered rule; a longer one would not be read before it is allowed."""

_LIFETIMES = {"session": "in this session", "project": "in this project"}
_VERBS = {"read": "reads", "edit": "edits", "delete": "deletions", "move": "moves", "search": "searches"}

_COMMANDS_OF_TWO_WORDS = frozenset({"git", "npm", "cargo", "docker", "uv", "pip", "make", "kubectl"})
_COMMANDS_OF_THREE_WORDS = frozenset({("npm", "run"), ("npm", "run-script"), ("docker", "compose")})

_NEVER_OPEN = {
    *(("git", name) for name in ("clone", "grep", "archive")),
    *(("kubectl", name) for name in ("apply", "delete", "config")),
    ("docker", "context"),
    ("pip", "config"),
}
"""Subcommands that are remembered only with all their words, because the further ones matter too much."""


class Scope(Struct, frozen=True):
    """The rule that an "always" answer remembers, with its lifetime and a label for the user.

    It never covers a whole tool where less can be said.
    """

    subject: str
    """The rule's subject, with its name: `execute`, `edit`, `tool:lookup_price`."""
    pattern: str
    """The rule's pattern; empty if the subject is the whole rule."""
    lifetime: Lifetime
    label: str

    @property
    def rule_text(self) -> str:
        """The scope in the syntax of rules."""
        return f"{self.subject}({self.pattern})" if self.pattern else self.subject

    def for_session(self) -> Scope:
        """Return the same scope with the lifetime of this session."""
        return replace(self, lifetime="session")

    def __str__(self) -> str:
        return f"{self.label} {_LIFETIMES[self.lifetime]}"


def scope_of(claim: Claim, project: str, roots: Sequence[str]) -> Scope | None:
    """Return the scope that "always" would remember for a claim; None if there is no clear and short one."""
    match claim:
        case CommandClaim():
            scope = _command_scope(claim.words)
        case PathClaim():
            scope = _path_scope(claim, project, roots)
        case UrlClaim():
            scope = _url_scope(claim)
        case ToolClaim():
            scope = _tool_scope(claim)
        case _:
            return None
    # A backquote would end the name that the option spells out, and begin another.
    is_clear = scope is not None and scope.rule_text.isprintable() and "`" not in scope.rule_text
    if scope is None or len(scope.rule_text) > LONGEST or not is_clear:
        return None
    return scope


def _command_scope(words: tuple[Word, ...]) -> Scope | None:
    fixed = _fixed_words(words)
    if fixed is None and not all(word.is_plain for word in words):
        return None
    kept = words if fixed is None else words[:fixed]
    pattern = " ".join(shlex.quote(_escaped(word.text)) for word in kept)
    if fixed is not None:
        pattern += " *"
    return Scope("execute", pattern, "project", f"`{pattern}`")


def _fixed_words(words: tuple[Word, ...]) -> int | None:
    """Return how many leading words are kept before a `*`; None if all of them must be."""
    length = 2 if words[0].text in _COMMANDS_OF_TWO_WORDS else 0
    if length == 0 or len(words) < length or _leads_anywhere(words[0], words[1]):
        return None
    if (words[0].text, words[1].text) in _COMMANDS_OF_THREE_WORDS:
        length = 3
    is_group = (words[0].text, words[1].text) in GROUPS
    if is_group and len(words) > 2 and _leads_anywhere(words[0], words[2]):
        return None
    kept = words[:length]
    is_named = all(word.is_plain and word.text and not word.text.startswith("-") for word in kept)
    if len(words) < length or not is_named or is_interpreter(kept[-1]) or "=" in kept[-1].text:
        return None
    return length


def _leads_anywhere(program: Word, command: Word) -> bool:
    return (program.text, command.text) in _NEVER_OPEN or starts_others(program.text, command.text)


def _path_scope(claim: PathClaim, project: str, roots: Sequence[str]) -> Scope | None:
    """Return a scope for the path's directory; None if it cannot be remembered.

    A subdirectory of the project is remembered with everything below it, any other directory only with its
    direct entries. Outside of the session's directories only reads are remembered: that of a directory with
    everything below it, unless a home is in there.
    """
    if len(claim.place.targets) != 1:
        return None
    [target] = claim.place.targets
    is_elsewhere = not any(is_below(target, root) for root in roots)
    is_whole = is_elsewhere and claim.kind == "read" and os.path.isdir(target)
    directory = target if claim.kind == "search" or is_whole else os.path.dirname(target)
    is_outside = not any(is_below(directory, root) for root in roots)
    home = os.path.expanduser("~")
    if is_outside and (claim.kind != "read" or directory in {os.sep, home}):
        return None
    if is_whole and is_below(home, directory):
        return None
    is_part = is_whole or (is_below(directory, project) and directory != project)
    if is_below(directory, project):
        shown = "" if directory == project else os.path.relpath(directory, project)
    else:
        shown = directory
    pattern = _escaped(os.path.join(shown, "")) if shown else ""
    directly = f"`{shown}`" if shown else "the project's directory"
    where = f"below `{shown}/`" if is_part else f"directly in {directly}"
    return Scope(
        claim.kind, f"{pattern}{'**' if is_part else '*'}", "session", f"{_VERBS[claim.kind]} {where}"
    )


def _url_scope(claim: UrlClaim) -> Scope | None:
    url = claim.url
    if url.doubt is not None:
        return None
    port = "" if url.port in {80, 443} and (url.scheme, url.port) in _DEFAULT_PORTS else f":{url.port}"
    place = f"{url.scheme}://{url.host}{port}"
    return Scope("fetch", f"{place}/*", "project", f"fetches from `{place}`")


_DEFAULT_PORTS = frozenset({("http", 80), ("https", 443)})


def _tool_scope(claim: ToolClaim) -> Scope | None:
    """Return a scope for the tool's name, for this session only, because its arguments are not judged."""
    if claim.name is None or _escaped(claim.name) != claim.name or any(c in claim.name for c in "():"):
        return None
    if claim.server is None:
        return Scope(f"tool:{claim.name}", "", "session", f"the tool `{claim.name}`")
    if _escaped(claim.server) != claim.server or any(c in claim.server for c in "():"):
        return None
    label = f"the tool `{claim.name}` of the MCP server `{claim.server}`"
    return Scope(f"mcp:{claim.server}", claim.name, "session", label)


def _escaped(text: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)


OfferKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]

MOST_SCOPES = 3
"""Most scopes in one answer; more would be agreed to unread."""


class Offer(Struct, frozen=True):
    """An answer that the user is offered; its kind is ACP's."""

    kind: OfferKind
    text: str
    scopes: tuple[Scope, ...] = ()
    """The scopes that an "always" answer remembers; empty for a "once" answer."""

    @property
    def answer(self) -> Answer:
        """The decision that this answer means: allow or deny."""
        return "allow" if self.kind.startswith("allow") else "deny"


def offers_for(scopes: Sequence[Scope]) -> tuple[Offer, ...]:
    """Return the answers to offer: once, and always if there are one to MOST_SCOPES scopes."""
    whole = tuple(dict.fromkeys(scopes))
    if not whole or len(whole) > MOST_SCOPES:
        return (Offer("allow_once", "Allow once"), Offer("reject_once", "Reject once"))
    text = _listed(whole)
    return (
        Offer("allow_once", "Allow once"),
        Offer("allow_always", f"Always allow {text}", whole),
        Offer("reject_once", "Reject once"),
        Offer("reject_always", f"Always reject {text}", whole),
    )


def _listed(scopes: Sequence[Scope]) -> str:
    """Join the scopes' labels; the lifetime is said once if it is the same for all of them."""
    is_same = len({scope.lifetime for scope in scopes}) == 1
    before = ", ".join(scope.label if is_same else str(scope) for scope in scopes[:-1])
    return f"{before} and {scopes[-1]}" if before else str(scopes[-1])


Answer = Literal["allow", "deny"]

ORIGINS: dict[Lifetime, str] = {
    "session": "what you chose in this session",
    "project": "what you chose in this project",
}


class ChoiceStore(Protocol):
    """Interface of a store for the project's choices; `coupler.store.store.Store` implements it."""

    async def choices(self, project: str) -> tuple[ChoiceRecord, ...]: ...

    async def remember_choices(self, *records: ChoiceRecord) -> None: ...


class Choices:
    """The remembered answers that apply to one session: its own in memory, the project's in the store.

    Each session has its own; another session sees none of what was chosen for this one.
    """

    def __init__(self, project: str, store: ChoiceStore | None = None) -> None:
        self._project = os.path.realpath(project)
        # A directory whose name is no text cannot be kept in the store.
        self._store = store if _is_text(self._project) else None
        self._session: dict[str, Rule] = {}
        self._kept: tuple[Rule, ...] = ()
        self._when_changed: set[Callable[[], None]] = set()

    @property
    def session(self) -> tuple[Rule, ...]:
        """The choices that hold until this session closes."""
        return tuple(self._session.values())

    @property
    def kept(self) -> tuple[Rule, ...]:
        """The choices that hold in this project, as of the last refresh."""
        return self._kept

    @property
    def can_last(self) -> bool:
        """True if an answer for the project can outlast the session."""
        return self._store is not None

    async def refresh(self) -> None:
        """Read the stored choices again: another session may have added some, or the user withdrawn some."""
        if self._store is not None:
            self._kept = tuple(_rules(await self._store.choices(self._project)))

    async def remember(self, answer: Answer, scopes: Iterable[Scope]) -> None:
        """Remember an answer. Without a store, one for the project lasts for the session."""
        records: list[ChoiceRecord] = []
        for scope in scopes:
            if scope.lifetime == "project" and self._store is not None:
                records.append(ChoiceRecord(self._project, answer, scope.subject, scope.pattern))
            else:
                rule = Rule.parse(answer, scope.rule_text, ORIGINS["session"])
                self._session[scope.rule_text] = rule
        if records and self._store is not None:
            await self._store.remember_choices(*records)
            await self.refresh()
        for callback in tuple(self._when_changed):
            callback()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever an answer was remembered; returns a function that ends that."""
        self._when_changed.add(callback)
        return lambda: self._when_changed.discard(callback)

    def close(self) -> None:
        """Forget the session's choices."""
        self._session.clear()


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rules(records: Iterable[ChoiceRecord]) -> Iterable[Rule]:
    """Convert stored choices to rules. A row that cannot be read any more is skipped and allows nothing."""
    for record in records:
        text = f"{record.subject}({record.pattern})" if record.pattern else record.subject
        try:
            yield Rule.parse(record.effect, text, ORIGINS["project"])
        except ValueError:
            continue

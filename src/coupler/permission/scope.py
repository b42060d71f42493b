"""What an "always" would remember: never a whole tool where less can be said, and said in words."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from coupler.permission.claim import Claim, CommandClaim, PathClaim, ToolClaim, UrlClaim
from coupler.permission.inline_code import starts_others
from coupler.permission.interpreter import is_interpreter
from coupler.permission.starter import GROUPS
from coupler.permission.word import Word
from coupler.runtime.paths import is_below

Lifetime = Literal["session", "project"]

LONGEST = 100
"""Characters of a pattern; a longer one would not be read before it is allowed."""

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
"""Remembered only with all their words, because the further ones matter too much."""


class Scope(Struct, frozen=True):
    """A subject and a pattern to remember, for how long, and how it is called."""

    subject: str
    """As a rule has it, with the name: `execute`, `edit`, `tool:lookup_price`."""
    pattern: str
    """Empty where the subject says it all."""
    lifetime: Lifetime
    label: str

    @property
    def rule_text(self) -> str:
        """The scope as a rule is written."""
        return f"{self.subject}({self.pattern})" if self.pattern else self.subject

    def for_session(self) -> Scope:
        """The same, until this session closes."""
        return replace(self, lifetime="session")

    def __str__(self) -> str:
        return f"{self.label} {_LIFETIMES[self.lifetime]}"


def scope_of(claim: Claim, project: str, roots: Sequence[str]) -> Scope | None:
    """The scope that an always would have; none if there is none that says exactly what it allows."""
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
    """How many words are kept before a `*`; None if all of them must be."""
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
    """The directory: with everything below if it is a part of the project, else what is directly in it."""
    if len(claim.place.targets) != 1:
        return None
    [target] = claim.place.targets
    directory = target if claim.kind == "search" else os.path.dirname(target)
    is_outside = not any(is_below(directory, root) for root in roots)
    if is_outside and (claim.kind != "read" or directory in {os.sep, os.path.expanduser("~")}):
        return None
    is_part = is_below(directory, project) and directory != project
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
    """Its arguments are not judged, so that its name is all there is; for this session only."""
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

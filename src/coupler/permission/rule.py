"""Rules, as people write them: `read`, `edit(src/**)`, `execute(git commit *)`, `tool:lookup_price`, `*`.

The subject is a kind of tool, one tool, or the tools of an MCP server; the pattern says which paths,
commands, addresses or tools are meant. Without a pattern, paths inside the session's directories are.
"""

from __future__ import annotations

import difflib
import re
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from coupler.permission.action import KINDS, PATH_KINDS
from coupler.permission.command_pattern import CommandPattern
from coupler.permission.path_pattern import PathPattern
from coupler.permission.url import UrlPattern

Effect = Literal["allow", "ask", "deny"]
Pattern = PathPattern | CommandPattern | UrlPattern

PROJECT = "project"
"""The origin of rules that came with the project: they can only tighten."""

_ORIGINS = {"user": "your coupler.toml", PROJECT: "the project's coupler.toml"}
_TEXT = re.compile(r"(?P<subject>[^():]*)(?::(?P<name>[^()]*))?(?:\((?P<pattern>.*)\))?", re.DOTALL)
_SUBJECTS = (*KINDS, "tool", "mcp", "*")


class Rule(Struct, frozen=True):
    """One rule. Made by `parse`, which refuses whatever has no clear meaning."""

    effect: Effect
    subject: str
    """A kind of tool, `tool`, `mcp` or `*`."""
    name: str | None
    """The tool of a `tool` rule, or the server of an `mcp` rule; may have wildcards."""
    pattern: str | None
    """As it was written; of an `mcp` rule the tool."""
    origin: str
    """The layer that it comes from: "user", "project", …"""
    place: str | None = None
    """The file and line where it stands, if there is one."""
    compiled: Pattern | None = None
    base: str | None = None
    """The directory that its relative paths start from; None for the project's."""

    @classmethod
    def parse(
        cls, effect: str, text: str, origin: str, place: str | None = None, base: str | None = None
    ) -> Rule:
        """Read a rule; raises ValueError that names it, what is wrong, and how to write it."""
        if effect not in get_args(Effect):
            raise ValueError(f"the effect {effect!r} is none: write allow, ask or deny")
        try:
            return replace(_parsed(effect, text.strip(), origin, place), base=base)
        except ValueError as error:
            where = place or described(origin)
            raise ValueError(f"the rule `{text}` in {where} is wrong: {error}") from None

    def __str__(self) -> str:
        name = f":{self.name}" if self.name is not None else ""
        return f"{self.subject}{name}" + (f"({self.pattern})" if self.pattern is not None else "")

    @property
    def described(self) -> str:
        """The rule and where it stands, for people."""
        return f"`{self}` in {self.place or described(self.origin)}"


def described(origin: str) -> str:
    """Where rules of this origin stand, for people."""
    return _ORIGINS.get(origin, origin)


def _parsed(effect: str, text: str, origin: str, place: str | None) -> Rule:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError("its brackets do not match: write `subject(pattern)`")
    subject, name, pattern = match["subject"].strip(), match["name"], match["pattern"]
    _check_subject(subject, text)
    if name is not None and subject not in {"tool", "mcp"}:
        raise ValueError(f"`{subject}` takes no name: write `{subject}` or `{subject}(pattern)`")
    compiled: Pattern | None = None
    if subject in {"tool", "mcp"}:
        name = _checked_name(subject, name, pattern)
    elif pattern is not None:
        compiled = _compiled(subject, pattern.strip())
    return Rule(
        effect=effect,  # type: ignore[arg-type]  # checked by the caller
        subject=subject,
        name=name,
        pattern=pattern.strip() if pattern is not None else None,
        origin=origin,
        place=place,
        compiled=compiled,
    )


def _check_subject(subject: str, text: str) -> None:
    if subject in _SUBJECTS:
        return
    nearest = difflib.get_close_matches(subject.lower(), _SUBJECTS, n=1, cutoff=0.5)
    if nearest:
        raise ValueError(f"there is no subject `{subject}`: did you mean `{nearest[0]}`?")
    raise ValueError(f"there is no subject `{subject}`: write one of {', '.join(_SUBJECTS)}")


def _checked_name(subject: str, name: str | None, pattern: str | None) -> str:
    if name is None or not name.strip() or not name.isprintable():
        example = "tool:lookup_price" if subject == "tool" else "mcp:github(*)"
        raise ValueError(f"it names no {'tool' if subject == 'tool' else 'server'}: write `{example}`")
    if subject == "tool" and pattern is not None:
        raise ValueError(f"a tool takes no pattern: write `tool:{name.strip()}`")
    if pattern is not None and not pattern.strip():
        raise ValueError(f"its pattern is empty: write `mcp:{name.strip()}(*)`")
    return name.strip()


def _compiled(subject: str, pattern: str) -> Pattern | None:
    """The pattern as it is compared; `*` alone says no more than none."""
    if not pattern:
        raise ValueError(f"its pattern is empty: write `{subject}` for all")
    if subject in PATH_KINDS:
        return PathPattern.parse(pattern)
    if subject == "execute":
        return None if pattern == "*" else CommandPattern.parse(pattern)
    if subject == "fetch":
        return None if pattern == "*" else UrlPattern.parse(pattern)
    raise ValueError(f"`{subject}` takes no pattern: write `{subject}`")

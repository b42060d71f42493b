"""Parses permission rules and matches them with claims.

Rules are written as `read`, `edit(src/**)`, `execute(git commit *)`, `tool:lookup_price` or `*`. The subject
is a kind of tool, one tool, or the tools of an MCP server; the pattern says which paths, commands, URLs or
tools are meant. Without a pattern, paths inside the session's directories are.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from coupler.mcp.tool_names import written_name
from coupler.permission.action import KINDS, PATH_KINDS, Action
from coupler.permission.claims import Claim, CommandClaim, Destruction, Doubt, PathClaim, ToolClaim, UrlClaim
from coupler.permission.command_words import Word
from coupler.permission.patterns import (
    CommandPattern,
    Match,
    PathPattern,
    PathSpelling,
    Url,
    UrlPattern,
    glob,
    has_sensitive,
)
from coupler.permission.programs import is_interpreter, program_name
from coupler.permission.reach import Reach
from coupler.runtime.paths import fold_name, split_path, split_path_folded

Effect = Literal["allow", "ask", "deny"]
Pattern = PathPattern | CommandPattern | UrlPattern

PROJECT = "project"
"""The origin of rules that come with the project: they can only deny or ask, never allow."""

_ORIGINS = {"user": "your coupler.toml", PROJECT: "the project's coupler.toml"}
_TEXT = re.compile(r"(?P<subject>[^():]*)(?::(?P<name>[^()]*))?(?:\((?P<pattern>.*)\))?", re.DOTALL)
_SUBJECTS = (*KINDS, "tool", "mcp", "*")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "source", "."})
_JOINTS = re.compile(r"[_/.:-]+ ?")
"""Characters with which agents join the names of a server and a tool."""
_CHANGING = frozenset({"edit", "delete", "move", "execute"})


class Rule(Struct, frozen=True):
    """One permission rule. Made by `parse`, which refuses whatever has no clear meaning."""

    effect: Effect
    subject: str
    """A kind of tool, `tool`, `mcp` or `*`."""
    name: str | None
    """The tool of a `tool` rule, or the server of an `mcp` rule; may have wildcards."""
    pattern: str | None
    """The pattern as it was written; in an `mcp` rule, the tool's name."""
    origin: str
    """Origin of the rule: "user", "project", or words for people such as "the mode 'edit'"."""
    place: str | None = None
    """The file and line where it stands, if there is one."""
    compiled: Pattern | None = None
    base: str | None = None
    """The directory that its relative paths start from; None for the project's."""
    is_each_time: bool = False
    """True if what it asks about is asked each time, whatever was remembered."""

    @classmethod
    def parse(
        cls, effect: str, text: str, origin: str, place: str | None = None, base: str | None = None
    ) -> Rule:
        """Parse a rule; the ValueError names it, what is wrong, and how to write it."""
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
    def is_about_changes(self) -> bool:
        """True if an agent that only reads cannot break it."""
        return self.subject in _CHANGING

    @property
    def described(self) -> str:
        """The rule and where it is written, for messages."""
        return f"`{self}` in {self.place or described(self.origin)}"


def described(origin: str) -> str:
    """Return where rules of this origin are written, for messages."""
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
    """Compile a pattern; None for `*` of `execute` and `fetch`, which means the same as no pattern."""
    if not pattern:
        raise ValueError(f"its pattern is empty: write `{subject}` for all")
    if subject in PATH_KINDS:
        return PathPattern.parse(pattern)
    if subject == "execute":
        return None if pattern == "*" else CommandPattern.parse(pattern)
    if subject == "fetch":
        return None if pattern == "*" else UrlPattern.parse(pattern)
    raise ValueError(f"`{subject}` takes no pattern: write `{subject}`")


_ALSO_DENIED = {"edit": frozenset({"delete", "move"}), "read": frozenset({"search", "move"})}
"""Kinds that a rule against a kind also means: a moved file is changed, and can be read elsewhere."""

_WITHOUT_PATTERN = frozenset({"think", "switch_mode", "other"})


class Coverage(Struct, frozen=True, dict=True):
    """Compares rules with the claims of one action: strictly to allow it, generously to ask or deny."""

    action: Action
    project: str
    roots: tuple[str, ...]

    def covers(self, rule: Rule, claim: Claim) -> bool:
        """True if the rule certainly means this claim; none means a doubt or a destruction."""
        match claim:
            case Doubt() | Destruction():
                return False
            case CommandClaim():
                return self._covers_command(rule, claim)
            case PathClaim():
                return self._covers_path(rule, claim)
            case UrlClaim():
                return self._covers_url(rule, claim)
            case ToolClaim():
                return self._covers_tool(rule, claim)

    def touches(self, rule: Rule, claim: Claim) -> Match:
        """Return how far the rule may mean this claim; none means a doubt or a destruction."""
        if isinstance(claim, Doubt | Destruction):
            return Match.NO
        if rule.subject == "*":
            return Match.YES
        match claim, rule.compiled:
            case CommandClaim(), _:
                return self._touches_command(rule, claim)
            case PathClaim(), PathPattern() as pattern if _is_against(rule.subject, claim.kind):
                return pattern.touches(claim.place, claim.kind, partial(self._spellings, rule, pattern))
            case PathClaim(), None:
                return _match(_is_against(rule.subject, claim.kind))
            case UrlClaim(), UrlPattern() as pattern:
                return pattern.touches(claim.url)
            case UrlClaim(), None:
                return _match(rule.subject == "fetch")
            case ToolClaim(), _:
                return _touches_tool(rule, claim)
        return Match.NO

    def stays(self, mode: ModeRules, claim: Claim, rules: Iterable[Rule]) -> bool:
        """True if a mode's rules to allow may mean a claim: none of its rules asks about it, and it stays.

        A command stays if it reaches only paths that may be edited: in the project, or where `rules` allow.
        """
        if not isinstance(claim, CommandClaim):
            return all(self.touches(rule, claim) is Match.NO for rule in mode.ask)
        if any(self.touches(rule, claim) is not Match.NO for rule in mode.ask_about_commands):
            return False
        if claim.reach.is_beyond:
            return False
        written = [rule for rule in rules if rule.effect == "allow"]
        return all(
            self._may_be_edited(PathClaim("edit", place), mode, written) for place in claim.reach.places
        )

    def reads_elsewhere(self, claim: CommandClaim, rules: Iterable[Rule]) -> bool:
        """True if a command names files that are not ordinary ones, and that no rule allows to read."""
        written = [rule for rule in rules if rule.effect == "allow"]
        read = (PathClaim("read", place) for place in claim.reach.places)
        return not all(
            self.is_ordinary(each) or any(self.covers(rule, each) for rule in written) for each in read
        )

    def _may_be_edited(self, claim: PathClaim, mode: ModeRules, written: Iterable[Rule]) -> bool:
        if not self.is_ordinary(claim) and not any(self.covers(rule, claim) for rule in written):
            return False
        if mode.names_asked_about is not None and all(
            mode.names_asked_about.isdisjoint(split_path_folded(name)) for name in claim.place.names
        ):
            return True
        return all(self.touches(rule, claim) is Match.NO for rule in mode.ask_about_edits)

    def is_ordinary(self, claim: PathClaim) -> bool:
        """True if the path is inside the session's directories and not sensitive."""
        return claim.place.is_inside(self.roots) and not self.is_sensitive(claim)

    def is_sensitive(self, claim: PathClaim) -> bool:
        """True if any name on the path is sensitive; the names of the session's directories do not count."""
        return any(
            has_sensitive(self._names_inside(path), claim.kind)
            for path in (*claim.place.targets, *claim.place.names)
        )

    def _covers_command(self, rule: Rule, claim: CommandClaim) -> bool:
        program = claim.words[0].text
        if "/" in program and not program.startswith("/") and not claim.is_at_project:
            return False  # `./script` is another one elsewhere
        if not claim.is_at_project and _names_script(rule.compiled):
            return False  # and so is `bash script`
        if isinstance(rule.compiled, CommandPattern):
            return rule.compiled.covers(claim.form) and not self._starts_more(rule.compiled, claim)
        return rule.subject in {"execute", "*"} and claim.form.code_at is None

    def _starts_more(self, pattern: CommandPattern, claim: CommandClaim) -> bool:
        """True if an option that an open pattern does not name may start another program."""
        return pattern.is_open and any(at >= len(pattern.words) for at in claim.reach.starting_options)

    def _touches_command(self, rule: Rule, claim: CommandClaim) -> Match:
        if isinstance(rule.compiled, CommandPattern):
            return rule.compiled.touches(claim.form)
        return (
            self._touches_words(rule, claim)
            if rule.subject in PATH_KINDS
            else _match(rule.subject == "execute")
        )

    def _touches_words(self, rule: Rule, claim: CommandClaim) -> Match:
        """Return how far a rule about paths means what a command reads and changes by its words.

        In a line that changes its directory, it is certain only if each directory gives the same answer.
        """
        matches = {self._touches_reach(rule, reach) for reach in claim.reach.in_each_directory}
        return max(matches) if len(matches) == 1 else Match.MAYBE

    def _touches_reach(self, rule: Rule, reach: Reach) -> Match:
        touched = [
            PathClaim("read", place) for place in reach.places if rule.subject == "read" and reach.is_reader
        ]
        touched += [PathClaim(kind, place) for kind, place in reach.changes]
        found = max((self.touches(rule, each) for each in touched), default=Match.NO)
        may_be = reach.is_vague and (reach.is_reader if rule.subject == "read" else reach.is_writer)
        return max(found, Match.MAYBE if may_be else Match.NO)

    def _covers_path(self, rule: Rule, claim: PathClaim) -> bool:
        if isinstance(rule.compiled, PathPattern):
            return rule.subject == claim.kind and rule.compiled.covers(
                claim.place, claim.kind, rule.base or self.project, self.roots
            )
        is_meant = rule.subject in {claim.kind, "*"} or self._is_for_this_tool(rule)
        return is_meant and self.is_ordinary(claim)

    def _covers_url(self, rule: Rule, claim: UrlClaim) -> bool:
        if isinstance(rule.compiled, UrlPattern):
            return rule.compiled.covers(claim.url)
        return rule.subject in {"fetch", "*"} and claim.url.doubt is None

    def _covers_tool(self, rule: Rule, claim: ToolClaim) -> bool:
        if rule.subject == "*":
            return True
        if claim.server is None and rule.subject == claim.kind and claim.kind in _WITHOUT_PATTERN:
            return True
        return self._is_for_this_tool(rule)

    def _is_for_this_tool(self, rule: Rule) -> bool:
        """True if a `tool` or `mcp` rule names this tool.

        A server names its tools as it likes: only a rule for it allows them.
        """
        if self.action.name is None or rule.name is None:
            return False
        if rule.subject == "tool":
            return self.action.server is None and _is_named(rule.name, self.action.name)
        server = self.action.server
        return (
            server is not None
            and (_is_named(rule.name, server) or _is_named(rule.name, written_name(server)))
            and _is_named(rule.pattern or "*", self.action.name)
        )

    def _spellings(self, rule: Rule, pattern: PathPattern) -> Sequence[PathSpelling]:
        """Return the spellings of a rule's pattern, which are found once for all claims of the action."""
        if id(rule) not in self._known_spellings:
            self._known_spellings[id(rule)] = (rule, pattern.spellings(rule.base or self.project))
        return self._known_spellings[id(rule)][1]

    @cached_property
    def _known_spellings(self) -> dict[int, tuple[Rule, Sequence[PathSpelling]]]:
        return {}

    def _names_inside(self, path: str) -> Sequence[str]:
        """Return a path's names below the deepest root around it: a root's own name is the user's choice."""
        names = split_path(path)
        depth = max(
            (len(split_path(root)) for root in self.roots if _begins(names, split_path(root))), default=0
        )
        return names[depth:]


def _names_script(pattern: Pattern | None) -> bool:
    """True if a pattern of commands has a script of the project as the word of a shell or an interpreter."""
    if not isinstance(pattern, CommandPattern) or not pattern.words:
        return False
    program = Word(pattern.words[0])
    if program_name(program.text) not in _SHELLS and not is_interpreter(program):
        return False
    operand = next((at for at, word in enumerate(pattern.words) if at and not word.startswith("-")), None)
    if operand is None or pattern.words[operand - 1] == "-m":
        return False
    return not pattern.words[operand].startswith("/")


def _begins(names: Sequence[str], start: Sequence[str]) -> bool:
    return tuple(names[: len(start)]) == tuple(start)


def _is_against(subject: str, kind: str) -> bool:
    return subject == kind or kind in _ALSO_DENIED.get(subject, ())


def _touches_tool(rule: Rule, claim: ToolClaim) -> Match:
    if rule.subject in {"tool", "mcp"}:
        is_meant = any(_is_about(rule, server, name) for server, name in claim.all_names)
        may_be_meant = rule.subject == "mcp" and any(_may_be_of(rule, name) for _, name in claim.all_names)
        return Match.YES if is_meant else Match.MAYBE if may_be_meant else Match.NO
    if not _is_against(rule.subject, claim.kind):
        return Match.NO
    if rule.effect == "ask" and not claim.is_needed:
        return Match.NO  # what it touches is asked about by itself, and can be remembered
    if rule.compiled is None:
        return Match.YES
    # The tool says neither path, command nor address: it may be the one that the rule means.
    return Match.MAYBE if claim.is_needed and not claim.is_off_disk else Match.NO


def _is_about(rule: Rule, server: str | None, name: str) -> bool:
    """True if a `tool` or `mcp` rule names a tool, however it is written."""
    if rule.subject == "tool":
        return bool(name) and _is_named(fold_name(rule.name or ""), fold_name(name))
    if server is None:
        return False
    wanted, given = fold_name(rule.name or ""), fold_name(server)
    is_its = _is_named(wanted, given) or _is_named(wanted, written_name(given))
    return is_its and _is_named(fold_name(rule.pattern or "*"), fold_name(name))


def _may_be_of(rule: Rule, name: str) -> bool:
    """True if a name may say the server and the tool of an `mcp` rule: `server_tool`, `server/tool` …"""
    folded = fold_name(name)
    return any(
        _is_named(fold_name(rule.name or ""), folded[: joint.start()])
        and _is_named(fold_name(rule.pattern or "*"), folded[joint.end() :])
        for joint in _JOINTS.finditer(folded)
    )


def _is_named(pattern: str, name: str) -> bool:
    return glob(pattern).match(name) is not None


def _match(is_met: bool) -> Match:
    return Match.YES if is_met else Match.NO


class ModeRules(Struct, frozen=True, dict=True):
    """The rules of one mode. Made by `parse`, which refuses whatever has no clear meaning.

    Its deny rules count like any other. Its allow rules come last: ask and deny rules, and what the user has
    rejected for good, go before them; doubts are still asked about; and without a pattern they mean nothing
    that is sensitive or outside of the session's directories.
    """

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    """Rules for what is asked about although `allow` covers it."""
    deny: tuple[Rule, ...] = ()
    only_reading: str | None = None
    """The mode's name if it runs commands that are known to only read, and denies all others."""

    @cached_property
    def ask_about_commands(self) -> tuple[Rule, ...]:
        """Those of its ask rules that are not about paths."""
        return tuple(rule for rule in self.ask if rule.subject not in PATH_KINDS)

    @cached_property
    def ask_about_edits(self) -> tuple[Rule, ...]:
        """Those of its ask rules that may mean a file that is edited."""
        return tuple(rule for rule in self.ask if rule.subject == "*" or _is_against(rule.subject, "edit"))

    @cached_property
    def names_asked_about(self) -> frozenset[str] | None:
        """A name of each rule about edits that every path has that it means; None if one has no such name."""
        patterns = [rule.compiled for rule in self.ask_about_edits]
        literals = [pattern.literals for pattern in patterns if isinstance(pattern, PathPattern)]
        if len(literals) < len(patterns) or not all(literals):
            return None
        return frozenset(min(each) for each in literals)

    @classmethod
    def parse(
        cls,
        mode: str,
        *,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        only_reading: bool = False,
    ) -> ModeRules:
        """Parse rules as in `coupler.toml`; the ValueError names the one that is wrong."""
        origin = f"the mode {mode!r}"
        return cls(
            tuple(Rule.parse("allow", text, origin) for text in allow),
            tuple(Rule.parse("ask", text, origin) for text in ask),
            tuple(Rule.parse("deny", text, origin) for text in deny),
            mode if only_reading else None,
        )


NO_MODE = ModeRules()
"""The rules of a session without modes."""


def names_host(rules: Iterable[Rule], address: str) -> bool:
    """True if a rule allows the URL by the exact name of its host, and not by a wildcard.

    Rules that come with the project do not count.
    """
    url = Url.parse(address)
    return any(
        rule.effect == "allow"
        and rule.origin != PROJECT
        and isinstance(rule.compiled, UrlPattern)
        and rule.compiled.host == url.host
        and rule.compiled.covers(url)
        for rule in rules
    )

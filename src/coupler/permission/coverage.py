"""Whether one rule speaks of one claim: strictly to allow it, generously to ask or deny."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from coupler.permission.action import Action
from coupler.permission.claim import Claim, CommandClaim, Destruction, Doubt, PathClaim, ToolClaim, UrlClaim
from coupler.permission.command_pattern import CommandPattern
from coupler.permission.inline_code import inline_code_at
from coupler.permission.match import Match, glob
from coupler.permission.path_pattern import PathPattern
from coupler.permission.rule import Rule
from coupler.permission.sensitive import has_sensitive
from coupler.permission.url import UrlPattern
from coupler.runtime.paths import folded, split

_ALSO_DENIED = {"edit": frozenset({"delete", "move"}), "read": frozenset({"search", "move"})}
"""What a rule against one kind is against as well: a moved file is changed, and can be read elsewhere."""

_WITHOUT_PATTERN = frozenset({"think", "switch_mode", "other"})


class Coverage(Struct, frozen=True):
    """Compares rules with the claims of one action, in one project."""

    action: Action
    project: str
    roots: tuple[str, ...]

    def covers(self, rule: Rule, claim: Claim) -> bool:
        """Whether the rule for certain means this."""
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
        """Whether the rule means this, or may mean it."""
        if isinstance(claim, Doubt | Destruction):
            return Match.NO
        if rule.subject == "*":
            return Match.YES
        match claim, rule.compiled:
            case CommandClaim(), CommandPattern() as pattern:
                return pattern.touches(claim.words)
            case CommandClaim(), None:
                return _match(rule.subject == "execute")
            case PathClaim(), PathPattern() as pattern if _is_against(rule.subject, claim.kind):
                return pattern.touches(claim.place, claim.kind, rule.base or self.project)
            case PathClaim(), None:
                return _match(_is_against(rule.subject, claim.kind))
            case UrlClaim(), UrlPattern() as pattern:
                return pattern.touches(claim.url)
            case UrlClaim(), None:
                return _match(rule.subject == "fetch")
            case ToolClaim(), _:
                return _touches_tool(rule, claim)
        return Match.NO

    def is_ordinary(self, claim: PathClaim) -> bool:
        """Inside of the session's directories, and not of a kind that is asked about even there."""
        return claim.place.is_inside(self.roots) and not self.is_sensitive(claim)

    def is_sensitive(self, claim: PathClaim) -> bool:
        """Whether any name on the way to it is one that is always asked about."""
        return any(
            has_sensitive(self._names_inside(path), claim.kind)
            for path in (*claim.place.targets, *claim.place.names)
        )

    def _covers_command(self, rule: Rule, claim: CommandClaim) -> bool:
        program = claim.words[0].text
        if "/" in program and not program.startswith("/") and not claim.is_at_project:
            return False  # `./script` is another one elsewhere
        if isinstance(rule.compiled, CommandPattern):
            return rule.compiled.covers(claim.words)
        return rule.subject in {"execute", "*"} and inline_code_at(claim.words) is None

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
        """A server may call its tools as it likes: only a rule for that server allows them."""
        if self.action.name is None or rule.name is None:
            return False
        if rule.subject == "tool":
            return self.action.server is None and _is_named(rule.name, self.action.name)
        return (
            self.action.server is not None
            and _is_named(rule.name, self.action.server)
            and _is_named(rule.pattern or "*", self.action.name)
        )

    def _names_inside(self, path: str) -> Sequence[str]:
        """The names of a path below the deepest root: what a root itself is called is the user's choice."""
        names = split(path)
        depth = max((len(split(root)) for root in self.roots if _begins(names, split(root))), default=0)
        return names[depth:]


def _begins(names: Sequence[str], start: Sequence[str]) -> bool:
    return tuple(names[: len(start)]) == tuple(start)


def _is_against(subject: str, kind: str) -> bool:
    return subject == kind or kind in _ALSO_DENIED.get(subject, ())


def _touches_tool(rule: Rule, claim: ToolClaim) -> Match:
    name = folded(claim.name or "")
    match rule.subject:
        case "tool":
            return _match(claim.name is not None and _is_named(folded(rule.name or ""), name))
        case "mcp":
            return _match(
                claim.server is not None
                and _is_named(folded(rule.name or ""), folded(claim.server))
                and _is_named(folded(rule.pattern or "*"), name)
            )
    if not _is_against(rule.subject, claim.kind):
        return Match.NO
    if rule.effect == "ask" and not claim.is_needed:
        return Match.NO  # what it touches is asked about by itself, and can be remembered
    if rule.compiled is None:
        return Match.YES
    # The tool says neither path, command nor address: it may be the one that the rule means.
    return Match.MAYBE if claim.is_needed else Match.NO


def _is_named(pattern: str, name: str) -> bool:
    return glob(pattern).match(name) is not None


def _match(is_met: bool) -> Match:
    return Match.YES if is_met else Match.NO

"""The one place that decides: rules, then remembered choices, then the user.

Every claim of an action is judged by itself. One that is denied denies the action; one that must be asked
about makes it asked about; it is allowed only if all are.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from coupler.permission.action import Action
from coupler.permission.choices import Choices
from coupler.permission.claim import (
    Claim,
    CommandClaim,
    Destruction,
    Doubt,
    PathClaim,
    ToolClaim,
    claims_of,
)
from coupler.permission.coverage import Coverage
from coupler.permission.inline_code import inline_code_at
from coupler.permission.match import Match
from coupler.permission.mode import NO_MODE, ModeRules
from coupler.permission.offer import Offer, offers_for
from coupler.permission.reach import PRIVILEGED, hides_code
from coupler.permission.rule import PROJECT, Rule
from coupler.permission.scope import Scope, scope_of
from coupler.permission.wrapper import program_name
from coupler.runtime.paths import real_directories

Decision = Literal["allow", "ask", "deny"]

NEVER = "no rule, mode or answer allows that; if it is meant, its user has to do it by hand"


class Verdict(Struct, frozen=True):
    """What is decided about an action, why, and what to offer if its user must be asked."""

    decision: Decision
    reason: str
    offers: tuple[Offer, ...] = ()
    is_ruled: bool = False
    """Whether somebody wrote or chose that; else it is asked because nobody did."""
    is_doubtful: bool = False
    """Whether something in it cannot be judged, and might be anything."""
    is_final: bool = False
    """Whether it is denied for good: nobody could write a rule or give an answer that allows it."""


class Ruling(Struct, frozen=True):
    """What is decided about one claim."""

    decision: Decision
    reason: str
    claim: Claim
    may_remember: bool = False
    """Whether an answer could be remembered for the next time."""
    is_ruled: bool = False
    """Whether a rule wants it to be asked about."""


class Permissions:
    """The rules and choices of one session in one project."""

    def __init__(self, rules: Sequence[Rule], choices: Choices, project: str) -> None:
        self._rules = [rule for rule in rules if not _is_overreaching(rule)]
        self._choices = choices
        self._project = os.path.realpath(project)
        self._mode: Callable[[], ModeRules] = lambda: NO_MODE

    def follow(self, mode: Callable[[], ModeRules]) -> None:
        """Have the rules of a mode count too: of the one that the session is in when it is judged."""
        self._mode = mode

    @property
    def has_restrictions(self) -> bool:
        """Whether a rule is against anything, or wants to be asked about anything."""
        return any(rule.effect != "allow" for rule in self._rules) or bool(self._mode().deny)

    def judge(self, action: Action) -> Verdict:
        """Decide about an action; raises nothing, whatever the action says."""
        roots = real_directories(action.roots)
        coverage = Coverage(action, self._project, roots)
        rulings = [self._rule_on(claim, coverage) for claim in claims_of(action, self._project, roots)]
        if denied := [ruling for ruling in rulings if ruling.decision == "deny"]:
            final = [ruling for ruling in denied if isinstance(ruling.claim, Destruction)]
            return Verdict("deny", (final or denied)[0].reason, is_ruled=True, is_final=bool(final))
        if asked := [ruling for ruling in rulings if ruling.decision == "ask"]:
            return Verdict(
                "ask",
                asked[0].reason,
                offers_for(self._scopes(asked, coverage)),
                is_ruled=any(ruling.is_ruled for ruling in asked),
                is_doubtful=any(isinstance(ruling.claim, Doubt) for ruling in asked),
            )
        told = [ruling for ruling in rulings if ruling.reason]
        return Verdict("allow", told[0].reason if told else "nothing in it needs an allowance")

    def _rule_on(self, claim: Claim, coverage: Coverage) -> Ruling:
        if isinstance(claim, Destruction):
            return Ruling("deny", f"{claim}: {NEVER}", claim)
        if isinstance(claim, Doubt):
            return Ruling("ask", str(claim), claim)
        against = self._strongest(claim, coverage, "deny")
        if against is not None and against[0] is Match.YES:
            return Ruling("deny", f"{claim} is denied by {against[1].described}", claim)
        if against is not None:
            reason = f"{claim} may be what {against[1].described} denies"
            return Ruling("ask", reason, claim, is_ruled=True)
        asking = self._strongest(claim, coverage, "ask")
        if asking is None:
            allowed = self._allowed(claim, coverage)
            if allowed is not None:
                return Ruling("allow", allowed, claim)
        return self._chosen(claim, coverage, asking[1] if asking else None)

    def _strongest(self, claim: Claim, coverage: Coverage, effect: Decision) -> tuple[Match, Rule] | None:
        """The rule with this effect that fits best."""
        rules = (*self._rules, *self._mode().deny)
        matches = [(coverage.touches(rule, claim), rule) for rule in rules if rule.effect == effect]
        return max(
            (pair for pair in matches if pair[0] is not Match.NO), key=lambda pair: pair[0], default=None
        )

    def _allowed(self, claim: Claim, coverage: Coverage) -> str | None:
        """Why it is allowed, if it is, without looking at choices."""
        if (isinstance(claim, ToolClaim) and not claim.is_needed) or (
            isinstance(claim, CommandClaim) and claim.is_wrapper
        ):
            return ""  # nothing by itself
        for rule in self._rules:
            if rule.effect == "allow" and coverage.covers(rule, claim):
                return f"{claim} is allowed by {rule.described}"
        if coverage.action.server is not None or coverage.action.is_gated:
            return None
        if isinstance(claim, PathClaim) and claim.kind == "read" and coverage.is_ordinary(claim):
            return f"{claim} is inside of the session's directories"
        if isinstance(claim, ToolClaim) and claim.kind == "think":
            return "thinking touches nothing"
        return None

    def _chosen(self, claim: Claim, coverage: Coverage, asking: Rule | None) -> Ruling:
        """What the user chose earlier; a rejection beats an allowance, the session's comes first."""
        may_be_against = asking is not None
        for choices in (self._choices.session, self._choices.kept):
            rejecting = [rule for rule in choices if rule.effect == "deny"]
            for rule in rejecting:
                if coverage.touches(rule, claim) is Match.YES:
                    return Ruling("deny", f"{claim} is denied by {rule.described}", claim)
            may_be_rejected = any(coverage.touches(rule, claim) is Match.MAYBE for rule in rejecting)
            may_be_against = may_be_against or may_be_rejected
            for rule in choices if not may_be_rejected else ():
                if rule.effect == "allow" and coverage.covers(rule, claim):
                    return Ruling("allow", f"{claim} is allowed by {rule.described}", claim)
        if not may_be_against and (by_mode := self._by_mode(claim, coverage)) is not None:
            return Ruling("allow", by_mode, claim)
        why = f"{asking.described} asks about {claim}" if asking else f"no rule allows {claim}"
        return Ruling("ask", why, claim, may_remember=True, is_ruled=asking is not None)

    def _by_mode(self, claim: Claim, coverage: Coverage) -> str | None:
        """Why the mode allows it, if it does; commands only as far as they stay in the project."""
        mode = self._mode()
        if any(coverage.touches(rule, claim) is not Match.NO for rule in mode.ask):
            return None
        if isinstance(claim, CommandClaim) and not self._stays(claim, mode, coverage):
            return None
        for rule in mode.allow:
            if coverage.covers(rule, claim):
                return f"{claim} is allowed by {rule.described}"
        return None

    def _stays(self, claim: CommandClaim, mode: ModeRules, coverage: Coverage) -> bool:
        """Whether a command reaches for nothing that the mode, or a rule, would not let be edited."""
        if program_name(claim.words[0].text) in PRIVILEGED:
            return False
        if inline_code_at(claim.words) is not None and hides_code(claim.words):
            return False
        for place in claim.places:
            edit = PathClaim("edit", place)
            if any(coverage.touches(rule, edit) is not Match.NO for rule in mode.ask):
                return False
            written = (rule for rule in self._rules if rule.effect == "allow")
            if not coverage.is_ordinary(edit) and not any(coverage.covers(rule, edit) for rule in written):
                return False
        return True

    def _scopes(self, rulings: Sequence[Ruling], coverage: Coverage) -> list[Scope]:
        """What an always would remember: a scope for each claim, or nothing at all."""
        scopes: list[Scope] = []
        for ruling in rulings:
            scope = scope_of(ruling.claim, self._project, coverage.roots) if ruling.may_remember else None
            if scope is None or not _answers(scope, ruling.claim, coverage):
                return []
            scopes.append(scope if self._choices.can_last else scope.for_session())
        return scopes


def _is_overreaching(rule: Rule) -> bool:
    return rule.effect == "allow" and rule.origin == PROJECT


def _answers(scope: Scope, claim: Claim, coverage: Coverage) -> bool:
    """Whether remembering the scope would really answer the same question the next time.

    What is sensitive is asked about each time, unless a rule that somebody has written names it.
    """
    if isinstance(claim, PathClaim) and coverage.is_sensitive(claim):
        return False
    try:
        rule = Rule.parse("allow", scope.rule_text, "")
    except ValueError:
        return False
    return coverage.covers(rule, claim)

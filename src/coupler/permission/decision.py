"""Decides about an action: by the floor, rules, the mode and remembered choices, else by a dialog.

This is the only place that decides. An action is taken apart once, into claims; every claim is ruled on by
itself. One that is denied denies the action; one that must be asked about makes it asked about; it is allowed
only if all are. Whoever wants something decided supplies the dialog and nothing else: a permission request to
an editor, a question at a terminal, a function, or `nobody`.
"""

from __future__ import annotations

import asyncio
import logging
import os.path
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from coupler.permission.action import READING_KINDS, Action, Budget
from coupler.permission.claims import (
    Claim,
    CommandClaim,
    Destruction,
    Doubt,
    PathClaim,
    ToolClaim,
    claims_of,
)
from coupler.permission.offers import Choices, Offer, Scope, offers_for, scope_of
from coupler.permission.patterns import Match
from coupler.permission.reading_commands import why_not_reading
from coupler.permission.rules import NO_MODE, PROJECT, Coverage, Effect, ModeRules, Rule
from coupler.runtime.paths import real_directories
from coupler.runtime.threads import in_thread
from coupler.store.errors import StoreError

log = logging.getLogger("coupler.permission")

NEVER = "no rule, mode or answer allows that; if it is meant, its user has to do it by hand"
NOBODY_TO_ASK = "nobody can be asked"

Reads: TypeAlias = Literal["none", "ordinary", "claimed"]
"""Reads that need no rule: none, ordinary files of the session's directories, or also what says it reads."""


class Verdict(Struct, frozen=True):
    """The ruling on an action before anybody is asked: the decision, the reason, and what to offer."""

    decision: Effect
    reason: str
    offers: tuple[Offer, ...] = ()
    is_ruled: bool = False
    """True if it is denied, or asked about because of a rule; False if it is asked for lack of one."""
    is_against: bool = False
    """True if it is denied, or must be asked about even by who would allow what no rule is about.

    Because a rule says so or may mean it, because it may be what nobody may allow, or because it cannot be
    judged while there are rules against something.
    """
    is_vital: bool = False
    """True if it may be what nobody may allow: a person has to see it, else it is denied."""
    is_final: bool = False
    """True if it is denied for good: no rule or answer can allow it."""
    asked_by: tuple[Rule, ...] = ()
    """The rules because of which it is asked about."""

    @property
    def remedy(self) -> str:
        """The remedy for what a rule is against, unless it is denied for good."""
        return self.reason if self.is_final else f"{self.reason}: take that rule out to allow it"

    @property
    def allowing_rules(self) -> tuple[str, ...]:
        """The rules that would allow it, if there are some that say exactly what they allow."""
        scopes = (scope for offer in self.offers if offer.kind == "allow_always" for scope in offer.scopes)
        return tuple(scope.rule_text for scope in scopes)


class Permission(NamedTuple):
    """The decision on an action: given or not, and the reason."""

    is_given: bool
    reason: str
    option: str | None = None
    """The id of the chosen option, if the dialog had options of the caller's own."""
    offer: Offer | None = None
    """The offer that was taken, if there is one: what it says is remembered."""
    is_answered: bool = False
    """True if a person has answered."""
    verdict: Verdict | None = None
    """The ruling that it follows from."""
    only_reads: bool = False
    """True if the action says that it only reads ordinary files of the session's directories."""


Dialog: TypeAlias = Callable[[Verdict], Awaitable[Permission]]
"""Asks about the action that a verdict is on; anything but a clear yes is a no."""


async def nobody(verdict: Verdict) -> Permission:
    """Refuse, as the dialog of those who can ask nobody."""
    return Permission(False, f"not permitted: {verdict.reason}; {NOBODY_TO_ASK}")


class Ruling(Struct, frozen=True):
    """The decision about one claim."""

    decision: Effect
    reason: str
    claim: Claim
    may_remember: bool = False
    """True if the user's answer may be remembered."""
    is_ruled: bool = False
    """True if it is asked about because of an ask rule, or of a deny rule that may mean it."""
    asked_by: tuple[Rule, ...] = ()


class Assessment(Struct, frozen=True):
    """An action taken apart: its claims, and what rules compare them with."""

    claims: tuple[Claim, ...]
    coverage: Coverage


class Permissions:
    """Decides about actions by the rules and choices of one session in one project."""

    def __init__(
        self, rules: Sequence[Rule], choices: Choices, project: str, *, reads: Reads = "ordinary"
    ) -> None:
        self.choices = choices
        self._rules = [rule for rule in rules if not _is_overreaching(rule)]
        self._project = os.path.realpath(project)
        self._reads = reads
        self._mode: Callable[[], ModeRules] = lambda: NO_MODE

    def follow(self, mode: Callable[[], ModeRules]) -> None:
        """Apply the rules of the session's mode as well; `mode` is called whenever an action is judged."""
        self._mode = mode

    @property
    def runs_only_reading(self) -> bool:
        """True if the mode runs commands that are known to only read, and no others."""
        return self._mode().only_reading is not None

    @property
    def has_restrictions(self) -> bool:
        """True if a rule denies or asks about something, or the mode denies something."""
        return any(rule.effect != "allow" for rule in self._rules) or bool(self._mode().deny)

    async def decide(
        self,
        action: Action,
        dialog: Dialog,
        *,
        unruled: Literal["ask", "allow"] = "ask",
        always_asks: bool = False,
        also: Sequence[Rule] = (),
    ) -> Permission:
        """Decide whether an action may be done.

        `unruled` is what happens with an action that no rule and no choice is about. `also` are further rules
        that hold for this action alone. With `always_asks` the dialog is more than a question for permission,
        and is shown although the action is allowed.
        """
        await self.refresh()
        assessment, verdict = await self._judged(action, also)
        if verdict.decision == "ask" and unruled == "allow" and not verdict.is_against:
            return Permission(True, "no rule is against it", verdict=verdict)
        if verdict.decision == "ask" or (verdict.decision == "allow" and always_asks):
            permission = await self._ask(assessment, verdict, dialog, also)
            verdict = permission.verdict or verdict
            return permission._replace(verdict=verdict, only_reads=_only_reads(assessment))
        return _permission(verdict)

    async def _ask(
        self, assessment: Assessment, verdict: Verdict, dialog: Dialog, also: Sequence[Rule]
    ) -> Permission:
        """Ask, until there is an answer or the answer to another question decides this one as well."""
        settled: list[Permission] = []
        # Without a time: it is over when a choice has decided the question.
        standing = asyncio.timeout(None)

        def look_again() -> None:
            now = self.rule_on(assessment, also)
            if now.decision not in ("ask", verdict.decision) and not settled:
                settled.append(_permission(now))
                standing.reschedule(asyncio.get_running_loop().time())

        stop_watching = self.choices.watch(look_again)
        try:
            async with standing:
                permission = await dialog(verdict)
        except TimeoutError:
            if not settled:
                raise
            return settled[0]
        finally:
            stop_watching()
        if permission.offer is not None and permission.offer.scopes:
            await self._remember(permission.offer)
        return permission

    async def refresh(self) -> None:
        """Read the project's choices again: they are shared with other sessions and with commands."""
        try:
            await self.choices.refresh()
        except StoreError as error:
            # What was read before still counts; at worst the user is asked once more.
            log.warning("the remembered choices could not be read: %s", error)

    async def _remember(self, offer: Offer) -> None:
        try:
            await self.choices.remember(offer.answer, offer.scopes)
        except StoreError as error:
            log.warning("the choice holds for this time only: %s", error)

    async def judge_all(self, actions: Iterable[Action], also: Sequence[Rule] = ()) -> list[Verdict]:
        """Judge actions without asking anybody, by what is remembered now."""
        await self.refresh()
        given = [*actions]
        return await in_thread(lambda: [self.judge(action, also) for action in given])

    def judge(self, action: Action, also: Sequence[Rule] = ()) -> Verdict:
        """Judge an action without asking anybody, by the choices that were read before; it may take a while.

        Raises nothing, whatever the action says.
        """
        return self.rule_on(self._assess(action), also)

    async def _judged(self, action: Action, also: Sequence[Rule]) -> tuple[Assessment, Verdict]:
        """Take an action apart and rule on it, in a thread if that looks at files or parses a command."""

        def judge() -> tuple[Assessment, Verdict]:
            assessment = self._assess(action)
            return assessment, self.rule_on(assessment, also)

        return await in_thread(judge) if action.paths or action.command is not None else judge()

    def _assess(self, action: Action) -> Assessment:
        roots = real_directories(action.roots)
        claims = claims_of(action, self._project, roots, Budget())
        return Assessment(tuple(claims), Coverage(action, self._project, roots))

    def rule_on(self, assessment: Assessment, also: Sequence[Rule] = ()) -> Verdict:
        """Rule on an action that was taken apart, by rules, choices and the mode as they are now."""
        coverage = assessment.coverage
        rulings = [self._rule_on(claim, coverage, also) for claim in assessment.claims]
        if denied := [ruling for ruling in rulings if ruling.decision == "deny"]:
            final = [ruling for ruling in denied if isinstance(ruling.claim, Destruction)]
            reason = (final or denied)[0].reason
            return Verdict("deny", reason, is_ruled=True, is_against=True, is_final=bool(final))
        if asked := [ruling for ruling in rulings if ruling.decision == "ask"]:
            return self._asked(asked, coverage, also)
        told = [ruling for ruling in rulings if ruling.reason]
        return Verdict("allow", told[0].reason if told else "nothing in it needs an allowance")

    def _asked(self, asked: Sequence[Ruling], coverage: Coverage, also: Sequence[Rule]) -> Verdict:
        doubts = [ruling.claim for ruling in asked if isinstance(ruling.claim, Doubt)]
        is_ruled = any(ruling.is_ruled for ruling in asked)
        is_vital = any(doubt.is_vital for doubt in doubts)
        chosen = (*self.choices.session, *self.choices.kept)
        has_rules = self.has_restrictions or any(rule.effect != "allow" for rule in (*also, *chosen))
        # What no rule allows says less than why it cannot be allowed.
        telling = [ruling for ruling in asked if ruling.is_ruled or isinstance(ruling.claim, Doubt)]
        return Verdict(
            "ask",
            (telling or asked)[0].reason,
            offers_for(self._scopes(asked, coverage)),
            is_ruled=is_ruled,
            is_against=is_ruled or is_vital or (bool(doubts) and has_rules),
            is_vital=is_vital,
            asked_by=tuple(dict.fromkeys(rule for ruling in asked for rule in ruling.asked_by)),
        )

    def _rule_on(self, claim: Claim, coverage: Coverage, also: Sequence[Rule]) -> Ruling:
        if isinstance(claim, Destruction):
            return Ruling("deny", f"{claim}: {NEVER}", claim)
        mode = self._mode().only_reading
        if mode is not None and (reason := _why_not_reading(claim, coverage)) is not None:
            return Ruling("deny", f"{reason}; the mode {mode!r} runs only commands that read", claim)
        if isinstance(claim, Doubt):
            return Ruling("ask", str(claim), claim)
        rules = (*self._rules, *also, *self._mode().deny)
        # What a search leaves out, no rule has to be asked about.
        least = Match.YES if _leaves_out_denied(claim, coverage) else Match.MAYBE
        against = _matching(claim, coverage, rules, "deny", least)
        if against and against[0][0] is Match.YES:
            return Ruling("deny", f"{claim} is denied by {against[0][1].described}", claim)
        if against:
            reason = f"{claim} may be what {against[0][1].described} denies"
            return Ruling("ask", reason, claim, is_ruled=True, asked_by=tuple(rule for _, rule in against))
        asking = tuple(rule for _, rule in _matching(claim, coverage, rules, "ask", least))
        if not asking:
            allowed = self._allowed(claim, coverage, also)
            if allowed is not None:
                return Ruling("allow", allowed, claim)
        return self._chosen(claim, coverage, asking)

    def _allowed(self, claim: Claim, coverage: Coverage, also: Sequence[Rule]) -> str | None:
        """Return why rules or defaults allow a claim: None if they do not, "" if it needs no allowance."""
        if (isinstance(claim, ToolClaim) and not claim.is_needed) or (
            isinstance(claim, CommandClaim) and claim.is_wrapper
        ):
            return ""  # nothing by itself
        if isinstance(claim, ToolClaim) and coverage.action.is_handed_over:
            return f"{claim} is one that the user gave to the agent"
        is_read = _leaves_out_denied(claim, coverage)
        ways = _ways(claim, coverage)
        for rule in (*self._rules, *also):
            if rule.effect == "allow" and any(coverage.covers(rule, way) for way in ways):
                return f"{claim} is allowed by {rule.described}"
        if coverage.action.server is not None or coverage.action.is_gated or self._reads == "none":
            return None
        if (
            isinstance(claim, PathClaim)
            and coverage.is_ordinary(claim)
            and (is_read or self._is_reading(claim.kind))
        ):
            return f"{claim} is inside of the session's directories"
        if isinstance(claim, ToolClaim) and claim.kind == "think":
            return "thinking touches nothing"
        if isinstance(claim, ToolClaim) and self._reads == "claimed" and claim.kind in READING_KINDS:
            return f"{claim} only reads, as it says"
        return None

    def _is_reading(self, kind: str) -> bool:
        return kind == "read" or (kind == "search" and self._reads == "claimed")

    def _chosen(self, claim: Claim, coverage: Coverage, asking: tuple[Rule, ...]) -> Ruling:
        """Judge a claim by remembered choices, then by the mode; ask if neither decides.

        The session's choices come before the project's, and in each of them a rejection before an allowance.
        """
        is_open = not any(rule.is_each_time for rule in asking)
        may_mean: tuple[Rule, ...] = asking
        ways = _ways(claim, coverage)
        for choices in (self.choices.session, self.choices.kept):
            rejecting = [rule for rule in choices if rule.effect == "deny"]
            for rule in rejecting:
                if coverage.touches(rule, claim) is Match.YES:
                    return Ruling("deny", f"{claim} is denied by {rule.described}", claim)
            may_reject = tuple(rule for rule in rejecting if coverage.touches(rule, claim) is Match.MAYBE)
            may_mean += may_reject
            for rule in choices if is_open and not may_reject else ():
                if rule.effect == "allow" and any(coverage.covers(rule, way) for way in ways):
                    return Ruling("allow", f"{claim} is allowed by {rule.described}", claim)
        if not may_mean and (by_mode := self._by_mode(claim, coverage)) is not None:
            return Ruling("allow", by_mode, claim)
        why = self._why_open(claim, coverage)
        if may_mean:
            why = f"{claim} may be what {may_mean[0].described} rejects"
        if asking:
            why = f"{asking[0].described} asks about {claim}"
        return Ruling("ask", why, claim, may_remember=is_open, is_ruled=bool(may_mean), asked_by=may_mean)

    def _why_open(self, claim: Claim, coverage: Coverage) -> str:
        """Return why neither rules nor the mode decide about a claim."""
        mode = self._mode()
        if mode.only_reading is not None and isinstance(claim, CommandClaim):
            return f"{claim} reads what lies outside of the session's directories, or may hold secrets"
        if any(coverage.covers(rule, claim) for rule in mode.allow):
            return f"the mode asks about {claim}"
        return f"no rule allows {claim}"

    def _by_mode(self, claim: Claim, coverage: Coverage) -> str | None:
        """Return why the mode allows a claim, if it does; a command must also stay in the project."""
        mode = self._mode()
        if mode.only_reading is not None and isinstance(claim, CommandClaim):
            if coverage.reads_elsewhere(claim, self._rules):
                return None
            return f"{claim} only reads"
        if not coverage.stays(mode, claim, self._rules):
            return None
        for rule in mode.allow:
            if coverage.covers(rule, claim):
                return f"{claim} is allowed by {rule.described}"
        return None

    def _scopes(self, rulings: Sequence[Ruling], coverage: Coverage) -> list[Scope]:
        """Return the scopes that "always" would remember; none at all if one of the rulings has no scope."""
        scopes: list[Scope] = []
        for ruling in rulings:
            claim = ruling.claim
            if isinstance(claim, PathClaim) and not claim.place.is_inside(coverage.roots):
                claim = _ways(claim, coverage)[-1]
            scope = scope_of(claim, self._project, coverage.roots) if ruling.may_remember else None
            if scope is None or not _answers(scope, claim, coverage):
                return []
            scopes.append(scope if self.choices.can_last else scope.for_session())
        return scopes


def _permission(verdict: Verdict) -> Permission:
    if verdict.decision == "allow":
        return Permission(True, verdict.reason, verdict=verdict)
    return Permission(False, f"not permitted: {verdict.reason}", verdict=verdict)


def _leaves_out_denied(claim: Claim, coverage: Coverage) -> bool:
    """True for a search that leaves out what may not be read: nothing denied is touched by it."""
    return coverage.action.leaves_out_denied and isinstance(claim, PathClaim) and claim.kind == "search"


def _why_not_reading(claim: Claim, coverage: Coverage) -> str | None:
    """Return why a part of an action is no command that only reads; None if it is one, or none at all."""
    match claim:
        case Doubt() if coverage.action.commands:
            return str(claim)
        case ToolClaim(kind="execute", is_needed=True):
            return f"{claim} may change something"
        case CommandClaim():
            why = why_not_reading(claim.words, is_wrapper=claim.is_wrapper, moves=claim.moves)
            if why is None and claim.reach.is_beyond:
                why = "may print secrets of the environment"
            if why is None and claim.reach.is_reader and claim.reach.is_vague:
                why = "reads files that are only known when it runs"
            return f"{claim} {why}" if why is not None else None
    return None


def _ways(claim: Claim, coverage: Coverage) -> tuple[Claim, ...]:
    """Return the claims of which an allowance is one for this claim.

    A search that leaves out what may not be read is a read of the rest.
    """
    if isinstance(claim, PathClaim) and _leaves_out_denied(claim, coverage):
        return (claim, PathClaim("read", claim.place))
    return (claim,)


def _only_reads(assessment: Assessment) -> bool:
    coverage = assessment.coverage
    return all(
        (isinstance(claim, ToolClaim) and claim.kind in READING_KINDS and claim.server is None)
        or (isinstance(claim, PathClaim) and claim.kind in READING_KINDS and coverage.is_ordinary(claim))
        for claim in assessment.claims
    )


def _is_overreaching(rule: Rule) -> bool:
    return rule.effect == "allow" and rule.origin == PROJECT


def _matching(
    claim: Claim, coverage: Coverage, rules: Sequence[Rule], effect: Effect, least: Match
) -> list[tuple[Match, Rule]]:
    """Return the rules with this effect that match at least so well, and how well, the best first."""
    matches = ((coverage.touches(rule, claim), rule) for rule in rules if rule.effect == effect)
    return sorted((pair for pair in matches if pair[0] >= least), key=lambda pair: -pair[0])


def _answers(scope: Scope, claim: Claim, coverage: Coverage) -> bool:
    """True if a rule with this scope would allow the claim the next time.

    What is sensitive is asked about each time, unless a written rule names it.
    """
    if isinstance(claim, PathClaim) and coverage.is_sensitive(claim):
        return False
    try:
        rule = Rule.parse("allow", scope.rule_text, "")
    except ValueError:
        return False
    return coverage.covers(rule, claim)

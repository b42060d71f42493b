"""Decides whether a session's tool calls may go on: by the rules, or by asking the user.

The rules and what was chosen are read when the first call asks. Anything but a clear yes is a no: a cancel,
an error, an option that was never offered, a client that is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from coupler.config import Config, keys
from coupler.permission.action import Action
from coupler.permission.engine import Choices, ChoiceStore, Offer, Permissions, Verdict
from coupler.permission.rules import PROJECT, Rule, names_host
from coupler.redaction.known_secrets import masked_beginning
from coupler.schema.v1 import (
    PermissionOption,
    PermissionToolCall,
    RequestPermissionRequest,
    SelectedPermissionOutcome,
)
from coupler.store.errors import StoreError
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.permission.rules import ModeRules

log = logging.getLogger("coupler.agent")

NOT_BY_THE_USER = "not permitted by the user"
ALLOWING = ("allow_once", "allow_always")
ALWAYS = ("allow_always", "reject_always")
LONGEST_REASON = 500
"""Characters of what a client says went wrong."""


class Permission(NamedTuple):
    """The decision on a tool call: permitted or not, and the reason."""

    is_given: bool
    reason: str
    option: str | None = None
    """The id of the chosen option, if the user was asked with options of the caller's own."""


class _Dialog:
    """A permission request that waits for its answer, or until the answer to another one decides it."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self.permission = Permission(False, NOT_BY_THE_USER)
        # Without a time: it is over when somebody calls `take_back`.
        self.standing = asyncio.timeout(None)

    def take_back(self, permission: Permission) -> None:
        """Withdraw the request, with this as its decision."""
        self.permission = permission
        self.standing.reschedule(asyncio.get_running_loop().time())


class Permitting:
    """Decides for one session; what is chosen for it reaches no other."""

    def __init__(self, config: Config, project: str, store: ChoiceStore | None) -> None:
        self.choices = Choices(project, store)
        """The user's "always" answers, for this session and for this project."""
        self._rules = rules_of(config)
        self._permissions = Permissions(self._rules, self.choices, project)
        self._dialogs: set[_Dialog] = set()

    def follow(self, mode: Callable[[], ModeRules]) -> None:
        """Apply the rules of the mode that the session is in when something is judged."""
        self._permissions.follow(mode)

    async def decide(
        self,
        turn: Turn,
        call: PermissionToolCall,
        action: Action,
        deadline: float | None,
        own: tuple[PermissionOption, ...] = (),
        always: Collection[str] = ALWAYS,
    ) -> Permission:
        """Decide whether an action is permitted; asks the user if neither rule nor choice decides.

        A caller with options of its `own` asks with them. An "always" that is not among them is added, with
        what it means, if it is one of `always`; if there are several ways to say yes, the question is more
        than a permission, and is asked.
        """
        await self._refresh()
        verdict = self._permissions.judge(action)
        if verdict.decision == "deny" or (verdict.decision == "allow" and not _has_several_ways(own)):
            return _permission(verdict)
        # What is remembered is kept as it is written, and must be read before it is agreed to.
        mask = turn.session.secrets.mask
        offers = tuple(offer for offer in verdict.offers if mask(offer.text) == offer.text)
        if own:
            offers = _missing_always(offers, own, always)
        options = tuple(PermissionOption(offer.kind, offer.text, offer.kind) for offer in offers)
        question = RequestPermissionRequest(turn.session.id, call, (*own, *options))
        return await self._ask(turn, question, _Dialog(action), offers, deadline, own)

    async def judge(self, action: Action) -> Verdict:
        """Judge an action by rules and choices, without asking the user."""
        await self._refresh()
        return self._permissions.judge(action)

    async def names_host(self, address: str) -> bool:
        """Return whether a rule or a choice of the user's allows the very host of an address."""
        await self._refresh()
        return names_host((*self._rules, *self.choices.session, *self.choices.kept), address)

    @property
    def has_restrictions(self) -> bool:
        """True if any rule denies something or requires to ask."""
        return self._permissions.has_restrictions

    def judge_now(self, action: Action) -> Verdict:
        """Judge an action without waiting for the store: by the choices that were read before."""
        return self._permissions.judge(action)

    async def may_refuse(self) -> bool:
        """Return whether any rule or choice denies something or requires to ask."""
        await self._refresh()
        chosen = (*self.choices.session, *self.choices.kept)
        return self.has_restrictions or any(rule.effect != "allow" for rule in chosen)

    def close(self) -> None:
        """Drop the choices that were made for the session, because it is closed."""
        self.choices.close()

    async def _ask(
        self,
        turn: Turn,
        question: RequestPermissionRequest,
        dialog: _Dialog,
        offers: tuple[Offer, ...],
        deadline: float | None,
        own: tuple[PermissionOption, ...],
    ) -> Permission:
        self._dialogs.add(dialog)
        try:
            async with dialog.standing:
                answer = await turn.call_editor(question, deadline=deadline)
        except TimeoutError:
            return dialog.permission
        except RpcError as error:
            why = f"not permitted: the client could not ask: {error.message}"
            return Permission(False, masked_beginning(why, LONGEST_REASON))
        finally:
            self._dialogs.discard(dialog)
        chosen = _chosen(answer.outcome, offers)
        if chosen is None and (picked := _picked(answer.outcome, own)) is not None:
            is_given = picked.kind in ALLOWING
            reason = "allowed by the user" if is_given else NOT_BY_THE_USER
            return Permission(is_given, reason, picked.option_id)
        if chosen is None:
            return Permission(False, NOT_BY_THE_USER)
        if chosen.scopes:
            await self._remember(chosen)
            self._take_back_decided()
        is_given = chosen.answer == "allow"
        return Permission(is_given, "allowed by the user" if is_given else NOT_BY_THE_USER)

    def _take_back_decided(self) -> None:
        """Withdraw open requests that a new choice has decided: who said "always" has answered them, too."""
        for dialog in tuple(self._dialogs):
            verdict = self._permissions.judge(dialog.action)
            if verdict.decision != "ask":
                self._dialogs.discard(dialog)
                dialog.take_back(_permission(verdict))

    async def _refresh(self) -> None:
        try:
            await self.choices.refresh()
        except StoreError as error:
            # What was read before still counts; at worst the user is asked once more.
            log.warning("the remembered choices could not be read: %s", error)

    async def _remember(self, chosen: Offer) -> None:
        try:
            await self.choices.remember(chosen.answer, chosen.scopes)
        except StoreError as error:
            log.warning("the choice holds for this time only: %s", error)


def _has_several_ways(own: tuple[PermissionOption, ...]) -> bool:
    return any(sum(option.kind == kind for option in own) > 1 for kind in ALLOWING)


def _missing_always(
    offers: tuple[Offer, ...], own: tuple[PermissionOption, ...], always: Collection[str]
) -> tuple[Offer, ...]:
    missing = {*always} - {option.kind for option in own} - {option.option_id for option in own}
    return tuple(offer for offer in offers if offer.scopes and offer.kind in missing)


def _permission(verdict: Verdict) -> Permission:
    if verdict.decision == "allow":
        return Permission(True, verdict.reason)
    return Permission(False, f"not permitted: {verdict.reason}")


def rules_of(config: Config) -> list[Rule]:
    """Parse the rules of a configuration; raises ValueError that names the one that is wrong."""
    rules: list[Rule] = []
    for effect, key in (("allow", keys.ALLOW), ("ask", keys.ASK), ("deny", keys.DENY)):
        for entry in config[key]:
            is_projects = entry.origin.layer == "project"
            origin = PROJECT if is_projects else entry.origin.layer
            # A file above the nearest one means its own directories.
            base = entry.origin.directory if is_projects else None
            rules.append(Rule.parse(effect, entry.text, origin, str(entry.origin), base))
    return rules


def _chosen(outcome: object, offers: tuple[Offer, ...]) -> Offer | None:
    if not isinstance(outcome, SelectedPermissionOutcome):
        return None
    return next((offer for offer in offers if offer.kind == outcome.option_id), None)


def _picked(outcome: object, own: tuple[PermissionOption, ...]) -> PermissionOption | None:
    if not isinstance(outcome, SelectedPermissionOutcome):
        return None
    return next((option for option in own if option.option_id == outcome.option_id), None)

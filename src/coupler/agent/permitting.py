"""Whether a session's tool calls may go on: what the engine decides, and the user where it does not.

The rules and what was chosen are read when the first call asks. Anything but a clear yes is a no: a cancel,
an error, an option that was never offered, a client that is gone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from coupler.config import Config, keys
from coupler.permission.action import Action
from coupler.permission.choices import Choices, ChoiceStore
from coupler.permission.engine import Permissions
from coupler.permission.offer import Offer
from coupler.permission.rule import PROJECT, Rule
from coupler.schema.v1 import (
    PermissionOption,
    PermissionToolCall,
    RequestPermissionRequest,
    SelectedPermissionOutcome,
)
from coupler.store.errors import StoreError
from coupler.wire.errors import RpcError

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.agent")

NOT_BY_THE_USER = "not permitted by the user"


class Permission(NamedTuple):
    """A yes, or a no with its reason."""

    is_given: bool
    reason: str


class Permitting:
    """Decides for one session; what is chosen for it reaches no other."""

    def __init__(self, config: Config, project: str, store: ChoiceStore | None) -> None:
        self._choices = Choices(project, store)
        self._permissions = Permissions(rules_of(config), self._choices, project)
        for note in self._permissions.notes:
            log.warning("%s", note)

    async def decide(
        self, turn: Turn, call: PermissionToolCall, action: Action, deadline: float | None
    ) -> Permission:
        """Whether this may be done; asks the user if neither rule nor choice says so."""
        await self._refresh()
        verdict = self._permissions.judge(action)
        if verdict.decision == "allow":
            return Permission(True, verdict.reason)
        if verdict.decision == "deny":
            return Permission(False, f"not permitted: {verdict.reason}")
        return await self._ask(turn, call, verdict.offers, deadline)

    def close(self) -> None:
        """The session is left, and what was chosen for it forgotten."""
        self._choices.close()

    async def _ask(
        self, turn: Turn, call: PermissionToolCall, offers: tuple[Offer, ...], deadline: float | None
    ) -> Permission:
        # What is remembered is kept as it is written, and must be read before it is agreed to.
        offers = tuple(offer for offer in offers if turn.session.secrets.mask(offer.text) == offer.text)
        options = tuple(PermissionOption(offer.kind, offer.text, offer.kind) for offer in offers)
        question = RequestPermissionRequest(turn.session.id, call, options)
        try:
            answer = await turn.call_editor(question, deadline=deadline)
        except RpcError as error:
            return Permission(False, f"not permitted: {error.message}")
        chosen = _chosen(answer.outcome, offers)
        if chosen is None:
            return Permission(False, NOT_BY_THE_USER)
        await self._remember(chosen)
        is_given = chosen.answer == "allow"
        return Permission(is_given, "allowed by the user" if is_given else NOT_BY_THE_USER)

    async def _refresh(self) -> None:
        try:
            await self._choices.refresh()
        except StoreError as error:
            # What was read before still counts; at worst the user is asked once more.
            log.warning("the remembered choices could not be read: %s", error)

    async def _remember(self, chosen: Offer) -> None:
        try:
            await self._choices.remember(chosen.answer, chosen.scopes)
        except StoreError as error:
            log.warning("the choice holds for this time only: %s", error)


def rules_of(config: Config) -> list[Rule]:
    """The rules that a configuration has; raises ValueError that names the one that is wrong."""
    rules: list[Rule] = []
    for effect, key in (("allow", keys.ALLOW), ("ask", keys.ASK), ("deny", keys.DENY)):
        for entry in config[key]:
            origin = PROJECT if entry.origin.layer == "project" else entry.origin.layer
            rules.append(Rule.parse(effect, entry.text, origin, str(entry.origin)))
    return rules


def _chosen(outcome: object, offers: tuple[Offer, ...]) -> Offer | None:
    if not isinstance(outcome, SelectedPermissionOutcome):
        return None
    return next((offer for offer in offers if offer.kind == outcome.option_id), None)

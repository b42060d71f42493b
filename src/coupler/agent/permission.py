"""Asks a session's user for permission, where rules and remembered choices do not decide.

Anything but a clear yes is a no: a cancel, an error, an option that was never offered, a client that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coupler.config import Config
from coupler.permission.action import ALLOWING
from coupler.permission.decision import Permission, Permissions, Verdict
from coupler.permission.offers import Choices, ChoiceStore, Offer
from coupler.permission.rules import PROJECT, Rule, names_host
from coupler.redaction.known_secrets import masked_beginning
from coupler.schema.v1 import (
    PermissionOption,
    PermissionToolCall,
    RequestPermissionOutcome,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SelectedPermissionOutcome,
)
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

NOT_BY_THE_USER = "not permitted by the user"
ALWAYS = ("allow_always", "reject_always")
LONGEST_REASON = 500
"""Characters of what a client says went wrong."""


class SessionPermissions(Permissions):
    """Decides for one session, by the rules of its configuration; what is chosen for it reaches no other."""

    def __init__(self, config: Config, project: str, store: ChoiceStore | None) -> None:
        rules = rules_of(config)
        super().__init__(rules, Choices(project, store), project)
        self._written = rules

    async def names_host(self, address: str) -> bool:
        """Return whether a rule or a choice of the user's allows the very host of an address."""
        await self.refresh()
        return names_host((*self._written, *self.choices.session, *self.choices.kept), address)

    async def may_refuse(self) -> bool:
        """Return whether any rule or choice denies something or requires to ask."""
        await self.refresh()
        chosen = (*self.choices.session, *self.choices.kept)
        return self.has_restrictions or any(rule.effect != "allow" for rule in chosen)

    def close(self) -> None:
        """Drop the choices that were made for the session, because it is closed."""
        self.choices.close()


class TurnDialog:
    """Asks the user of a turn's client by a permission request.

    A caller with options of its `own` asks with them. An "always" that is not among them is added, with what
    it means, if it is one of `always`. `more` are options besides the usual or the own ones.
    """

    def __init__(
        self,
        turn: Turn,
        as_asked: Callable[[], PermissionToolCall],
        *,
        deadline: float | None = None,
        own: tuple[PermissionOption, ...] = (),
        always: Collection[str] = ALWAYS,
        more: tuple[PermissionOption, ...] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """`as_asked` makes the call as the user is shown it; it is called once the user is asked.

        `meta` is the `_meta` of the request.
        """
        self.answer: RequestPermissionResponse | None = None
        """The client's answer, if it was asked."""
        self._turn = turn
        self._as_asked = as_asked
        self._deadline = deadline
        self._own = own
        self._always = always
        self._more = more
        self._meta = meta

    @property
    def has_several_ways(self) -> bool:
        """True if there are several ways to say yes, so that it is more than a question for permission."""
        return any(sum(option.kind == kind for option in self._own) > 1 for kind in ALLOWING)

    async def __call__(self, verdict: Verdict) -> Permission:
        offers = self._offers(verdict)
        options = tuple(PermissionOption(offer.kind, offer.text, offer.kind) for offer in offers)
        question = RequestPermissionRequest(
            self._turn.session.id,
            self._as_asked(),
            (*self._own, *options, *self._more),
            meta=self._meta or UNSET,
        )
        try:
            answer = self.answer = await self._turn.call_editor(question, deadline=self._deadline)
        except TimeoutError:
            return Permission(False, NOT_BY_THE_USER)
        except RpcError as error:
            why = f"not permitted: the client could not ask: {error.message}"
            return Permission(False, masked_beginning(why, LONGEST_REASON))
        return self._answered(answer.outcome, offers)

    def _offers(self, verdict: Verdict) -> tuple[Offer, ...]:
        # What is remembered is kept as it is written, and must be read before it is agreed to.
        mask = self._turn.session.secrets.mask
        offers = tuple(offer for offer in verdict.offers if mask(offer.text) == offer.text)
        if not self._own:
            return offers
        known = {option.kind for option in self._own} | {option.option_id for option in self._own}
        missing = {*self._always} - known
        return tuple(offer for offer in offers if offer.scopes and offer.kind in missing)

    def _answered(self, outcome: RequestPermissionOutcome, offers: tuple[Offer, ...]) -> Permission:
        chosen = outcome.option_id if isinstance(outcome, SelectedPermissionOutcome) else None
        offer = next((offer for offer in offers if offer.kind == chosen), None)
        option = next((each for each in (*self._own, *self._more) if each.option_id == chosen), None)
        kind = offer.kind if offer is not None else option.kind if option is not None else None
        is_given = kind in ALLOWING
        reason = "allowed by the user" if is_given else NOT_BY_THE_USER
        if offer is not None:
            return Permission(is_given, reason, offer=offer, is_answered=True)
        return Permission(is_given, reason, None if option is None else option.option_id, is_answered=True)


def rules_of(config: Config) -> list[Rule]:
    """Parse the rules of a configuration; raises ValueError that names the one that is wrong."""
    rules: list[Rule] = []
    said = config.permissions
    for effect, entries in (("allow", said.allow), ("ask", said.ask), ("deny", said.deny)):
        for entry in entries:
            is_projects = entry.origin.layer == "project"
            origin = PROJECT if is_projects else entry.origin.layer
            # A file above the nearest one means its own directories.
            base = entry.origin.directory if is_projects else None
            rules.append(Rule.parse(effect, entry.text, origin, str(entry.origin), base))
    return rules

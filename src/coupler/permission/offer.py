"""The answers that a user is offered, each with what it would mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from coupler.permission.choices import Answer
from coupler.permission.scope import Scope

OfferKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]

MOST_SCOPES = 3
"""Scopes in one answer; more would be agreed to unread."""


class Offer(Struct, frozen=True):
    """One answer; its kind is ACP's."""

    kind: OfferKind
    text: str
    scopes: tuple[Scope, ...] = ()
    """What an "always" remembers."""

    @property
    def answer(self) -> Answer:
        """What it means for the action."""
        return "allow" if self.kind.startswith("allow") else "deny"


def offers_for(scopes: Sequence[Scope]) -> tuple[Offer, ...]:
    """Once and always, yes and no; without scopes there is no always."""
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
    """The scopes in words; how long they last is said once if it is the same for all of them."""
    is_same = len({scope.lifetime for scope in scopes}) == 1
    before = ", ".join(scope.label if is_same else str(scope) for scope in scopes[:-1])
    return f"{before} and {scopes[-1]}" if before else str(scopes[-1])

"""What the next new session of a target will be told, as an earlier start knew it.

A heavy target takes seconds to import, and an editor shows nothing before its session is there. So a new
session is answered at once with what the last one was told. Its agent comes when the target is imported, and
whatever the client asks about the session meanwhile waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from coupler.agent.settings import BOOLEANS
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.v1 import NewSessionResponse

if TYPE_CHECKING:
    from coupler.agent.blueprint import Blueprint
    from coupler.agent.session import Session


class Foresight(Protocol):
    """Knows more of a target's sessions than there is of the target."""

    @property
    def forecast(self) -> Forecast | None:
        """What new sessions will be told; None if it is not known, or if the target is there."""
        ...

    def foresee(self, blueprint: Blueprint, session: Session) -> None:
        """A session was made: learn of it for the next start."""
        ...


class Forecast(msgspec.Struct, frozen=True):
    """Holds for one target; the record that has it sees to that."""

    identity: str
    store: str | None
    told: str
    """The answer that a session began with, as JSON; its id is left empty."""
    booleans: bool
    """Whether that was told to a client that knows boolean options."""

    @classmethod
    def of(cls, blueprint: Blueprint, session: Session) -> Forecast | None:
        """What a session that was just made says of the next; None if that one may have to be refused."""
        if blueprint.introduction.auth_methods or blueprint.backing is not None:
            return None
        told = NewSessionResponse("", session.settings.as_modes(), session.settings.as_options())
        booleans = session.editor.offers(BOOLEANS)
        return cls(blueprint.identity, blueprint.store, msgspec.json.encode(told).decode(), booleans)

    @classmethod
    def recalled(cls, kept: Any) -> Forecast | None:
        """What a record has of it; None if somebody has edited that, or there is none."""
        try:
            forecast = msgspec.convert(kept, cls)
            forecast.answer("")
        except (msgspec.ValidationError, DecodingError):
            return None
        return forecast

    def answer(self, session_id: str) -> NewSessionResponse:
        """What a new session is told."""
        told = decode(NewSessionResponse, self.told.encode(), "client")
        return msgspec.structs.replace(told, session_id=session_id)

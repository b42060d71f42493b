"""What an agent is offered that works for another one: the editor's files, terminals and forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from coupler.relay.editor import RelayedQuestions
from coupler.relay.relay import RelayOffer
from coupler.schema.methods import offers
from coupler.schema.v1 import AuthCapabilities, ClientCapabilities

if TYPE_CHECKING:
    from coupler.client.errors import Listener, Responder
    from coupler.client.files import FileAccess
    from coupler.relay.errors import Behind
    from coupler.schema.v1 import (
        CreateElicitationResponse,
        CreateFormElicitationRequest,
        CreateUrlElicitationRequest,
    )

TERMINAL = "terminal"


class DelegatedOffer(RelayOffer):
    """Terminals only where the editor has them: other commands an agent runs in its own environment."""

    def __init__(
        self,
        name: str,
        editor: ClientCapabilities,
        find: Callable[[str], Behind | None],
        files: FileAccess | None,
    ) -> None:
        super().__init__(editor, find, files)
        self._name = name

    def capabilities(self) -> ClientCapabilities:
        has_terminals = offers(self._editor, TERMINAL)
        return msgspec.structs.replace(
            super().capabilities(), terminal=has_terminals, auth=AuthCapabilities()
        )

    def responders(self) -> Mapping[str, Responder | Listener]:
        responders = dict(super().responders())
        if not offers(self._editor, TERMINAL):
            responders = {each: who for each, who in responders.items() if not each.startswith("terminal/")}
        if offers(self._editor, "elicitation"):
            responders.update(NamedQuestions(self._name, self._find).responders())
        return responders


class NamedQuestions(RelayedQuestions):
    """Questions that say whose they are: the user talks to another agent."""

    def __init__(self, name: str, find: Callable[[str], Behind | None]) -> None:
        super().__init__(find)
        self._name = name

    async def _passed_on(
        self, asked: CreateFormElicitationRequest | CreateUrlElicitationRequest, relayed: Behind
    ) -> CreateElicitationResponse:
        worded = msgspec.structs.replace(asked, message=f"{self._name} asks: {asked.message}")
        return await super()._passed_on(worded, relayed)

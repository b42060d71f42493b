"""What the agent behind is offered: computed from what its editor offers, and from what we have ourselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from coupler.client.offer import Offer
from coupler.relay.elicitation import RelayedQuestions
from coupler.relay.files import RelayedFiles
from coupler.relay.terminals import RelayedTerminals
from coupler.schema.methods import offers
from coupler.schema.v1 import AuthCapabilities, ClientCapabilities

if TYPE_CHECKING:
    from coupler.client.files import FileAccess
    from coupler.client.responder import Listener, Responder
    from coupler.relay.behind import Behind


class RelayOffer(Offer):
    """Files and terminals, because we have them if the editor has not; questions if it takes them.

    Only an agent for which somebody has said so is offered fewer files.
    """

    def __init__(
        self, editor: ClientCapabilities, find: Callable[[str], Behind | None], files: FileAccess | None
    ) -> None:
        super().__init__(files=files or "write")
        self._editor = editor
        self._find = find

    def capabilities(self) -> ClientCapabilities:
        return msgspec.structs.replace(
            super().capabilities(),
            terminal=True,
            elicitation=self._editor.elicitation,
            auth=AuthCapabilities(terminal=self._editor.auth.terminal),
        )

    def responders(self) -> Mapping[str, Responder | Listener]:
        responders: dict[str, Responder | Listener] = {
            **super().responders(),
            **RelayedFiles(self._files, self._find).responders(),
            **RelayedTerminals(self._find).responders(),
        }
        if offers(self._editor, "elicitation"):
            responders.update(RelayedQuestions(self._find).responders())
        return responders

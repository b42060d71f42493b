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
from coupler.schema.v1 import AuthCapabilities, ClientCapabilities, FileSystemCapabilities

if TYPE_CHECKING:
    from coupler.client.service import Listener, Service
    from coupler.relay.relayed import Relayed


class RelayOffer(Offer):
    """Files and terminals always, because we have them if the editor has not; questions if it takes them."""

    def __init__(self, editor: ClientCapabilities, find: Callable[[str], Relayed | None]) -> None:
        super().__init__()
        self._editor = editor
        self._find = find

    def capabilities(self) -> ClientCapabilities:
        return msgspec.structs.replace(
            super().capabilities(),
            fs=FileSystemCapabilities(read_text_file=True, write_text_file=True),
            terminal=True,
            elicitation=self._editor.elicitation,
            auth=AuthCapabilities(terminal=self._editor.auth.terminal),
        )

    def services(self) -> Mapping[str, Service | Listener]:
        services: dict[str, Service | Listener] = {
            **super().services(),
            **RelayedFiles(self._find).services(),
            **RelayedTerminals(self._find).services(),
        }
        if offers(self._editor, "elicitation"):
            services.update(RelayedQuestions(self._find).services())
        return services

"""What we offer an agent: computed once, advertised exactly so, and served by nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from coupler.client.permissions import Permissions
from coupler.client.service import Service
from coupler.schema.v1 import (
    BooleanConfigOptionCapabilities,
    ClientCapabilities,
    ClientSessionCapabilities,
    CompactionCapabilities,
    NoticeCapabilities,
    SessionConfigOptionsCapabilities,
)


class Offer:
    """The client's capabilities, and the services behind them."""

    def capabilities(self) -> ClientCapabilities:
        """What is advertised."""
        return ClientCapabilities(
            session=ClientSessionCapabilities(
                compaction=CompactionCapabilities(),
                config_options=SessionConfigOptionsCapabilities(boolean=BooleanConfigOptionCapabilities()),
                notices=NoticeCapabilities(),
            )
        )

    def services(self) -> Mapping[str, Service]:
        """Who answers which method."""
        return {"session/request_permission": Permissions()}

"""What we offer an agent: computed once, advertised exactly so, and served by nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from msgspec import UNSET

from coupler.client.files import FileAccess, Files
from coupler.client.permissions import Permissions
from coupler.client.service import Listener, Service
from coupler.schema.v1 import (
    BooleanConfigOptionCapabilities,
    ClientCapabilities,
    ClientSessionCapabilities,
    CompactionCapabilities,
    FileSystemCapabilities,
    NoticeCapabilities,
    SessionConfigOptionsCapabilities,
)

if TYPE_CHECKING:
    from coupler.client.elicitation import Elicitation, OnForm, OnUrl


class Offer:
    """The client's capabilities, and the services behind them: permissions always, the rest as wanted."""

    def __init__(
        self,
        *,
        files: FileAccess = "read",
        terminals: bool = False,
        on_form: OnForm | None = None,
        on_url: OnUrl | None = None,
    ) -> None:
        if files not in get_args(FileAccess):
            raise ValueError(f"files= is one of {', '.join(get_args(FileAccess))}, not {files!r}")
        for name, function in {"on_form": on_form, "on_url": on_url}.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name}= is a function that asks the user; this is {function!r}")
        self._files: FileAccess = files
        self._terminals = terminals
        self._on_form = on_form
        self._on_url = on_url

    def capabilities(self) -> ClientCapabilities:
        """What is advertised."""
        return ClientCapabilities(
            fs=FileSystemCapabilities(
                read_text_file=self._files != "none", write_text_file=self._files == "write"
            ),
            terminal=self._terminals,
            session=ClientSessionCapabilities(
                compaction=CompactionCapabilities(),
                config_options=SessionConfigOptionsCapabilities(boolean=BooleanConfigOptionCapabilities()),
                notices=NoticeCapabilities(),
            ),
            elicitation=UNSET if (elicitation := self._elicitation()) is None else elicitation.capabilities(),
        )

    def services(self) -> Mapping[str, Service | Listener]:
        """Who answers which method, for one run of the agent."""
        services: dict[str, Service | Listener] = {"session/request_permission": Permissions()}
        services |= Files(self._files).services()
        if (elicitation := self._elicitation()) is not None:
            services |= elicitation.services()
        if self._terminals:
            from coupler.client.terminals import Terminals

            services |= Terminals().services()
        return services

    # What most clients do not offer is imported on use.

    def _elicitation(self) -> Elicitation | None:
        if self._on_form is None and self._on_url is None:
            return None
        from coupler.client.elicitation import Elicitation

        return Elicitation(self._on_form, self._on_url)

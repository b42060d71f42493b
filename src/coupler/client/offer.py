"""What we offer an agent: computed once, advertised exactly so, and served by nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from msgspec import UNSET

from coupler.client.files import FileAccess, Files
from coupler.client.permissions import Permissions
from coupler.client.responder import Listener, Responder
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
    """The client's capabilities, and who responds to them: permissions always, the rest as wanted."""

    def __init__(
        self,
        *,
        files: FileAccess | None = None,
        terminals: bool = False,
        on_form: OnForm | None = None,
        on_url: OnUrl | None = None,
    ) -> None:
        if files is not None and files not in get_args(FileAccess):
            raise ValueError(f"files= is one of {', '.join(get_args(FileAccess))}, not {files!r}")
        for name, function in {"on_form": on_form, "on_url": on_url}.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name}= is a function that asks the user; this is {function!r}")
        self.wanted_files = files
        """What was asked for; None if nobody has said."""
        self._files: FileAccess = files or "read"
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

    def responders(self) -> Mapping[str, Responder | Listener]:
        """Who answers which method, for one run of the agent."""
        responders: dict[str, Responder | Listener] = {"session/request_permission": Permissions()}
        responders |= Files(self._files).responders()
        if (elicitation := self._elicitation()) is not None:
            responders |= elicitation.responders()
        if self._terminals:
            from coupler.client.terminals import Terminals

            responders |= Terminals().responders()
        return responders

    # What most clients do not offer is imported on use.

    def _elicitation(self) -> Elicitation | None:
        if self._on_form is None and self._on_url is None:
            return None
        from coupler.client.elicitation import Elicitation

        return Elicitation(self._on_form, self._on_url)

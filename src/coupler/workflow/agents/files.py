"""Files that an agent reads and writes through us during a step: each judged by the step's rules first.

That it does so without having asked is its own mode's decision, as far as `files` lets it, unless a rule that
somebody wrote forbids it or wants it to be asked about.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Literal

from coupler.client.files import FileAccess, Files
from coupler.client.offer import Offer
from coupler.relay.reasons import NOT_PERMITTED
from coupler.schema.v1 import (
    ReadTextFileRequest,
    ReadTextFileResponse,
    WriteTextFileRequest,
    WriteTextFileResponse,
)
from coupler.wire.errors import RpcError

if TYPE_CHECKING:
    from coupler.client.elicitation import OnForm
    from coupler.client.responder import Listener, Responder
    from coupler.client.session import RemoteSession

Touch = Literal["read", "edit"]
MayTouch = Callable[[str, Touch, str], Awaitable[bool]]
"""Whether the agent of a session may read or write a file now."""


class StepOffer(Offer):
    """What the agents of steps are offered."""

    def __init__(self, *, files: FileAccess | None, on_form: OnForm, may_touch: MayTouch) -> None:
        super().__init__(files=files, on_form=on_form)
        self._may_touch = may_touch

    def responders(self) -> Mapping[str, Responder | Listener]:
        return {**super().responders(), **JudgedFiles(self._files, self._may_touch).responders()}


class JudgedFiles(Files):
    """Reads and writes, where they are permitted."""

    def __init__(self, access: FileAccess, may_touch: MayTouch) -> None:
        super().__init__(access)
        self._may_touch = may_touch

    async def _read(self, request: ReadTextFileRequest, session: RemoteSession) -> ReadTextFileResponse:
        await self._require(session, "read", request.path)
        return await super()._read(request, session)

    async def _write(self, request: WriteTextFileRequest, session: RemoteSession) -> WriteTextFileResponse:
        await self._require(session, "edit", request.path)
        return await super()._write(request, session)

    async def _require(self, session: RemoteSession, touch: Touch, path: str) -> None:
        if not await self._may_touch(session.id, touch, path):
            raise RpcError.because(NOT_PERMITTED, "not permitted: see `tools` of the step", path="path")

"""How a session is opened: where, with which servers, under which policy, and set to what."""

from __future__ import annotations

import asyncio
import logging
import os.path
import shutil
import tempfile
from collections.abc import Awaitable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from coupler.client.equipment import Equipment
from coupler.client.errors import AgentError
from coupler.client.policy import Decide, Policy, PolicyName
from coupler.schema.v1 import McpServer

if TYPE_CHECKING:
    from coupler.client.confinement import Confinement
    from coupler.client.connection import Connection
    from coupler.client.session import RemoteSession

log = logging.getLogger("coupler.client")

TEMPORARY = "temporary"
"""As a session's directory: one is made for it, and removed when it ends."""

Directory: TypeAlias = str | PathLike[str]

T = TypeVar("T", bound=msgspec.Struct)


class SessionOptions(TypedDict, total=False):
    """What `ask`, `new`, `load`, `resume` and `fork` take."""

    cwd: Directory
    """Made absolute; by default that of the agent's process. "temporary" makes one and removes it."""
    additional_directories: Sequence[Directory]
    mcp_servers: Sequence[McpServer]
    """One that the agent cannot reach by itself is bridged."""
    tools: Sequence[Any]
    """Python functions that the agent's model may call, or context managers that yield such."""
    permissions: Policy | Decide | PolicyName
    """Answers what the agent asks; by default it may read and nothing else."""
    model: str
    mode: str
    options: Mapping[str, str | bool]
    """Set, like model and mode, before the first prompt."""
    strict: bool
    """False: a model, mode or option that is not offered is a warning in the log, and no error."""


class OpeningOptions(SessionOptions, total=False):
    """What `new`, `load`, `resume` and `fork` take: also what `ask` has as an argument of its own."""

    output: Any
    """What prompts will ask for, or True: their typed answers then come by a tool, where they can."""
    reason: str
    """Why it is not the session that was wanted, for those who watch: `SessionOpened` tells it."""


class Opening:
    """The options of one session, looked at before anything is sent."""

    def __init__(
        self, given: OpeningOptions, usual_cwd: Directory, confinement: Confinement | None = None
    ) -> None:
        wanted = given.get("permissions")
        self.policy = Policy.of(wanted)
        self.mcp_servers = tuple(given.get("mcp_servers", ()))
        self._equipment = Equipment(given.get("tools", ()), self.mcp_servers, given.get("output"))
        self.roots = tuple(map(_absolute, given.get("additional_directories", ())))
        self._model = given.get("model")
        self._mode = given.get("mode")
        if confinement is not None:
            self._mode = confinement.mode_for(None if wanted is None else self.policy, self._mode)
        self._options = given.get("options", {})
        self._is_strict = given.get("strict", True)
        self.reason = given.get("reason")
        directory = given.get("cwd", usual_cwd)
        self.is_temporary = directory == TEMPORARY
        self.cwd = tempfile.mkdtemp(prefix="coupler-") if self.is_temporary else _absolute(directory)

    @property
    def additional_directories(self) -> Sequence[str] | UnsetType:
        """As the protocol has it."""
        return self.roots or UNSET

    def check(self, connection: Connection) -> None:
        """Raise for what the agent has not said to take."""
        if self.roots and not connection.offers("sessionCapabilities.additionalDirectories"):
            raise AgentError("session", "the agent does not take additional directories")

    async def equip(self, connection: Connection, request: T) -> T:
        """The request, with the servers that the agent is to know of; what they need here is opened."""
        servers = await self._equipment.open(connection.capabilities.mcp_capabilities)
        return msgspec.structs.replace(request, mcp_servers=servers)

    async def furnish(self, session: RemoteSession) -> None:
        """Set a session that was just opened to what was wanted."""
        session.at_end(self.clear)
        self._equipment.belong_to(session)
        if self._model is not None:
            await self._wish(session.set_model(self._model))
        if self._mode is not None:
            await self._wish(session.set_mode(self._mode), is_optional=session.may_refuse_mode(self._mode))
        for option, value in self._options.items():
            await self._wish(session.set_option(option, value))

    async def clear(self) -> None:
        """End what was opened, and remove the directory that was made."""
        await self._equipment.close()
        if self.is_temporary:
            await asyncio.to_thread(shutil.rmtree, self.cwd, ignore_errors=True)

    async def _wish(self, setting: Awaitable[None], *, is_optional: bool = False) -> None:
        try:
            await setting
        except AgentError as error:
            if error.kind != "session" or (self._is_strict and not is_optional):
                raise
            log.warning("%s", error.message)


def _absolute(directory: Directory) -> str:
    return os.path.abspath(directory)  # noqa: PTH100 - the agent sees the path as written, links and all

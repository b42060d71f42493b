"""The agent behind: started once the editor is known, introduced as what it is, asked for sessions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.agent.agent import Agent
from coupler.agent.capabilities import introduce
from coupler.agent.errors import TARGET_FAILED
from coupler.agent.factory import Blueprint
from coupler.client.errors import AgentError
from coupler.relay.errors import as_answer
from coupler.relay.login import RelayedLogins, relayed_method
from coupler.relay.offer import RelayOffer
from coupler.relay.relayed import Relayed
from coupler.schema.v1 import (
    AgentAuthCapabilities,
    Implementation,
    InitializeResponse,
    LogoutCapabilities,
    McpCapabilities,
)
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.editor import Editor
    from coupler.agent.session import Session
    from coupler.agent.startup.serve_options import ServeOptions
    from coupler.client.remote import RemoteAgent

log = logging.getLogger("coupler.relay")

IDENTITY = "relay"
"""What the names of relayed agents begin with in the store."""


class Relay:
    """One agent behind this one. `words` are what it was started with, for the store and for people."""

    def __init__(self, remote: RemoteAgent, words: str, options: ServeOptions) -> None:
        self.remote = remote
        self.words = words
        self._options = options
        self._files = remote.wanted_files
        self._sessions: dict[str, Relayed] = {}
        self._starting = asyncio.Lock()
        self._is_started = False

    def blueprint(self) -> Blueprint:
        """How it is served."""
        return Blueprint(
            introduce(_Accepting(()), self._options),
            self.agent_for,
            identity=f"{IDENTITY}:{self.words}",
            store=self._options.store,
            logins=RelayedLogins(self),
            backing=self,
        )

    async def introduce(self, editor: Editor) -> InitializeResponse:
        """Start the agent with what its editor offers, and tell what both can do together."""
        self.remote.offer_instead(RelayOffer(editor.capabilities, self.find, self._files))
        await self.started()
        return self._introduction()

    async def started(self) -> None:
        """Wait until the agent runs; raises what is to be answered if it does not."""
        async with self._starting:
            if self._is_started:
                return
            try:
                await self.remote.__aenter__()
            except AgentError as error:
                raise RpcError.because(TARGET_FAILED, f"could not start {self.words}: {error}") from None
            self._is_started = True

    async def agent_for(self, session: Session) -> Agent:
        """The agent of a new session, or of one that goes on."""
        await self.started()
        relayed = Relayed(self, session)
        try:
            await relayed.open()
        except AgentError as error:
            raise as_answer(error, self.words) from None
        return relayed

    def adopt(self, remote_id: str, relayed: Relayed) -> None:
        """What the agent asks for in its session is asked for in this one."""
        self._sessions[remote_id] = relayed

    def dismiss(self, remote_id: str) -> None:
        """The agent's session is left."""
        self._sessions.pop(remote_id, None)

    def find(self, remote_id: str) -> Relayed | None:
        """The session that one of the agent's belongs to."""
        return self._sessions.get(remote_id)

    def offers(self, gate: str) -> bool:
        """Whether the agent has advertised a capability."""
        return self.remote.offers(gate)

    async def forget(self, session_id: str, state: Any) -> None:
        """Let the agent delete its own session as well, where it can. Ours is gone, whatever it says."""
        remote = Relayed.remote_of(session_id, state)
        if remote is None:
            return
        try:
            await self.started()
            if self.offers("sessionCapabilities.delete"):
                await self.remote.delete(remote)
        except (AgentError, RpcError) as error:
            log.warning("the agent has not deleted its own session: %s", error)

    async def close(self) -> None:
        """End the agent."""
        if self._is_started:
            await self.remote.close()

    def _introduction(self) -> InitializeResponse:
        takes = self.remote.capabilities.prompt_capabilities
        # Embedded files are always taken: an agent that does not know them gets their text.
        accepts = ["resource", *(["image"] if takes.image else ()), *(["audio"] if takes.audio else ())]
        ours = introduce(_Accepting(accepts), self._options)
        can_log_out = self.offers("auth.logout")
        capabilities: Any = msgspec.structs.replace(
            ours.agent_capabilities,
            mcp_capabilities=self._mcp_capabilities(ours.agent_capabilities.mcp_capabilities),
            auth=AgentAuthCapabilities(logout=LogoutCapabilities() if can_log_out else UNSET),
        )
        methods = (relayed_method(method, self.words) for method in self.remote.auth_methods)
        return msgspec.structs.replace(
            ours,
            agent_capabilities=capabilities,
            agent_info=self._info(ours.agent_info or None),
            auth_methods=tuple(method for method in methods if method is not None),
        )

    def _mcp_capabilities(self, bridged: McpCapabilities) -> McpCapabilities:
        own = self.remote.capabilities.mcp_capabilities
        return McpCapabilities(http=own.http or bridged.http, sse=own.sse or bridged.sse)

    def _info(self, ours: Implementation | None) -> Implementation:
        """Who the agent says it is; what the command line says wins."""
        theirs = self.remote.info
        given = self._options
        name = given.name or (theirs.name if theirs is not None else self.words.split()[0])
        title = given.title or (theirs.title if theirs is not None else None)
        version = given.version or (theirs.version if theirs is not None else None)
        unknown = ours.version if ours is not None else "0.0.0"
        return Implementation(name=name, title=title or given.name or name, version=version or unknown)


class _Accepting(Agent):
    """An agent that takes these blocks in its prompts."""

    def __init__(self, accepts: Any) -> None:
        self.accepts = accepts

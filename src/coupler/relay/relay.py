"""Starts the relayed agent once the editor is known, and advertises what both can do together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.agent.agent import Agent
from coupler.agent.auth import Logins
from coupler.agent.capabilities import initialize_response
from coupler.agent.errors import TARGET_FAILED, AuthRequiredError
from coupler.agent.factory import AgentFactory
from coupler.agent.output import redact
from coupler.client.errors import AgentError
from coupler.client.remote import ClientOffer
from coupler.redaction.known_secrets import process_masker
from coupler.relay.editor import RelayedElicitations, RelayedFiles, RelayedTerminals
from coupler.relay.errors import as_answer
from coupler.relay.session import RelayedSession
from coupler.schema.methods import offers
from coupler.schema.v1 import (
    AgentAuthCapabilities,
    AuthCapabilities,
    AuthMethod,
    AuthMethodAgent,
    AuthMethodTerminal,
    ClientCapabilities,
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
    from coupler.client.errors import NotificationListener, Responder
    from coupler.client.files import FileAccess
    from coupler.client.remote import RemoteAgent
    from coupler.relay.errors import RelayContext

log = logging.getLogger("coupler.relay")

IDENTITY = "relay"
"""Prefix of the identities of relayed agents in the store."""

LOGIN_VARIABLE = "COUPLER_RELAY_LOGIN"
"""Variable that is set for a login in a terminal: the agent's command runs, and nothing is served."""

BY_NAME = "by name"
"""Value of that variable if the command's first word may be an agent of the catalogue, not a program."""


class Relay:
    """Relays one agent. `words` is the command that it was started with, for the store and for messages."""

    def __init__(self, remote: RemoteAgent, words: str, options: ServeOptions) -> None:
        self.remote = remote
        self.words = words
        self._options = options
        self._files = remote.wanted_files
        self._sessions: dict[str, RelayedSession] = {}
        self._starting = asyncio.Lock()
        self._is_started = False

    def make_factory(self) -> AgentFactory:
        """Make the factory of its sessions."""
        ours = initialize_response(_Accepting(()), self._options)
        return AgentFactory(
            msgspec.structs.replace(ours, agent_info=self._info(ours.agent_info or None)),
            self.agent_for,
            identity=f"{IDENTITY}:{self.words}",
            store=self._options.store,
            logins=RelayedLogins(self),
            backend=self,
        )

    async def initialize(self, editor: Editor) -> InitializeResponse:
        """Start the agent with the editor's capabilities, and return those that both have together."""
        self.remote.offer_instead(RelayOffer(editor.capabilities, self.find, self._files, editor.meta))
        await self.started()
        return self._initialize_response()

    async def started(self) -> None:
        """Start the agent unless it runs; raises the error to answer with if it does not start."""
        async with self._starting:
            if self._is_started:
                return
            try:
                await self.remote.__aenter__()
            except AgentError as error:
                raise RpcError.because(TARGET_FAILED, f"could not start {self.words}: {error}") from None
            self._is_started = True

    async def agent_for(self, session: Session) -> Agent:
        """Make the agent of a new session, or of one that is opened again."""
        await self.started()
        relayed = RelayedSession(self, session)
        try:
            await relayed.open()
        except AgentError as error:
            raise as_answer(error, self.words) from None
        return relayed

    def register(self, remote_id: str, relayed: RelayedSession) -> None:
        """Serve the requests of the agent's session in this one."""
        self._sessions[remote_id] = relayed

    def unregister(self, remote_id: str) -> None:
        """Serve no more requests of the agent's session, because it is closed."""
        self._sessions.pop(remote_id, None)

    def find(self, remote_id: str) -> RelayedSession | None:
        """Return the session that one of the agent's belongs to."""
        return self._sessions.get(remote_id)

    def offers(self, gate: str) -> bool:
        """Return whether the agent has advertised a capability."""
        return self.remote.offers(gate)

    async def forget(self, session_id: str, state: Any) -> None:
        """Let the agent delete its own session, if it can; an error is logged."""
        remote = RelayedSession.remote_of(session_id, state)
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

    def _initialize_response(self) -> InitializeResponse:
        takes = self.remote.capabilities.prompt_capabilities
        # Embedded files are always taken: an agent that does not know them gets their text.
        accepts = ["resource", *(["image"] if takes.image else ()), *(["audio"] if takes.audio else ())]
        ours = initialize_response(_Accepting(accepts), self._options)
        can_log_out = self.offers("auth.logout")
        capabilities: Any = msgspec.structs.replace(
            ours.agent_capabilities,
            mcp_capabilities=self._mcp_capabilities(ours.agent_capabilities.mcp_capabilities),
            auth=AgentAuthCapabilities(logout=LogoutCapabilities() if can_log_out else UNSET),
            meta=redact(self.remote.capabilities.meta, process_masker()),
        )
        methods = (relayed_auth_method(method, self.words) for method in self.remote.auth_methods)
        return msgspec.structs.replace(
            ours,
            agent_capabilities=capabilities,
            agent_info=self._info(ours.agent_info or None),
            auth_methods=tuple(method for method in methods if method is not None),
            meta=redact(self.remote.meta, process_masker()) or UNSET,
        )

    def _mcp_capabilities(self, bridged: McpCapabilities) -> McpCapabilities:
        own = self.remote.capabilities.mcp_capabilities
        return McpCapabilities(http=own.http or bridged.http, sse=own.sse or bridged.sse)

    def _info(self, ours: Implementation | None) -> Implementation:
        """Return the agent's name, title and version; options take precedence."""
        theirs = self.remote.info
        given = self._options
        name = given.name or (theirs.name if theirs is not None else self.words.split()[0])
        title = given.title or (theirs.title if theirs is not None else None)
        version = given.version or (theirs.version if theirs is not None else None)
        unknown = ours.version if ours is not None else "0.0.0"
        return Implementation(name=name, title=title or given.name or name, version=version or unknown)


class _Accepting(Agent):
    """An agent that accepts these blocks in its prompts, to compute capabilities from."""

    def __init__(self, accepts: Any) -> None:
        self.accepts = accepts


class RelayedLogins(Logins):
    """Passes `authenticate` and `logout` on. Only the agent knows whether somebody is logged in."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(())
        self._relay = relay

    async def authenticate(
        self, method_id: str, meta: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        await self._relay.started()
        try:
            return await self._relay.remote.authenticate(method_id, meta=meta)
        except AgentError as error:
            raise AuthRequiredError(f"logging in failed: {error}") from None

    async def log_out(self, meta: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        await self._relay.started()
        try:
            return await self._relay.remote.logout(meta=meta)
        except AgentError as error:
            raise as_answer(error, self._relay.words) from None


def relayed_auth_method(method: AuthMethod, words: str) -> AuthMethod | None:
    """Convert an authentication method for the editor; None for a type that this version does not know.

    A login in a terminal runs our command, which ends with the `words`, followed by the method's arguments.
    """
    match method:
        case AuthMethodTerminal(env=env):
            how = BY_NAME if len(words.split()) == 1 else "1"
            return msgspec.structs.replace(method, env={**(env or {}), LOGIN_VARIABLE: how})
        case AuthMethodAgent():
            return method
        case _:
            return None


class RelayOffer(ClientOffer):
    """The capabilities offered to the relayed agent: files, terminals, and the editor's elicitations.

    File access is "write" unless `files` restricts it.
    """

    def __init__(
        self,
        editor: ClientCapabilities,
        find: Callable[[str], RelayContext | None],
        files: FileAccess | None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(files=files or "write")
        self.meta = meta
        self._editor = editor
        self._find = find

    def capabilities(self) -> ClientCapabilities:
        return msgspec.structs.replace(
            super().capabilities(),
            terminal=True,
            elicitation=self._editor.elicitation,
            auth=AuthCapabilities(terminal=self._editor.auth.terminal),
            meta=self._editor.meta,
        )

    def responders(self) -> Mapping[str, Responder | NotificationListener]:
        responders: dict[str, Responder | NotificationListener] = {
            **super().responders(),
            **RelayedFiles(self._files, self._find).responders(),
            **RelayedTerminals(self._find).responders(),
        }
        if offers(self._editor, "elicitation"):
            responders.update(RelayedElicitations(self._find).responders())
        return responders

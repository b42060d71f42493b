"""A session: its directory, its agent, its tool calls, and the one turn that may run in it."""

from __future__ import annotations

import logging
import os
from itertools import count
from typing import Any

from msgspec import UNSET, UnsetType

from coupler.agent.agent import Agent, accepted_blocks
from coupler.agent.editor import Editor
from coupler.agent.errors import SESSION_BUSY
from coupler.agent.ledger import Ledger
from coupler.agent.prompting import Prompting
from coupler.agent.turn import Turn
from coupler.events import ToolUpdate
from coupler.events.v1 import Emitted, to_update
from coupler.schema.unknown import Unknown
from coupler.schema.v1 import ContentBlock, McpServer, SessionNotification
from coupler.wire.errors import INVALID_PARAMS, RpcError
from coupler.wire.peer import Peer
from coupler.wire.request import Request

log = logging.getLogger("coupler.agent")


class Session:
    """One conversation. Its state has one owner: this object, on the event loop."""

    def __init__(
        self, id: str, cwd: str, mcp_servers: tuple[McpServer, ...], editor: Editor, peer: Peer
    ) -> None:
        self.id = id
        self.cwd = cwd
        self.mcp_servers = mcp_servers
        self.editor = editor
        self.ledger = Ledger(self._report_tool)
        self._peer = peer
        self._announced: set[str] = set()
        # Part of every message id: a session that is loaded again must not repeat its old ones.
        nonce = os.urandom(4).hex()
        self._message_ids = (f"msg_{nonce}_{number}" for number in count(1))
        self._agent: Agent
        self._prompting: Prompting | None = None

    def give_to(self, agent: Agent) -> None:
        """From now on this agent answers the prompts."""
        self._agent = agent
        self._accepted = accepted_blocks(agent)

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs."""
        return self._prompting is not None

    def admit(self, request: Request, blocks: tuple[ContentBlock, ...]) -> None:
        """Make the prompt a running turn, before the next message is read."""
        if self._prompting is not None:
            message = "the session has a running turn: wait for its answer or send session/cancel"
            raise RpcError.because(SESSION_BUSY, message, sessionId=self.id)
        self._refuse_unaccepted(blocks)
        request.lane = self.id
        self._prompting = Prompting(request, Turn(self, blocks), self._agent, self._turn_ended)
        self._prompting.start(self._peer)

    def cancel(self, grace: float | None = None) -> None:
        """End the running turn, if there is one; the answer is `cancelled`."""
        if self._prompting is not None:
            self._prompting.cancel(grace)

    def new_message_id(self) -> str:
        """An id that no other message of this session has."""
        return next(self._message_ids)

    def send(self, event: Emitted) -> None:
        """Send an event of the running turn. Never blocks."""
        update = to_update(event, self._announced)
        self._peer.notify("session/update", SessionNotification(self.id, update), self.id)

    def has_room(self) -> bool:
        """Whether more can be sent without waiting."""
        return self._peer.outbox.has_room(self.id)

    async def wait_for_room(self) -> None:
        """Wait while too much of this session is unsent."""
        await self._peer.outbox.wait_for_room(self.id)

    async def call_editor(self, params: Any, deadline: float | UnsetType | None = UNSET) -> Any:
        """Ask the client something, after everything this session has sent so far."""
        return await self.editor.call(params, self.id, deadline)

    def _report_tool(self, update: ToolUpdate) -> None:
        self.send(update)
        self._announced.add(update.id)

    def _turn_ended(self) -> None:
        self._prompting = None

    def _refuse_unaccepted(self, blocks: tuple[ContentBlock, ...]) -> None:
        for index, block in enumerate(blocks):
            kind = "unknown" if isinstance(block, Unknown) else str(block.__struct_config__.tag)
            if kind not in self._accepted:
                path, accepted = f"prompt[{index}]", ", ".join(sorted(self._accepted))
                message = f"{path}: this agent takes no {kind} blocks, only {accepted}"
                raise RpcError.because(INVALID_PARAMS, message, path=path)

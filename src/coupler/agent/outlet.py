"""Everything of a session that goes out: past the veil, into the journal, and to its client, in this order.

There is no other way, so that nothing is sent that was not kept, and nothing secret is either.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from coupler.agent.editor import Editor
from coupler.agent.ledger import Ledger
from coupler.agent.text_lines import TextLines
from coupler.agent.veil import Veil
from coupler.events import Text, ToolOutput, ToolUpdate
from coupler.events.records import TEXT
from coupler.events.v1_codec import Emitted, to_update
from coupler.schema.v1 import SessionNotification
from coupler.wire.messages import RpcError
from coupler.wire.peer import Peer

if TYPE_CHECKING:
    from coupler.agent.chronicle import Chronicle
    from coupler.store.journal import Backlog


class Outlet:
    """Sends, keeps and covers the events of one session; the tool calls among them are in the ledger."""

    def __init__(self, session_id: str, editor: Editor, peer: Peer, veil: Veil) -> None:
        self.ledger = Ledger(self._show_tool, self._keep_tool, veil)
        self.chronicle: Chronicle | None = None
        """What is kept of the session, if anything is."""
        self._session_id = session_id
        self._editor = editor
        self._peer = peer
        self._outbox = peer.outbox
        self._veil = veil
        self._keep_text: Callable[[str, str, str], None] | None = None
        self._backlog: Backlog | None = None
        self._announced: set[str] = set()
        self._text_lines = TextLines(session_id)
        # Part of every message id: a session that is loaded again must not repeat its old ones.
        nonce = os.urandom(4).hex()
        self._message_ids = (f"msg_{nonce}_{number}" for number in count(1))

    def keep_in(self, chronicle: Chronicle) -> None:
        """From now on what is sent is kept."""
        self.chronicle = chronicle
        self._keep_text = chronicle.keep_text
        self._backlog = chronicle.backlog

    def stop_keeping(self) -> None:
        """The journal is somebody else's from now on."""
        self.chronicle = self._keep_text = self._backlog = None

    def new_message_id(self) -> str:
        """An id that no other message of this session has."""
        return next(self._message_ids)

    def send(self, event: Emitted) -> None:
        """Send an event and keep it, without the secrets in it. Never blocks."""
        self._veil.pass_on(event, self._keep_and_notify)

    def say(self, text: str, message_id: str | None) -> bool:
        """Send a piece of the answer as `send` does: what models stream, worth a way without detours.

        Returns whether more can be sent without waiting.
        """
        shown = self._veil.covered_piece(Text, text, message_id, self._keep_and_notify)
        return self._keep_and_write(shown, message_id) if shown else True

    def show(self, event: Emitted) -> None:
        """Send an event that is not to be kept, or is kept already, without the secrets in it."""
        self._veil.pass_on(event, self._notify)

    def end_message(self) -> None:
        """What is said next is not part of the message before."""
        self._veil.end_message()

    def has_room(self) -> bool:
        """Whether more can be sent without waiting."""
        backlog = self._backlog
        return self._outbox.has_room(self._session_id) and (backlog is None or not backlog.is_full)

    async def wait_for_room(self) -> None:
        """Wait while too much of this session is unsent, or of all sessions unwritten."""
        await self._outbox.wait_for_room(self._session_id)
        if self.chronicle is not None and self._backlog and self._backlog.is_full:
            # A disk that fails must not stop a turn here; its end will tell.
            with contextlib.suppress(RpcError):
                await self.chronicle.until_stored()

    async def ask(self, params: Any, deadline: float | UnsetType | None = UNSET) -> Any:
        """Ask the client something, after everything this session has sent so far."""
        return await self._editor.call(self._veil.covered_request(params), self._session_id, deadline)

    def know_calls(self, ids: set[str]) -> None:
        """These tool calls were announced before the session was opened again."""
        self._announced |= ids
        self.ledger.know(ids)

    def show_again(self, update: ToolUpdate) -> None:
        """Announce a call of an earlier turn, whether or not this client knows it."""
        self._announced.discard(update.id)
        self._show_tool(update)

    def _show_tool(self, update: ToolUpdate) -> None:
        self.show(update)
        self._announced.add(update.id)

    def _keep_tool(self, change: ToolUpdate | ToolOutput) -> None:
        if self.chronicle is not None:
            # Output was covered before the ledger counted it.
            is_covered = isinstance(change, ToolOutput)
            self.chronicle.keep(change if is_covered else self._veil.covered(change))

    def _keep_and_notify(self, event: Emitted) -> None:
        if type(event) is Text:
            self._keep_and_write(event.text, event.message_id)
            return
        if self.chronicle is not None:
            self.chronicle.keep(event)
        self._notify(event)

    def _keep_and_write(self, text: str, message_id: str | None) -> bool:
        if self._keep_text is not None:
            self._keep_text(TEXT, message_id or "", text)
        has_room = self._peer.send(self._text_lines.line(text, message_id), self._session_id)
        return has_room and (self._backlog is None or not self._backlog.is_full)

    def _notify(self, event: Emitted) -> None:
        update = to_update(event, self._announced)
        self._peer.notify("session/update", SessionNotification(self._session_id, update), self._session_id)

"""What is kept of a session, in the agent's words: the journal's side of everything that is sent.

A turn's prompt is journaled before its code runs, its end is durable before it is answered. What cannot be
kept fails the turn, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from coupler.agent.errors import agent_failed, store_failed
from coupler.agent.state import StateError, pack
from coupler.events import Commands, Info, Mode, Options, Usage
from coupler.events.records import STOP, USER, End, Recorded, UserMessage, end_record, text_in, to_record
from coupler.events.v1_codec import Emitted
from coupler.store.database import now
from coupler.store.errors import StoreError
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.events import ToolOutput
    from coupler.store.journal import Entry, Journal

TEXT_WAS_LOST = "a part of what was said could not be kept: the disk took nothing for too long"


class Chronicle:
    """Writes a session's journal. It goes on where an earlier one ended."""

    def __init__(
        self,
        journal: Journal,
        entries_after: Callable[[int], Awaitable[list[Entry]]],
        *,
        turns: int = 0,
        state: bytes | None = None,
    ) -> None:
        self.entries_after = entries_after
        """Reads what was kept after an entry, some of it at a time."""
        self.keep_text = journal.text
        """Keep a piece of text: a way without detours, for what models stream."""
        self.backlog = journal.backlog
        self._journal = journal
        self._turns = turns
        self._saved_state = state

    def keep(self, event: Emitted | ToolOutput) -> None:
        """Keep an event that the client is told."""
        match event:
            case Usage():
                self._journal.set(usage=msgspec.json.encode(event).decode())
            case Info(title):
                self._journal.set(title=title)
            case Commands() | Mode() | Options():
                pass  # what is offered is declared anew each time, what is chosen is kept with the settings
            case _ if (text := text_in(event)) is not None:
                self._journal.text(*text)
            case _:
                self._journal.add(*to_record(event))

    def keep_settings(self, settings: dict[str, Any]) -> None:
        """Keep what was chosen."""
        self._journal.set(settings=msgspec.json.encode(settings).decode())

    def keep_roots(self, additional_directories: tuple[str, ...]) -> None:
        """Keep which directories the session has beside its own."""
        self._journal.set(roots=additional_directories)

    def begin_turn(self, message_id: str, params: Raw, cover: Callable[[bytes], bytes] = bytes) -> None:
        """A turn begins with this prompt, which is kept as the user sent it, but for what `cover` hides."""
        self._turns += 1
        self._journal.begin_turn()
        blocks = msgspec.json.encode(_prompt_decoder.decode(params).prompt)
        self._journal.add(USER, message_id, cover(blocks))
        if self._turns == 1:
            # Only now it is listed, whatever becomes of the turn; otherwise the turn's end is early enough.
            self._journal.set(turns=1, updated_at=now())

    async def until_turn_may_run(self) -> None:
        """Wait until the prompt is durable. If it cannot be, it was never there.

        Most prompts are by now: they are written in the same tick of the loop in which they came.
        """
        if not self._journal.is_pending and not self._journal.is_delayed:
            return
        try:
            await self.until_stored()
        except RpcError:
            self._journal.take_back(USER)
            self._turns -= 1
            self._journal.set(turns=self._turns)
            raise

    def end_turn(self, end: End, state: Any, done: Callable[[RpcError | None], None]) -> None:
        """Make the turn's end and the agent's state durable, then call `done`.

        `done` gets the error to answer with if the turn cannot be kept after all.
        """
        failure: RpcError | None = None
        try:
            self.keep_state(state)
        except StateError as error:
            failure = agent_failed(error)
            end = End(error=failure.message)
        if self._journal.has_lost_text:
            failure = store_failed(StoreError("full", TEXT_WAS_LOST))
            end = End(error=failure.message)

        def flushed(error: StoreError | None) -> None:
            if error is not None:
                self._journal.take_back(STOP)
                self._journal.add(*end_record(End(error=str(error))))
            done(failure if error is None else store_failed(error))

        self._journal.set(turns=self._turns, updated_at=now())
        self._journal.add(*end_record(end))
        self._journal.flush(flushed)

    async def until_stored(self) -> None:
        """Wait until everything that happened so far is durable."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._journal.flush(lambda error: _settle(stored, error))
        await stored

    def keep_state(self, state: Any) -> None:
        """Keep the agent's own memory with what comes next; raises StateError if that cannot be done."""
        packed = pack(state)
        if packed != self._saved_state:
            self._saved_state = packed
            self._journal.set(state=packed)


def keep_turn(journal: Journal, happened: Iterable[UserMessage | Recorded]) -> None:
    """Keep a whole turn that happened elsewhere."""
    journal.begin_turn()
    for event in happened:
        if isinstance(event, UserMessage):
            journal.add(USER, event.message_id, msgspec.json.encode(event.blocks))
        elif (text := text_in(event)) is not None:
            journal.text(*text)
        else:
            journal.add(*to_record(event))
    journal.add(*end_record(End(reason="end_turn")))


class _Prompt(msgspec.Struct):
    prompt: tuple[Raw, ...]


_prompt_decoder = msgspec.json.Decoder(_Prompt)


def _settle(stored: asyncio.Future[None], error: StoreError | None) -> None:
    if stored.done():
        return
    if error is None:
        stored.set_result(None)
    else:
        stored.set_exception(store_failed(error))

"""A session's history sent to a client again, before its load is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import UNSET

from coupler.agent.asides import GATE, spoken_compaction
from coupler.agent.history import Past, Told
from coupler.agent.session import Session
from coupler.agent.text import pieces
from coupler.events import Compaction, Content, Info, Options, Text, Thought, ToolUpdate, Usage
from coupler.events import Mode as ModeChange
from coupler.events.record import UserMessage
from coupler.schema.decoding import DecodingError, decode
from coupler.store.journal import Entry
from coupler.store.store import Store


async def replay(session: Session, store: Store) -> None:
    """Send everything that a client has to know of the session so far."""
    past = Past()
    async for turn in turns_of(session.id, store):
        for event in past.tell(turn):
            _show(session, event)
            await session.wait_for_room()
    session.know_calls(past.call_ids)
    if past.plan is not None:
        session.show(past.plan)
    await _show_standing(session, store)
    await session.wait_for_room()


async def turns_of(id: str, store: Store) -> AsyncIterator[list[Entry]]:
    """The entries of each turn by itself; of a long session never more than one turn is held."""
    turn: list[Entry] = []
    last = 0
    while batch := await store.entries(id, after=last):
        last = batch[-1].seq
        for entry in batch:
            if turn and entry.turn != turn[-1].turn:
                yield turn
                turn = []
            turn.append(entry)
    if turn:
        yield turn


def _show(session: Session, event: Told) -> None:
    match event:
        case UserMessage(message_id, blocks):
            for block in blocks:
                session.show(Content(block, "user", message_id))  # type: ignore[arg-type]
        case Text(text, message_id):
            for piece in pieces(text):
                session.show(Text(piece, message_id))
        case Thought(text, message_id):
            for piece in pieces(text):
                session.show(Thought(piece, message_id))
        case ToolUpdate():
            session.show_again(event)
        case Compaction() if not session.editor.offers(GATE):
            session.show(Text(spoken_compaction(event), session.new_message_id()))
        case Compaction() | Content():
            session.show(event)


async def _show_standing(session: Session, store: Store) -> None:
    """The state that the session is in, after all that has happened."""
    if session.mode is not None:
        session.show(ModeChange(session.mode))
    options = session.settings.as_options()
    if options is not UNSET:
        session.show(Options(options))
    if session.title is not None:
        session.show(Info(session.title))
    record = await store.find(session.id)
    if record is not None and record.usage is not None:
        try:
            session.show(decode(Usage, record.usage.encode(), "client"))
        except DecodingError:
            return  # a newer version wrote it

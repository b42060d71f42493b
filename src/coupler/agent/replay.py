"""A session's history sent to a client again, before its load is answered."""

from __future__ import annotations

import asyncio

from msgspec import UNSET

from coupler.agent.archive import Archive
from coupler.agent.asides import COMPACTION, spoken_compaction
from coupler.agent.history import History, Scene
from coupler.agent.session import Session
from coupler.agent.text import pieces
from coupler.events import Compaction, Content, Info, Options, Text, Thought, ToolUpdate, Usage
from coupler.events import Mode as ModeChange
from coupler.events.records import UserMessage
from coupler.schema.decoding import DecodingError, decode


async def replay(session: Session, archive: Archive) -> None:
    """Send everything that a client has to know of the session so far."""
    history = History()
    last = 0
    while entries := await archive.entries(session.id, after=last):
        last = entries[-1].seq
        for entry in entries:
            for scene in history.take(entry):
                await _show(session, scene)
        # Much may be read before anything is sent, and others want to be served meanwhile.
        await asyncio.sleep(0)
    for scene in history.rest():
        await _show(session, scene)
    if history.plan is not None:
        session.outlet.show(history.plan)
    session.outlet.end_message()
    await _show_standing(session, archive)
    await session.outlet.wait_for_room()


async def _show(session: Session, scene: Scene) -> None:
    match scene:
        case UserMessage(message_id, blocks):
            for block in blocks:
                session.outlet.show(Content(block, "user", message_id))  # type: ignore[arg-type]
        case Text(text, message_id) | Thought(text, message_id):
            for piece in pieces(text):
                session.outlet.show(type(scene)(piece, message_id))
                await session.outlet.wait_for_room()
        case ToolUpdate():
            session.outlet.show_again(scene)
        case Compaction() if not session.editor.offers(COMPACTION):
            session.outlet.show(Text(spoken_compaction(scene), session.outlet.new_message_id()))
        case Compaction() | Content():
            session.outlet.show(scene)
    await session.outlet.wait_for_room()


async def _show_standing(session: Session, archive: Archive) -> None:
    """The state that the session is in, after all that has happened."""
    if session.mode is not None:
        session.outlet.show(ModeChange(session.mode))
    options = session.settings.as_options()
    if options is not UNSET:
        session.outlet.show(Options(options))
    if session.title is not None:
        session.outlet.show(Info(session.title))
    usage = await kept_usage(session.id, archive)
    if usage is not None:
        session.outlet.show(usage)


async def kept_usage(id: str, archive: Archive) -> Usage | None:
    """What a session had used up when it was left: clients count what a turn costs from there."""
    record = await archive.find(id)
    if record.usage is None:
        return None
    try:
        return decode(Usage, record.usage.encode(), "client")
    except DecodingError:
        return None  # a newer version wrote it

"""Shows what a relayed agent says: its turns as ours, text between turns, and the output of terminals.

Events are shown where they are received, so that the relay adds no wait of its own and a dialog stands after
what was said before it. Only while the editor does not keep up they queue, joined as far as they can be.
Ids are kept, unless an earlier turn had the same ones.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Coroutine
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import msgspec
from msgspec import UNSET, json

from coupler.agent.content import LONGEST_PIECE, pieces
from coupler.agent.turn import COMPACTION, NOTICES, compaction_text, notice_text
from coupler.client.errors import AgentError
from coupler.client.prompt import EventQueue
from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Event,
    Notice,
    Plan,
    Text,
    Thought,
    ToolCall,
    Usage,
)
from coupler.events.events import Role, plain_text_of
from coupler.events.fold import Compactions
from coupler.permission.action import KINDS
from coupler.schema.base import Unknown
from coupler.schema.v1 import Content as ToolContent
from coupler.schema.v1 import PlanEntry, PlanEntryPriority, PlanEntryStatus, TextContent, ToolCallContent
from coupler.schema.v1 import Terminal as TerminalContent

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.tool_call import Ledger
    from coupler.agent.turn import Turn
    from coupler.client.terminals import ClientTerminal

log = logging.getLogger("coupler.relay")

TOOL_CALL_STATUSES = frozenset({"pending", "in_progress", "completed", "failed"})
ENDED = frozenset({"completed", "failed", "cancelled"})
"""The final statuses of a compaction."""

MIRRORED = ("kind", "title", "name", "locations", "raw_input", "raw_output", "meta")
"""Fields of a tool call that are passed on, besides its status and content."""

_ROLES: dict[type, Role] = {Text: "agent", Thought: "thought"}

QUIET = 0.25
"""Seconds without text after which a possible beginning of a secret is shown."""

MOST_OUTPUTS = 10_000
"""Pieces of output of an agent's own terminals that are journaled for one call: the last ones."""

OVERHEAD = 100
"""Bytes that are counted for a piece besides its text."""

MessagePiece: TypeAlias = Text | Thought
StartTask: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

PERIOD = 0.1
"""Seconds between two checks of a command's output."""

PRIORITIES: tuple[str, ...] = get_args(PlanEntryPriority)
PLAN_STATUSES: tuple[str, ...] = get_args(PlanEntryStatus)


class TurnMirror:
    """Shows one turn of the agent as ours. `terminal` converts a terminal in a tool call's content."""

    def __init__(
        self,
        turn: Turn,
        *,
        terminal: Callable[[str], ToolCallContent],
        overflowed: Callable[[AgentError], None],
        earlier_messages: set[str] | None = None,
        held_calls: Container[str] | None = None,
    ) -> None:
        """Begin to show a turn. `earlier_messages` are the ids of the messages of turns before it."""
        self._turn = turn
        self._outlet = turn.session.outlet
        self._terminal = terminal
        self._overflowed = overflowed
        self._calls: dict[str, _Shown] = {}
        self.held_calls = held_calls
        """The calls that the client holds, if it drops any: of others only the status is kept here."""
        self._whole_calls: OrderedDict[str, _Shown] = OrderedDict()
        """The calls of which all is kept, by their news, the oldest first."""
        self._compactions = Compactions()
        self._message: tuple[Role, str | None, str] | None = None
        self._earlier_messages = set() if earlier_messages is None else earlier_messages
        self._message_ids: dict[str, str] = {}
        """The ids under which the editor knows the messages of this turn, by the agent's own."""
        self._queue: EventQueue | None = None
        self._catching_up: asyncio.Task[None] | None = None

    def take(self, event: Event) -> None:
        """Show an event, now or when there is room; after the turn's answer nothing is shown."""
        if not self._turn.is_alive:
            return
        if self._queue is None and self._outlet.has_room():
            self._show(event)
            return
        if self._queue is None:
            self._queue = EventQueue()
            self._catching_up = asyncio.ensure_future(self._turn.own(self._catch_up(self._queue)))
        if not self._queue.put(event, _size(event)):
            self._overflowed(AgentError("overflow", "the editor does not read what the agent says"))

    def flush(self) -> None:
        """Show everything that was received, before something that has to follow it."""
        if self._queue is not None:
            while (event := self._queue.take()) is not None:
                self._show(event)

    async def finish(self) -> None:
        """Show what is left, and stop: the turn is over."""
        self._earlier_messages.update(self._message_ids)
        if self._turn.is_alive:
            self.flush()
            for shown in self._calls.values():
                self._record_output(shown)
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.gather(self._catching_up, return_exceptions=True)

    def announced(self, call: ToolCall) -> str:
        """Return the id under which the editor knows a call; one that it does not know is announced now."""
        if call.id not in self._calls:
            self._show_call(call)
        return self._calls[call.id].id

    def content(self, call: ToolCall) -> tuple[ToolCallContent, ...]:
        """Return the content of a call, as far as the editor can show it."""
        own = self._calls[call.id].own_terminals if call.id in self._calls else _terminals_in(call.meta)
        return tuple(
            self._terminal(item.terminal_id)
            if isinstance(item, TerminalContent) and item.terminal_id not in own
            else item
            for item in call.content
            if _can_be_shown(item)
        )

    def known(self, id: str) -> str | None:
        """Return the id under which the editor knows one of the agent's calls, if it does."""
        return self._calls[id].id if id in self._calls else None

    def showing(self, terminal_id: str) -> str | None:
        """Return the editor's id of the call that shows a terminal."""
        return next((shown.id for shown in self._calls.values() if shown.shows(terminal_id)), None)

    def refresh(self, terminal_id: str) -> None:
        """Show the new output of a terminal that is not the editor's."""
        for shown in self._calls.values():
            if shown.shows(terminal_id) and self._turn.is_alive and self._ledger.is_open(shown.id):
                self._show_content(shown, self.content(shown.call))

    async def _catch_up(self, queue: EventQueue) -> None:
        while True:
            await self._outlet.wait_for_room()
            event = queue.take()
            if event is None:
                self._queue = None
                return
            self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case Text() | Thought():
                if event.text or event.meta:
                    self._say(event)
            case ToolCall():
                self._message = None
                self._show_call(event)
            case Usage():
                self._outlet.send(event)
            case _ if (known := without_unknown(event)) is not None:
                self._show_rarer(known)

    def _say(self, said: MessagePiece) -> None:
        message_id, meta = self._message_id(_ROLES[type(said)], said.message_id), said.meta
        for piece in pieces(said.text) if len(said.text) > LONGEST_PIECE else (said.text,):
            self._outlet.send(type(said)(piece, message_id, meta))
            meta = None

    def _show_rarer(self, event: Event) -> None:
        match event:
            case Content(block, "agent" | "thought" as role, message_id, meta):
                self._outlet.send(Content(block, role, self._message_id(role, message_id), meta))
            case Plan():
                self._begin_new_message()
                self._outlet.send(event)
            case Notice():
                self._send_or_say(event, NOTICES, notice_text(event))
            case Compaction() | CompactionSummary():
                whole = self._compactions.take(event)
                is_over = isinstance(event, Compaction) and event.status in ENDED
                self._send_or_say(event, COMPACTION, compaction_text(whole) if is_over else "")
            case _:
                log.debug("%s is not passed on", type(event).__name__)

    def _send_or_say(self, event: Notice | Compaction | CompactionSummary, gate: str, spoken: str) -> None:
        """Send a notice or compaction, or say it as a message to editors that cannot show it."""
        self._begin_new_message()
        if self._turn.editor.offers(gate):
            self._outlet.send(event)
        elif spoken:
            self._outlet.send(Text(spoken, self._outlet.new_message_id()))
            self._begin_new_message()

    def _show_call(self, call: ToolCall) -> None:
        shown = self._calls.get(call.id)
        if shown is None or (call.is_open and not self._ledger.is_open(shown.id)):
            self._begin_new_message()
            shown = self._calls[call.id] = self._announce(call)
        self._update(shown, call)
        self._whole_calls[call.id] = shown
        self._whole_calls.move_to_end(call.id)
        if self.held_calls is not None:
            self._drop_details(self.held_calls)

    def _drop_details(self, held: Container[str]) -> None:
        """Keep only the status of the calls of oldest news that are held no longer."""
        while self._whole_calls and (oldest := next(iter(self._whole_calls))) not in held:
            dropped = self._whole_calls.pop(oldest)
            dropped.drop_details()
            self._ledger.drop_details(dropped.id)

    def _announce(self, call: ToolCall) -> _Shown:
        # An earlier turn may have had this id, and an id is announced once in a session.
        wanted = f"{call.id}_{os.urandom(4).hex()}" if self._ledger.knows(call.id) else call.id
        status = call.status if call.is_open else "in_progress"
        fields = {name: value for name in MIRRORED if (value := _field(call, name)) is not UNSET}
        fields.pop("raw_output", None)
        title = fields.pop("title", "") or "Tool"
        known_as = self._ledger.announce(title, id=wanted or None, status=status, **fields)
        known = ToolCall(id=call.id, title=call.title, kind=call.kind, status=status, meta=call.meta)
        return _Shown(known_as, known, fields)

    def _update(self, shown: _Shown, call: ToolCall) -> None:
        is_written = call.meta is not shown.call.meta and shown.note_output(call.meta)
        shown.call = call
        self._show_content(shown, self.content(call))
        changes: dict[str, Any] = {}
        for name in MIRRORED:
            value = _field(call, name)
            is_news = value != shown.told.get(name, UNSET) or (name == "meta" and is_written)
            if value is not UNSET and is_news and (name != "title" or value):
                changes[name] = shown.told[name] = value
        status = call.status if call.status in TOOL_CALL_STATUSES else UNSET
        if status is not UNSET and status != shown.status:
            changes["status"] = shown.status = call.status
        if not call.is_open:
            self._record_output(shown)
        if changes:
            self._ledger.update(shown.id, **changes)

    def _record_output(self, shown: _Shown) -> None:
        """Journal the output of the agent's own terminals, because other clients will not know them."""
        for pieces_of_terminal in shown.written.values():
            self._ledger.record_output(shown.id, "".join(pieces_of_terminal))
        shown.written.clear()

    def _show_content(self, shown: _Shown, content: tuple[ToolCallContent, ...]) -> None:
        if content == shown.content:
            return
        more = _continuation(shown.content, content)
        shown.content = content
        if more is None or any(isinstance(item, TerminalContent) for item in more):
            self._replace(shown.id, content)
        else:
            for item in more:
                self._ledger.append(shown.id, item)

    def _replace(self, id: str, content: tuple[ToolCallContent, ...]) -> None:
        terminals = [item for item in content if isinstance(item, TerminalContent)]
        self._ledger.replace(id, tuple(item for item in content if not isinstance(item, TerminalContent)))
        for terminal in terminals:
            # Shown at once and not kept: no other client will know it.
            self._ledger.show_terminal(id, terminal.terminal_id)

    def _message_id(self, role: Role, given: str | None) -> str:
        if self._message is None or self._message[:2] != (role, given):
            self._message = (role, given, self._known_id(given) if given else self._outlet.new_message_id())
        return self._message[2]

    def _known_id(self, given: str) -> str:
        if given not in self._message_ids:
            is_taken = given in self._earlier_messages
            self._message_ids[given] = self._outlet.new_message_id() if is_taken else given
        return self._message_ids[given]

    def _begin_new_message(self) -> None:
        self._message = None
        self._turn.begin_new_message()

    @property
    def _ledger(self) -> Ledger:
        return self._outlet.ledger


class _Shown:
    """A tool call as it was last reported to the editor."""

    def __init__(self, id: str, call: ToolCall, told: dict[str, Any]) -> None:
        self.id = id
        self.call = call
        self.status = call.status
        self.content: tuple[ToolCallContent, ...] = ()
        self.told = {**told, "title": call.title}
        self.own_terminals: frozenset[str] = frozenset()
        """The terminals whose output the agent sends itself, to editors that can show it."""
        self.written: dict[str, deque[str]] = {}
        """The output of each of these terminals that is not journaled yet."""
        self.note_output(call.meta)

    def note_output(self, meta: dict[str, Any] | None) -> bool:
        """Take note of what an update says of the agent's own terminals; returns whether it has output."""
        self.own_terminals |= _terminals_in(meta)
        written = (meta or {}).get("terminal_output")
        if not isinstance(written, dict) or not isinstance(data := written.get("data"), str):
            return False
        terminal = str(written.get("terminal_id"))
        self.written.setdefault(terminal, deque(maxlen=MOST_OUTPUTS)).append(data)
        return True

    def drop_details(self) -> None:
        """Keep the status and the terminals: later updates can still be shown."""
        terminals = tuple(item for item in self.call.content if isinstance(item, TerminalContent))
        self.call = ToolCall(id=self.call.id, status=self.status, content=terminals)
        self.content = ()
        self.told = {}

    def shows(self, terminal_id: str) -> bool:
        """Return whether the call's content has the terminal."""
        return any(
            isinstance(item, TerminalContent) and item.terminal_id == terminal_id
            for item in self.call.content
        )


def _terminals_in(meta: dict[str, Any] | None) -> frozenset[str]:
    """Return the terminals that a call's `_meta` announces, as agents do for editors that can show them."""
    info = (meta or {}).get("terminal_info")
    terminal = info.get("terminal_id") if isinstance(info, dict) else None
    return frozenset({terminal}) if isinstance(terminal, str) else frozenset()


def _can_be_shown(item: ToolCallContent) -> bool:
    is_unknown = isinstance(item, ToolContent) and isinstance(item.content, Unknown)
    return not isinstance(item, Unknown) and not is_unknown


def _field(call: ToolCall, name: str) -> Any:
    value = getattr(call, name)
    if name == "kind":
        return value if value in KINDS else "other"
    return UNSET if value is None or value == () else value


def _continuation(
    before: tuple[ToolCallContent, ...], after: tuple[ToolCallContent, ...]
) -> tuple[ToolCallContent, ...] | None:
    """Return what to append to the content to get the new one; None if it does not continue."""
    if len(before) == len(after) == 1:
        old, new = plain_text_of(before[0]), plain_text_of(after[0])
        if old is not None and new is not None and new.startswith(old):
            return (ToolContent(TextContent(new[len(old) :])),)
        return None
    if after[: len(before)] != before:
        return None
    more = after[len(before) :]
    # Neighbouring texts would become one.
    is_text = [plain_text_of(item) is not None for item in (*before[-1:], *more)]
    return None if any(one and other for one, other in pairwise(is_text)) else more


def _size(event: Event) -> int:
    return OVERHEAD + (len(event.text) if isinstance(event, Text | Thought) else len(json.encode(event)))


class BetweenTurns:
    """Shows what the agent says while no turn runs, as it comes.

    While a turn runs, or the editor does not keep up, text is queued and joined; what exceeds the queue is
    dropped. Pieces of one message are redacted as one text until the agent is quiet for a moment, so that a
    secret in several of them is found.
    """

    def __init__(self, session: Session, start: StartTask) -> None:
        self.is_kept = False
        """True if it is also journaled, which begins with the first prompt: before it there is no turn."""
        self._session = session
        self._outlet = session.outlet
        self._start = start
        self._message: tuple[type[MessagePiece], str] | None = None
        self._queue: EventQueue | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._overflowed = False
        self._until_quiet: asyncio.TimerHandle | None = None

    def say(self, piece: MessagePiece) -> None:
        """Show a piece, now or when there is room."""
        if self._queue is None:
            if self._has_room():
                self._show(piece)
                return
            self._queue, self._overflowed = EventQueue(), False
        if not self._queue.put(piece, len(piece.text) + OVERHEAD):
            if not self._overflowed:
                log.warning("the editor does not read what the agent says between turns: it is left out")
            self._overflowed = True
        elif self._catching_up is None or self._catching_up.done():
            self._catching_up = self._start(self._catch_up(self._queue))

    def end(self) -> None:
        """Show everything that waits, because a turn begins or the session is closed."""
        queue, self._queue = self._queue, None
        while queue is not None and (piece := queue.take()) is not None:
            self._show(piece)  # type: ignore[arg-type]
        self._end_message()

    async def _catch_up(self, queue: EventQueue) -> None:
        while True:
            await self._outlet.wait_for_room()
            await self._session.until_idle()
            if self._queue is not queue:
                return
            piece = queue.take()
            if piece is None:
                self._queue = None
                return
            self._show(piece)  # type: ignore[arg-type]

    def _has_room(self) -> bool:
        return not self._session.is_busy and self._outlet.has_room()

    def _show(self, piece: MessagePiece) -> None:
        shown = type(piece)(piece.text, piece.message_id or self._message_id(type(piece)))
        if self.is_kept:
            self._outlet.send(shown)
        else:
            self._outlet.show(shown)
        if self._until_quiet is not None:
            self._until_quiet.cancel()
        self._until_quiet = asyncio.get_running_loop().call_later(QUIET, self._end_message)

    def _message_id(self, kind: type[MessagePiece]) -> str:
        if self._message is None or self._message[0] is not kind:
            self._message = (kind, self._outlet.new_message_id())
        return self._message[1]

    def _end_message(self) -> None:
        if self._until_quiet is not None:
            self._until_quiet.cancel()
            self._until_quiet = None
            self._outlet.end_message()
        self._message = None


class TerminalWatcher:
    """Shows the output of a command in one of our terminals while it runs, even if no agent reads it.

    Once the terminal has lost the beginning of its output, the end is shown when the command has ended.
    """

    def __init__(
        self, terminal: ClientTerminal, show: Callable[[str], None], has_room: Callable[[], bool]
    ) -> None:
        self._terminal = terminal
        self._show = show
        self._has_room = has_room
        self._next_look: asyncio.TimerHandle | None = None
        terminal.on_output = self._look_soon

    def _look_soon(self) -> None:
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def _look(self) -> None:
        self._next_look = None
        if self._terminal.is_released:
            return
        if not self._has_room():
            self._look_soon()
            return
        written = self._terminal.output()
        if not written.truncated:
            self._show(written.output)


def without_unknown(event: Event) -> Event | None:
    """Leave out of an event what only a newer protocol knows; None if nothing is left of it."""
    match event:
        case Content(block=Unknown()) | CompactionSummary(block=Unknown()):
            log.info("content of a kind that this version does not know is not passed on")
            return None
        case Plan(entries):
            return msgspec.structs.replace(event, entries=tuple(map(_known_entry, entries)))
        case Compaction(summary=tuple() as summary):
            known = tuple(block for block in summary if not isinstance(block, Unknown))
            return msgspec.structs.replace(event, summary=known)
    return event


def _known_entry(entry: PlanEntry) -> PlanEntry:
    if entry.priority in PRIORITIES and entry.status in PLAN_STATUSES:
        return entry
    priority = entry.priority if entry.priority in PRIORITIES else "medium"
    status = entry.status if entry.status in PLAN_STATUSES else "pending"
    return msgspec.structs.replace(entry, priority=priority, status=status)

"""Sends what a session says: redacted, journaled, then to its client.

There is no other way, so that nothing is sent that was not journaled, and nothing secret is either.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from coupler import events
from coupler.agent.editor import Editor
from coupler.agent.errors import REASONS
from coupler.agent.tool_call import Ledger
from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Notice,
    Text,
    Thought,
    ToolOutput,
    ToolUpdate,
)
from coupler.events.events import OPEN_STATUSES
from coupler.events.records import TurnEnd
from coupler.events.v1_codec import EmittedEvent, to_update
from coupler.redaction.known_secrets import add_process_secrets, environment_masker
from coupler.schema import unstable, v1
from coupler.schema.base import Unknown
from coupler.schema.v1 import SessionNotification
from coupler.wire.messages import RpcError, encode, encode_text, notification
from coupler.wire.peer import Peer

if TYPE_CHECKING:
    from coupler.agent.history import EventJournal
    from coupler.events.events import Role
    from coupler.redaction.masker import Masker, StreamMasker
    from coupler.redaction.sources import Secret
    from coupler.store.journal_writer import Backlog

_TEXT, _ID = os.urandom(16).hex(), os.urandom(16).hex()
"""Random texts that stand for the real ones while the rest of an update is encoded."""

_NO_MESSAGE = os.urandom(16).hex()
"""The id of no message at all."""

Send: TypeAlias = Callable[[EmittedEvent], None]

BLANK_LINE = "\n\n"

UNMASKED, LONGEST_UNMASKED = 64, 256
"""Pieces of text, and characters of each, kept while there are no secrets: one may begin in them."""

_PIECES: dict[str, type[Text | Thought]] = {"agent": Text, "thought": Thought}

T = TypeVar("T")


class Outlet:
    """Redacts, journals and sends the events of one session; the tool calls among them are in the ledger."""

    def __init__(self, session_id: str, editor: Editor, peer: Peer, redactor: SessionRedactor) -> None:
        self.ledger = Ledger(self._show_tool, self._keep_tool, redactor)
        self.journal: EventJournal | None = None
        """The journal that the session is recorded in, if there is one."""
        self._session_id = session_id
        self._editor = editor
        self._peer = peer
        self._outbox = peer.outbox
        self._redactor = redactor
        self._keep_piece: Callable[[str], object] | None = None
        self._message: str | None = _NO_MESSAGE
        self._backlog: Backlog | None = None
        self._announced: set[str] = set()
        self._text_lines = TextUpdateEncoder(session_id)
        self._head = self._tail = b""
        self._separator = None if editor.honours_message_ids else MessageSeparator()
        # Part of every message id: a session that is loaded again must not repeat its old ones.
        nonce = os.urandom(4).hex()
        self._message_ids = (f"msg_{nonce}_{number}" for number in count(1))

    def keep_in(self, journal: EventJournal) -> None:
        """Journal what is sent from now on."""
        self.journal = journal
        self._backlog = journal.backlog
        self._forget_message()
        # All sessions of a connection are in one store.
        self._peer.before_write = journal.before_showing

    def stop_keeping(self) -> None:
        """Stop journaling, because another process or connection may write the journal from now on."""
        self.journal = self._backlog = self._keep_piece = None
        self._forget_message()

    def new_message_id(self) -> str:
        """Make an id that no other message of this session has."""
        return next(self._message_ids)

    def begin_turn(self) -> None:
        """Note that the client shows a prompt: what is said next follows no message of ours."""
        if self._separator is not None:
            self._separator.interrupt()

    def send(self, event: EmittedEvent) -> None:
        """Redact, journal and send an event. Never blocks."""
        self._redactor.pass_on(event, self._keep_and_notify)

    def say(self, text: str, message_id: str | None) -> bool:
        """Send a piece of the answer as `send` does, on a shorter path, because models stream many of them.

        Returns whether more can be sent without waiting.
        """
        shown = self._redactor.covered_piece(Text, text, message_id, self._keep_and_notify)
        return self._keep_and_write(shown, message_id) if shown else True

    def show(self, event: EmittedEvent) -> None:
        """Redact and send an event without journaling it."""
        self._redactor.pass_on(event, self._notify)

    def end_message(self) -> None:
        """End the current message: what is said next is another one."""
        self._redactor.end_message()

    def has_room(self) -> bool:
        """Return whether more can be sent without waiting."""
        backlog = self._backlog
        return self._outbox.has_room(self._session_id) and (backlog is None or not backlog.is_full)

    async def wait_for_room(self) -> None:
        """Wait while too much of this session is unsent, or of all sessions unwritten."""
        await self._outbox.wait_for_room(self._session_id)
        if self.journal is not None and self._backlog and self._backlog.is_full:
            # A disk that fails must not stop a turn here; its end will tell.
            with contextlib.suppress(RpcError):
                await self.journal.until_stored()

    async def ask(self, params: Any, deadline: float | UnsetType | None = UNSET) -> Any:
        """Ask the client something, after everything this session has sent so far."""
        return await self._editor.call(self._redactor.covered_request(params), self._session_id, deadline)

    def know_calls(self, ids: set[str]) -> None:
        """Mark tool calls as announced that were so before the session was opened again."""
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
        if self.journal is not None:
            # Output was covered before the ledger counted it.
            is_covered = isinstance(change, ToolOutput)
            self.journal.keep(change if is_covered else self._redactor.covered(change))

    def _keep_and_notify(self, event: EmittedEvent) -> None:
        if type(event) is Text and event.meta is None:
            self._keep_and_write(event.text, event.message_id)
            return
        if self.journal is not None:
            self.journal.keep(event)
        self._notify(event)

    def _keep_and_write(self, text: str, message_id: str | None) -> bool:
        if message_id != self._message:
            return self._begin_and_write(text, message_id)
        keep = self._keep_piece
        if keep is not None:
            keep(text)
        return self._peer.send(self._head + encode_text(text) + self._tail, self._session_id)

    def _begin_and_write(self, text: str, message_id: str | None) -> bool:
        """Keep and write the first piece of a message, or the first after what was kept of it was written."""
        self._message = message_id
        self._head, self._tail = self._text_lines.around(message_id)
        journal = self.journal
        if journal is not None:
            self._keep_piece = journal.stream_text(text, message_id, self._forget_message)
        if self._separator is not None:
            text = self._separator.before("agent", message_id) + text
        has_room = self._peer.send(self._head + encode_text(text) + self._tail, self._session_id)
        return has_room and (journal is None or not journal.backlog.is_full)

    def _forget_message(self) -> None:
        self._message = _NO_MESSAGE

    def _notify(self, event: EmittedEvent) -> None:
        if self._separator is not None:
            event = self._separator.separated(event, self._announced)
            self._forget_message()  # its next piece may stand behind another message
        update = to_update(event, self._announced)
        self._peer.notify("session/update", SessionNotification(self._session_id, update), self._session_id)


class MessageSeparator:
    """Puts a blank line between two messages that follow each other, for clients that ignore message ids.

    They append every chunk to the one before it: "The disk is nearly full.First answer." Only what is sent is
    changed, and nothing that is stored. A tool call, a notice, a prompt or a message of another role stands
    between messages in every client; other updates are not seen there.
    """

    def __init__(self) -> None:
        self._last: tuple[Role, str | None] | None = None

    def interrupt(self) -> None:
        """Note that something else is shown after the last message."""
        self._last = None

    def before(self, role: Role, message_id: str | None) -> str:
        """Return what goes before the next piece of a message."""
        last, self._last = self._last, (role, message_id)
        return BLANK_LINE if last is not None and last[0] == role and last[1] != message_id else ""

    def separated(self, event: EmittedEvent, announced: Container[str]) -> EmittedEvent:
        """Return the event as it is sent."""
        match event:
            case Text(text, id):
                return msgspec.structs.replace(event, text=self.before("agent", id) + text)
            case Thought(text, id):
                return msgspec.structs.replace(event, text=self.before("thought", id) + text)
            case Content(block, role, id):
                blank = self.before(role, id)
                if blank and role != "user" and isinstance(block, v1.TextContent):
                    spaced = msgspec.structs.replace(block, text=blank + block.text)
                    return msgspec.structs.replace(event, block=spaced)
            case ToolUpdate(id=id) if id not in announced:
                self.interrupt()
            case Notice() | Compaction():
                self.interrupt()
        return event


class TextUpdateEncoder:
    """Encodes the `session/update` lines of streamed text: all but the text and its message's id once."""

    def __init__(self, session_id: str) -> None:
        self._head, _, tail = _text_update(session_id, _ID).partition(encode(_TEXT))
        self._before_id, _, self._after_id = tail.partition(encode(_ID))
        _, _, self._tail_without_id = _text_update(session_id, None).partition(encode(_TEXT))

    def around(self, message_id: str | None) -> tuple[bytes, bytes]:
        """Encode what stands before and after each piece of a message."""
        if not message_id:
            return self._head, self._tail_without_id
        return self._head, self._before_id + encode(message_id) + self._after_id


def _text_update(session_id: str, message_id: str | None) -> bytes:
    update = to_update(Text(_TEXT, message_id), ())
    return notification("session/update", SessionNotification(session_id, update))


class SessionRedactor:
    """Redacts secrets from everything a session sends or stores. `masker` is None while there are none.

    Texts that come in pieces (a message, a thought, a tool's output, a summary) pass a `StreamMasker` each,
    which holds back what may be the beginning of a secret until the text goes on or ends. Everything else is
    redacted whole. While nothing is secret there is no masker, and nothing is changed here.
    """

    def __init__(self, servers: Iterable[v1.McpServer] = ()) -> None:
        self.masker: Masker | None = None
        self._base: Masker | None = None
        self._own: tuple[Secret, ...] = ()
        self._names: frozenset[str] = frozenset()
        self._message: _Message | None = None
        # One for each kind: a secret that comes with a thought in its middle is a secret all the same.
        self._spoken: dict[type[Text | Thought], StreamMasker] = {}
        self._texts: dict[str, StreamMasker] = {}
        # By their tool calls, the terminals of agents that have written something; their texts are above.
        self._terminals: dict[str, set[str]] = {}
        self._unmasked: deque[tuple[type[Text | Thought] | str, str]] = deque(maxlen=UNMASKED)
        # Plain functions learn of secrets in threads of their own.
        self._lock = threading.Lock()
        self.look_again()
        self.notice_servers(servers)

    def look_again(self) -> None:
        """Update the secrets if the environment of the process has changed."""
        if self._base is not environment_masker():
            self._change(())

    def add(self, values: Mapping[str, str]) -> None:
        """Redact these values from now on, whatever they look like, and show their names instead."""
        from coupler.redaction.sources import declared_secrets

        self._change(declared_secrets(values))

    def add_names(self, names: Iterable[str], variables: Mapping[str, str]) -> None:
        """Redact the variables with these names, now and when they are set later."""
        self._names |= frozenset(names)
        self.add({name: variables[name] for name in self._names if name in variables})

    def notice(self, variables: Mapping[str, str]) -> None:
        """Redact those of these new variables whose names say that they are secret."""
        from coupler.redaction.sources import declared_secrets, secrets_in_environment

        declared = {name: value for name, value in variables.items() if name in self._names}
        found = [*declared_secrets(declared), *secrets_in_environment(variables)]
        if found:
            self._change(found)

    def notice_servers(self, servers: Iterable[v1.McpServer]) -> None:
        """Redact those variables and headers of these servers whose names say that they are secret."""
        if servers := tuple(servers):
            # Imported on use: most sessions have none.
            from coupler.mcp.servers import named_values

            for variables in named_values(servers):
                self.notice(variables)

    def mask(self, text: str) -> str:
        """Redact a whole text."""
        return text if self.masker is None else self.masker.mask(text)

    def covered(self, value: Any) -> Any:
        """Redact a whole event or answer."""
        return value if self.masker is None else redact(value, self.masker)

    def covered_request(self, request: Any) -> Any:
        """Redact a request to the client, but only the `_meta` of one for files or terminals."""
        if self.masker is None:
            return request
        if type(request) not in UNREDACTED_REQUESTS:
            return redact(request, self.masker)
        if not request.meta:
            return request
        return msgspec.structs.replace(request, meta=redact(request.meta, self.masker))

    def prompt_redactor(self, hidden: Mapping[str, str]) -> PromptRedactor:
        """Make the redactor of one prompt, of which these texts are not journaled either."""
        if not hidden:
            return PromptRedactor(self.masker)
        # Imported on use: hardly any prompt has such texts.
        from coupler.redaction.masker import Masker
        from coupler.redaction.sources import declared_secrets

        # Of however few characters: it is for this prompt alone, in which they were typed.
        secrets = declared_secrets(hidden, shortest=1)
        return PromptRedactor((self.masker or Masker()).with_secrets(secrets))

    def covered_end(self, end: TurnEnd) -> TurnEnd:
        """Redact the end of a turn."""
        return end if self.masker is None else redact(end, self.masker)

    def pass_on(self, event: EmittedEvent, send: Send) -> None:
        """Redact an event and send what can be shown of it by now."""
        kind = type(event)
        if kind is Text or kind is Thought:
            # What models stream: worth a way without detours.
            self._pass_on_piece(event, send)  # type: ignore[arg-type]
            return
        if self.masker is None:
            send(event)
            return
        match event:
            case Content(v1.TextContent(text) as block, "agent" | "thought" as role, message_id) if text:
                shown = self._message_of(_PIECES[role], message_id, send).feed(text)
                if shown:
                    send(Content(self._with_text(block, shown), role, message_id, self.covered(event.meta)))
            case Content():
                # It stands behind the text before it.
                self.end_message()
                send(self.covered(event))
            case Compaction() | CompactionSummary():
                self._pass_on_compaction(event, send)
            case _:
                send(self.covered(event))

    def covered_piece(self, kind: type[Text | Thought], text: str, id: str | None, send: Send) -> str:
        """Redact the next piece of a message: returns what can be shown by now, `send` gets the rest."""
        if self.masker is None:
            self._unmasked.append((kind, text[-LONGEST_UNMASKED:]))
            return text
        message = self._message
        if message is None or message.id != id or message.kind is not kind:
            message = self._message_of(kind, id, send)
        return message.feed(text)

    def end_message(self) -> None:
        """End the current message, and send what was held back of it because it could have begun a secret."""
        message, self._message = self._message, None
        if message is not None:
            rest = message.stream.end()
            if rest:
                message.send(message.kind(rest, message.id))

    def covered_output(self, output: ToolOutput) -> tuple[ToolOutput, ...]:
        """Redact the output of a tool call: returns what it can show by now."""
        text = output.text
        if self.masker is None:
            if text:
                self._unmasked.append((output.id, text[-LONGEST_UNMASKED:]))
            return (output,)
        if text is None:
            # The text may go on behind what stands in it.
            rest = self._text(output.id).end()
            before = (_text_output(output.id, rest),) if rest else ()
            return (*before, redact(output, self.masker))
        shown = self._text(output.id).feed(text)
        if shown is text:
            return (output,)
        return (_text_output(output.id, shown),) if shown else ()

    def end_output(self, id: str) -> tuple[ToolOutput, ...]:
        """End the text of a tool call, and return what was held back of it."""
        rest = self._end_text(id)
        return (_text_output(id, rest),) if rest else ()

    def covered_terminals(self, update: ToolUpdate) -> tuple[ToolUpdate, ...]:
        """Redact the output of agents' own terminals in an update's `_meta`.

        The update comes last; before it what was held back of terminals that end with it.
        """
        meta = update.meta if isinstance(update.meta, dict) else {}
        is_over = "terminal_exit" in meta or update.status not in (UNSET, *OPEN_STATUSES)
        written = meta.get("terminal_output")
        if isinstance(written, dict) and isinstance(data := written.get("data"), str):
            shown = self._covered_terminal(update.id, str(written.get("terminal_id")), data, is_over=is_over)
            if shown is not data:
                covered = {**meta, "terminal_output": {**written, "data": shown}}
                update = msgspec.structs.replace(update, meta=covered)
        if not is_over or update.id not in self._terminals:
            return (update,)
        return (*self._ended_terminals(update.id), update)

    def _covered_terminal(self, id: str, terminal: str, data: str, *, is_over: bool) -> str:
        self._terminals.setdefault(id, set()).add(terminal)
        key = _terminal_key(id, terminal)
        if self.masker is None:
            self._unmasked.append((key, data[-LONGEST_UNMASKED:]))
            return data
        shown = self._text(key).feed(data)
        return shown + self._text(key).end() if is_over else shown

    def _ended_terminals(self, id: str) -> Iterator[ToolUpdate]:
        for terminal in sorted(self._terminals.pop(id)):
            rest = self._end_text(_terminal_key(id, terminal))
            if rest:
                yield ToolUpdate(id=id, meta={"terminal_output": {"terminal_id": terminal, "data": rest}})

    def _pass_on_piece(self, piece: Text | Thought, send: Send) -> None:
        shown = self.covered_piece(type(piece), piece.text, piece.message_id, send)
        if piece.meta is not None:
            send(type(piece)(shown, piece.message_id, self.covered(piece.meta)))
        elif shown is piece.text:
            send(piece)
        elif shown:
            send(type(piece)(shown, piece.message_id))

    def _pass_on_compaction(self, event: Compaction | CompactionSummary, send: Send) -> None:
        match event:
            case CompactionSummary(id, v1.TextContent(text) as block, meta):
                shown = self._text(id).feed(text)
                if shown or meta:
                    send(CompactionSummary(id, self._with_text(block, shown), self.covered(meta)))
            case _:
                rest = self._end_text(event.id)
                if rest:
                    send(CompactionSummary(event.id, v1.TextContent(rest)))
                send(self.covered(event))

    def _with_text(self, block: v1.TextContent, shown: str) -> v1.TextContent:
        covered: v1.TextContent = self.covered(block)
        return msgspec.structs.replace(covered, text=shown)

    def _change(self, learned: Iterable[Secret]) -> None:
        with self._lock:
            self._own = (*self._own, *learned)
            self._base = environment_masker()
            masker = self._base.with_secrets(self._own)
            if not masker.finder.shortest:
                return
            self._take_note_of_unmasked()
            for stream in (*self._texts.values(), *self._spoken.values()):
                stream.masker = masker
            self.masker = masker
            add_process_secrets(self._own)

    def _take_note_of_unmasked(self) -> None:
        """Feed the streams with the text that was shown before there were secrets."""
        while self._unmasked:
            where, text = self._unmasked.popleft()
            stream = self._text(where) if isinstance(where, str) else self._spoken_stream(where)
            stream.feed(text)

    def _message_of(self, kind: type[Text | Thought], id: str | None, send: Send) -> _Message:
        """Return the message that a piece belongs to; if it begins another, the one before is ended."""
        message = self._message
        if message is None or message.id != id or message.kind is not kind:
            self.end_message()
            message = self._message = _Message(kind, id, self._spoken_stream(kind), send)
        return message

    def _spoken_stream(self, kind: type[Text | Thought]) -> StreamMasker:
        stream = self._spoken.get(kind)
        if stream is None:
            stream = self._spoken[kind] = self._new_stream()
        return stream

    def _text(self, id: str) -> StreamMasker:
        stream = self._texts.get(id)
        if stream is None:
            stream = self._texts[id] = self._new_stream()
        return stream

    def _end_text(self, id: str) -> str:
        if self._unmasked:
            self._unmasked = deque((each for each in self._unmasked if each[0] != id), UNMASKED)
        stream = self._texts.pop(id, None)
        return stream.end() if stream is not None else ""

    def _new_stream(self) -> StreamMasker:
        from coupler.redaction.masker import Masker, StreamMasker

        return StreamMasker(self.masker or Masker())


class _Message:
    """The message that is being streamed, with its redacting stream and the function that sends it."""

    __slots__ = ("feed", "id", "kind", "send", "stream")

    def __init__(self, kind: type[Text | Thought], id: str | None, stream: StreamMasker, send: Send) -> None:
        self.kind = kind
        self.id = id
        self.stream = stream
        self.feed = stream.feed
        self.send = send


class PromptRedactor(NamedTuple):
    """Redacts a prompt before it is journaled."""

    masker: Masker | None

    def covered_blocks(self, blocks: bytes) -> bytes:
        """Redact its content blocks, as JSON."""
        return blocks if self.masker is None else redact_blocks(blocks, self.masker)

    def mask(self, text: str) -> str:
        """Redact its text."""
        return text if self.masker is None else self.masker.mask(text)


def _terminal_key(id: str, terminal: str) -> str:
    """The key of a terminal's text among those of a session: no id of a tool call has a NUL in it."""
    return f"{id}\0{terminal}"


def _text_output(id: str, text: str) -> ToolOutput:
    return ToolOutput(id, v1.Content(v1.TextContent(text)))


UNREDACTED_FIELDS: dict[type, frozenset[str]] = {
    kind: frozenset(names.split())
    for kind, names in {
        events.Text: "message_id",
        events.Thought: "message_id",
        events.Content: "role message_id",
        events.ToolUpdate: "id kind status name",
        events.ToolCall: "id kind status name",
        ToolOutput: "id",
        events.Mode: "id",
        events.Info: "updated_at",
        events.Notice: "severity",
        events.Compaction: "id status",
        events.CompactionSummary: "id",
        TurnEnd: "reason",
        v1.Annotations: "audience last_modified",
        v1.ImageContent: "data mime_type",
        v1.AudioContent: "data mime_type",
        v1.ResourceLink: "mime_type",
        v1.TextResourceContents: "mime_type",
        v1.BlobResourceContents: "blob mime_type",
        v1.Diff: "path",
        v1.Terminal: "terminal_id",
        v1.ToolCallLocation: "path",
        v1.PlanEntry: "priority status",
        v1.Cost: "currency",
        v1.AvailableCommand: "name",
        v1.SessionMode: "id",
        v1.SessionModeState: "current_mode_id",
        v1.SessionConfigSelect: "id category current_value",
        v1.SessionConfigSelectGroup: "group",
        v1.SessionConfigSelectOption: "value",
        v1.SessionConfigBoolean: "id category",
        v1.PermissionToolCall: "tool_call_id kind status name",
        v1.PermissionOption: "option_id kind",
        v1.RequestPermissionRequest: "session_id",
        v1.CreateFormElicitationRequest: "session_id tool_call_id request_id",
        v1.CreateUrlElicitationRequest: "elicitation_id session_id tool_call_id request_id",
        v1.CompleteElicitationNotification: "elicitation_id",
        v1.ElicitationSchema: "type required",
        v1.StringPropertySchema: "format pattern",
        v1.NewSessionResponse: "session_id",
        unstable.ForkSessionResponse: "session_id",
        v1.ListSessionsResponse: "next_cursor",
        v1.SessionInfo: "session_id cwd additional_directories updated_at",
        v1.PromptResponse: "stop_reason",
        unstable.PromptResponse: "stop_reason",
    }.items()
}
"""The texts of each type that stay as they are: ids, paths, words of the protocol, and binary data.

A redaction would break them: see the table in `docs/secrets.md`.
"""

UNREDACTED_REQUESTS = frozenset(
    {
        v1.ReadTextFileRequest,
        v1.WriteTextFileRequest,
        v1.CreateTerminalRequest,
        v1.TerminalOutputRequest,
        v1.WaitForTerminalExitRequest,
        v1.KillTerminalRequest,
        v1.ReleaseTerminalRequest,
    }
)
"""Requests for files and terminals, which the client needs unredacted and does not show."""

_UNREDACTED_IN_BLOCKS = frozenset({"type", "data", "blob", "mimeType", "audience", "lastModified"})
_UNREDACTED_IN_ERRORS = frozenset({"sessionId", "path", "method"})
_REASONS = frozenset(reason.name for reason in REASONS)
_NOTHING: frozenset[str] = frozenset()

DEEPEST = 100
"""Levels of lists, objects and structs that are looked into."""

TOO_DEEP = "[left out: nested too deeply to look for secrets]"


def redact(value: T, masker: Masker) -> T:
    """Redact every text in a value that `UNREDACTED_FIELDS` does not list; the same object if none is secret.

    What is new in the protocol is therefore redacted until somebody decides otherwise.
    """
    return _redacted(value, masker, DEEPEST)  # type: ignore[no-any-return]


def redact_blocks(blocks: bytes, masker: Masker) -> bytes:
    """Redact content blocks as JSON, byte for byte as they were unless there is a secret in them."""
    return bytes(_redacted_raw(Raw(blocks), masker))


def redact_error(error: RpcError, masker: Masker) -> RpcError:
    """Redact an error."""
    message, data = masker.mask(error.message), error.data
    if isinstance(data, Mapping):
        data = {
            key: item if _is_unredacted_in_error(key, item) else _redacted(item, masker, DEEPEST)
            for key, item in data.items()
        }
    else:
        data = _redacted(data, masker, DEEPEST)
    return RpcError(error.code, message, data)


def _is_unredacted_in_error(key: str, item: object) -> bool:
    # An agent's code may give a reason of its own, in any words.
    return key in _UNREDACTED_IN_ERRORS or (key == "reason" and item in _REASONS)


def _redacted(value: Any, masker: Masker, levels: int) -> Any:
    match value:
        case str():
            return masker.mask(value)
        case None | bool() | int() | float() | UnsetType():
            return value
        case Raw():
            return _redacted_raw(value, masker)
        case bytes():
            return masker.mask_bytes(value)
        case Struct() | Mapping() | list() | tuple() if levels == 0:
            return TOO_DEEP
        case Struct():
            return _redacted_struct(value, masker, levels)
        case Mapping():
            items = {key: _redacted(item, masker, levels - 1) for key, item in value.items()}
            return _rebuilt(value, items) if any(items[key] is not value[key] for key in items) else value
        case list() | tuple():
            members = [_redacted(item, masker, levels - 1) for item in value]
            is_changed = any(map(_differ, members, value))
            return (tuple(members) if isinstance(value, tuple) else members) if is_changed else value
    # Whatever else can be sent is sent as something of the above.
    return _redacted(msgspec.to_builtins(value), masker, levels)


def _redacted_struct(struct: Struct, masker: Masker, levels: int) -> Struct:
    functional = UNREDACTED_FIELDS.get(type(struct), _NOTHING)
    changes: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if name in functional or (name == "uri" and _is_path(value)):
            continue
        shown = _redacted(value, masker, levels - 1)
        if shown is not value:
            changes[name] = shown
    return msgspec.structs.replace(struct, **changes) if changes else struct


def _redacted_raw(raw: Raw, masker: Masker) -> Raw:
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        return Raw(msgspec.json.encode(TOO_DEEP))
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A journal that somebody has broken.
        return Raw(masker.mask_bytes(bytes(raw)))
    shown = _redacted_json(value, masker, DEEPEST)
    return raw if shown is value else Raw(msgspec.json.encode(shown))


def _redacted_json(value: Any, masker: Masker, levels: int) -> Any:
    """Redact content blocks as JSON, so that members that only a newer client knows are kept."""
    match value:
        case dict() | list() if levels == 0:
            return TOO_DEEP
        case dict():
            items = {
                key: item
                if key in _UNREDACTED_IN_BLOCKS or (key == "uri" and _is_path(item))
                else _redacted_json(item, masker, levels - 1)
                for key, item in value.items()
            }
            return items if any(items[key] is not value[key] for key in items) else value
        case list():
            members = [_redacted_json(item, masker, levels - 1) for item in value]
            return members if any(map(_differ, members, value)) else value
    return _redacted(value, masker, levels)


def _rebuilt(value: Mapping[str, Any], items: dict[str, Any]) -> Mapping[str, Any]:
    return type(value)(value.tag, items) if isinstance(value, Unknown) else items


def _differ(new: object, old: object) -> bool:
    return new is not old


def _is_path(uri: object) -> bool:
    """Return whether a URI is a file's, which editors follow; any other may have a password in it."""
    return isinstance(uri, str) and uri[:5].lower() == "file:"

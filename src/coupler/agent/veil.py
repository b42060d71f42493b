"""What stands between a session and everybody who sees or stores what it says: no secret gets past it.

Texts that come in pieces (a message, a thought, a tool's output, a summary) pass a `Stream` each, which holds
back what may be the beginning of a secret until the text goes on or ends. Everything else is masked whole.
While nothing is secret there is no masker, and nothing is changed here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from coupler.agent.masked import FUNCTIONAL_REQUESTS, masked, masked_blocks
from coupler.events import Compaction, CompactionSummary, Content, Text, Thought, ToolOutput
from coupler.events.records import End
from coupler.events.v1_codec import Emitted
from coupler.redaction.known_secrets import environment_masker, hide_everywhere
from coupler.schema import v1

if TYPE_CHECKING:
    from coupler.redaction.masker import Masker, Stream
    from coupler.redaction.sources import Secret

Send: TypeAlias = Callable[[Emitted], None]

UNMASKED, LONGEST_UNMASKED = 64, 256
"""Pieces of text, and characters of each, that are remembered while nothing is secret: they may begin one."""

_PIECES: dict[str, type[Text | Thought]] = {"agent": Text, "thought": Thought}


class _Message:
    """The message that is being said, and the way in which its pieces are sent."""

    __slots__ = ("feed", "id", "kind", "send", "stream")

    def __init__(self, kind: type[Text | Thought], id: str | None, stream: Stream, send: Send) -> None:
        self.kind = kind
        self.id = id
        self.stream = stream
        self.feed = stream.feed
        self.send = send


class PromptVeil(NamedTuple):
    """What a prompt is like where it is kept."""

    masker: Masker | None

    def covered_blocks(self, blocks: bytes) -> bytes:
        """Its blocks."""
        return blocks if self.masker is None else masked_blocks(blocks, self.masker)

    def mask(self, text: str) -> str:
        """Its text."""
        return text if self.masker is None else self.masker.mask(text)


class Veil:
    """Hides one session's secrets. `masker` is None while there are none."""

    def __init__(self, servers: Iterable[v1.McpServer] = ()) -> None:
        self.masker: Masker | None = None
        self._base: Masker | None = None
        self._own: tuple[Secret, ...] = ()
        self._names: frozenset[str] = frozenset()
        self._message: _Message | None = None
        # One for each kind: a secret that comes with a thought in its middle is a secret all the same.
        self._spoken: dict[type[Text | Thought], Stream] = {}
        self._texts: dict[str, Stream] = {}
        self._unmasked: deque[tuple[type[Text | Thought] | str, str]] = deque(maxlen=UNMASKED)
        # Plain functions learn of secrets in threads of their own.
        self._lock = threading.Lock()
        self.look_again()
        self.notice_servers(servers)

    def look_again(self) -> None:
        """Take note of what has changed in the environment of the process."""
        if self._base is not environment_masker():
            self._change(())

    def add(self, values: Mapping[str, str]) -> None:
        """These values are secret, whatever they look like, under these names."""
        from coupler.redaction.sources import declared_secrets

        self._change(declared_secrets(values))

    def add_names(self, names: Iterable[str], variables: Mapping[str, str]) -> None:
        """The variables with these names are secret, now and when they are set later."""
        self._names |= frozenset(names)
        self.add({name: variables[name] for name in self._names if name in variables})

    def notice(self, variables: Mapping[str, str]) -> None:
        """These variables were set: some may be secret by their names."""
        from coupler.redaction.sources import declared_secrets, secrets_in_environment

        declared = {name: value for name, value in variables.items() if name in self._names}
        found = [*declared_secrets(declared), *secrets_in_environment(variables)]
        if found:
            self._change(found)

    def notice_servers(self, servers: Iterable[v1.McpServer]) -> None:
        """These servers are used: their variables and headers may be secret by their names."""
        if servers := tuple(servers):
            # Imported on use: most sessions have none.
            from coupler.mcp.servers import variables_of

            for variables in variables_of(servers):
                self.notice(variables)

    def mask(self, text: str) -> str:
        """A whole text that can be shown."""
        return text if self.masker is None else self.masker.mask(text)

    def covered(self, value: Any) -> Any:
        """A whole event or answer that can be shown."""
        return value if self.masker is None else masked(value, self.masker)

    def covered_request(self, request: Any) -> Any:
        """What a client is asked: what is for people is masked, files and terminals get what they need."""
        if self.masker is None or type(request) in FUNCTIONAL_REQUESTS:
            return request
        return masked(request, self.masker)

    def prompt_veil(self, hidden: Mapping[str, str]) -> PromptVeil:
        """For one prompt, of which these texts are not kept either."""
        if not hidden:
            return PromptVeil(self.masker)
        # Imported on use: hardly any prompt has such texts.
        from coupler.redaction.masker import Masker
        from coupler.redaction.sources import declared_secrets

        return PromptVeil((self.masker or Masker()).with_secrets(declared_secrets(hidden)))

    def covered_end(self, end: End) -> End:
        """How a turn ended, as it can be kept."""
        return end if self.masker is None else masked(end, self.masker)

    def pass_on(self, event: Emitted, send: Send) -> None:
        """Send what can be shown of an event by now."""
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
                    send(Content(self._with_text(block, shown), role, message_id))
            case Content():
                # It stands behind the text before it.
                self.end_message()
                send(self.covered(event))
            case Compaction() | CompactionSummary():
                self._pass_on_compaction(event, send)
            case _:
                send(self.covered(event))

    def covered_piece(self, kind: type[Text | Thought], text: str, id: str | None, send: Send) -> str:
        """What can be shown by now of a message that goes on with this text; `send` gets the rest."""
        if self.masker is None:
            self._unmasked.append((kind, text[-LONGEST_UNMASKED:]))
            return text
        message = self._message
        if message is None or message.id != id or message.kind is not kind:
            message = self._message_of(kind, id, send)
        return message.feed(text)

    def end_message(self) -> None:
        """The message is over, and what was held back of it is no secret's beginning: send it."""
        message, self._message = self._message, None
        if message is not None:
            rest = message.stream.end()
            if rest:
                message.send(message.kind(rest, message.id))

    def covered_output(self, output: ToolOutput) -> tuple[ToolOutput, ...]:
        """What a tool call can show by now."""
        text = output.text
        if self.masker is None:
            if text:
                self._unmasked.append((output.id, text[-LONGEST_UNMASKED:]))
            return (output,)
        if text is None:
            # The text may go on behind what stands in it.
            rest = self._text(output.id).end()
            before = (_text_output(output.id, rest),) if rest else ()
            return (*before, masked(output, self.masker))
        shown = self._text(output.id).feed(text)
        if shown is text:
            return (output,)
        return (_text_output(output.id, shown),) if shown else ()

    def end_output(self, id: str) -> tuple[ToolOutput, ...]:
        """The text of a tool call ends here: what was held back of it."""
        rest = self._end_text(id)
        return (_text_output(id, rest),) if rest else ()

    def _pass_on_piece(self, piece: Text | Thought, send: Send) -> None:
        shown = self.covered_piece(type(piece), piece.text, piece.message_id, send)
        if shown is piece.text:
            send(piece)
        elif shown:
            send(type(piece)(shown, piece.message_id))

    def _pass_on_compaction(self, event: Compaction | CompactionSummary, send: Send) -> None:
        match event:
            case CompactionSummary(id, v1.TextContent(text) as block):
                shown = self._text(id).feed(text)
                if shown:
                    send(CompactionSummary(id, self._with_text(block, shown)))
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
            hide_everywhere(self._own)

    def _take_note_of_unmasked(self) -> None:
        """Let the streams know what was shown before there were any."""
        while self._unmasked:
            where, text = self._unmasked.popleft()
            stream = self._text(where) if isinstance(where, str) else self._spoken_stream(where)
            stream.feed(text)

    def _message_of(self, kind: type[Text | Thought], id: str | None, send: Send) -> _Message:
        """The message that a piece belongs to; the one before it is over."""
        message = self._message
        if message is None or message.id != id or message.kind is not kind:
            self.end_message()
            message = self._message = _Message(kind, id, self._spoken_stream(kind), send)
        return message

    def _spoken_stream(self, kind: type[Text | Thought]) -> Stream:
        stream = self._spoken.get(kind)
        if stream is None:
            stream = self._spoken[kind] = self._new_stream()
        return stream

    def _text(self, id: str) -> Stream:
        stream = self._texts.get(id)
        if stream is None:
            stream = self._texts[id] = self._new_stream()
        return stream

    def _end_text(self, id: str) -> str:
        if self._unmasked:
            self._unmasked = deque((each for each in self._unmasked if each[0] != id), UNMASKED)
        stream = self._texts.pop(id, None)
        return stream.end() if stream is not None else ""

    def _new_stream(self) -> Stream:
        from coupler.redaction.masker import Masker, Stream

        return Stream(self.masker or Masker())


def _text_output(id: str, text: str) -> ToolOutput:
    return ToolOutput(id, v1.Content(v1.TextContent(text)))

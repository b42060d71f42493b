"""What an agent answered to one prompt, gathered as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from coupler.client.errors import AgentError, Kind
from coupler.client.usage import TurnUsage, estimated_tokens, turn_usage
from coupler.events import Content, Event, Plan, Stop, Text, Thought, ToolCall, Usage
from coupler.events.events import plain_text_of
from coupler.schema.v1 import Diff, PlanEntry

if TYPE_CHECKING:
    from coupler.client.policy import Decision

OutputWay: TypeAlias = Literal["tool", "text"]
"""How typed output came: by the `structured_output` tool, or as JSON in the answer's text."""

CHANGING_KINDS = frozenset({"edit", "delete", "move"})

_FAILED_STOPS: dict[str, tuple[Kind, str]] = {
    "refusal": ("refused", "the agent refused the prompt"),
    "cancelled": ("cancelled", "the turn was cancelled"),
    "max_tokens": ("limit", "the agent reached its limit of tokens"),
    "max_turn_requests": ("limit", "the agent reached its limit of requests in one turn"),
}


class Reply(Struct, frozen=True):
    """A whole turn. Messages of one turn are set apart by blank lines.

    `content` is what came besides text, such as images. `permissions` is what the agent asked for, with the
    decisions. `output` is there if the prompt asked for one. `rounds` counts the turns that a prompt took;
    text, thoughts and stop reason are those of the last.
    """

    text: str
    stop_reason: str
    thoughts: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    plan: tuple[PlanEntry, ...] = ()
    usage: TurnUsage = TurnUsage()
    content: tuple[Content, ...] = ()
    permissions: tuple[Decision, ...] = ()
    output: Any = None
    output_way: OutputWay | None = None
    rounds: int = 1

    @property
    def is_complete(self) -> bool:
        """Whether the agent says it is done; a refusal, a limit or a cancel is no success."""
        return self.stop_reason == "end_turn"

    @property
    def is_empty(self) -> bool:
        """Whether the agent said and did nothing."""
        return not (self.text.strip() or self.tool_calls or self.content or self.output is not None)

    @property
    def denied(self) -> tuple[Decision, ...]:
        """What the agent asked for and was not allowed."""
        return tuple(decision for decision in self.permissions if not decision.is_allowed)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths that the agent says it has changed, in the order of its calls."""
        paths: dict[str, None] = {}
        for call in self.tool_calls:
            if call.status != "completed":
                continue
            for item in call.content:
                if isinstance(item, Diff):
                    paths[item.path] = None
            if call.kind in CHANGING_KINDS:
                paths.update((location.path, None) for location in call.locations)
        return tuple(paths)

    def raise_for_stop(self) -> Reply:
        """The reply itself if the agent is done; else an AgentError of the kind that it stopped for."""
        if self.is_complete:
            return self
        kind, message = _FAILED_STOPS.get(
            self.stop_reason, ("prompt", f"the turn ended for a reason of its own: {self.stop_reason!r}")
        )
        raise AgentError(kind, message, reply=self)


class ReplyInProgress:
    """Gathers events; holds what has come so far at any time."""

    def __init__(self, asked: int = 0, before: Usage | None = None) -> None:
        """`asked` are the characters of the prompt, `before` is the session's usage until then."""
        self._asked = asked
        self._before = before
        self._usage = before
        self._written = 0
        self._text = _Messages()
        self._thoughts = _Messages()
        self._tool_calls: dict[str, ToolCall] = {}
        self._plan: tuple[PlanEntry, ...] = ()
        self._content: list[Content] = []
        self._permissions: list[Decision] = []

    def add(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case Text(text):
                self._written += len(text)
                self._text.add(event)
                self._thoughts.interrupt()
            case Thought(text):
                self._written += len(text)
                self._thoughts.add(event)
            case ToolCall():
                self._tool_calls[event.id] = event
                self._text.interrupt()
                self._thoughts.interrupt()
            case Content(role="agent"):
                self._content.append(event)
            case Plan():
                self._plan = event.entries
            case Usage():
                self._usage = event

    def decided(self, decision: Decision) -> None:
        """Something that the agent asked for was decided."""
        self._permissions.append(decision)

    @property
    def usage(self) -> TurnUsage:
        """What is known of it so far."""
        return turn_usage(None, self._before, self._usage, (self._asked, self._characters()))

    @property
    def rough_tokens(self) -> int:
        """An estimate that costs nothing, for every event."""
        return estimated_tokens(self._asked + self._written)

    def finished(self, stop: Stop) -> Reply:
        """The reply, once its turn is over."""
        usage = turn_usage(stop.usage, self._before, self._usage, (self._asked, self._characters()))
        return Reply(
            self._text.joined(),
            stop.reason,
            self._thoughts.joined(),
            tuple(self._tool_calls.values()),
            self._plan,
            usage,
            tuple(self._content),
            tuple(self._permissions),
        )

    def _characters(self) -> int:
        shown = (plain_text_of(item) or "" for call in self._tool_calls.values() for item in call.content)
        return self._written + sum(map(len, shown))


class _Messages:
    """Pieces of text, parted where a new message begins."""

    def __init__(self) -> None:
        self._messages: list[list[str]] = []
        self._current_id: str | None = None
        self._interrupted = True

    def add(self, piece: Text | Thought) -> None:
        begins = self._interrupted if piece.message_id is None else piece.message_id != self._current_id
        if begins or not self._messages:
            self._messages.append([])
            self._current_id = piece.message_id
        self._messages[-1].append(piece.text)
        self._interrupted = False

    def interrupt(self) -> None:
        """Without message ids, what comes after something else is a new message."""
        self._interrupted = True

    def joined(self) -> str:
        return "\n\n".join("".join(pieces) for pieces in self._messages)


def joined_rounds(earlier: Reply, later: Reply) -> Reply:
    """Two turns of one prompt: the later one's answer, with what both have done and used."""
    calls = {call.id: call for call in (*earlier.tool_calls, *later.tool_calls)}
    return msgspec.structs.replace(
        later,
        tool_calls=tuple(calls.values()),
        plan=later.plan or earlier.plan,
        usage=earlier.usage + later.usage,
        content=(*earlier.content, *later.content),
        permissions=(*earlier.permissions, *later.permissions),
        rounds=earlier.rounds + 1,
    )

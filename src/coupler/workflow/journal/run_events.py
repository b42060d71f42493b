"""The events of a run, in one ordered stream: what the log keeps, and front ends show.

An agent's events are those of its session, each with its step. Also how all are encoded: in the store, and as
lines of JSON for programs. What programs write may hold bytes
that are no text (surrogates, as `surrogateescape` makes them), and an agent's JSON may hold numbers of any
size: both come back as they were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

import msgspec

from coupler.events.events import Plan, Text, Thought, ToolCall, ToolOutput, ToolUpdate, TurnEnded, TurnUsage
from coupler.events.json_form import event_form, event_in, event_name, fill_form
from coupler.store.runs import RunEntry
from coupler.workflow.journal.earlier_events import EARLIER_KINDS, events_of_earlier
from coupler.workflow.language.model import ErrorKind, Json, SourcePosition

SPENT = "spent"
"""The decision with the usage of the whole run."""


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of a run: its path, and how often the run came by.

    A path names the way from the top: `fixes[2].fix`, `reviews.security`, `deploy/lint` inside of a called
    workflow. The visit counts from 1, and is more when a `goto` comes back to a step; what is inside of a
    step that was visited again has that in its path, as in `fixes#2[0].fix`.
    """

    path: str
    visit: int = 1

    def __str__(self) -> str:
        return self.path if self.visit == 1 else f"{self.path}#{self.visit}"


def step_id_in(place: str) -> str:
    """Return the step's own id at the end of a path, without the number of a visit."""
    return re.split(r"[./]", place)[-1].partition("#")[0]


class Happening(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    """The base of all events. An event that is about no step has no place."""

    place: Place | None = None


class RunStarted(Happening, frozen=True, kw_only=True, tag="run_started"):
    """The run begins."""

    run: str
    workflow: str
    inputs: Mapping[str, Json] = {}


class RunResumed(Happening, frozen=True, kw_only=True, tag="run_resumed"):
    """The run goes on; with a place, everything since the run was first there is done over."""

    reason: str = ""
    forgets: tuple[Place, ...] = ()
    """Steps whose results do not count any more: they failed, and are to have another chance."""


class RunFinished(Happening, frozen=True, kw_only=True, tag="run_finished"):
    """The run is over, or parked: then it waits for an answer."""

    status: Literal["success", "failed", "cancelled", "parked"]
    exit_code: int
    message: str = ""
    outputs: Mapping[str, Json] = {}
    error: Failure | None = None
    failed_step: str | None = None
    usage: TurnUsage | None = None
    duration: float = 0.0


class StepStarted(Happening, frozen=True, kw_only=True, tag="step_started"):
    """An attempt at a step begins."""

    id: str
    kind: str
    title: str
    attempt: int = 1
    attempts: int = 1
    parent: Place | None = None
    branch: int | None = None
    iteration: int | None = None
    agent: str | None = None
    position: SourcePosition | None = None
    """Position of the step in its file."""


class StepFinished(Happening, frozen=True, kw_only=True, tag="step_finished"):
    """A step is over, after all attempts; this is what a resumed run takes instead of running it again."""

    id: str
    kind: str
    result: Result


class PartStarted(Happening, frozen=True, kw_only=True, tag="part_started"):
    """A branch of a step, or an iteration of a loop, begins; its place is that of the step.

    It is recorded with the first of its steps that is done, and so by a resumed run only if one was left.
    """

    branch: int | None = None
    iteration: int | None = None
    attempt: int = 1
    """Number of the attempt at the step that it is a part of."""
    total: int | None = None
    """Number of parts, if it is known before the last one."""
    title: str = ""
    """The item of a loop; the names of a branch's steps."""


class PartFinished(Happening, frozen=True, kw_only=True, tag="part_finished"):
    """A branch or an iteration is over; `skipped` if all of its steps were."""

    branch: int | None = None
    iteration: int | None = None
    attempt: int = 1
    status: Status
    error: Failure | None = None
    duration: float = 0.0


class RetryPlanned(Happening, frozen=True, kw_only=True, tag="retry_planned"):
    """An attempt has failed, and there will be another."""

    attempt: int
    """Number of the next attempt."""
    attempts: int
    delay: float
    error: Failure


class Decided(Happening, frozen=True, kw_only=True, tag="decided"):
    """A decision that must come out the same way when the run is resumed."""

    what: str
    """`items` of a loop, the `winner` of a `wait: any`, a `message` of a conversation …"""
    value: Json = None

    @property
    def is_for_good(self) -> bool:
        """True if it counts even if the step is done over, as money that was spent does."""
        return self.what == SPENT


class Wrote(Happening, frozen=True, kw_only=True, tag="output"):
    """A command wrote something."""

    stream: Literal["stdout", "stderr"]
    text: str


class AgentEvent(Happening, frozen=True, kw_only=True, tag=False):
    """An agent did something in its step: an event of its session, shortened where it is long.

    Ids of tool calls are unique in the run. A message begins with the blank line that parts it from the one
    before it, so that the texts of a step are its result's `text`.
    """

    event: SessionEvent
    typed: bool = False
    """True for a text if the step has an `output`, so that it is data rather than something to read."""

    @property
    def text(self) -> str:
        """The text of a piece of a message; empty for any other event."""
        return self.event.text if isinstance(self.event, Text | Thought) else ""


SessionEvent: TypeAlias = Text | Thought | ToolCall | ToolUpdate | ToolOutput | Plan | TurnEnded


class ApprovalAsked(Happening, frozen=True, kw_only=True, tag="approval_asked"):
    """Somebody is asked for a yes or no: for a step, or for a tool call of its agent."""

    question: str
    call: str | None = None


class ApprovalGiven(Happening, frozen=True, kw_only=True, tag="approval_answered"):
    """The answer, and who gave it."""

    approved: bool
    by: Literal["user", "option", "default", "timeout", "rule", "nobody"]
    call: str | None = None
    marked_done: bool = False
    """True if the answer is that an interrupted step was done: it does not run again."""


class AnswerAsked(Happening, frozen=True, kw_only=True, tag="answer_asked"):
    """Somebody is asked for something else than a yes or no."""

    question: str
    choices: tuple[Json, ...] = ()


class AnswerGiven(Happening, frozen=True, kw_only=True, tag="answer_given"):
    """The answer, and who gave it."""

    text: str
    by: Literal["user", "option", "default"]


class Rehearsed(Happening, frozen=True, kw_only=True, tag="would_do"):
    """A step of a dry run tells what it would do."""

    text: str
    cwd: str = ""
    env: Mapping[str, str] = {}


class Noted(Happening, frozen=True, kw_only=True, tag="note"):
    """A note that changes nothing."""

    text: str


RunHappening = (
    RunStarted
    | RunResumed
    | RunFinished
    | StepStarted
    | StepFinished
    | PartStarted
    | PartFinished
    | RetryPlanned
    | Decided
    | Wrote
    | ApprovalAsked
    | ApprovalGiven
    | AnswerAsked
    | AnswerGiven
    | Rehearsed
    | Noted
)
"""What happens in a run itself."""

AnyHappening = RunHappening | AgentEvent

TextPiece = AgentEvent | Wrote
"""A piece of what a step says or writes: of an agent's events, a text or a thought."""


class Logged(msgspec.Struct, frozen=True):
    """An event as the log of its run has it."""

    seq: int
    at: float
    """Seconds since 1970."""
    happening: AnyHappening


Status = Literal["success", "failed", "skipped", "denied", "cancelled"]


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The error of a step, as `steps.x.error`."""

    kind: ErrorKind
    message: str
    exit_code: int | None = None
    step: str | None = None
    """The path of the step inside of it that failed, if it is made of others."""


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a step: kept by the journal, and seen by expressions as `steps.x`.

    Texts are what programs wrote, byte for byte (`surrogateescape`).
    """

    status: Status
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    text: str | None = None
    status_code: int | None = None
    headers: Mapping[str, str] | None = None
    """Of a response, by their names in small letters."""
    output: Json | msgspec.UnsetType = msgspec.UNSET
    usage: TurnUsage | None = None
    error: Failure | None = None
    duration: float = 0.0
    attempts: int = 1
    approved: bool | None = None
    session_id: str | None = None
    agent: str | None = None
    marked_done: bool = False
    """True if somebody said that an interrupted step was done, and it did not run again."""
    results: tuple[Mapping[str, Result], ...] | None = None
    """Of loops: the steps of each iteration by their ids."""


_AS_JSON = b"\xc1"
"""Marks a body as JSON, for what MessagePack cannot hold; no MessagePack begins with this byte."""

_encoder = msgspec.msgpack.Encoder()

AGENT_KINDS = frozenset(
    event_form(kind).event for kind in (Text, Thought, ToolCall, ToolUpdate, ToolOutput, Plan, TurnEnded)
)
"""The kinds of agents' events in the store."""


def packed(value: Any) -> bytes:
    """Encode an event, or a JSON value, for the store."""
    if isinstance(value, AgentEvent):
        value = _agent_fields(value)
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return _AS_JSON + json.dumps(msgspec.to_builtins(value)).encode()


def unpacked(body: bytes) -> Any:
    """Decode a value that was packed."""
    return json.loads(body[1:]) if body[:1] == _AS_JSON else msgspec.msgpack.decode(body)


def happening_in(body: bytes) -> RunHappening:
    """Decode an event of the run itself; raises msgspec.ValidationError or ValueError for anything else."""
    if body[:1] == _AS_JSON:
        happening: RunHappening = msgspec.convert(json.loads(body[1:]), RunHappening)
        return happening
    return _decoder().decode(body)


def logged_in(entry: RunEntry) -> Iterator[Logged]:
    """Decode an entry of the store as followers get it; of an earlier version it may be several events."""
    for happening in _happenings_in(entry):
        yield Logged(entry.seq, entry.at / 1000, happening)


def _happenings_in(entry: RunEntry) -> Sequence[AnyHappening]:
    is_earlier = entry.kind in EARLIER_KINDS
    if not is_earlier and entry.kind not in AGENT_KINDS:
        return (happening_in(entry.body),)
    told = unpacked(entry.body)
    try:
        place = msgspec.convert(told.get("place"), Place | None)
        events = events_of_earlier(told) if is_earlier else (event_in(told),)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no event of an agent: {error}") from error
    typed = told.get("typed", False)
    return [AgentEvent(place=place, event=event, typed=typed) for event in events]


def _agent_fields(happened: AgentEvent) -> dict[str, Any]:
    """Return an agent's event as it is stored and shown: its JSON form, and its step."""
    event = happened.event
    form = event_form(type(event))
    fields: dict[str, Any] = {"event": form.event}
    if happened.place is not None:
        fields["place"] = happened.place
    if happened.typed:
        fields["typed"] = True
    if isinstance(event, Text | Thought):  # nearly all of a stream
        fields["text"] = event.text  # the last of it: results refer to it there
        return fields
    return fill_form(fields, event, form)


def kind_of(happening: Happening) -> str:
    """Return the name of an event's kind in the store."""
    if isinstance(happening, AgentEvent):
        return event_name(happening.event)
    tag = type(happening).__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def with_text(piece: TextPiece, text: str) -> TextPiece:
    """Return a piece with another text."""
    if isinstance(piece, Wrote):
        return msgspec.structs.replace(piece, text=text)
    return msgspec.structs.replace(piece, event=msgspec.structs.replace(piece.event, text=text))


def run_object(logged: Logged) -> dict[str, Any]:
    """Return an event as JSON: the number, the time, and the event's own fields beside them."""
    happening = logged.happening
    fields = _agent_fields(happening) if isinstance(happening, AgentEvent) else msgspec.to_builtins(happening)
    return {"seq": logged.seq, "at": logged.at, **fields}


def as_line(logged: Logged) -> str:
    """Return a line of JSON without its end."""
    fields = run_object(logged)
    try:
        return msgspec.json.encode(fields).decode()
    except (UnicodeEncodeError, OverflowError):
        # Half a surrogate pair is escaped, which is JSON.
        return json.dumps(msgspec.to_builtins(fields), separators=(",", ":"))


@cache
def _decoder() -> msgspec.msgpack.Decoder[RunHappening]:
    return msgspec.msgpack.Decoder(RunHappening)

"""The events of a run, in one ordered stream: what the log keeps, and front ends show.

Also how they are encoded: in the store, and as lines of JSON for programs. What programs write may hold bytes
that are no text (surrogates, as `surrogateescape` makes them), and an agent's JSON may hold numbers of any
size: both come back as they were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import msgspec

from coupler.store.runs import RunEntry
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
    usage: Usage | None = None
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


class Said(Happening, frozen=True, kw_only=True, tag="text"):
    """An agent wrote a piece of its answer."""

    text: str
    typed: bool = False
    """True if the step has an `output`, so that the answer is data rather than something to read."""


class Thought(Happening, frozen=True, kw_only=True, tag="thought"):
    """An agent wrote a piece of its reasoning."""

    text: str


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a file by a tool, made or wanted; without `old` the file was empty, or is new."""

    path: str
    new: str
    old: str | None = None


class ToolStarted(Happening, frozen=True, kw_only=True, tag="tool_started"):
    """A tool call begins: an agent's, or one to an MCP server behind Coupler."""

    call: str
    title: str
    kind: str = "other"
    status: Literal["pending", "in_progress"] = "in_progress"
    """`pending` if it may still be asked about."""
    name: str | None = None
    input: Any = None
    locations: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


class ToolProgressed(Happening, frozen=True, kw_only=True, tag="tool_progressed"):
    """A tool call has changed, or shows more."""

    call: str
    status: str | None = None
    title: str | None = None
    text: str | None = None
    changes: tuple[Change, ...] = ()
    """The changes that were not reported before."""


class ToolEnded(Happening, frozen=True, kw_only=True, tag="tool_ended"):
    """A tool call is over."""

    call: str
    status: Literal["completed", "failed"]
    text: str | None = None
    output: Any = None
    changes: tuple[Change, ...] = ()
    cancelled: bool = False
    """True if it failed because its step was cancelled."""


class Planned(Happening, frozen=True, kw_only=True, tag="plan"):
    """An agent has changed its plan."""

    entries: tuple[Mapping[str, str], ...]


class Used(Happening, frozen=True, kw_only=True, tag="usage"):
    """An agent's usage so far."""

    usage: Usage


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


AnyHappening = (
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
    | Said
    | Thought
    | ToolStarted
    | ToolProgressed
    | ToolEnded
    | Planned
    | Used
    | ApprovalAsked
    | ApprovalGiven
    | AnswerAsked
    | AnswerGiven
    | Rehearsed
    | Noted
)


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


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent's usage, as `steps.x.usage`."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None
    currency: str | None = None
    is_estimated: bool = False


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a step: kept by the journal, and seen by expressions as `steps.x`.

    Texts are what programs wrote, byte for byte (`surrogateescape`).
    """

    status: Status
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    text: str | None = None
    output: Json | msgspec.UnsetType = msgspec.UNSET
    usage: Usage | None = None
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


def packed(value: Any) -> bytes:
    """Encode an event, or a JSON value, for the store."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return _AS_JSON + json.dumps(msgspec.to_builtins(value)).encode()


def unpacked(body: bytes) -> Any:
    """Decode a value that was packed."""
    return json.loads(body[1:]) if body[:1] == _AS_JSON else msgspec.msgpack.decode(body)


def happening_in(body: bytes) -> AnyHappening:
    """Decode an event; raises msgspec.ValidationError or ValueError for anything else."""
    if body[:1] == _AS_JSON:
        happening: AnyHappening = msgspec.convert(json.loads(body[1:]), AnyHappening)
        return happening
    return _decoder().decode(body)


def logged_in(entry: RunEntry) -> Logged:
    """Decode an entry of the store as followers get it."""
    return Logged(entry.seq, entry.at / 1000, happening_in(entry.body))


def kind_of(happening: Happening) -> str:
    """Return the name of an event's kind in the store."""
    tag = type(happening).__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def as_line(logged: Logged) -> str:
    """Return a line of JSON without its end: the number, the time, and the event's own fields beside them."""
    fields = {"seq": logged.seq, "at": logged.at, **msgspec.to_builtins(logged.happening)}
    try:
        return msgspec.json.encode(fields).decode()
    except (UnicodeEncodeError, OverflowError):
        # Half a surrogate pair is escaped, which is JSON.
        return json.dumps(fields, separators=(",", ":"))


@cache
def _decoder() -> msgspec.msgpack.Decoder[AnyHappening]:
    return msgspec.msgpack.Decoder(AnyHappening)

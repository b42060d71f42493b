"""Turns what an agent does during one prompt into events of the run, and counts what it uses.

Usage is counted for each step and for the whole run, against the budgets of both. A step that is done again
after a failure begins anew; what the run has spent stays spent. Errors of agents become errors of steps.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from coupler.client.errors import AgentError
from coupler.client.observation import Observation, PermissionDecided, Received
from coupler.client.reply import BY_ESTIMATE, Budget
from coupler.events import Notice, Plan, Text, Thought, ToolCall, ToolOutput, ToolUpdate
from coupler.events import Usage as SessionUsage
from coupler.events.events import CANCELLED_META, TurnEnded, TurnUsage, plain_text_of
from coupler.events.fold import Messages, text_content
from coupler.schema.v1 import Cost, Diff, PlanEntry, ToolCallContent, ToolCallLocation
from coupler.workflow.engine.front import visible
from coupler.workflow.errors import StepError
from coupler.workflow.journal.run_events import (
    SPENT,
    AgentEvent,
    Decided,
    Happening,
    Noted,
    Place,
    Result,
)
from coupler.workflow.language.model import ErrorKind, Json, Limits

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.workflow.agents.agents import AgentSessionJournal


MOST_SHOWN = 64 * 1024
"""Most characters of what one tool call shows, takes or returns; a longer text loses its middle."""

LONGEST_LINE = 1000
"""Characters of a title, a path or an id."""

MOST_LISTED = 100
"""Paths of a call, and entries of a plan."""

MOST_DONE = 256 * 1024 * 1024
"""Most characters of all tool calls and plans in one prompt, shown or not: the session holds them."""

UPDATE_COST = 100
"""Characters that each update counts for besides its text, as even the shortest takes memory."""

TOO_MUCH = "the agent's messages, tool calls and plans were too many, and it was stopped"

LEFT_OPEN = "it was not ended when the agent's turn was over"


class Telling:
    """Records one prompt as events. `name_call` turns an agent's id of a call into one unique in the run."""

    def __init__(self, emit: Callable[[Happening], None], name_call: Callable[[str], str]) -> None:
        self.is_typed = False
        """True if the step has an `output`: what the agent says is data."""
        self._emit = emit
        self._name_call = name_call
        self._text, self._thoughts = Messages(), Messages()
        self._calls: dict[str, _Call] = {}
        self._weights: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._denied: dict[str, str] = {}
        self._plan: tuple[PlanEntry, ...] = ()
        self._done = 0

    @property
    def text(self) -> str:
        """All text of the agent so far."""
        return self._text.joined()

    @property
    def is_too_much(self) -> bool:
        """True if the agent's output is over its limit, so that it must be stopped."""
        return self._done > MOST_DONE

    def notice(self, observation: Observation) -> None:
        """Record something that happened in the agent's session; what comes late is left out."""
        match observation:
            case Received(event=event, late=False):
                self._received(event)
            case PermissionDecided(decision=decision) if not decision.is_allowed:
                call = decision.tool_call
                self._denied[call.id] = decision.reason
                denied = f"denied: {_line(call.title or call.name or call.kind)}"
                self._emit(Noted(text="; ".join(filter(None, [denied, decision.remedy]))))

    def called(self, event: ToolCall) -> None:
        """Record a tool call as it stands now."""
        call = self._calls.get(event.id)
        if call is None:
            call = self._calls[event.id] = _Call(self.call_named(event.id), event)
            self._emit(AgentEvent(event=_announced(call.name, event)))
        elif call.is_over:
            return
        elif event.is_open:
            self._emit_all(call.progress(event))
        if not event.is_open:
            self._emit_all(call.end(event))

    def knows(self, id: str) -> bool:
        """Tell whether a call of the agent was recorded."""
        return id in self._calls

    def call_named(self, id: str) -> str:
        """Return the name of an agent's call in the run."""
        if id not in self._names:
            self._names[id] = self._name_call(id)
        return self._names[id]

    def settle(self, *, is_cancelled: bool = False) -> None:
        """Record open calls as failed, because the turn is over, or was cancelled."""
        for agents_id, call in self._calls.items():
            if not call.is_over:
                reason = None if is_cancelled else self._denied.get(agents_id, LEFT_OPEN)
                self._emit_all(call.settled(reason))

    def ended(self, turn: TurnEnded) -> None:
        """Record the end of the turn, and what it used."""
        self._emit(AgentEvent(event=turn))

    def _received(self, event: object) -> None:
        self._done += UPDATE_COST
        match event:
            case Text():
                self._thoughts.interrupt()
                if event.text:
                    self._emit(AgentEvent(event=Text(self._text.add(event)), typed=self.is_typed))
            case Thought():
                if event.text:
                    self._emit(AgentEvent(event=Thought(self._thoughts.add(event))))
            case ToolCall():
                self._text.interrupt()
                self._thoughts.interrupt()
                self.called(event)
                self._weigh(event)
            case Plan(entries=entries):
                self._planned(entries)
            case Notice(title=title, description=description):
                said = ": ".join(filter(None, [title, description]))
                self._emit(Noted(text=shortened(said, MOST_SHOWN)))

    def _planned(self, entries: Sequence[PlanEntry]) -> None:
        plan = tuple(
            PlanEntry(_title(each.content), _line(each.priority), _line(each.status))  # type: ignore[arg-type]
            for each in entries[:MOST_LISTED]
        )
        if plan != self._plan:
            self._plan = plan
            self._done += sum(len(each.content) for each in plan)
            self._emit(AgentEvent(event=Plan(plan)))

    def _weigh(self, call: ToolCall) -> None:
        weight = _weight(call)
        self._done += weight - self._weights.get(call.id, 0)
        self._weights[call.id] = weight

    def _emit_all(self, events: Iterable[ToolUpdate | ToolOutput]) -> None:
        for event in events:
            self._emit(AgentEvent(event=event))


class _Call:
    """A tool call, with what was recorded of it so far."""

    def __init__(self, name: str, event: ToolCall) -> None:
        self.name = name
        self.is_over = False
        self._title = _title(event.title)
        self._status = event.status
        self._text = ""
        self._told: list[str] = []
        self._told_length = 0
        self._changes = _changes_in(event)

    def progress(self, event: ToolCall) -> Iterator[ToolUpdate | ToolOutput]:
        """Yield what is new in a call that goes on."""
        # Of a change that grows while it is written, the beginning and the end are enough.
        more, content = self._news(event, () if self._changes else _changes_in(event))
        yield from more
        title = _title(event.title)
        update = ToolUpdate(
            id=self.name,
            status=event.status if event.status != self._status else UNSET,
            title=title if title != self._title else UNSET,
            content=content,
        )
        self._title, self._status = title, event.status
        if update != ToolUpdate(id=self.name):
            yield update

    def end(self, event: ToolCall) -> Iterator[ToolUpdate | ToolOutput]:
        """Yield what is new in a call that is over, and its end."""
        self.is_over = True
        is_bare = self._is_bare
        more, content = self._news(event, _changes_in(event))
        if is_bare and more:
            content = tuple(each.item for each in more)
        else:
            yield from more
        status = "completed" if event.status == "completed" else "failed"
        is_cancelled = status == "failed" and _is_cancelled(event)
        output = bounded(event.raw_output)
        yield ToolUpdate(
            id=self.name,
            status=status,
            content=content,
            raw_output=UNSET if output is None else output,
            meta=CANCELLED_META if is_cancelled else UNSET,
        )

    def settled(self, reason: str | None) -> Iterator[ToolUpdate | ToolOutput]:
        """Yield the end of a call that its agent has not ended; without a reason it was cancelled."""
        self.is_over = True
        failed = ToolUpdate(id=self.name, status="failed", meta=CANCELLED_META if reason is None else UNSET)
        if reason is not None and self._is_bare:
            failed = msgspec.structs.replace(failed, content=(text_content(reason),))
        elif reason is not None:
            yield ToolOutput(self.name, text_content(reason))
        yield failed

    @property
    def _is_bare(self) -> bool:
        """True if no content of the call was recorded yet."""
        return not self._told and not self._changes

    def _news(
        self, event: ToolCall, changes: tuple[Diff, ...]
    ) -> tuple[list[ToolOutput], tuple[ToolCallContent, ...] | UnsetType]:
        """Return the changes and the text that were not recorded yet.

        If a file was changed again, all content of the call is returned, to take the place of what there is.
        """
        told = {change.path for change in self._changes}
        new = [change for change in changes if change not in self._changes]
        text = self._new_text(event)
        if changes:
            self._changes = changes
        if any(change.path in told for change in new):
            texts = (text_content("".join(self._told)),) if self._told else ()
            return [], (*texts, *changes)
        items: list[ToolCallContent] = [*new, *([text_content(text)] if text else [])]
        return [ToolOutput(self.name, item) for item in items], UNSET

    def _new_text(self, event: ToolCall) -> str:
        """Return the text of the call that was not recorded yet, at most MOST_SHOWN characters in all."""
        shown = _shown_text(event)
        news = shown[len(self._text) :] if shown.startswith(self._text) else shown
        self._text = shown
        if not news or self._told_length >= MOST_SHOWN:
            return ""
        news = shortened(news, MOST_SHOWN - self._told_length)
        self._told.append(news)
        self._told_length += len(news)
        return news


def _announced(name: str, event: ToolCall) -> ToolCall:
    """Return a call as it is recorded when it begins; its text follows."""
    return ToolCall(
        id=name,
        title=_title(event.title or event.name or event.kind),
        kind=_line(event.kind),
        status="pending" if event.status == "pending" else "in_progress",
        name=None if event.name is None else _line(event.name),
        content=_changes_in(event),
        locations=tuple(
            ToolCallLocation(_line(each.path), each.line) for each in event.locations[:MOST_LISTED]
        ),
        raw_input=bounded(event.raw_input),
    )


def _is_cancelled(event: ToolCall) -> bool:
    """Tell whether an agent of ours says that a call has failed because it was cancelled."""
    told = (event.meta or {}).get("coupler")
    return isinstance(told, dict) and told.get("outcome") == "cancelled"


def _line(text: str) -> str:
    return shortened(str(text), LONGEST_LINE)


def _title(text: str) -> str:
    return visible(_line(text))


def _weight(call: ToolCall) -> int:
    return len(call.title) + sum(map(_length, (call.content, call.raw_input, call.raw_output)))


def _length(value: Any) -> int:
    try:
        return len(msgspec.json.encode(value)) if value else 0
    except (TypeError, ValueError, RecursionError):
        return 0  # it came as JSON, so this is half a character at most


def _changes_in(event: ToolCall) -> tuple[Diff, ...]:
    """Return the changes of files by a call, as far as they are short enough to be kept."""
    changes: list[Diff] = []
    room = MOST_SHOWN
    for item in event.content[:MOST_LISTED]:
        if isinstance(item, Diff):
            length = len(item.new_text) + len(item.old_text or "")
            if length <= room:
                room -= length
                changes.append(_change(item))
    return tuple(changes)


def _change(diff: Diff) -> Diff:
    return Diff(_line(diff.path), diff.new_text, diff.old_text or UNSET)


def _shown_text(event: ToolCall) -> str:
    """Return the text that a call shows, with a line for each change that is too long to be kept."""
    shown: list[str] = []
    told = _changes_in(event)
    for item in event.content:
        if isinstance(item, Diff):
            if _change(item) not in told:
                shown.append(f"{'changed' if item.old_text else 'new file'}: {item.path}")
        elif text := plain_text_of(item):
            shown.append(text)
    return "\n".join(shown)


def bounded(value: Any) -> Any:
    """Return a tool's input or output; of what is too long, the beginning and the end as text."""
    if value is None:
        return None
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return shortened(repr(value), 1000)
    if len(encoded) <= MOST_SHOWN:
        return value
    return shortened(encoded.decode(errors="replace"), MOST_SHOWN)


def shortened(text: str, most: int) -> str:
    """Return a text without its middle if it is longer than that."""
    if len(text) <= most:
        return text
    half = max(most // 2 - 2, 1)
    return f"{text[:half]}\n…\n{text[-half:]}"


USED = "usage"
"""The decision with the usage of a step so far."""


class Spent(msgspec.Struct, frozen=True):
    """The usage that is kept of a turn."""

    total: TurnUsage
    """The usage of the whole run up to this turn."""
    session: str
    cost: float | None = None
    """The cost of the session since its beginning, as its agent counts."""
    currency: str = ""


class Spending:
    """Adds up the usage of one run; that of earlier processes comes from the journal."""

    def __init__(self, limits: Limits | None, journal: AgentSessionJournal) -> None:
        limits = limits or Limits()
        earlier = [msgspec.convert(value, Spent) for value in journal.decisions(SPENT).values()]
        self._by_place = {
            place: msgspec.convert(each, TurnUsage) for place, each in journal.decisions(USED).items()
        }
        self._of_sessions = {each.session: each for each in sorted(earlier, key=_order)}
        self.total: TurnUsage | None = max(earlier, key=_order).total if earlier else None
        """The usage of all steps together; None if no agent was asked."""
        self.budget = Budget(tokens=limits.tokens, cost=limits.cost)
        if self.total is not None:
            self.budget.spent_tokens = self.total.total
            self.budget.is_estimated = self.total.is_estimated
            self.budget.spent_cost = self.total.cost or 0.0

    def of(self, place: Place) -> TurnUsage | None:
        """Return the usage of a step, all its attempts together."""
        return self._by_place.get(place)

    def add(self, place: Place, usage: TurnUsage, session: RemoteSession) -> list[Decided]:
        """Add the usage of a turn; returns the decisions to keep."""
        before = self._by_place.get(place)
        self._by_place[place] = usage if before is None else before + usage
        self.total = usage if self.total is None else self.total + usage
        cost = None if session.usage is None else session.usage.cost
        spent = Spent(
            self.total,
            session.id,
            None if cost is None else cost.amount,
            "" if cost is None else cost.currency,
        )
        self._of_sessions[session.id] = spent
        return [
            Decided(what=USED, value=_plain(self._by_place[place])),
            Decided(what=SPENT, value=_plain(spent)),
        ]

    def tell_cost_of_before(self, session: RemoteSession) -> None:
        """Set the earlier cost of a session that was opened again, if its agent does not report it.

        Agents count from a session's beginning: without this, its next turn would be charged for all of it.
        """
        spent = self._of_sessions.get(session.id)
        told = session.usage or SessionUsage(0, 0)
        if spent is not None and spent.cost is not None and told.cost is None:
            session.usage = msgspec.structs.replace(told, cost=Cost(spent.cost, spent.currency))


class StepBudget(Budget):
    """The budget of a step, which is never more than what is left of the run's."""

    def __init__(self, limits: Limits | None, run: Budget) -> None:
        limits = limits or Limits()
        super().__init__(tokens=limits.tokens, cost=limits.cost, seconds=limits.time)
        self._run = run

    def charge(self, usage: TurnUsage) -> None:
        super().charge(usage)
        self._run.charge(usage)

    def run_up(self, tokens: int, cost: float) -> None:
        super().run_up(tokens, cost)
        self._run.run_up(tokens, cost)

    def excess(self, tokens: int = 0, cost: float = 0.0) -> str | None:
        own = super().excess(tokens, cost)
        if own is not None:
            return f"{own}: see `budget` of the step"
        of_run = self._run.excess(tokens, cost)
        return None if of_run is None else f"{of_run}: see `budget` of the workflow"

    def refuse_if_exceeded(self) -> None:
        """Raise AgentError if more was used than the budget has; to use exactly all of it is no fault."""
        for budget, whose in ((self, "step"), (self._run, "workflow")):
            if budget.tokens is not None and budget.spent_tokens > budget.tokens:
                estimate = BY_ESTIMATE if budget.is_estimated else ""
                used = f"{budget.spent_tokens} tokens were used of {budget.tokens}{estimate}"
            elif budget.cost is not None and budget.spent_cost > budget.cost:
                used = f"it cost {budget.spent_cost:g} of {budget.cost:g}"
            else:
                continue
            raise AgentError("budget", f"{used}: see `budget` of the {whose}")


def _order(spent: Spent) -> tuple[int, float]:
    """Sort key: the usage of a run only grows, so a larger total is a later one."""
    return spent.total.total, spent.total.cost or 0.0


def _plain(value: msgspec.Struct) -> Json:
    return msgspec.to_builtins(value)


LOGIN_WANTED = -32000
"""The error code of agents that need a login first."""

LONGEST_WAIT = 24 * 60 * 60.0
"""Seconds that a provider may ask us to wait; whoever says more is not believed."""

_KINDS: dict[str, ErrorKind] = {
    "output": "invalid_output",
    "budget": "budget",
    "deadline": "timeout",
    "cancelled": "cancelled",
}
_OF_PROVIDERS = frozenset({"initialize", "session", "prompt", "died", "limit"})

_LIMITED = re.compile(
    r"\brate[ _-]?limit|\btoo many requests\b|\busage limit\b|\bquota\b.{0,40}\bexceeded\b"
    r"|\bexceeded\b.{0,40}\bquota\b|\b(?:http|status|code|error)\W{0,3}429\b",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\b429\b")
_WAIT = re.compile(
    r"""\b(?:retry[ _-]?after["']?\s*[:=]?\s*|(?:again|retry)\s+(?:in|after)\s+)["']?"""
    r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?)?\b",
    re.IGNORECASE,
)
_MISSING = re.compile(r"\bwas not found\b|\bis not installed\b|\bthere is no agent\b|\bdoes not exist\b")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


_WIRE_REFUSALS = {
    "initialize": "the agent could not be started",
    "authenticate": "the agent refused the login",
    "session/new": "the agent opened no session",
    "session/load": "the agent could not load the session",
    "session/resume": "the agent could not resume the session",
    "session/prompt": "the agent failed",
    "session/set_mode": "the agent refused the mode",
    "session/set_model": "the agent refused the model",
    "session/set_config_option": "the agent refused the option",
}
"""What the refusal of a request means for a step."""

_METHOD = "|".join(map(re.escape, _WIRE_REFUSALS))
_REFUSED = re.compile(rf"the agent refused ({_METHOD}): ")
_UNANSWERED = re.compile(rf"\b(answered|did not answer|answer to) ({_METHOD})\b")
_STARTING = frozenset({"initialize", "authenticate", "session/new", "session/load", "session/resume"})


def in_step_terms(error: AgentError) -> str:
    """Return an agent's error without the protocol's words, which say nothing to who wrote the workflow."""
    message = str(error)
    if refused := _REFUSED.match(message):
        reason = message[refused.end() :].replace(f" ({error.code})", "", 1)
        return f"{_WIRE_REFUSALS[refused[1]]}: {reason}"
    message = _UNANSWERED.sub(_answer_in_words, message)
    return message.replace("; its words are in `reply.text`", "; its words are the `text` of the step")


def _answer_in_words(found: re.Match[str]) -> str:
    what = "the prompt" if found[2] == "session/prompt" else "a setting"
    what = "when it was started" if found[2] in _STARTING else what
    match found[1]:
        case "answer to":
            return f"answer to {what}" if not what.startswith("when") else f"answer {what}"
        case verb:
            return f"{verb} {what}"


def step_error(error: AgentError, agent: str, result: Result | None = None) -> StepError:
    """Return the error of a step for that of its agent; a partial answer is part of it."""
    message = in_step_terms(error)
    kind = _kind_of(error)
    if error.code == LOGIN_WANTED and "coupler login" not in message:
        message = f"{message}\nIt wants a login: run `coupler login {shlex.quote(agent)}`"
    wait = _wait_in(f"{message}\n{error.data or ''}") if kind == "rate_limit" else None
    return StepError(kind, message, retry_after=wait, result=result)


def _kind_of(error: AgentError) -> ErrorKind:
    if error.kind in _KINDS:
        return _KINDS[error.kind]
    if error.kind == "spawn" or (error.kind == "prompt" and "The program " in error.message):
        return "not_found" if _MISSING.search(error.message) else "provider"
    if error.kind in _OF_PROVIDERS and _is_limited(error):
        return "rate_limit"
    return "provider"


def _is_limited(error: AgentError) -> bool:
    # A number alone may be anything in what a program writes besides its answer.
    said = f"{error.message}\n{_words_of(error.data)}"
    return _LIMITED.search(f"{said}\n{error.stderr}") is not None or _NUMBERED.search(said) is not None


def _words_of(data: Any) -> str:
    return "" if data is None else str(data)[:10_000]


def _wait_in(text: str) -> float | None:
    found = _WAIT.search(text)
    if found is None:
        return None
    unit = (found[2] or "s").lower()
    scale = _UNITS["ms"] if unit.startswith(("ms", "mil")) else _UNITS[unit[0]]
    wait = float(found[1]) * scale
    return wait if wait <= LONGEST_WAIT else None

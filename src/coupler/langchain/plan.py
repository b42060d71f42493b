"""Collects the plan of one prompt and shows it to the client.

A plan comes from a todo list, a `plan` in the graph's state, the tool calls of a model, what it thinks or
says, or from `acp.emit_plan(…)`. Each statement is the whole plan; the same one is not sent twice, but for
the finished one, which ends the prompt.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from coupler import events
from coupler.agent.errors import describe
from coupler.schema.v1 import PlanEntry, PlanEntryPriority, PlanEntryStatus

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.langchain")

PLANNING = "planning"
"""The id of the mode in which the answers of the model are plans."""

PlanSource: TypeAlias = Literal["todos", "tool_calls", "reasoning", "manual"]

PLAN_SOURCES: tuple[str, ...] = get_args(PlanSource)

DEFAULT_SOURCES: frozenset[str] = frozenset({"todos", "manual"})

PlanEntries: TypeAlias = Iterable[str | Mapping[str, Any] | PlanEntry]

PlanBuilder: TypeAlias = Callable[[str, Any], PlanEntries | None]
"""Makes plan entries; takes a source's name, and its todo list, tool calls or text."""

MOST_ENTRIES = 200

LONGEST_ENTRY = 500
"""Characters of one entry."""

FEWEST_STEPS = 2
"""Fewest entries of a list in a text that counts as a plan."""

_STATUSES = frozenset(get_args(PlanEntryStatus))

_PRIORITIES = frozenset(get_args(PlanEntryPriority))

_DONE = {"done": "completed", "complete": "completed", "in progress": "in_progress", "doing": "in_progress"}

_STEP = re.compile(r"\s{0,3}(?:\d{1,3}[.)]|[-*+])\s+(?:\[(?P<mark>[ xX])\]\s+)?(?P<text>\S.*)")


class PlanBoard:
    """The plan of one prompt. All of its methods are synchronous, and called on the event loop."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._on: frozenset[str] = DEFAULT_SOURCES
        self._build: PlanBuilder | None = None
        self._entries: tuple[PlanEntry, ...] = ()
        self._calls: dict[str, dict[str, Any]] = {}
        self._is_finished = False

    def listen(self, on: frozenset[str], build: PlanBuilder | None) -> None:
        """Take plans from these sources only, and make their entries with `build`."""
        self._on, self._build = on, build

    def hears(self, source: PlanSource) -> bool:
        """True if plans of this source are shown."""
        return source in self._on

    def todos(self, value: Any) -> None:
        """Take a plan from the todo list, which has changed."""
        self._take("todos", value)

    def plan(self, value: Any) -> None:
        """Take a plan from the `plan` in the graph's state; anything but a text or a list is ignored."""
        if isinstance(value, str | list | tuple):
            self._show(plan_steps(value) if isinstance(value, str) else value)

    def begin_call(self, call: dict[str, Any]) -> None:
        """Add a tool call to the plan: a dictionary with `id`, `name`, `args` and `title`."""
        if "tool_calls" in self._on:
            self._calls[call["id"]] = {**call, "status": "in_progress"}
            self._take("tool_calls", [*self._calls.values()])

    def end_call(self, id: str) -> None:
        """Mark a tool call as completed in the plan, however it ended."""
        if id in self._calls:
            self._calls[id] = {**self._calls[id], "status": "completed"}
            self._take("tool_calls", [*self._calls.values()])

    def reasoning(self, text: str) -> None:
        """Take a plan from what the model thinks."""
        self._take("reasoning", text)

    def answer(self, text: str) -> None:
        """Take a plan from what the model says in the mode for planning."""
        self._show(self._built("answer", text) if self._build is not None else plan_steps(text))

    def emit(self, entries: PlanEntries) -> None:
        """Take a plan from the agent's code."""
        self._take("manual", entries)

    def finish(self) -> None:
        """Send the plan once more at the end of the prompt, where users look."""
        if self._entries and not self._is_finished:
            self._is_finished = True
            self._send()

    def _take(self, source: PlanSource, value: Any) -> None:
        if source in self._on:
            self._show(self._built(source, value))

    def _built(self, source: str, value: Any) -> PlanEntries | None:
        if self._build is None:
            return _BUILT_FROM[source](value)
        try:
            return self._build(source, value)
        except Exception as error:
            log.warning("`build` of acp.plan(…) could not be used for %s: %s", source, describe(error))
            return None

    def _show(self, entries: PlanEntries | None) -> None:
        if entries is None:
            return
        try:
            made = tuple(entry for each in entries if (entry := plan_entry(each)) is not None)[:MOST_ENTRIES]
        except (TypeError, ValueError) as error:
            log.warning("a plan could not be shown: %s", describe(error))
            return
        if made and made != self._entries:
            self._entries, self._is_finished = made, False
            self._send()

    def _send(self) -> None:
        if self._turn.is_alive:
            self._turn.begin_new_message()
            self._turn.session.outlet.send(events.Plan(self._entries))


def plan_entry(value: object) -> PlanEntry | None:
    """Return an entry made of a text or a dictionary as todo lists have them; None if it is empty."""
    if isinstance(value, PlanEntry):
        return value
    if isinstance(value, str):
        value = {"content": value}
    if not isinstance(value, Mapping):
        raise TypeError(f"a plan's entry is text or has a `content`, and is not {type(value).__name__}")
    text = value.get("content") or value.get("step") or value.get("title") or value.get("description")
    if not isinstance(text, str) or not text.strip():
        return None
    status = str(value.get("status") or "pending").lower()
    status = status if status in _STATUSES else _DONE.get(status, "pending")
    priority = value.get("priority")
    return PlanEntry(
        " ".join(text.split())[:LONGEST_ENTRY],
        cast(PlanEntryPriority, priority if priority in _PRIORITIES else "medium"),
        cast(PlanEntryStatus, status),
    )


def plan_steps(text: Any) -> list[dict[str, str]] | None:
    """Return the steps of the last list in a text; None if there is none worth the name."""
    found: list[dict[str, str]] = []
    is_list = False
    for line in str(text).splitlines():
        step = _STEP.fullmatch(line.rstrip())
        if step is not None:
            found = [*(found if is_list else ()), _as_step(step)]
            is_list = True
        elif line.strip() and not line.startswith((" ", "\t")):
            is_list = False
    return found if len(found) >= FEWEST_STEPS else None


def _as_step(step: re.Match[str]) -> dict[str, str]:
    done = (step["mark"] or " ").lower() == "x"
    return {"content": step["text"].replace("**", ""), "status": "completed" if done else "pending"}


def _from_todos(value: Any) -> PlanEntries | None:
    return value if isinstance(value, list | tuple) else None


def _from_tool_calls(value: Any) -> PlanEntries | None:
    return [{"content": call["title"], "status": call["status"]} for call in value]


_BUILT_FROM: dict[str, Callable[[Any], PlanEntries | None]] = {
    "todos": _from_todos,
    "tool_calls": _from_tool_calls,
    "reasoning": plan_steps,
    "manual": lambda value: value,
    "answer": plan_steps,
}

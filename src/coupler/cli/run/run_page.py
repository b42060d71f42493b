"""Shows runs in a terminal: a table of many, and a page of one with its steps."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.cli.listing import Column, Listing
from coupler.cli.output import StyledText
from coupler.cli.run.run_log import read_log, usage_words
from coupler.cli.terminal import ago, format_duration, local_time, short_directory
from coupler.redaction.known_secrets import masker_for
from coupler.runtime.formatting import count, timestamp
from coupler.runtime.terminal_text import clean, one_line, terminal_safe_json
from coupler.workflow.journal.run_events import (
    Place,
    Result,
    RunFinished,
    RunResumed,
    StepFinished,
    StepStarted,
    unpacked,
)

if TYPE_CHECKING:
    from coupler.store.runs import BlockingRuns, RunRecord
    from coupler.workflow.journal.run_events import AnyHappening


MOST_INSIDE = 20
"""Steps inside of another one that are shown, unless all are wanted; those that failed are always shown."""

MOST_LINES = 10
"""Last lines of each stream of a step that was cut off that are shown, unless all are wanted."""

CUT_OFF_BY = frozenset({"timeout", "budget"})
"""Errors that end a step in its midst."""

LONGEST_TITLE = 80

SHOWN_KINDS = ("run_resumed", "run_finished", "step_started", "step_finished")

_LAST = re.compile(r"(~[0-9]+)?(\[[0-9]+\])?[./][^./]*$")
"""The part of a step's path after the step around it: `[2].fix`, `.security`, `~2/lint`."""

Mask = Callable[[str], str]


def run_lines(record: RunRecord, runs: BlockingRuns, *, is_full: bool) -> Iterator[StyledText]:
    """The page of a run."""
    mask = masker_for(record.cwd).mask
    told = [_without_texts(logged.happening) for logged in read_log(runs, record.id, kinds=SHOWN_KINDS)]
    finished = next((each for each in reversed(told) if isinstance(each, RunFinished)), None)
    if finished is not None and status_of(record) in ("running", "interrupted"):
        finished = None  # it was resumed since
    yield from _heading_lines(record, finished, mask)
    yield from _value_lines("Inputs", unpacked(record.inputs), mask)
    yield from _steps_lines(build_step_tree(told), record, mask, is_full=is_full)
    if finished is not None:
        yield from _value_lines("Outputs", finished.outputs, mask)
    yield from _next_command_lines(record)


def _without_texts(happening: AnyHappening) -> AnyHappening:
    """Leaves out the output of programs that is not shown here: it may be long."""
    if not isinstance(happening, StepFinished) or _is_cut_off(happening.result):
        return happening
    bare = msgspec.structs.replace(
        happening.result, stdout=None, stderr=None, text=None, output=msgspec.UNSET
    )
    return msgspec.structs.replace(happening, result=bare)


def _is_cut_off(result: Result) -> bool:
    """True if a step was ended in its midst: what it wrote is a part, and stands in no output."""
    if result.status == "failed" and result.error is not None:
        return result.error.kind in CUT_OFF_BY
    return result.status == "cancelled"


def _heading_lines(record: RunRecord, finished: RunFinished | None, mask: Mask) -> Iterator[StyledText]:
    status = status_of(record)
    yield one_line(record.workflow), "bold"
    yield one_line(record.id), "cyan"
    yield f"{short_directory(record.file)} in {short_directory(record.cwd)}", "dim"
    started = f"{local_time(record.created_at)} ({ago(record.created_at)})"
    yield f"started {started}, {format_duration(seconds_of(record))}", "dim"
    code = f", exit code {record.exit_code}" if record.exit_code is not None else ""
    by = f" in the process {record.pid}" if record.pid is not None else ""
    yield f"{status}{code}{by}", STYLES.get(status, "")
    if record.message and finished is not None:
        yield f"  {one_line(mask(record.message))}", STYLES.get(status, "")
    if finished is not None and finished.usage is not None and finished.usage.total:
        yield f"used {usage_words(finished.usage)}", "dim"
    if record.session_id is not None:
        yield f"of the session {one_line(record.session_id)}", "dim"


def _value_lines(title: str, values: Mapping[str, Any], mask: Mask) -> Iterator[StyledText]:
    """Inputs or outputs: a text as it is, everything else as JSON."""
    if not values:
        return
    yield "", ""
    yield title, "bold"
    for name, value in values.items():
        text = value if isinstance(value, str) else terminal_safe_json(msgspec.json.encode(value).decode())
        first, *rest = clean(mask(text)).rstrip("\n").split("\n")
        yield f"  {one_line(name)}: {first}".rstrip(), ""
        yield from ((f"    {line}".rstrip(), "") for line in rest)


def _steps_lines(
    nodes: Sequence[StepNode], record: RunRecord, mask: Mask, *, is_full: bool
) -> Iterator[StyledText]:
    yield "", ""
    if not nodes:
        yield "No step was run yet.", "dim"
        return
    yield "Steps", "bold"
    yield from _tree_lines(nodes, None, record, mask, is_full=is_full)


def _tree_lines(
    nodes: Sequence[StepNode],
    parent: Place | None,
    record: RunRecord,
    mask: Mask,
    *,
    is_full: bool,
    depth: int = 1,
) -> Iterator[StyledText]:
    shown = nodes if is_full else [*_steps_to_show(nodes)]
    for node in shown:
        yield _line_of(node, parent, record, mask, "  " * depth)
        yield from _written_lines(node.result, mask, "  " * (depth + 2), is_full=is_full)
        yield from _tree_lines(node.inside, node.place, record, mask, is_full=is_full, depth=depth + 1)
    if len(shown) < len(nodes):
        left_out = count(len(nodes) - len(shown), "step")
        yield f"{'  ' * depth}… {left_out} left out: --full shows them …", "dim italic"


def _steps_to_show(nodes: Sequence[StepNode]) -> Iterable[StepNode]:
    """The first steps, the last one, and those that failed."""
    last = len(nodes) - 1
    return (
        node for number, node in enumerate(nodes) if number < MOST_INSIDE or number == last or node.has_failed
    )


def _line_of(node: StepNode, parent: Place | None, record: RunRecord, mask: Mask, indent: str) -> StyledText:
    status = node.result.status if node.result is not None else _status_of_open(record)
    parts = [status]
    if node.result is not None and node.result.status != "skipped":
        parts.append(format_duration(node.result.duration))
    attempts = node.result.attempts if node.result is not None else node.attempt
    if attempts > 1:
        parts.append(count(attempts, "attempt"))
    if node.result is not None and node.result.marked_done:
        parts.append("marked as done")
    title = one_line(mask(node.title))
    title = title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"
    reason = ""
    if node.result is not None and node.result.error is not None:
        reason = f": {one_line(mask(node.result.error.message))}"
    name = one_line(name_below(node.place, parent))
    return f"{indent}{name}  {', '.join(parts)}{reason}  {title}".rstrip(), STYLES.get(status, "")


def _written_lines(result: Result | None, mask: Mask, indent: str, *, is_full: bool) -> Iterator[StyledText]:
    """The output of a step before it was cut off, with the marks of the log."""
    if result is None or not _is_cut_off(result):
        return
    for mark, text in (("|", result.stdout), ("!", result.stderr), (">", result.text)):
        lines = clean(mask(text or "")).splitlines()
        left_out = 0 if is_full else max(len(lines) - MOST_LINES, 0)
        if left_out:
            yield f"{indent}… {count(left_out, 'line')} left out: --full shows them …", "dim italic"
        yield from ((f"{indent}{mark} {line}".rstrip(), "dim") for line in lines[left_out:])


def _status_of_open(record: RunRecord) -> str:
    """The status of a step that has begun and not ended."""
    match status_of(record):
        case "parked":
            return "waiting"
        case "running":
            return "running"
        case _:
            return "interrupted"


def _next_command_lines(record: RunRecord) -> Iterator[StyledText]:
    status = status_of(record)
    if status == "success":
        return
    yield "", ""
    if status == "running":
        yield f"Follow it with: coupler runs logs {one_line(record.id)} --follow", "bold"
    elif status == "failed":
        yield f"Try again from the step that failed with: coupler resume {one_line(record.id)}", "bold"
    else:
        yield f"Resume it with: coupler resume {one_line(record.id)}", "bold"


@dataclass
class StepNode:
    """One visit to a step, with the steps inside of it."""

    place: Place
    title: str = ""
    attempt: int = 1
    result: Result | None = None
    inside: list[StepNode] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        return self.result is not None and self.result.status == "failed"


def build_step_tree(told: Iterable[AnyHappening]) -> list[StepNode]:
    """Builds the tree of steps from the log: those at the top, in the order in which they began."""
    nodes: dict[Place, StepNode] = {}
    for happening in _effective_events(told):
        place = happening.place
        assert place is not None
        node = nodes.setdefault(place, StepNode(place))
        if isinstance(happening, StepStarted):
            # It runs again after it was cancelled or interrupted.
            node.title, node.attempt, node.result = happening.title, happening.attempt, None
        else:
            node.result = happening.result
    return [*_top_level(nodes)]


def name_below(place: Place, parent: Place | None) -> str:
    """The name of a step below the one around it: `[2].fix`, `security`."""
    return str(place) if parent is None else str(place).removeprefix(str(parent)).lstrip("./")


def enclosing_name(place: Place) -> str:
    """The name of the step that a step is inside of; empty if it is inside of none."""
    name, count = _LAST.subn("", place.path)
    return name if count else ""


def _effective_events(told: Iterable[AnyHappening]) -> list[StepStarted | StepFinished]:
    """Leaves out what was forgotten when the run was resumed from a step."""
    counting: list[StepStarted | StepFinished] = []
    for happening in told:
        match happening:
            case StepStarted() | StepFinished() if happening.place is not None:
                counting.append(happening)
            case RunResumed(place=place, forgets=forgets):
                places = [each.place for each in counting]
                if place in places:
                    del counting[places.index(place) :]
                counting = [each for each in counting if each.place not in forgets]
    return counting


def _top_level(nodes: dict[Place, StepNode]) -> Iterator[StepNode]:
    by_name = {str(place): node for place, node in nodes.items()}
    for node in nodes.values():
        around = by_name.get(enclosing_name(node.place))
        if around is None:
            yield node
        else:
            around.inside.append(node)


LONGEST_NAME = 40
"""Columns of a workflow's name."""


def _cells(record: RunRecord) -> tuple[str, ...]:
    name = one_line(record.workflow)
    return (
        one_line(record.id),
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…",
        one_line(status_of(record)),
        ago(record.created_at),
        format_duration(seconds_of(record)),
    )


def _fields(record: RunRecord) -> tuple[str, ...]:
    started, seconds = timestamp(record.created_at) or "-", f"{seconds_of(record):.3f}"
    return record.id, started, status_of(record), seconds, record.workflow, record.cwd


def _summary(record: RunRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "workflow": record.workflow,
        "status": status_of(record),
        "exit_code": record.exit_code,
        "message": record.message,
        "file": _text(record.file),
        "cwd": _text(record.cwd),
        "session_id": record.session_id,
        "pid": record.pid,
        "created_at": timestamp(record.created_at),
        "updated_at": timestamp(record.updated_at),
    }


def _text(path: str) -> str:
    """The path with undecodable bytes replaced."""
    return path.encode("utf-8", "replace").decode()


STYLES = {
    "running": "cyan",
    "success": "green",
    "failed": "red",
    "cancelled": "yellow",
    "parked": "yellow",
    "interrupted": "red",
    "skipped": "dim",
    "denied": "yellow",
    "waiting": "yellow",
}


def status_of(record: RunRecord) -> str:
    """The status of a run; one whose process died is interrupted."""
    return "interrupted" if record.is_interrupted else record.status


def seconds_of(record: RunRecord) -> float:
    """The duration of a run so far, pauses included."""
    end = time.time() * 1000 if status_of(record) == "running" else record.updated_at
    return max(0.0, (end - record.created_at) / 1000)


LISTING: Listing[RunRecord] = Listing(
    (
        Column("RUN", "cyan"),
        Column("WORKFLOW"),
        Column("STATUS", STYLES),
        Column("STARTED", "dim"),
        Column("DURATION"),
    ),
    _cells,
    _fields,
    _summary,
)

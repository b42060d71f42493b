"""`coupler runs show`: how a run went, to be read in a terminal.

Whatever a step put out is indented, so that no text can pass for a line of this page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.cli.runs.log import told_by
from coupler.cli.runs.steps import StepNode, name_inside, steps_in
from coupler.cli.runs.wording import STYLES, seconds_of, spoken_duration, status_of
from coupler.cli.sessions.wording import ago, clean, count, local_time, one_line, short_directory
from coupler.cli.unshown import masker_for
from coupler.workflow.journal.run_events import AnyHappening, Place, RunFinished, StepFinished, unpacked

if TYPE_CHECKING:
    from coupler.store.runs import BlockingRuns, RunRecord

MOST_INSIDE = 20
"""Steps inside of another one that are shown, unless all are wanted; those that failed are always shown."""

LONGEST_TITLE = 80

TOLD = ("run_resumed", "run_finished", "step_started", "step_finished")

Line = tuple[str, str]
"""Text, and the style that a terminal shows it in."""

Mask = Callable[[str], str]


def lines_of(record: RunRecord, runs: BlockingRuns, *, is_full: bool) -> Iterator[Line]:
    """The whole page."""
    mask = masker_for(record.cwd).mask
    told = [_without_texts(logged.happening) for logged in told_by(runs, record.id, kinds=TOLD)]
    finished = next((each for each in reversed(told) if isinstance(each, RunFinished)), None)
    if finished is not None and status_of(record) in ("running", "interrupted"):
        finished = None  # it was resumed since
    yield from _heading(record, finished, mask)
    yield from _values("Inputs", unpacked(record.inputs), mask)
    yield from _steps(steps_in(told), record, mask, is_full=is_full)
    if finished is not None:
        yield from _values("Outputs", finished.outputs, mask)
    yield from _what_next(record)


def _without_texts(happening: AnyHappening) -> AnyHappening:
    """What programs wrote may be long, and is not shown here."""
    if not isinstance(happening, StepFinished):
        return happening
    bare = msgspec.structs.replace(
        happening.result, stdout=None, stderr=None, text=None, output=msgspec.UNSET
    )
    return msgspec.structs.replace(happening, result=bare)


def _heading(record: RunRecord, finished: RunFinished | None, mask: Mask) -> Iterator[Line]:
    status = status_of(record)
    yield one_line(record.workflow), "bold"
    yield one_line(record.id), "cyan"
    yield f"{short_directory(record.file)} in {short_directory(record.cwd)}", "dim"
    started = f"{local_time(record.created_at)} ({ago(record.created_at)})"
    yield f"started {started}, {spoken_duration(seconds_of(record))}", "dim"
    code = f", exit code {record.exit_code}" if record.exit_code is not None else ""
    by = f" in the process {record.pid}" if record.pid is not None else ""
    yield f"{status}{code}{by}", STYLES.get(status, "")
    if record.message and finished is not None:
        yield f"  {one_line(mask(record.message))}", STYLES.get(status, "")
    if finished is not None and finished.usage is not None and finished.usage.total_tokens:
        cost = (
            ""
            if finished.usage.cost is None
            else f", {finished.usage.cost:.4f} {finished.usage.currency or ''}"
        )
        yield f"used {count(finished.usage.total_tokens, 'token')}{cost}".rstrip(), "dim"
    if record.session_id is not None:
        yield f"of the session {one_line(record.session_id)}", "dim"


def _values(title: str, values: Mapping[str, Any], mask: Mask) -> Iterator[Line]:
    """Inputs or outputs: a text as it is, everything else as JSON."""
    if not values:
        return
    yield "", ""
    yield title, "bold"
    for name, value in values.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        first, *rest = clean(mask(text)).rstrip("\n").split("\n")
        yield f"  {one_line(name)}: {first}".rstrip(), ""
        yield from ((f"    {line}".rstrip(), "") for line in rest)


def _steps(nodes: Sequence[StepNode], record: RunRecord, mask: Mask, *, is_full: bool) -> Iterator[Line]:
    yield "", ""
    if not nodes:
        yield "No step was run yet.", "dim"
        return
    yield "Steps", "bold"
    yield from _tree(nodes, None, record, mask, is_full=is_full)


def _tree(
    nodes: Sequence[StepNode],
    parent: Place | None,
    record: RunRecord,
    mask: Mask,
    *,
    is_full: bool,
    depth: int = 1,
) -> Iterator[Line]:
    shown = nodes if is_full else [*_most_telling(nodes)]
    for node in shown:
        yield _line_of(node, parent, record, mask, "  " * depth)
        yield from _tree(node.inside, node.place, record, mask, is_full=is_full, depth=depth + 1)
    if len(shown) < len(nodes):
        left_out = count(len(nodes) - len(shown), "step")
        yield f"{'  ' * depth}… {left_out} left out: --full shows them …", "dim italic"


def _most_telling(nodes: Sequence[StepNode]) -> Iterable[StepNode]:
    """The first ones, the last one, and those that failed."""
    last = len(nodes) - 1
    return (
        node for number, node in enumerate(nodes) if number < MOST_INSIDE or number == last or node.has_failed
    )


def _line_of(node: StepNode, parent: Place | None, record: RunRecord, mask: Mask, indent: str) -> Line:
    status = node.result.status if node.result is not None else _status_of_open(record)
    parts = [status]
    if node.result is not None and node.result.status != "skipped":
        parts.append(spoken_duration(node.result.duration))
    attempts = node.result.attempts if node.result is not None else node.attempt
    if attempts > 1:
        parts.append(count(attempts, "attempt"))
    title = one_line(mask(node.title))
    title = title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"
    reason = ""
    if node.result is not None and node.result.error is not None:
        reason = f": {one_line(mask(node.result.error.message))}"
    name = one_line(name_inside(node.place, parent))
    return f"{indent}{name}  {', '.join(parts)}{reason}  {title}".rstrip(), STYLES.get(status, "")


def _status_of_open(record: RunRecord) -> str:
    """How a step stands that has begun and not ended."""
    match status_of(record):
        case "parked":
            return "waiting"
        case "running":
            return "running"
        case _:
            return "interrupted"


def _what_next(record: RunRecord) -> Iterator[Line]:
    status = status_of(record)
    if status == "success":
        return
    yield "", ""
    if status == "running":
        yield f"Follow it with: coupler runs logs {record.id} --follow", "bold"
    elif status == "failed":
        yield f"Try again from the step that failed with: coupler resume {record.id}", "bold"
    else:
        yield f"Resume it with: coupler resume {record.id}", "bold"

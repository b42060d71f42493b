"""`coupler runs`: lists, shows, follows, cancels and deletes the runs of workflows.

Whatever a step put out is indented, in the log behind its name, so that no text can pass for a line of
Coupler's.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from coupler.cli.deletion import (
    confirm_deletion,
    delete_each,
    older_than_option,
    shrink_store,
    yes_option,
)
from coupler.cli.exit_codes import DONE, FAILED, print_error, refuse
from coupler.cli.store_access import masker_for, store_or_exit
from coupler.cli.terminal import (
    ago,
    clean,
    count,
    local_time,
    one_line,
    short_directory,
    terminal_safe_json,
    timestamp,
)
from coupler.workflow.journal import run_events
from coupler.workflow.journal.run_events import (
    Place,
    Result,
    RunFinished,
    RunResumed,
    StepFinished,
    StepStarted,
    as_line,
    logged_in,
    unpacked,
)
from coupler.workflow.journal.run_secrets import masked_texts

if TYPE_CHECKING:
    from coupler.store.runs import BlockingRuns, RunEntry, RunRecord
    from coupler.store.store import Store
    from coupler.workflow.journal.run_events import AnyHappening, Logged


PROGRAM = "coupler runs"

USUAL_LIMIT = 20
STATUSES = ("running", "success", "failed", "cancelled", "parked", "interrupted")

PATIENCE = 30.0
"""Seconds in which a run that is told so ends: programs and hooks have 5 each."""

CANCEL_POLL = 0.05

LOG_POLL = 0.1
"""Seconds between two reads of the store."""

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

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

StyledLine = tuple[str, str]
"""Text, and the style that a terminal shows it in."""

Mask = Callable[[str], str]


def _store_option(command: CommandT) -> CommandT:
    return click.option(
        "--store", metavar="FILE", help="The file that keeps them, if it is not the user's own."
    )(command)


@click.group(
    short_help="List, read, follow, cancel and delete runs of workflows.",
    context_settings={"max_content_width": 80},
)
def runs() -> None:
    """List, read, follow, cancel and delete the runs of workflows.

    RUN is a run's id or the beginning of one.

    \b
    Examples:
      coupler runs list
      coupler runs logs review-7f3k2 --follow

    Exit codes: 0 if all went well, 1 if something could not be done, 2 for
    wrong usage.
    """


@runs.command("list", short_help="List runs, the newest first.")
@click.option("--cwd", metavar="PATH", help="Only those of this directory.")
@click.option("--status", type=click.Choice(STATUSES), help="Only those that stand so.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=USUAL_LIMIT,
    show_default=True,
    metavar="N",
    help="How many to show at most.",
)
@click.option("--json", "is_json", is_flag=True, help="Write one JSON array.")
@_store_option
def list_runs(cwd: str | None, status: str | None, limit: int, is_json: bool, store: str | None) -> None:
    """List runs, the newest first.

    A run is interrupted if its process died before its end.

    On a terminal it is a table. To a pipe it writes one run a line, with tabs
    between id, start, status, seconds, workflow and directory.

    \b
    Examples:
      coupler runs list --status failed
      coupler runs list --cwd . --limit 5 --json
    """
    with store_or_exit(store, PROGRAM) as kept:
        chosen = [] if kept is None else _matching(kept.runs.blocking, cwd, status)
    output = _escaping_stdout()
    shown = chosen[:limit]
    if is_json:
        write_json(shown, output)
    elif not output.isatty():
        write_lines(shown, output)
    elif shown:
        write_table(shown, output)
    output.flush()
    if not chosen:
        sys.stderr.write(f"{_nothing(is_filtered=bool(cwd or status))}\n")
    if len(chosen) > limit:
        sys.stderr.write(f"{count(len(chosen) - limit, 'more run')} not shown: add --limit {len(chosen)}\n")


def _matching(kept: BlockingRuns, cwd: str | None, status: str | None) -> list[RunRecord]:
    chosen = [record for record in kept.find_all() if status in (None, status_of(record))]
    if cwd is None:
        return chosen
    wanted = os.path.realpath(Path(cwd).expanduser())
    return [record for record in chosen if os.path.realpath(record.cwd) == wanted]


def _nothing(*, is_filtered: bool) -> str:
    if is_filtered:
        return "No run fits: leave out --cwd and --status to see the others."
    return "No workflow was run yet: `coupler run` runs one."


@runs.command(short_help="Read how a run went, step by step.")
@click.argument("id", metavar="RUN")
@click.option(
    "--full", is_flag=True, help="Show all steps of long loops, and all lines of steps that were cut off."
)
@_store_option
def show(id: str, full: bool, store: str | None) -> None:
    """Read how a run went: its steps, its outputs, what went wrong, and how to resume it.

    Below a step that was cancelled, or whose time was up, stand the last lines
    that it wrote: | from stdout, ! from stderr, > what its agent said.

    \b
    Examples:
      coupler runs show review-7f3k2
      coupler runs show review --full
    """
    from coupler.cli.sessions.sessions import line_writer

    with store_or_exit(store, PROGRAM) as kept:
        opened, record = _find_run(kept, id)
        output = _escaping_stdout()
        write = line_writer(output)
        for line in run_lines(record, opened, is_full=full):
            write(line)
        output.flush()


def run_lines(record: RunRecord, runs: BlockingRuns, *, is_full: bool) -> Iterator[StyledLine]:
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


def _heading_lines(record: RunRecord, finished: RunFinished | None, mask: Mask) -> Iterator[StyledLine]:
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
    if finished is not None and finished.usage is not None and finished.usage.total_tokens:
        cost = (
            ""
            if finished.usage.cost is None
            else f", {finished.usage.cost:.4f} {finished.usage.currency or ''}"
        )
        yield f"used {count(finished.usage.total_tokens, 'token')}{cost}".rstrip(), "dim"
    if record.session_id is not None:
        yield f"of the session {one_line(record.session_id)}", "dim"


def _value_lines(title: str, values: Mapping[str, Any], mask: Mask) -> Iterator[StyledLine]:
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


def _steps_lines(
    nodes: Sequence[StepNode], record: RunRecord, mask: Mask, *, is_full: bool
) -> Iterator[StyledLine]:
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
) -> Iterator[StyledLine]:
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


def _line_of(node: StepNode, parent: Place | None, record: RunRecord, mask: Mask, indent: str) -> StyledLine:
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


def _written_lines(result: Result | None, mask: Mask, indent: str, *, is_full: bool) -> Iterator[StyledLine]:
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


def _next_command_lines(record: RunRecord) -> Iterator[StyledLine]:
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


@runs.command(short_help="Read or follow what happened in a run.")
@click.argument("id", metavar="RUN")
@click.option("--follow", is_flag=True, help="Go on until the run is over.")
@click.option("--step", metavar="PATH", help="Only of this step, and of what is inside of it.")
@click.option("--json", "is_json", is_flag=True, help="Write one JSON object a line.")
@_store_option
def logs(id: str, follow: bool, step: str | None, is_json: bool, store: str | None) -> None:
    """Read what happened in a run, in order.

    PATH is a step as the log names it, such as fixes[2].fix.

    \b
    Examples:
      coupler runs logs review-7f3k2 --follow
      coupler runs logs review-7f3k2 --step 'fixes[2].fix'
    """
    with store_or_exit(store, PROGRAM) as kept:
        opened, record = _find_run(kept, id)
        output = _escaping_stdout()
        writer = RunLogWriter(output, record.cwd, is_json=is_json)
        found = False
        for logged in read_log(opened, record.id, is_followed=follow, step=step):
            writer.tell(logged)
            found = True
        writer.end()
    if step is not None and not found:
        refuse(
            f"nothing happened at {step}: `coupler runs logs {record.id}` names the steps", PROGRAM, FAILED
        )


def read_log(
    runs: BlockingRuns,
    id: str,
    *,
    is_followed: bool = False,
    step: str | None = None,
    kinds: Sequence[str] = (),
) -> Iterator[Logged]:
    """Reads the log of a run; if it is followed, until it is over or its process is gone."""
    seq = 0
    while True:
        # Before its entries: what ended it is then among them.
        record = runs.find(id)
        is_over = record is None or record.status != "running" or record.pid is None
        entries = runs.entries(id, seq, kinds)
        for entry in entries:
            seq = entry.seq
            if step is None or _is_inside(entry, step):
                logged = _readable(entry)
                if logged is not None:
                    yield logged
        if not entries:
            if is_over or not is_followed:
                return
            time.sleep(LOG_POLL)


def _is_inside(entry: RunEntry, step: str) -> bool:
    path = entry.path if entry.visit <= 1 else f"{entry.path}#{entry.visit}"
    return bool(path) and (path == step or (path.startswith(step) and path[len(step)] in ".[/#~"))


def _readable(entry: RunEntry) -> Logged | None:
    try:
        return logged_in(entry)
    except (msgspec.MsgspecError, ValueError):
        print_error(f"an entry of the kind {one_line(entry.kind)} cannot be read", "coupler runs")
        return None


class RunLogWriter:
    """Writes the events of a run as text for people or as lines of JSON."""

    def __init__(self, stream: IO[str], directory: str, *, is_json: bool) -> None:
        self._stream = stream
        self._masker = masker_for(directory)
        self._is_json = is_json
        self._open: dict[tuple[Place | None, str], list[str]] = {}
        """The pieces of each line that is not complete: steps that work beside each other tear no lines."""

    def tell(self, logged: Logged) -> None:
        happening = masked_texts(logged.happening, self._masker)
        if self._is_json:
            shown = msgspec.structs.replace(logged, happening=happening)
            self._stream.write(terminal_safe_json(as_line(shown)) + "\n")
        else:
            self._tell_text(logged.at, happening)
        self._stream.flush()

    def end(self) -> None:
        """Writes the lines that are not complete."""
        for open_line in [*self._open]:
            self._end_line(*open_line)
        self._stream.flush()

    def _tell_text(self, at: float, happening: AnyHappening) -> None:
        match happening:
            case run_events.Wrote(place=place, stream=stream, text=text):
                self._tell_piece(place, "" if stream == "stdout" else "!", text)
            case run_events.Said(place=place, text=text):
                self._tell_piece(place, ">", text)
            case run_events.Thought(place=place, text=text):
                self._tell_piece(place, "~", text)
            case _:
                words = describe_event(happening)
                if words:
                    self._end_lines_of(happening.place)
                    name = f"{one_line(str(happening.place))}: " if happening.place is not None else ""
                    self._stream.write(f"{_clock(at)} {name}{one_line(words)}\n")

    def _tell_piece(self, place: Place | None, mark: str, text: str) -> None:
        """Writes the lines that a piece of text completes; it may begin and end in the midst of one."""
        for other in [each for each in self._open if each[0] == place and each[1] != mark]:
            self._end_line(*other)
        *whole, rest = clean(text).split("\n")
        for line in whole:
            self._open.setdefault((place, mark), []).append(line)
            self._end_line(place, mark)
        if rest:
            self._open.setdefault((place, mark), []).append(rest)

    def _end_lines_of(self, place: Place | None) -> None:
        """Writes what is open of a step before its next event; before one of the run, all that is open."""
        for open_line in [each for each in self._open if place in (None, each[0])]:
            self._end_line(*open_line)

    def _end_line(self, place: Place | None, mark: str) -> None:
        line = "".join(self._open.pop((place, mark)))
        self._stream.write(f"  {one_line(str(place or ''))} {mark or '|'} {line}\n")


def describe_event(happening: AnyHappening) -> str:
    """Describes an event in one line; empty if it is for programs only."""
    match happening:
        case run_events.RunStarted():
            return f"the run {happening.run} of {happening.workflow} started"
        case run_events.RunResumed():
            return _describe_resuming(happening.reason)
        case run_events.RunFinished():
            message = f": {happening.message}" if happening.message else ""
            return f"the run is over, {happening.status}{message}"
        case run_events.StepStarted():
            attempt = (
                f" (attempt {happening.attempt} of {happening.attempts})" if happening.attempt > 1 else ""
            )
            return f"started{attempt}: {happening.title}"
        case run_events.StepFinished(result=result):
            reason = f": {result.error.message}" if result.error is not None else ""
            after = "" if result.status == "skipped" else f" after {format_duration(result.duration)}"
            marked = ", marked as done" if result.marked_done else ""
            return f"{result.status}{after}{marked}{reason}"
        case run_events.RetryPlanned():
            wait = format_duration(happening.delay)
            return f"failed: {happening.error.message}; attempt {happening.attempt} in {wait}"
        case run_events.Noted(text=text):
            return text
    return _describe_agent_event(happening)


def _describe_resuming(reason: str) -> str:
    """Describes that a run goes on; the reason is the status that it had, or a sentence's end."""
    if reason in STATUSES:
        reason = "it had failed" if reason == "failed" else f"it was {reason}"
    return f"the run was resumed: {reason}" if reason else "the run was resumed"


def _describe_agent_event(happening: AnyHappening) -> str:
    match happening:
        case run_events.ToolStarted():
            return f"tool: {happening.title}"
        case run_events.ToolEnded(status="failed"):
            return f"tool failed: {happening.text or happening.call}"
        case run_events.ApprovalAsked(question=question) | run_events.AnswerAsked(question=question):
            return f"asked: {question}"
        case run_events.ApprovalGiven(by="nobody"):
            return "not approved: nobody could be asked"
        case run_events.ApprovalGiven():
            verdict = "allowed" if happening.approved else "denied"
            return f"{'marked as done' if happening.marked_done else verdict} by {happening.by}"
        case run_events.AnswerGiven():
            return f"answered by {happening.by}: {happening.text}"
        case run_events.Planned(entries=entries):
            return "plan: " + "; ".join(entry.get("content", "") for entry in entries)
        case run_events.Used(usage=usage):
            return f"used {count(usage.total_tokens, 'token')}"
    return ""


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")


@runs.command(short_help="Cancel a run.")
@click.argument("id", metavar="RUN")
@_store_option
def cancel(id: str, store: str | None) -> None:
    """Cancel a run.

    One that runs is told to end, as by Ctrl-C, and its end is waited for. One
    that is parked or was interrupted is marked as cancelled.

    \b
    Examples:
      coupler runs cancel review-7f3k2
      coupler runs cancel review
    """
    with store_or_exit(store, PROGRAM) as kept:
        opened, record = _find_run(kept, id)
        trouble = cancel_run(opened, record)
    if trouble is not None:
        refuse(trouble, PROGRAM, FAILED)
    sys.stdout.write(f"The run {record.id} is cancelled.\n")


def cancel_run(runs: BlockingRuns, record: RunRecord) -> str | None:
    """Cancels a run and waits for its end; a sentence if that is not possible."""
    from coupler.workflow.journal.runs import end_unheld

    if status_of(record) in ("success", "failed", "cancelled"):
        return f"the run {record.id} is over already: {record.status}"
    if record.pid is None:
        return None if end_unheld(runs, record.id) else f"the run {record.id} was resumed just now: try again"
    if record.session_id is not None:
        return f"the run {record.id} belongs to a session of an editor: cancel it there"
    # The lease says that this process lives and has the run, so the number cannot be another's.
    try:
        os.kill(record.pid, signal.SIGINT)
    except ProcessLookupError:
        pass
    except PermissionError:
        return f"the run {record.id} belongs to a process of another user ({record.pid}): it cannot be told"
    return _wait_for_end(runs, record.id, record.pid)


def _wait_for_end(runs: BlockingRuns, id: str, pid: int) -> str | None:
    from coupler.workflow.journal.runs import end_unheld

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        record = runs.find(id)
        if record is None:
            return f"the run {id} is gone"
        if record.status == "cancelled":
            return None
        if status_of(record) in ("success", "failed"):
            return f"the run {id} was over before it could be cancelled: {record.status}"
        if record.pid is None and end_unheld(runs, id):
            return None
        time.sleep(CANCEL_POLL)
    return f"the process {pid} was told to cancel the run {id}, but has not ended it yet: look again later"


@runs.command(short_help="Delete runs for good.")
@click.argument("ids", nargs=-1, metavar="[RUN]...")
@older_than_option
@click.option(
    "--parked", "with_parked", is_flag=True, help="With --older-than, also those that wait for an answer."
)
@yes_option
@_store_option
def delete(
    ids: tuple[str, ...], older_than: int | None, with_parked: bool, yes: bool, store: str | None
) -> None:
    """Delete runs for good, by their ids or by their age.

    A run that a process works on is not deleted. One that is parked waits for
    somebody's answer: it is deleted when you name it, or with --parked. What
    was deleted can be neither read nor resumed. The store's file gets smaller
    by it.

    \b
    Examples:
      coupler runs delete review-7f3k2
      coupler runs delete --older-than 30d --yes
    """
    if bool(ids) == (older_than is not None) or (ids and with_parked):
        refuse("say what to delete: either ids, or --older-than, with --parked or without", PROGRAM)
    with store_or_exit(store, PROGRAM) as kept:
        if ids:
            chosen, problems = _named(kept, ids)
        else:
            assert older_than is not None
            chosen, problems = _unused_since(kept, older_than, with_parked=with_parked), 0
        if chosen:
            confirm_deletion("run", [describe(each) for each in chosen], PROGRAM, is_sure=yes)
            assert kept is not None
            opened = kept.runs.blocking
            unchanged = {each.id: each.updated_at for each in chosen}

            def delete_if_unchanged(id: str) -> bool:
                record = opened.find(id)
                return record is not None and record.updated_at == unchanged[id] and opened.delete(id)

            problems += delete_each("run", unchanged, delete_if_unchanged, PROGRAM)
        elif not ids:
            sys.stdout.write("No run fits: nothing was deleted.\n")
        if kept is not None:
            shrink_store(kept.blocking, PROGRAM)
    sys.exit(FAILED if problems else DONE)


def _named(store: Store | None, ids: Sequence[str]) -> tuple[list[RunRecord], int]:
    """The runs that the ids mean, each once, and how many mean none."""
    chosen: dict[str, RunRecord] = {}
    problems = 0
    for given in ids:
        found = _find_run_or_problem(store, given)
        if isinstance(found, str):
            print_error(found, PROGRAM)
            problems += 1
        else:
            chosen[found.id] = found
    return [*chosen.values()], problems


def _unused_since(store: Store | None, seconds: int, *, with_parked: bool) -> list[RunRecord]:
    """The runs in which nothing has happened for so long; tells of those that are left because they wait."""
    limit = (time.time() - seconds) * 1000
    records = [] if store is None else store.runs.blocking.find_all()
    old = [record for record in records if record.updated_at < limit]
    chosen = [record for record in old if with_parked or status_of(record) != "parked"]
    if len(chosen) < len(old):
        parked = count(len(old) - len(chosen), "parked run")
        sys.stderr.write(f"{parked} left, waiting for an answer: add --parked to delete them too\n")
    return chosen


def describe(record: RunRecord) -> str:
    """Describes a run in a line."""
    status = status_of(record)
    waits = ", waits for an answer" if status == "parked" else ""
    return f"{one_line(record.id)}  {one_line(record.workflow)}  ({status}{waits}, {ago(record.updated_at)})"


def _find_run(store: Store | None, given: str) -> tuple[BlockingRuns, RunRecord]:
    """Finds a run by its id or the beginning of one; ends the command if there is not exactly one."""
    found = _find_run_or_problem(store, given)
    if isinstance(found, str):
        refuse(found, PROGRAM, FAILED)
    assert store is not None
    return store.runs.blocking, found


def _find_run_or_problem(store: Store | None, given: str) -> RunRecord | str:
    """The run, or what is wrong with its id."""
    from coupler.workflow.errors import RunError
    from coupler.workflow.journal.runs import resolve_run_id

    # What is no text, as a command line may have it, is no id either.
    given = given.encode("utf-8", "replace").decode()
    try:
        meant = resolve_run_id(given, [] if store is None else store.runs.blocking.ids())
    except RunError as error:
        return str(error)
    assert store is not None
    return store.runs.blocking.find(meant) or f"the run {meant} is gone"


def _escaping_stdout() -> Any:
    """Makes stdout escape characters that it cannot show, instead of ending the program."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    return sys.stdout


HEADINGS = ("RUN", "WORKFLOW", "STATUS", "STARTED", "DURATION")
GAP = "  "

LONGEST_NAME = 40
"""Columns of a workflow's name."""


def write_table(records: Sequence[RunRecord], stream: IO[str]) -> None:
    """Writes one run a line, under headings."""
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    rows = [HEADINGS, *(_row(record) for record in records)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        styles = ("cyan", "", STYLES.get(row[2], ""), "dim", "") if number else ("bold",) * len(row)
        cells = [set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)]
        line = Text(GAP).join(Text(cell, style) for cell, style in zip(cells, styles, strict=True))
        line.rstrip()
        console.print(line, soft_wrap=True)


def _row(record: RunRecord) -> tuple[str, ...]:
    name = one_line(record.workflow)
    return (
        one_line(record.id),
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…",
        status_of(record),
        ago(record.created_at),
        format_duration(seconds_of(record)),
    )


def write_lines(records: Sequence[RunRecord], stream: IO[str]) -> None:
    """Writes one run a line: id, start, status, seconds, workflow, directory."""
    for record in records:
        fields = (
            one_line(record.id),
            timestamp(record.created_at) or "-",
            status_of(record),
            f"{seconds_of(record):.3f}",
            one_line(record.workflow),
            one_line(record.cwd),
        )
        stream.write("\t".join(fields) + "\n")


def write_json(records: Sequence[RunRecord], stream: IO[str]) -> None:
    """Writes one JSON array."""
    encoded = msgspec.json.encode([_summary(record) for record in records])
    stream.write(terminal_safe_json(msgspec.json.format(encoded, indent=2).decode()) + "\n")


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


def format_duration(seconds: float) -> str:
    """Formats a duration for people: 0.3 s, 42 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, whole = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {whole} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"

"""How a run ended, in words: what came out of it, what went wrong, and how to go on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

from coupler.cli.refusal import complain
from coupler.cli.runs.wording import spoken_duration
from coupler.cli.sessions.wording import clean, count, one_line
from coupler.workflow.journal.run_events import RunFinished

TAIL_LINES = 10
"""Lines of what a failed step wrote last that are shown."""


def write_outputs(outputs: Mapping[str, Any], stream: IO[str]) -> None:
    """For programs: a single text as it is, everything else as one JSON object; nothing if there are none."""
    if not outputs:
        return
    values = [*outputs.values()]
    if len(values) == 1 and isinstance(values[0], str):
        text = clean(values[0]) if stream.isatty() else values[0]
    else:
        text = _as_json(outputs)
    stream.write(text if text.endswith("\n") else f"{text}\n")
    stream.flush()


def output_lines(outputs: Mapping[str, Any]) -> Iterator[str]:
    """For people: each behind its name, further lines of it indented."""
    for name, value in outputs.items():
        first, *rest = clean(value if isinstance(value, str) else _as_json(value)).rstrip("\n").split("\n")
        yield f"  {one_line(name)}: {first}".rstrip()
        yield from (f"    {line}".rstrip() for line in rest)


def result_line(run: str, finished: RunFinished) -> str:
    """How it went, in a line."""
    words = {"success": "succeeded", "parked": "waits"}.get(finished.status, finished.status)
    line = f"{run} {words} after {spoken_duration(finished.duration)}"
    usage = finished.usage
    if usage is not None and usage.total_tokens:
        cost = "" if usage.cost is None else f", {usage.cost:.4f} {one_line(usage.currency or '')}".rstrip()
        line += f", {count(usage.total_tokens, 'token')}{cost}"
    return line


def tell_trouble(program: str, run: str | None, finished: RunFinished, tail: str = "") -> None:
    """Say on stderr why it did not end well, and how to go on; nothing of a run that did.

    `tail` is what the failed step wrote last. A run without an id is kept nowhere.
    """
    if finished.status == "success":
        return
    lines = [clean(finished.message) or f"the run is {finished.status}"]
    lines += [f"  | {line}" for line in clean(tail).rstrip().split("\n")[-TAIL_LINES:] if tail.strip()]
    if run is not None:
        lines += _what_next(run, finished)
    complain("\n".join(lines), program)


def _what_next(run: str, finished: RunFinished) -> Iterator[str]:
    match finished.status:
        case "parked" | "cancelled":
            yield f"Resume it with: coupler resume {run}"
        case "failed" if finished.error is not None and finished.error.kind == "denied":
            yield f"Be asked again with: coupler resume {run}"
            yield f"Allow it with: coupler resume {run} --yes"
        case "failed" if finished.failed_step is not None:
            yield f"Try again from there with: coupler resume {run}"
            yield f"All that happened: coupler runs logs {run}"


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False).encode().decode()
    except UnicodeEncodeError:
        # Half a surrogate pair is escaped, which is JSON.
        return json.dumps(value)

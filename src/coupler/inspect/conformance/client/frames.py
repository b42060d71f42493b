"""What a client writes, line by line."""

from __future__ import annotations

from collections.abc import Iterator

from coupler.inspect.conformance.assertion import MUST, Case, Finding, fault_unless, rule
from coupler.inspect.conformance.reading import is_null_for_nothing
from coupler.inspect.trace import Trace
from coupler.inspect.validity import problems


@rule(
    "X04",
    MUST,
    "everything that the client sends is one line of JSON-RPC that the schema allows",
    "schema",
    absent="the client sent nothing",
    side="client",
)
def sends_valid_frames(trace: Trace) -> Iterator[Case]:
    for entry in trace.entries:
        if entry.sender != "client":
            continue
        if not entry.message:
            yield Finding(f"a line is no JSON object: {entry.line!r:.200}", (entry,))
            continue
        found = problems(entry, trace)
        wrong = [problem for problem in found if not problem.is_draft]
        if [problem.path for problem in wrong] == ["result"] and is_null_for_nothing(entry, trace):
            yield Finding("a result is null where the schema has an object", (entry,), is_note=True)
            continue
        yield fault_unless(not wrong, f"{_name(entry.method)}: {'; '.join(map(str, wrong))}", entry)
        for problem in found:
            if problem.is_draft:
                yield Finding(f"{_name(entry.method)} has a draft field: {problem}", (entry,), is_note=True)


def _name(method: str | None) -> str:
    return method or "an answer"

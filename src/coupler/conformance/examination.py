"""Examines an agent: runs every chosen assertion once, whatever the agent does, and reports the results.

A plain conversation is held first. Probes follow, each with fresh processes, and then rules judge all that
was said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from coupler.conformance.assertion import TASTE, Assertion, Case, Fault, Level, RuleFinding, Skip
from coupler.conformance.candidate import Candidate
from coupler.conformance.peers import ScriptError
from coupler.conformance.report import (
    ORDER,
    AssertionResult,
    ConformanceReport,
    ResultOutcome,
    frames_of,
)
from coupler.recording.traces import Trace, TraceEntry
from coupler.runtime.exceptions import exception_text

PATIENCE = 12
"""Time limit of a probe, as a multiple of the candidate's timeout; the startup timeout is added."""

OWN_FAULT = "the kit itself failed"

Progress = Callable[[AssertionResult], None]


class CannotStart(Exception):  # noqa: N818
    """The candidate cannot be examined: its command does not start, or it says nothing."""


async def examine(
    candidate: Candidate, assertions: Iterable[Assertion], progress: Progress = lambda result: None
) -> ConformanceReport:
    """Run the assertions against an agent; raises CannotStart if its command does not start."""
    began = time.monotonic()
    chosen = [*assertions]
    report = ConformanceReport(" ".join(candidate.command), "agent")

    def note(result: AssertionResult) -> None:
        report.results.append(result)
        progress(result)

    await _hold_conversation(candidate)
    probed = dict[str, AssertionResult]()
    for assertion in chosen:
        if assertion.probe is not None:
            probed[assertion.id] = await _probe(candidate, assertion)
            if assertion.rule is None:
                note(probed[assertion.id])
    for assertion in chosen:
        if assertion.rule is not None:
            judged = judge(assertion, candidate.traces)
            note(_worse(probed[assertion.id], judged) if assertion.id in probed else judged)
    report.results.sort(key=lambda result: result.assertion.id)
    report.obstacle = candidate.obstacle
    report.seconds = time.monotonic() - began
    return report


def grade(traces: list[Trace], assertions: Iterable[Assertion], subject: str) -> ConformanceReport:
    """Judge recordings by the rules; probes are skipped, as there is no agent to drive."""
    results = [
        judge(assertion, traces)
        if assertion.rule is not None
        else AssertionResult(assertion, "skipped", assertion.level, "needs the agent itself, not a recording")
        for assertion in assertions
    ]
    return ConformanceReport(subject, "agent", results)


def judge(assertion: Assertion, traces: Iterable[Trace]) -> AssertionResult:
    """Apply a rule to traces; the first of the gravest faults counts, and what is only taste is noted.

    What an agent says in another version of the protocol is not judged by the rules of version 1.
    """
    began = time.monotonic()
    judged, notes = 0, dict[str, None]()
    gravest: tuple[Level, RuleFinding, Trace] | None = None
    levels = [*Level]
    for trace in traces:
        if assertion.side == "agent" and not assertion.any_version and trace.agent_version not in (None, 1):
            continue
        cases, own_fault = _cases(assertion, trace)
        if own_fault is not None:
            notes[own_fault] = None
        for case in cases:
            judged += 1
            if case is None:
                continue
            level = case.level or assertion.level
            if level is TASTE and assertion.level is not TASTE:
                notes[case.message] = None
            elif gravest is None or levels.index(level) < levels.index(gravest[0]):
                gravest = level, case, trace
    if gravest is not None:
        level, fault, trace = gravest
        return AssertionResult(
            assertion,
            "failed",
            level,
            fault.message,
            tuple(notes),
            frames_of(trace, fault.entries),
            trace.stderr,
            time.monotonic() - began,
        )
    own_faults = [note for note in notes if note.startswith(OWN_FAULT)]
    outcome: ResultOutcome = "passed" if judged and not own_faults else "skipped"
    message = "" if outcome == "passed" else (own_faults or [assertion.absent])[0]
    return AssertionResult(
        assertion, outcome, assertion.level, message, tuple(notes), seconds=time.monotonic() - began
    )


def _worse(probed: AssertionResult, judged: AssertionResult) -> AssertionResult:
    """Combine a probe and a rule: a fault counts more than a pass, a pass more than a skip."""
    worse = min(probed, judged, key=lambda result: ORDER.index(result.standing))
    return replace(worse, notes=judged.notes, seconds=probed.seconds + judged.seconds)


def _cases(assertion: Assertion, trace: Trace) -> tuple[list[Case], str | None]:
    """Return the rule's cases, and a message if the rule itself failed on the way."""
    assert assertion.rule is not None
    cases: list[Case] = []
    try:
        for case in assertion.rule(trace):
            cases.append(case)  # noqa: PERF402 - what was found before a failure counts
    except Exception as error:
        return cases, _own_fault(error)
    return cases, None


def _own_fault(error: Exception) -> str:
    """Return the message about a failure of the kit itself, for which the candidate is not to blame."""
    return f"{OWN_FAULT}, please report it: {exception_text(error)}"


async def _hold_conversation(candidate: Candidate) -> None:
    """Hold the plainest conversation for the rules to judge: initialize, a session, two prompts."""
    candidate.label = "conversation"
    try:
        async with candidate.conversation() as (client, session):
            await candidate.hear_greeting(client, session)
            turn = await candidate.take_turn(client, session)
            if turn.answer.result is None:
                candidate.note_failing_prompt(turn.answer)
            await candidate.take_turn(client, session)
            await client.quiet(0.3)
    except ScriptError as error:
        if error.kind == "spawn":
            raise CannotStart(str(error)) from None
    except (Fault, Skip):
        return


async def _probe(candidate: Candidate, assertion: Assertion) -> AssertionResult:
    assert assertion.probe is not None
    candidate.label = assertion.id
    first_trace = len(candidate.traces)
    began = time.monotonic()

    def result(
        outcome: ResultOutcome, message: str = "", level: Level | None = None, *causes: TraceEntry
    ) -> AssertionResult:
        failed = outcome == "failed"
        traces = candidate.traces[first_trace:] if failed else []
        shown = _trace_with(causes, traces)
        return AssertionResult(
            assertion,
            outcome,
            level or assertion.level,
            message,
            frames=frames_of(shown, causes) if shown is not None else (),
            stderr=shown.stderr if shown is not None else "",
            seconds=time.monotonic() - began,
        )

    try:
        async with asyncio.timeout(PATIENCE * candidate.timeout + candidate.startup_timeout):
            await assertion.probe(candidate)
    except Skip as skip:
        return result("skipped", str(skip))
    except Fault as fault:
        return result("failed", fault.message, fault.level, *fault.entries)
    except ScriptError as error:
        return result("failed", str(error))
    except TimeoutError:
        return result("failed", "the assertion took too long in all")
    except Exception as error:
        return result("skipped", _own_fault(error))
    return result("passed")


def _trace_with(causes: tuple[TraceEntry, ...], traces: list[Trace]) -> Trace | None:
    for trace in traces:
        if any(entry in trace.entries for entry in causes):
            return trace
    return traces[-1] if traces else None

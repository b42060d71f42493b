"""An examination of a client: it goes through the scenarios, and the rules judge what it sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace

from coupler.inspect.conformance.assertion import Assertion
from coupler.inspect.conformance.client_candidate import KILLED, ClientCandidate
from coupler.inspect.conformance.examination import CannotStart, judge
from coupler.inspect.conformance.report import Report, Result
from coupler.inspect.conformance.scenario import Scenario, scenarios
from coupler.inspect.trace import Trace
from coupler.runtime.environment import SpawnError

AT_A_TIME = 2
"""How many scenarios run at once."""


async def examine_client(candidate: ClientCandidate, assertions: Iterable[Assertion]) -> Report:
    """Judge a client; raises CannotStart if it never speaks to the agent."""
    began = time.monotonic()
    chosen = [*assertions]
    ids = {assertion.id for assertion in chosen}
    plain, *others = [each for each in scenarios() if not each.needs_person]
    traces = await _meet(candidate, plain)
    traces += await _perform_all(candidate, [each for each in others if ids.intersection(each.judged_by)])
    report = Report(" ".join(candidate.command), "client")
    report.results += [judge_scenarios(assertion, traces) for assertion in chosen]
    report.seconds = time.monotonic() - began
    return report


def grade_client(traces: list[Trace], assertions: Iterable[Assertion], subject: str) -> Report:
    """Judge recordings of scenarios, whose labels are the scenarios' names."""
    return Report(subject, "client", [judge_scenarios(assertion, traces) for assertion in assertions])


def judge_scenarios(assertion: Assertion, traces: Iterable[Trace]) -> Result:
    """Apply a rule to the traces of scenarios; the first failure counts and names its scenario."""
    results = [judge(assertion, [])]
    for trace in traces:
        result = judge(assertion, [trace])
        if result.outcome == "failed":
            return replace(result, message=f"{result.message} (scenario {trace.label})")
        results.append(result)
    notes = dict.fromkeys(note for result in results for note in result.notes)
    passed = next((result for result in results if result.outcome == "passed"), results[0])
    return replace(passed, notes=tuple(notes), seconds=sum(result.seconds for result in results))


async def _meet(candidate: ClientCandidate, plain: Scenario) -> list[Trace]:
    try:
        traces = await candidate.perform(plain)
    except SpawnError as error:
        raise CannotStart(str(error)) from None
    if any(trace.entries for trace in traces):
        return traces
    ended = "had to be ended" if traces[0].exit_code == KILLED else f"ended with {traces[0].exit_code}"
    last_words = (traces[0].stderr or traces[0].stdout).strip()[-2_000:]
    raise CannotStart(f"the client {ended} and sent the agent nothing. Its last words:\n{last_words}")


async def _perform_all(candidate: ClientCandidate, chosen: list[Scenario]) -> list[Trace]:
    slots = asyncio.Semaphore(AT_A_TIME)

    async def perform(scenario: Scenario) -> list[Trace]:
        async with slots:
            try:
                return await candidate.perform(scenario)
            except SpawnError as error:
                raise CannotStart(str(error)) from None

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(perform(scenario)) for scenario in chosen]
    return [trace for task in tasks for trace in task.result()]

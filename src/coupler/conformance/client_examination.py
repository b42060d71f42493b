"""Examines a client: it goes through the scenarios, and the rules judge what it sent."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from coupler.conformance.assertion import Assertion, Scenario, scenarios
from coupler.conformance.candidate import KILLED, ClientCandidate
from coupler.conformance.client.screen import MODES, config_options
from coupler.conformance.examination import CannotStart, judge
from coupler.conformance.peers import ScriptError
from coupler.conformance.report import AssertionResult, ConformanceReport
from coupler.conformance.scripted_agent import HeldPrompt, ScriptedAgent
from coupler.recording.traces import Trace, TraceEntry
from coupler.runtime.environment import SpawnError
from coupler.runtime.exceptions import innermost
from coupler.wire.transport import Transport

AT_A_TIME = 2
"""Number of scenarios that run at once."""

PERSON_PATIENCE = 600.0
"""Seconds that a person has to answer a question."""

FOR_EVER = 7 * 24 * 3600.0

HANDSHAKE = ("initialize", "session/new", "session/load", "session/resume")


async def examine_client(candidate: ClientCandidate, assertions: Iterable[Assertion]) -> ConformanceReport:
    """Judge a client; raises CannotStart if it never speaks to the agent."""
    began = time.monotonic()
    chosen = [*assertions]
    ids = {assertion.id for assertion in chosen}
    plain, *others = [each for each in scenarios() if not each.needs_person]
    traces = await _meet(candidate, plain)
    traces += await _perform_all(candidate, [each for each in others if ids.intersection(each.judged_by)])
    report = ConformanceReport(" ".join(candidate.command), "client")
    report.results += [judge_scenarios(assertion, traces) for assertion in chosen]
    report.seconds = time.monotonic() - began
    return report


def grade_client(traces: list[Trace], assertions: Iterable[Assertion], subject: str) -> ConformanceReport:
    """Judge recordings of scenarios, whose labels are the scenarios' names."""
    return ConformanceReport(
        subject, "client", [judge_scenarios(assertion, traces) for assertion in assertions]
    )


def judge_scenarios(assertion: Assertion, traces: Iterable[Trace]) -> AssertionResult:
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

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(perform(scenario)) for scenario in chosen]
    except BaseExceptionGroup as several:
        raise innermost(several) from None
    return [trace for task in tasks for trace in task.result()]


class Chat:
    """Examines an editor with a person: each prompt that is sent in it plays the next scenario.

    The chat says what to look at or to click. What the editor sends is judged as everywhere; the person is
    asked what only shows on the screen. Each scenario has a trace of its own, which begins with the
    handshake.
    """

    def __init__(self, transport: Transport, assertions: Sequence[Assertion]) -> None:
        self._assertions = assertions
        ids = {assertion.id for assertion in assertions}
        self._scenarios = {
            each.name: each
            for each in scenarios()
            if not each.needs_connection and ids.intersection(each.judged_by)
        }
        self._to_come = [*self._scenarios]
        self._traces = [Trace("handshake")]
        self._agent = ScriptedAgent(transport, self._traces[0], timeout=PERSON_PATIENCE, is_watched=True)
        self._agent.opening = {"modes": MODES, "configOptions": config_options()[:1]}
        self._agent.services["session/set_mode"] = lambda params: {}
        self._agent.services["session/set_config_option"] = lambda params: {
            "configOptions": config_options()[:1]
        }

    async def hold(self) -> None:
        """Play until the editor closes the connection."""
        # Editors start agents in the project, which must not hold what a scenario keeps outside of it.
        with tempfile.TemporaryDirectory(prefix="coupler-check-") as folder:
            self._agent.folder = Path(folder)
            self._agent.pipe.open()
            try:
                while True:
                    await self._answer(await self._agent.begin_turn(within=FOR_EVER))
            except ScriptError:
                return
            finally:
                self._agent.pipe.close()

    def report(self) -> ConformanceReport:
        """Return the results so far."""
        results = [judge_scenarios(assertion, self._traces) for assertion in self._assertions]
        hello = next(iter(self._traces[0].exchanges("initialize")), None)
        info = hello.params.get("clientInfo") if hello is not None else None
        name = f"{info.get('name')} {info.get('version')}" if isinstance(info, dict) else "an editor"
        return ConformanceReport(name, "client", results)

    async def _answer(self, turn: HeldPrompt) -> None:
        wish = turn.text.strip().lower()
        if wish == "report":
            turn.say(_in_words(self.report()))
            turn.end()
        elif wish in self._scenarios:
            await self._play(self._scenarios[wish], turn)
        elif self._to_come:
            await self._play(self._scenarios[self._to_come[0]], turn)
        else:
            turn.say(
                'All scenarios were played. Send "report" for the verdict, or the name of one to repeat it.'
            )
            turn.end()

    async def _play(self, scenario: Scenario, turn: HeldPrompt) -> None:
        if scenario.name in self._to_come:
            self._to_come.remove(scenario.name)
        played = len(self._scenarios) - len(self._to_come)
        self._begin_trace(scenario.name, turn.request)
        turn.say(f"**{scenario.name}** ({played} of {len(self._scenarios)}): {scenario.sentence}\n\n")
        if scenario.look:
            turn.say(f"**Look:** {scenario.look}\n\n")
        self._agent.put_back(turn.request)
        try:
            await scenario.play(self._agent)
        except ScriptError as error:
            if error.kind != "silent":
                raise
            turn.end()

    def _begin_trace(self, label: str, prompt: TraceEntry) -> None:
        trace = Trace(label)
        for exchange in self._traces[0].exchanges():
            for entry in (exchange.request, exchange.answer):
                if exchange.method in HANDSHAKE and entry is not None:
                    trace.append(entry.at, entry.sender, entry.line)
        trace.append(prompt.at, prompt.sender, prompt.line)
        self._traces.append(trace)
        self._agent.pipe.trace = trace


def _in_words(report: ConformanceReport) -> str:
    lines = [f"**{report.verdict()}**", ""]
    for result in report.results:
        if result.outcome != "passed":
            lines.append(f"- {result.assertion.id} {result.standing}: {result.assertion.sentence}")
            lines.append(f"  {result.message}")
    return "\n".join(lines)

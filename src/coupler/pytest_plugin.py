"""Provides pytest fixtures for testing agents and clients over the protocol.

Enable them with `pytest_plugins = ["coupler.pytest_plugin"]` in `conftest.py`. Everything that a test starts
is gone when it ends, and a test that fails shows what was said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coupler.conformance.report import ConformanceReport
    from coupler.conformance.scripted_client import BlockingClient
    from coupler.recording.traces import Trace

SHOWN_LINES = 40
SHOWN_CHARACTERS = 300
"""Characters of each line of a failing test's traffic that are shown."""

_RECORDER = pytest.StashKey["Recorder"]()


class Recorder:
    """Keeps the traces of one test."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def save(self, directory: Path) -> None:
        """Write each trace as NDJSON, for `coupler check --trace`."""
        for number, trace in enumerate(self.traces, 1):
            trace.save(directory / f"{number:02}.ndjson")

    def faults(self, *ids: str) -> list[str]:
        """Return what the rules of the conformance kit, or those with these ids, find wrong in the traces."""
        from coupler.conformance.assertion import chosen
        from coupler.conformance.examination import judge

        rules = [each for each in chosen("agent", ids) if each.rule is not None]
        if len(rules) < len(ids):
            raise ValueError(f"some of {', '.join(ids)} need the agent itself: use acp_check")
        results = [judge(rule, self.traces) for rule in rules]
        return [f"{each.assertion.id}: {each.message}" for each in results if each.outcome == "failed"]

    def text(self) -> str:
        """Return the last lines of the traces."""
        from coupler.recording.masking import TraceMasker

        shown: list[str] = []
        printed: list[str] = []
        for trace in self.traces:
            screen = TraceMasker(trace.entries, ())
            shown += [
                f"{entry.at:8.3f} {'→' if entry.sender == 'client' else '←'} "
                f"{screen.line(entry).decode(errors='replace')[:SHOWN_CHARACTERS]}"
                for entry in trace.entries[-SHOWN_LINES:]
            ]
            printed += [screen.mask(trace.stderr)] if trace.stderr else []
        return "\n".join(shown + printed)


@pytest.fixture
def acp_recorder(request: pytest.FixtureRequest) -> Recorder:
    """Record the messages between the test's agents and clients."""
    recorder = request.node.stash[_RECORDER] = Recorder()
    return recorder


@pytest.fixture
def acp_client(acp_recorder: Recorder, tmp_path: Path) -> Iterator[Callable[..., BlockingClient]]:
    """Start an agent, given as a command, a turn function or an `Agent`, and a client to drive it with."""
    from coupler.conformance.peers import FULL_CAPABILITIES
    from coupler.conformance.scripted_client import BlockingClient, ScriptedClient

    opened: list[BlockingClient] = []

    def start(
        agent: str | Sequence[str] | Any,
        *,
        capabilities: dict[str, Any] = FULL_CAPABILITIES,
        directory: Path = tmp_path,
        timeout: float = 10.0,
        **options: Any,
    ) -> BlockingClient:
        scripted = ScriptedClient(
            agent, directory=directory, capabilities=capabilities, timeout=timeout, **options
        )
        acp_recorder.traces.append(scripted.trace)
        client = BlockingClient(scripted)
        client.open()
        opened.append(client)
        return client

    yield start
    for client in reversed(opened):
        client.close()


@pytest.fixture
def acp_agent(acp_recorder: Recorder) -> Iterator[Callable[..., list[str]]]:
    """Return a command that a client can start as its agent; a script in the test says what it does."""
    from contextlib import ExitStack

    from coupler.conformance.scripted_agent import AgentHost, AgentScript, is_about_leaving

    hosts: list[AgentHost] = []
    with ExitStack() as stack:

        def play(script: AgentScript, *, timeout: float = 10.0) -> list[str]:
            host = stack.enter_context(AgentHost(script, timeout))
            # The recorder sees each trace as soon as a client has come.
            host.traces = acp_recorder.traces
            hosts.append(host)
            return host.command

        yield play
    for failure in (each for host in hosts for each in host.failures if not is_about_leaving(each)):
        raise failure


@pytest.fixture
def acp_check(acp_recorder: Recorder, tmp_path: Path) -> Callable[..., ConformanceReport]:
    """Examine an agent's command with the conformance kit; `only` are ids of assertions."""
    from coupler.conformance.assertion import chosen
    from coupler.conformance.candidate import Candidate
    from coupler.conformance.examination import examine

    def check(command: Sequence[str], *, only: Sequence[str] = (), **options: Any) -> ConformanceReport:
        candidate = Candidate(command, tmp_path, **options)
        report = asyncio.run(examine(candidate, chosen("agent", only)))
        acp_recorder.traces += candidate.traces
        return report

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add the recorded messages to the report of a test that failed."""
    report = yield
    recorder = item.stash.get(_RECORDER, None)
    if recorder is not None and report.when == "call" and report.failed and recorder.traces:
        report.sections.append(("ACP traffic", recorder.text()))
    return report

"""The client under test: started once a scenario, with the scripted agent as its agent."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from coupler.inspect.conformance.play import command_of
from coupler.inspect.conformance.scenario import Scenario
from coupler.inspect.scripted_agent import CLIENT_PID
from coupler.inspect.trace import Trace, TraceError
from coupler.runtime.process import Child, Ring
from coupler.wire.pipe_transport import PipeTransport

AGENT_WORD = "{agent}"
AGENT_WORDS = "{agent...}"
DIRECTORY = "{dir}"

STDOUT_LIMIT = 1024 * 1024
"""Bytes of the end of a client's output that are kept."""

CLIENT_PATIENCE = 3
"""How many times longer a client may take for a whole scenario than for one answer."""

KILLED = -9
"""The exit code noted for a client that did not end by itself, however it took being ended."""


class ClientCandidate:
    """`folder` is empty, and is kept by whoever made it; `timeout` is in seconds, for one answer."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        env: Mapping[str, str | None] | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.command = [*command]
        self.timeout = timeout
        self.traces: list[Trace] = []
        self._folder = folder
        self._env = dict(env or {})

    async def perform(self, scenario: Scenario) -> list[Trace]:
        """Let the client go through a scenario: a trace for each time that it started the agent."""
        folder, project = self._folder / scenario.name, self._folder / scenario.name / "project"
        project.mkdir(parents=True)
        agent = command_of(scenario, folder, self.timeout / 2)
        child = Child.spawn(fill_in(self.command, agent, project), cwd=project, env=self._env)
        (folder / CLIENT_PID).write_text(str(child.pid))
        output = _Output(PipeTransport(child.stdout_fd, child.stdin_fd))
        try:
            async with asyncio.timeout(CLIENT_PATIENCE * self.timeout):
                exit_code = await child.wait()
        except TimeoutError:
            exit_code = KILLED
        finally:
            await child.end(grace=0.5, linger=0.5 if child.returncode is not None else 0.0)
        stdout = await output.text()
        traces = _traces_in(folder) or [Trace(scenario.name)]
        for trace in traces:
            trace.stdout, trace.stderr, trace.exit_code = stdout, child.stderr, exit_code
        self.traces += traces
        return traces


def fill_in(command: Sequence[str], agent: Sequence[str], project: Path) -> list[str]:
    """The client's command with the agent's in its place, to be started in another directory."""
    joined = subprocess.list2cmdline(agent) if os.name == "nt" else shlex.join(agent)
    words: list[str] = []
    for word in command:
        if word == AGENT_WORDS:
            words += agent
        else:
            words.append(_from_here(word).replace(AGENT_WORD, joined).replace(DIRECTORY, str(project)))
    return words


def _from_here(word: str) -> str:
    """A file that was named relative to the current directory, by its full name.

    A word without a directory and an ending is no file's name, even if there is one: it may be a prompt.
    """
    path = Path(word)
    is_name = os.sep in word or path.suffix != ""
    return str(path.absolute()) if is_name and not path.is_absolute() and path.is_file() else word


def _traces_in(folder: Path) -> list[Trace]:
    traces: list[Trace] = []
    for file in sorted(folder.glob("*.ndjson")):
        try:
            traces.append(Trace.load(file))
        except TraceError:  # the client started the agent and said nothing
            continue
    return traces


class _Output:
    """Reads a client's stdout to its end, so that it never blocks, and gives it no input."""

    def __init__(self, transport: PipeTransport) -> None:
        self._transport = transport
        self._ring = Ring(STDOUT_LIMIT)
        self._ended = asyncio.Event()
        transport.open(self)
        transport.end_output()

    async def text(self) -> str:
        """What was written, once the client has ended; a process that it left behind is not waited for."""
        try:
            async with asyncio.timeout(1.0):
                await self._ended.wait()
        except TimeoutError:
            pass
        self._transport.close()
        return self._ring.text()

    def data_received(self, data: bytes) -> None:
        self._ring.append(data)

    def input_ended(self, error: Exception | None) -> None:
        self._ended.set()

    def output_ready(self) -> None:
        return

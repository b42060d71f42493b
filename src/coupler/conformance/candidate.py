"""Starts the agent or the client under test.

What a probe needs done first (a handshake, a login, a session) is done here in one way. Once a basic request
has failed, probes that need it are skipped at once, instead of each waiting for it in vain. A client is
started once a scenario, with the scripted agent as its agent.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from coupler.conformance.assertion import Fault, Level, Scenario, Skip, require
from coupler.conformance.peers import FULL_CAPABILITIES, ScriptError
from coupler.conformance.play import command_of
from coupler.conformance.reading import CONVERSATION_UPDATES, items, shown, value_at
from coupler.conformance.scripted_agent import CLIENT_PID
from coupler.conformance.scripted_client import RequestAnswer, ScriptedClient, ScriptedTurn
from coupler.recording.traces import AUTH_REQUIRED, Trace, TraceError
from coupler.runtime.process import Child, RingBuffer
from coupler.wire.pipe_transport import PipeTransport

T = TypeVar("T")

NO_SUCH_SESSION = "coupler-check-no-such-session"
"""A session id that no agent has."""

BASICS = ("initialize", "session/new", "session/prompt")
"""The requests that nearly every assertion needs, each after the one before it."""

GREETING_SECONDS = 0.3
"""Seconds to wait for what an agent sends unasked in a new session."""

AGENT_WORD = "{agent}"
AGENT_WORDS = "{agent...}"
DIRECTORY = "{dir}"

STDOUT_LIMIT = 1024 * 1024
"""Bytes of the end of a client's output that are kept."""

CLIENT_PATIENCE = 3
"""Time limit of a whole scenario for a client, as a multiple of the timeout of one answer."""

KILLED = -9
"""The exit code noted for a client that did not end by itself, however it was ended."""


class Candidate:
    """The agent under test, with a fresh process for each conversation and the traces of all of them."""

    def __init__(
        self,
        command: Sequence[str],
        project: Path,
        *,
        env: Mapping[str, str | None] | None = None,
        timeout: float = 10.0,
        startup_timeout: float = 30.0,
        auth: str | None = None,
        prompt: str = "Hello! Please answer briefly.",
        slow_prompt: str | None = None,
    ) -> None:
        self.command = [*command]
        self.project = project
        self.env = dict(env or {})
        self.timeout = timeout
        self.startup_timeout = startup_timeout
        self.auth = auth
        self.prompt = prompt
        self.has_slow_prompt = slow_prompt is not None
        self.slow_prompt = prompt if slow_prompt is None else slow_prompt
        self.traces: list[Trace] = []
        self.label = ""
        self.greets = False
        self._broken: dict[str, str] = {}
        self._done: dict[CandidateAction, Fault | Skip | ScriptError | None] = {}
        self._doing = asyncio.Lock()

    @asynccontextmanager
    async def start(
        self, capabilities: Mapping[str, Any] = FULL_CAPABILITIES
    ) -> AsyncIterator[ScriptedClient]:
        """Start a process and send nothing yet."""
        client = self._new_client(capabilities)
        self.traces.append(client.trace)
        async with client:
            yield client

    def _new_client(self, capabilities: Mapping[str, Any] = FULL_CAPABILITIES) -> ScriptedClient:
        return ScriptedClient(
            self.command,
            directory=self.project,
            capabilities=capabilities,
            env=self.env,
            timeout=self.timeout,
            label=self.label,
        )

    @asynccontextmanager
    async def ready(
        self, capabilities: Mapping[str, Any] = FULL_CAPABILITIES
    ) -> AsyncIterator[ScriptedClient]:
        """Start a process that is initialized and, if `auth` says how, logged in."""
        self.need_working("initialize")
        async with self.start(capabilities) as client:
            await self.initialize_and_log_in(client)
            yield client

    async def initialize_and_log_in(self, client: ScriptedClient) -> None:
        """Initialize and log in."""
        await self.initialize(client)
        await self.log_in(client)

    async def initialize(self, client: ScriptedClient) -> None:
        """Initialize only."""
        answer = await self._basic("initialize", client.introduce(self._new_client, self.startup_timeout))
        if answer.result is None:
            raise self._note_broken("initialize", f"initialize was refused: {shown(answer.error)}")

    async def log_in(self, client: ScriptedClient) -> None:
        """Authenticate, if `auth` says how."""
        if self.auth is not None:
            answer = await client.call("authenticate", {"methodId": self.auth})
            if answer.result is None:
                raise Fault(
                    f"authenticate with {shown(self.auth)} was refused: {shown(answer.error)}", answer.entry
                )

    async def open_session(self, client: ScriptedClient, **params: Any) -> str:
        """Open a session and return its id; skips if the agent wants a login that was not given."""
        answer = await self._basic("session/new", client.new_session(**params))
        self.skip_without_login(client, answer)
        session = answer.result.get("sessionId") if isinstance(answer.result, dict) else None
        if not isinstance(session, str):
            raise self._note_broken("session/new", f"session/new gave no session: {shown(answer.error)}")
        if self.greets:
            await client.quiet(GREETING_SECONDS)
        return session

    def skip_without_login(self, client: ScriptedClient, answer: RequestAnswer) -> None:
        """Skip if the agent answers that it wants a login, and none was given."""
        if answer.code == AUTH_REQUIRED and self.auth is None:
            methods = [str(value_at(each, "id")) for each in items(client.introduction.get("authMethods"))]
            reason = f"the agent wants a login: pass --auth with one of {', '.join(methods)}"
            self._broken.setdefault("session/new", reason)
            raise Skip(reason)

    async def hear_greeting(self, client: ScriptedClient, session: str) -> None:
        """Find out whether the agent sends something unasked, which is not forbidden.

        From then on it gets the time for that, so that its greeting is not taken for a part of a turn.
        """
        await client.quiet(GREETING_SECONDS)
        self.greets = bool(client.trace.updates(session, *CONVERSATION_UPDATES))

    async def take_turn(self, client: ScriptedClient, session: str) -> ScriptedTurn:
        """Send a prompt and wait for its answer, whatever that is."""
        return await self._basic("session/prompt", client.prompt(session, self.prompt))

    @asynccontextmanager
    async def conversation(
        self, capabilities: Mapping[str, Any] = FULL_CAPABILITIES
    ) -> AsyncIterator[tuple[ScriptedClient, str]]:
        """Start a process with an open session."""
        self.need_working("session/new")
        async with self.ready(capabilities) as client:
            yield client, await self.open_session(client)

    @property
    def obstacle(self) -> str:
        """Reason why whole parts of the protocol were out of reach; empty if they were not."""
        for what in BASICS:
            if what in self._broken:
                return f"{what} does not work: {self._broken[what]}"
        return ""

    def need_working(self, what: str) -> None:
        """Skip if this request is known not to work, instead of waiting for it again."""
        if what in self._broken:
            raise Skip(f"needs {what}, and {self._broken[what]}")

    def note_failing_prompt(self, answer: RequestAnswer) -> None:
        """Note that prompts fail, as with an agent without its key: that says nothing of the protocol."""
        self._broken["session/prompt"] = f"the prompt got {describe(answer)}; pass a --prompt that works"

    async def do_once(self, deed: CandidateAction) -> None:
        """Perform an action that several assertions need, once; later calls raise what the first raised."""
        async with self._doing:
            if deed not in self._done:
                self._done[deed] = await self._trouble_with(deed)
        trouble = self._done[deed]
        if trouble is not None:
            raise trouble

    async def _trouble_with(self, deed: CandidateAction) -> Fault | Skip | ScriptError | None:
        try:
            await deed(self)
        except (Fault, Skip, ScriptError) as error:
            return error
        return None

    async def _basic(self, what: str, answer: Coroutine[Any, Any, T]) -> T:
        """Await a basic request; skips one that is known not to work, and notes one that fails."""
        try:
            self.need_working(what)
            return await answer
        except Skip:
            answer.close()
            raise
        except ScriptError as error:
            self._broken[what] = str(error)
            raise

    def _note_broken(self, what: str, reason: str) -> Fault:
        self._broken.setdefault(what, reason)
        return Fault(reason)


CandidateAction: TypeAlias = Callable[[Candidate], Awaitable[None]]


def need(client: ScriptedClient, capability: str) -> None:
    """Skip unless the agent advertises a capability, given as a path such as `sessionCapabilities.list`."""
    if not advertises(client, capability):
        raise Skip(f"the agent does not advertise {capability}")


def advertises(client: ScriptedClient, capability: str) -> bool:
    """True if the agent advertises a capability: its flag is true, or its object is there."""
    value: Any = client.introduction.get("agentCapabilities")
    for name in capability.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value is True or isinstance(value, dict)


def expect_result(answer: RequestAnswer, cause: str, *, level: Level | None = None) -> None:
    """Require a result; `cause` begins the fault's message, which ends with what was answered instead."""
    require(answer.result is not None, f"{cause} {describe(answer)}", answer.entry, level=level)


def expect_error(
    answer: RequestAnswer, cause: str, code: int | None = None, *, level: Level | None = None
) -> None:
    """Require an error, with a code if one is given; `cause` begins the fault's message."""
    fits = answer.error is not None if code is None else answer.code == code
    require(fits, f"{cause} {describe(answer)}", answer.entry, level=level)


def describe(answer: RequestAnswer) -> str:
    """Describe an answer in a few words, for a fault's message."""
    if answer.error is None:
        return f"the result {shown(answer.result)}"
    return f"the error {answer.code}: {shown(answer.error)}"


class ClientCandidate:
    """The client under test, which is started once for each scenario.

    `folder` is empty, and is kept by whoever made it; `timeout` is in seconds, for one answer.
    """

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
        """Run the client through a scenario; returns a trace for each time that it started the agent."""
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
    """Fill in the placeholders of the client's command, and make its relative file names absolute."""
    joined = subprocess.list2cmdline(agent) if os.name == "nt" else shlex.join(agent)
    words: list[str] = []
    for word in command:
        if word == AGENT_WORDS:
            words += agent
        else:
            words.append(_from_here(word).replace(AGENT_WORD, joined).replace(DIRECTORY, str(project)))
    return words


def _from_here(word: str) -> str:
    """Make a file name that is relative to the current directory absolute.

    A word without a directory and a suffix is no file's name, even if there is one: it may be a prompt.
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
        self._ring = RingBuffer(STDOUT_LIMIT)
        self._ended = asyncio.Event()
        transport.open(self)
        transport.end_output()

    async def text(self) -> str:
        """Return the output once the client has ended; a process that it left behind is not waited for."""
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

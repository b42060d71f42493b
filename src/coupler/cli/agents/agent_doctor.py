"""`coupler agents doctor`: starts an agent, prompts, cancels and ends it, and loads its session again.

It uses the scripted client and the rules of the conformance kit, which see every line that is written. An
agent may hang at any point: nothing is waited for without a limit, and the rest is told as not reached.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coupler.__about__ import __version__
from coupler.cli.doctor.doctor import DoctorFindings
from coupler.conformance import mcp_probe
from coupler.conformance.agent.prompting import cancel_and_watch, is_over, says_all_before_the_answer
from coupler.conformance.agent.transport import EXIT_LIMIT, ORPHAN_LIMIT, only_messages
from coupler.conformance.assertion import TASTE
from coupler.conformance.candidate import advertises, describe
from coupler.conformance.peers import ScriptError, allow, reject
from coupler.conformance.reading import items, shown, value_at
from coupler.conformance.scripted_client import RequestAnswer, ScriptedClient
from coupler.recording.traces import AUTH_REQUIRED, Trace
from coupler.runtime.process import ProcessIdentity, processes_below, still_alive

CAPABILITIES = {"auth": {"terminal": True}}
"""Client capabilities: only logins in a terminal, so that an examined agent changes nothing through us."""

PROMPT = f"Call the tool {mcp_probe.TOOL} once if you have it, then answer with the single word: ready"
SLOW_PROMPT = "Count slowly from 1 to 1000, one number a line. Use no tools."

SLOW_START = 5.0
"""Seconds until a session is open that people notice."""

EDITOR_START_LIMIT = 20.0
"""Seconds after which the first editors give an agent up that has not answered `initialize`."""

SHOWN_LINES = 3
LATE_UPDATE_WINDOW = 0.3
"""Seconds to wait for updates that come too late."""

FIRST_UPDATE_LIMIT = 10.0
"""Seconds in which a turn that is to be cancelled has begun to show something."""

PROBE_START_LIMIT = 2.0
"""Seconds to wait for the start of the probe after a turn, for agents that start it late."""

LONGEST_SENTENCE = 400
"""Characters of an agent's error message that are shown."""


@dataclass(frozen=True)
class ExaminedAgent:
    """An agent to examine: its command, and the prompts for it."""

    subject: str
    command: Sequence[str]
    env: Mapping[str, str | None]
    directory: Path
    timeout: float
    startup_timeout: float
    prompt: str = PROMPT
    login: str | None = None
    """The command with which people log in to it."""
    has_tools: bool = False
    """True if it is known that its model uses tools."""


@dataclass
class Diagnosis(DoctorFindings):
    """The findings about one agent, in the order in which they were made."""

    subject: str
    command: list[str]
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds that each part of the start took."""
    agent: dict[str, Any] | None = None
    """The name and version that it reports of itself."""
    capabilities: dict[str, Any] = field(default_factory=dict)
    auth_methods: list[dict[str, Any]] = field(default_factory=list)
    stderr: str = ""

    def as_object(self) -> dict[str, Any]:
        """The diagnosis as JSON."""
        return {**asdict(self), "is_healthy": self.is_healthy}


async def examine_agent(agent: ExaminedAgent) -> Diagnosis:
    """Examines an agent, one step after the other."""
    diagnosis = Diagnosis(agent.subject, [*agent.command])
    first = _Examination(agent, diagnosis)
    try:
        session = await first.run()
        if session is not None:
            await _Examination(agent, diagnosis).load_again(session, first.can_load)
    except ScriptError as error:
        diagnosis.problem("conversation", str(error), _remedy_for_silence(diagnosis, error))
    return diagnosis


class _Examination:
    """Starts the agent once, and examines the conversation with it."""

    def __init__(self, agent: ExaminedAgent, diagnosis: Diagnosis) -> None:
        self._agent = agent
        self._diagnosis = diagnosis
        self._probe = agent.directory / "probe.txt"
        self._client = self._new_client()
        self.can_load = False

    def _new_client(self) -> ScriptedClient:
        client = ScriptedClient(
            [*self._agent.command],
            directory=self._agent.directory,
            capabilities=CAPABILITIES,
            env=self._agent.env,
            timeout=self._agent.timeout,
        )
        # As whoever connects to it: our own agent tells programs, and not people, what it lacks by an error.
        client.info = {"name": "coupler", "title": "Coupler", "version": __version__}
        client.desk.services["session/request_permission"] = _allow_the_probe
        return client

    async def run(self) -> str | None:
        """Examines everything but the load; returns the session that could be loaded, if any."""
        trace = self._client.trace
        began = time.monotonic()
        try:
            async with self._client:
                self._diagnosis.seconds["spawn"] = time.monotonic() - began
                try:
                    return await self._converse()
                finally:
                    self._judge_lines(trace)
        finally:
            self._diagnosis.stderr = trace.stderr or self._diagnosis.stderr

    async def load_again(self, session: str, can_load: bool) -> None:
        """Starts the agent again, and lets it load the session."""
        if not can_load:
            self._diagnosis.note(
                "load",
                "the agent loads no sessions: a conversation ends with its process",
                "serve it through `coupler serve -- COMMAND`, which keeps sessions for it",
            )
            return
        async with self._client as client:
            await client.initialize(within=self._agent.startup_timeout)
            params = {"sessionId": session, "cwd": str(self._agent.directory), "mcpServers": []}
            answer = await client.call("session/load", params)
            updates = len(client.trace.updates(session))
        if answer.result is None:
            self._diagnosis.problem(
                "load",
                f"it says that it loads sessions, but a new process got {_describe_refusal(answer)}",
                "tell its makers: sessions must be kept when the process ends",
            )
        else:
            self._diagnosis.ok("load", f"a new process loaded the session, with {updates} updates of before")

    async def _converse(self) -> str | None:
        if not await self._initialize():
            return None
        session = await self._open()
        if session is None:
            await self._leave()
            return None
        if await self._take_turn(session):
            await self._cancel(session)
        await self._leave()
        return session

    async def _initialize(self) -> bool:
        diagnosis, client = self._diagnosis, self._client
        answer = await client.introduce(self._new_client, self._agent.startup_timeout)
        self._time_start()
        if answer.result is None:
            diagnosis.problem(
                "initialize",
                f"the agent refused it: {_describe_refusal(answer)}",
                "check that the command starts an ACP agent: many need an argument such as acp or --acp",
            )
            return False
        said = client.introduction
        diagnosis.agent = said.get("agentInfo") if isinstance(said.get("agentInfo"), dict) else None
        capabilities = said.get("agentCapabilities")
        diagnosis.capabilities = capabilities if isinstance(capabilities, dict) else {}
        diagnosis.auth_methods = [each for each in items(said.get("authMethods")) if isinstance(each, dict)]
        self.can_load = advertises(client, "loadSession")
        if said.get("protocolVersion") != 1:
            version = said.get("protocolVersion")
            diagnosis.problem(
                "initialize",
                f"it speaks version {shown(version, 20)} of the protocol, and Coupler speaks 1",
                "use another version of the agent",
            )
            return False
        diagnosis.ok("initialize", f"{_agent_name(diagnosis)}, {_describe_capabilities(diagnosis)}")
        return True

    def _time_start(self) -> None:
        entries = self._client.trace.entries
        exchange = self._client.trace.exchanges("initialize")[0]
        first = next(entry.at for entry in entries if entry.sender == "agent")
        seconds = self._diagnosis.seconds
        seconds["first byte"] = first
        if exchange.answer is not None:
            seconds["initialize"] = exchange.answer.at - exchange.request.at

    async def _open(self) -> str | None:
        diagnosis, client = self._diagnosis, self._client
        began = time.monotonic()
        answer = await client.new_session(
            self._agent.startup_timeout, mcpServers=[_probe_server(self._probe)]
        )
        diagnosis.seconds["session/new"] = time.monotonic() - began
        session = value_at(answer.result, "sessionId")
        if isinstance(session, str):
            self._judge_start()
            methods = len(diagnosis.auth_methods)
            ways = f"; it offers {methods} way{'s' if methods != 1 else ''} to log in" if methods else ""
            diagnosis.ok("login", f"a session was opened without one{ways}")
            return session
        if answer.code == AUTH_REQUIRED:
            diagnosis.problem("login", "it wants a login before it opens a session", self._login_remedy())
        else:
            diagnosis.problem(
                "session/new",
                f"it opened no session: {_describe_refusal(answer)}",
                "read what it says above and on stderr; a key or a setting may be missing",
            )
        return None

    def _login_remedy(self) -> str:
        if self._diagnosis.auth_methods:
            return f"run `coupler login {shlex.quote(self._agent.subject)}`"
        return f"run `{self._agent.login}`" if self._agent.login else "log in as the agent's manual says"

    def _judge_start(self) -> None:
        seconds = self._diagnosis.seconds
        total = seconds["first byte"] + seconds["session/new"]
        sentence = ", ".join(f"{name} {_duration(value)}" for name, value in seconds.items())
        fetched = self._agent.command[0] in ("npx", "uvx")
        remedy = (
            f"install it instead of starting it with {self._agent.command[0]}, which looks for it each time"
            if fetched
            else "start it once and keep it: a pool, or `coupler serve`, reuses its process"
        )
        if seconds["first byte"] > EDITOR_START_LIMIT:
            self._diagnosis.problem("start", f"{sentence}: editors have given it up by then", remedy)
        elif total > SLOW_START:
            self._diagnosis.note("start", sentence, remedy)
        else:
            self._diagnosis.ok("start", sentence)

    async def _take_turn(self, session: str) -> bool:
        diagnosis, client = self._diagnosis, self._client
        began = time.monotonic()
        turn = await client.prompt(session, self._agent.prompt)
        took = time.monotonic() - began
        diagnosis.seconds["turn"] = took
        await client.quiet(LATE_UPDATE_WINDOW)
        if turn.answer.result is None:
            wants_login = turn.answer.code == AUTH_REQUIRED
            data = value_at(turn.answer.error, "data")
            if value_at(data, "kind") == "setup":
                missing = str(value_at(turn.answer.error, "message"))[:LONGEST_SENTENCE]
                diagnosis.problem("setup", missing.removesuffix("."), "do that, then examine it again")
                return False
            diagnosis.problem(
                "turn",
                f"the prompt got {_describe_refusal(turn.answer)}",
                self._login_remedy() if wants_login else "read its stderr; a key or a model may be missing",
            )
            return False
        if turn.stop_reason != "end_turn":
            diagnosis.problem(
                "turn",
                f"the turn ended with {shown(turn.stop_reason, 40)}",
                "ask it for less, or look at its limits",
            )
        elif not turn.text.strip() and not client.trace.updates(session, "tool_call"):
            diagnosis.problem(
                "turn",
                "the turn ended without an error, but nothing was said or done: a failure may be hidden",
                "read its stderr, and connect with quirks=FailsEmpty(), which makes this an error",
            )
        else:
            diagnosis.ok("turn", f"answered in {_duration(took)}")
        await self._judge_probe(session)
        return True

    async def _judge_probe(self, session: str) -> None:
        methods = await self._probed()
        if "tools/call" in methods:
            self._diagnosis.ok("mcp", "a server that was passed on is used by the model")
        elif "tools/list" in methods:
            self._diagnosis.note(
                "mcp",
                "a server that was passed on was asked for its tools; the model called none of them",
                f"ask for it with --prompt, if it should have: the tool is {mcp_probe.TOOL}",
            )
        elif methods:
            self._diagnosis.problem(
                "mcp",
                "a server that was passed on was started, but never asked for its tools",
                "tell its makers, and use the agent's own settings for MCP servers meanwhile",
            )
        elif self._agent.has_tools or self._client.trace.updates(session, "tool_call"):
            self._diagnosis.problem(
                "mcp",
                "a server that was passed on was never started, so its tools did not reach the model",
                "use the agent's own settings for MCP servers: those of session/new do not reach it",
            )
        else:
            self._diagnosis.note(
                "mcp",
                "a server that was passed on was not started, and no tool call was seen: it may use no tools",
                "ask with --prompt for something that needs a tool",
            )

    async def _probed(self) -> list[str]:
        deadline = time.monotonic() + PROBE_START_LIMIT
        # The probe is the agent's child, not ours: only its file says that it runs.
        while not self._probe.exists() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return self._probe.read_text().splitlines() if self._probe.exists() else []

    async def _cancel(self, session: str) -> None:
        diagnosis, client = self._diagnosis, self._client
        begin = len(client.trace.entries)
        prompt = client.ask_prompt(session, SLOW_PROMPT)
        try:
            await client.update(session, since=begin, within=min(FIRST_UPDATE_LIMIT, self._agent.timeout))
        except ScriptError as error:
            if error.kind != "silent":
                raise
        was_over = is_over(client, prompt)
        began = time.monotonic()
        turn, went_on = await cancel_and_watch(client, session, prompt)
        took = _duration(time.monotonic() - began)
        if turn.stop_reason == "cancelled":
            diagnosis.ok("cancel", f"ended with cancelled after {took}")
        elif went_on:
            diagnosis.problem(
                "cancel",
                f"{len(went_on)} updates came after the cancel, for {took}, and the turn did not end with "
                "cancelled",
                'tell its makers: a cancelled turn must stop, and end with the stop reason "cancelled"',
            )
        elif was_over or turn.stop_reason == "end_turn":
            diagnosis.note("cancel", "the turn had ended before it could be cancelled")
        else:
            diagnosis.problem(
                "cancel",
                f"a cancelled prompt got {_describe_refusal(turn.answer)} after {took}",
                'tell its makers: the answer to a cancelled prompt is the stop reason "cancelled"',
            )

    async def _leave(self) -> None:
        """Closes the agent's input, as clients do at their end, and checks that it exits."""
        diagnosis, client = self._diagnosis, self._client
        assert client.pid is not None
        children = processes_below(client.pid)
        client.close_input()
        try:
            code = await client.exit(within=EXIT_LIMIT)
        except ScriptError:
            diagnosis.problem(
                "end",
                f"it still ran {EXIT_LIMIT:g} s after its input was closed",
                "tell its makers; Coupler ends its whole process group, other clients may leave it running",
            )
            return
        orphans = await _orphans_of(children)
        if orphans:
            numbers = ", ".join(str(orphan.pid) for orphan in sorted(orphans))
            diagnosis.problem(
                "end",
                f"it ended and left processes behind: {numbers}",
                "tell its makers; Coupler ends them, other clients may not",
            )
        else:
            diagnosis.ok(
                "end", f"it ended when its input was closed (exit code {code}), and left nothing behind"
            )

    def _judge_lines(self, trace: Trace) -> None:
        noise = [finding.message for finding in only_messages(trace) if finding is not None]
        if noise:
            shown = "; ".join(noise[:SHOWN_LINES])
            more = f"; and {len(noise) - SHOWN_LINES} more" if len(noise) > SHOWN_LINES else ""
            self._diagnosis.problem(
                "stdout",
                f"{shown}{more}",
                "nothing but messages may be written there: turn its banner or log off, or send it to stderr",
            )
        elif any(entry.sender == "agent" for entry in trace.entries):
            self._diagnosis.ok("stdout", "nothing but messages was written to it")
        findings = says_all_before_the_answer(trace)
        late = [finding for finding in findings if finding is not None and finding.level is not TASTE]
        if late:
            self._diagnosis.problem(
                "order",
                f"{len(late)} update{'s' if len(late) != 1 else ''} came after the answer to their prompt",
                "connect with quirks that have a `linger`, so that what comes late is part of the reply",
            )


def _allow_the_probe(params: dict[str, Any]) -> dict[str, Any]:
    """Allows the model to call the tool that does nothing, and nothing else."""
    return allow(params) if mcp_probe.TOOL in str(params.get("toolCall")) else reject(params)


def _probe_server(file: Path) -> dict[str, Any]:
    arguments = ["-I", mcp_probe.__file__, str(file)]
    return {"name": mcp_probe.NAME, "command": sys.executable, "args": arguments, "env": []}


async def _orphans_of(children: set[ProcessIdentity]) -> set[ProcessIdentity]:
    deadline = time.monotonic() + ORPHAN_LIMIT
    # No system call waits for a process that is not one's own child.
    while (left := still_alive(children)) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return left


def _remedy_for_silence(diagnosis: Diagnosis, error: ScriptError) -> str:
    """Advice about an agent that did not answer."""
    match error.kind:
        case "spawn":
            return "install it, or give the path of its program"
        case "gone":
            return "read its stderr; started in a terminal, the same command may say more"
        case "flood":
            return "tell its makers: it writes without end"
        case "unreadable":
            return "tell its makers: no client can read what it writes"
    if not diagnosis.findings:
        return "check that the command starts an ACP agent: many need an argument such as acp or --acp"
    return "give it more time with --timeout, or read its stderr"


def _describe_refusal(answer: RequestAnswer) -> str:
    """Describes an answer that is an error: the agent's own message, if it has one."""
    message = value_at(answer.error, "message")
    if not isinstance(message, str) or not message:
        return describe(answer)
    return f"the error {answer.code}: {message[:LONGEST_SENTENCE]}"


def _agent_name(diagnosis: Diagnosis) -> str:
    """The agent's own name and version."""
    said = diagnosis.agent
    if said is None:
        return "it does not say its name and version"
    return f"{said.get('title') or said.get('name')} {said.get('version', '')}".strip()


def _describe_capabilities(diagnosis: Diagnosis) -> str:
    """Describes the capabilities that it advertises."""
    names = sorted(_true_names(diagnosis.capabilities))
    return f"with {', '.join(names)}" if names else "with no capabilities beyond the basic ones"


def _true_names(capabilities: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in capabilities.items():
        if value is True:
            found.append(name)
        elif isinstance(value, dict) and name.endswith("Capabilities"):
            inner = [each for each, said in value.items() if said is True or isinstance(said, dict)]
            short = name.removesuffix("Capabilities")
            found += [f"{short}.{each}" for each in inner if not each.startswith("_")]
    return found


def _duration(seconds: float) -> str:
    """Formats a duration for people."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

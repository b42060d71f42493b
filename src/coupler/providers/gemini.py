"""Runs Gemini CLI: `gemini --output-format stream-json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from coupler.events import Notice, Text
from coupler.providers.command_line import (
    ALLOW_ALL,
    ALLOW_EDITS,
    DENY_ASKS,
    READ_ONLY,
    CommandLineAgent,
    McpConfig,
    ProgramExit,
    ProgramInvocation,
    ScratchDirectory,
    TurnRequest,
    mcp_configs,
)
from coupler.providers.streams import (
    LineHandler,
    LooseObject,
    ProviderError,
    StreamEvent,
    StreamParser,
    TokenCounts,
    TurnOutcome,
)
from coupler.runtime.directories import home_directory
from coupler.schema.v1 import StopReason

APPROVALS = {READ_ONLY: "plan", DENY_ASKS: "default", ALLOW_EDITS: "auto_edit", ALLOW_ALL: "yolo"}
HOME_VARIABLE = "GEMINI_CLI_HOME"
"""The variable for the directory in which it looks for `.gemini`."""

KEPT_DIRECTORIES = ("tmp", "history")
"""Directories below `.gemini` that it makes itself, and where it keeps its sessions."""

OUTSIDE = (".env", ".agents")
"""Files and directories beside `.gemini` that it reads."""

SETTINGS = "home/.gemini/settings.json"
"""The settings of one turn, in its scratch directory."""

SERVERS_IGNORED = (
    f"This version of Gemini CLI does not know {HOME_VARIABLE}, by which it is given servers: update it, or "
    "use its ACP form, gemini:acp."
)

TURN_LIMIT_REACHED = 53

POLICY_PRIORITY = 999
"""The highest priority that its policies have."""


class Gemini(CommandLineAgent):
    """Gemini CLI by its command line."""

    name = "gemini"
    models = ("auto", "pro", "flash", "flash-lite")
    flags = ("extensions", "policy", "sandbox", "skip_trust")

    def invocation(self, request: TurnRequest) -> ProgramInvocation:
        words = ["--output-format", "stream-json", f"--approval-mode={APPROVALS[request.mode]}"]
        env: dict[str, str | None] = {}
        if request.resume:
            words.append(f"--resume={request.resume}")
        if request.model:
            words += ["--model", request.model]
        words += [word for tool in self._allowed_tools for word in ("--allowed-tools", tool)]
        words += [word for directory in request.directories for word in ("--include-directories", directory)]
        servers = mcp_configs(request.mcp_servers)
        if servers:
            env[HOME_VARIABLE] = _home_with_servers(request.env, servers, request.scratch)
        if request.mode != ALLOW_ALL:
            policy = request.scratch.write("policy.toml", _policy(request.mode, servers))
            words += ["--admin-policy", policy]
        prompt = self.briefed_prompt(request).encode()
        return ProgramInvocation([*words, *self._flags, *self._arguments], prompt, env)

    def parser(self) -> StreamParser:
        return GeminiStream()

    def notices(self, request: TurnRequest) -> Iterable[Notice]:
        """Tell that the MCP servers were ignored: versions without the variable say nothing of it."""
        if request.mcp_servers and request.scratch.was_ignored(SETTINGS):
            yield Notice("warning", "The MCP servers of the session were not used", SERVERS_IGNORED)

    def _verdict(
        self, outcome: TurnOutcome, program_exit: ProgramExit, request: TurnRequest, *, has_answer: bool
    ) -> StopReason | None:
        if program_exit.returncode == TURN_LIMIT_REACHED:
            return "max_turn_requests"
        return super()._verdict(outcome, program_exit, request, has_answer=has_answer)


def _policy(mode: str, servers: Iterable[str]) -> str:
    """Return the rules of a turn that go before the user's and its own."""
    # Without a terminal it approves the plan of its own model, which then may do everything.
    rules = ['toolName = "exit_plan_mode"\ndecision = "deny"\n']
    if mode == READ_ONLY:
        # Its plan mode takes even trusted servers from the model.
        names = (msgspec.json.encode(name).decode() for name in servers)
        rules += [f'mcpName = {name}\ntoolName = "*"\ndecision = "allow"\n' for name in names]
    return "".join(f"[[rule]]\npriority = {POLICY_PRIORITY}\n{rule}" for rule in rules)


def _home_with_servers(
    env: Mapping[str, str], servers: dict[str, McpConfig], scratch: ScratchDirectory
) -> str:
    """Make a home directory for one turn: the user's own but for the settings, which also have the servers.

    Its settings files for the whole machine would override nothing of the user's, but it skips them unless
    they and all directories above belong to root.
    """
    home = Path(env.get(HOME_VARIABLE) or home_directory(env) or "/")
    theirs, ours = home / ".gemini", scratch.directory("home") / ".gemini"
    settings = theirs / "settings.json"
    try:
        ours.mkdir()
        for name in KEPT_DIRECTORIES:
            (theirs / name).mkdir(parents=True, exist_ok=True)
        for entry in theirs.iterdir():
            if entry.name != settings.name:
                (ours / entry.name).symlink_to(entry)
        for name in OUTSIDE:
            if (home / name).exists():
                (ours.parent / name).symlink_to(home / name)
    except OSError as error:
        raise ProviderError(f"MCP servers cannot be added to Gemini's settings: {error}.") from None
    scratch.write_json(SETTINGS, _with_servers(_read_settings(settings), servers))
    scratch.begin_watching(SETTINGS)
    return str(ours.parent)


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        return LooseObject(msgspec.json.decode(path.read_bytes())).members
    except OSError:
        return {}
    except msgspec.DecodeError as error:
        message = f"MCP servers cannot be added to Gemini's settings: {path} is no plain JSON ({error})."
        raise ProviderError(message) from None


def _with_servers(settings: dict[str, Any], servers: dict[str, McpConfig]) -> dict[str, Any]:
    configured = LooseObject(settings).object("mcpServers").members
    ours = {name: _server(server) for name, server in servers.items()}
    return {**settings, "mcpServers": {**configured, **ours}}


def _server(server: McpConfig) -> McpConfig:
    match server["type"]:
        case "stdio":
            return {"command": server["command"], "args": server["args"], "env": server["env"], "trust": True}
        case kind:
            address = "httpUrl" if kind == "http" else "url"
            return {address: server["url"], "headers": server["headers"], "trust": True}


class GeminiStream(StreamParser):
    """Parses `--output-format stream-json`: tools in lines of their own, or all in one message."""

    def __init__(self) -> None:
        super().__init__()
        self._messages = 0
        self._is_growing = False

    def init(self, line: LooseObject) -> Iterable[StreamEvent]:
        self.outcome.session_id = line.text("session_id") or self.outcome.session_id
        return ()

    def message(self, line: LooseObject) -> Iterator[StreamEvent]:
        if line.text("role") not in ("assistant", "model"):
            return
        if not (self._is_growing and line.is_true("delta")):
            self._messages += 1
        self._is_growing = line.is_true("delta")
        if text := line.text("content"):
            yield Text(text, f"message_{self._messages}")
        for call in line.objects("toolCalls", "tool_calls"):
            name = call.text("name")
            call_id = call.text("id") or self.new_id(name)
            yield from self.call(call_id, name, call.raw("arguments", "args"))
            yield from self.result(call_id, "")

    def tool_use(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._is_growing = False
        name = line.text("tool_name", "name")
        yield from self.call(
            line.text("tool_id", "id") or self.new_id(name), name, line.raw("parameters", "args")
        )

    def tool_result(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._is_growing = False
        shown = line.text("output") or line.object("error").text("message")
        failed = line.text("status") == "error"
        yield from self.result(
            line.text("tool_id", "id"), shown, failed=failed, raw=line.raw("output", "error")
        )

    def error(self, line: LooseObject) -> Iterator[StreamEvent]:
        message = line.text("message") or line.object("error").text("message")
        self.outcome.warning = message or self.outcome.warning
        severity = "error" if line.text("severity") == "error" else "warning"
        yield Notice(severity, message or "Something went wrong")

    def finished(self, line: LooseObject) -> Iterable[StreamEvent]:
        self.outcome.is_final = True
        if stats := line.object("stats"):
            self.outcome.tokens = _tokens(stats)
        if line.text("status") == "error":
            error = line.object("error").text("message")
            self.outcome.error = error or self.outcome.warning or "it gave no reason"
        return ()

    KINDS: ClassVar[Mapping[str, LineHandler]] = {
        "init": init,
        "message": message,
        "tool_use": tool_use,
        "tool_result": tool_result,
        "error": error,
        "result": finished,
    }


def _tokens(stats: LooseObject) -> TokenCounts:
    cached = stats.count("cached")
    whole = stats.count("input_tokens") or 0
    return TokenCounts(
        max(whole - (cached or 0), 0),
        stats.count("output_tokens") or 0,
        cached,
        total=stats.count("total_tokens"),
    )

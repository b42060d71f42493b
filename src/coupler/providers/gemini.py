"""Gemini CLI: `gemini --output-format stream-json`."""

from __future__ import annotations

import sys
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
    Described,
    Ending,
    Invocation,
    Order,
    named,
)
from coupler.providers.streams import Loose, Outcome, ProviderError, Reading, Said, StreamParser, Tokens
from coupler.schema.v1 import StopReason

APPROVALS = {READ_ONLY: "plan", DENY_ASKS: "default", ALLOW_EDITS: "auto_edit", ALLOW_ALL: "yolo"}
DEFAULTS = "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"
"""Names the weakest of its settings files: what is added there overrides nothing of the user's."""

SYSTEM_SETTINGS = {
    "darwin": "/Library/Application Support/GeminiCli/settings.json",
    "win32": "C:\\ProgramData\\gemini-cli\\settings.json",
}

TURN_LIMIT_REACHED = 53


class Gemini(CommandLineAgent):
    """Gemini CLI by its command line."""

    name = "gemini"
    models = ("auto", "pro", "flash", "flash-lite")
    flags: ClassVar[Mapping[str, str]] = {
        "extensions": "--extensions",
        "policy": "--policy",
        "sandbox": "--sandbox",
        "skip_trust": "--skip-trust",
    }

    def invocation(self, order: Order) -> Invocation:
        words = ["--output-format", "stream-json", f"--approval-mode={APPROVALS[order.mode]}"]
        env: dict[str, str | None] = {}
        if order.resume:
            words.append(f"--resume={order.resume}")
        if order.model:
            words += ["--model", order.model]
        words += [word for tool in self._allowed_tools for word in ("--allowed-tools", tool)]
        words += [word for directory in order.directories for word in ("--include-directories", directory)]
        if order.mcp_servers:
            settings = _with_servers(_defaults(order.env), named(order.mcp_servers))
            env[DEFAULTS] = order.scratch.write_json("defaults.json", settings)
        prompt = self.briefed_prompt(order).encode()
        return Invocation([*words, *self._flags, *self._arguments], prompt, env)

    def parser(self) -> StreamParser:
        return GeminiStream()

    def _verdict(
        self, outcome: Outcome, ending: Ending, order: Order, *, has_answer: bool
    ) -> StopReason | None:
        if ending.returncode == TURN_LIMIT_REACHED:
            return "max_turn_requests"
        return super()._verdict(outcome, ending, order, has_answer=has_answer)


def _defaults(env: Mapping[str, str]) -> dict[str, Any]:
    """What the machine's own file says, which ours stands in for."""
    path = _defaults_path(env)
    try:
        return Loose(msgspec.json.decode(path.read_bytes())).members
    except OSError:
        return {}
    except msgspec.DecodeError as error:
        message = f"MCP servers cannot be added to Gemini's settings: {path} is no plain JSON ({error})."
        raise ProviderError(message) from None


def _defaults_path(env: Mapping[str, str]) -> Path:
    if named_path := env.get(DEFAULTS):
        return Path(named_path)
    settings = env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH") or SYSTEM_SETTINGS.get(sys.platform)
    return Path(settings or "/etc/gemini-cli/settings.json").parent / "system-defaults.json"


def _with_servers(settings: dict[str, Any], servers: dict[str, Described]) -> dict[str, Any]:
    configured = Loose(settings).object("mcpServers").members
    ours = {name: _server(server) for name, server in servers.items()}
    return {**settings, "mcpServers": {**configured, **ours}}


def _server(server: Described) -> Described:
    match server["type"]:
        case "stdio":
            return {"command": server["command"], "args": server["args"], "env": server["env"], "trust": True}
        case kind:
            address = "httpUrl" if kind == "http" else "url"
            return {address: server["url"], "headers": server["headers"], "trust": True}


class GeminiStream(StreamParser):
    """Reads `--output-format stream-json`: tools in lines of their own, or all in one message."""

    def __init__(self) -> None:
        super().__init__()
        self._messages = 0
        self._is_growing = False

    def init(self, line: Loose) -> Iterable[Said]:
        self.outcome.session_id = line.text("session_id") or self.outcome.session_id
        return ()

    def message(self, line: Loose) -> Iterator[Said]:
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

    def tool_use(self, line: Loose) -> Iterator[Said]:
        self._is_growing = False
        name = line.text("tool_name", "name")
        yield from self.call(
            line.text("tool_id", "id") or self.new_id(name), name, line.raw("parameters", "args")
        )

    def tool_result(self, line: Loose) -> Iterator[Said]:
        self._is_growing = False
        shown = line.text("output") or line.object("error").text("message")
        failed = line.text("status") == "error"
        yield from self.result(
            line.text("tool_id", "id"), shown, failed=failed, raw=line.raw("output", "error")
        )

    def error(self, line: Loose) -> Iterator[Said]:
        message = line.text("message") or line.object("error").text("message")
        self.outcome.warning = message or self.outcome.warning
        severity = "error" if line.text("severity") == "error" else "warning"
        yield Notice(severity, message or "Something went wrong")

    def finished(self, line: Loose) -> Iterable[Said]:
        self.outcome.is_final = True
        if stats := line.object("stats"):
            self.outcome.tokens = _tokens(stats)
        if line.text("status") == "error":
            error = line.object("error").text("message")
            self.outcome.error = error or self.outcome.warning or "it gave no reason"
        return ()

    KINDS: ClassVar[Mapping[str, Reading]] = {
        "init": init,
        "message": message,
        "tool_use": tool_use,
        "tool_result": tool_result,
        "error": error,
        "result": finished,
    }


def _tokens(stats: Loose) -> Tokens:
    cached = stats.count("cached")
    whole = stats.count("input_tokens") or 0
    return Tokens(
        max(whole - (cached or 0), 0),
        stats.count("output_tokens") or 0,
        cached,
        total=stats.count("total_tokens"),
    )

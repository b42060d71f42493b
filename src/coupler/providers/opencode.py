"""Runs OpenCode: `opencode run --format json`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from coupler.events import Notice, Text, Thought
from coupler.providers.command_line import (
    ALLOW_ALL,
    ALLOW_EDITS,
    READ_ONLY,
    CommandLineAgent,
    McpConfig,
    ProgramInvocation,
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
    plan_of,
)

CONFIG, PERMISSION = "OPENCODE_CONFIG_CONTENT", "OPENCODE_PERMISSION"
"""Variables for settings, which are merged into the user's; the user's files stay as they are."""

GOES_ON = "tool-calls"
"""The reason for which a step ends that another one follows."""

FINISH_REASONS = {"length": "max_tokens", "content-filter": "refusal"}


class OpenCode(CommandLineAgent):
    """OpenCode by its command line. What it would ask for is rejected, because nobody can be asked."""

    name = "opencode"
    flags = ("agent", "title", "variant")

    def invocation(self, request: TurnRequest) -> ProgramInvocation:
        words = ["run", "--format", "json", "--thinking"]
        if request.resume:
            words += ["--session", request.resume]
        if request.model:
            words += ["--model", request.model]
        if request.mode == ALLOW_ALL:
            words.append("--dangerously-skip-permissions")
        words += [*self._flags, *self._arguments]
        return ProgramInvocation(words, request.prompt.encode(), self._settings(request))

    def parser(self) -> StreamParser:
        return OpenCodeStream()

    def _settings(self, request: TurnRequest) -> dict[str, str | None]:
        rules = self._rules(request)
        ours: dict[str, Any] = {}
        if rules:
            # An agent's own rules are stronger than the general ones.
            ours = {"permission": rules, "agent": {self._agent: {"permission": rules}}}
        if request.mcp_servers:
            ours["mcp"] = {name: _server(server) for name, server in mcp_configs(request.mcp_servers).items()}
        if self._system_prompt:
            ours["instructions"] = [request.scratch.write("instructions.md", self._system_prompt)]
        env: dict[str, str | None] = {}
        if ours:
            env[CONFIG] = _merged(request.env, CONFIG, ours)
        if rules:
            env[PERMISSION] = _merged(request.env, PERMISSION, rules)
        return env

    @property
    def _agent(self) -> str:
        words = [word.partition("=")[2] for word in self._flags if word.startswith("--agent=")]
        return words[0] if words else "build"

    def _rules(self, request: TurnRequest) -> dict[str, str]:
        rules = dict.fromkeys(self._allowed_tools, "allow")
        if request.mode == ALLOW_EDITS:
            rules["edit"] = "allow"
        elif request.mode == READ_ONLY:
            rules |= {"edit": "deny", "bash": "deny"}
        # A server that the client wants to be used is allowed as a whole.
        for name in mcp_configs(request.mcp_servers):
            rules[f"{re.sub('[^a-zA-Z0-9_-]', '_', name)}_*"] = "allow"
        return rules


def _merged(env: Mapping[str, str], name: str, ours: dict[str, Any]) -> str:
    """Merge our settings over those that the variable has already."""
    try:
        theirs = msgspec.json.decode(env.get(name) or "{}")
    except msgspec.DecodeError as error:
        raise ProviderError(
            f"The environment variable {name} is not JSON: {error}. Correct or unset it."
        ) from None
    return msgspec.json.encode(_over(LooseObject(theirs).members, ours)).decode()


def _over(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    merged = dict(theirs)
    for key, value in ours.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            merged[key] = _over(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            merged[key] = [*known, *value]
        else:
            merged[key] = value
    return merged


def _server(server: McpConfig) -> McpConfig:
    if server["type"] == "stdio":
        command = [server["command"], *server["args"]]
        return {"type": "local", "command": command, "environment": server["env"], "enabled": True}
    return {"type": "remote", "url": server["url"], "headers": server["headers"], "enabled": True}


class OpenCodeStream(StreamParser):
    """Parses `--format json`; a tool call comes once, when it is over."""

    def step_started(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._find_session(line)
        self.outcome.is_final = False
        yield from ()

    def text(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._find_session(line)
        part = line.object("part")
        if text := part.text("text"):
            yield Text(text, part.text("id") or self.new_id("text"))

    def reasoning(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._find_session(line)
        part = line.object("part")
        if text := part.text("text"):
            yield Thought(text, part.text("id") or self.new_id("reasoning"))

    def tool_use(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._find_session(line)
        part, state = line.object("part"), line.object("part").object("state")
        name = part.text("tool", "name")
        arguments = state.raw("input") if state else part.raw("input")
        if name == "todowrite" and (todos := LooseObject(arguments).objects("todos")):
            yield plan_of(todos)
            return
        call_id = part.text("callID", "id") or self.new_id(name)
        yield from self.call(call_id, name, arguments)
        if state.text("status") not in ("pending", "running"):
            failed = state.text("status") == "error"
            yield from self.result(
                call_id, state.text("output", "error"), failed=failed, raw=state.raw("metadata")
            )

    def step_finished(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._find_session(line)
        part = line.object("part")
        if tokens := part.object("tokens"):
            self.outcome.tokens = _tokens(tokens).plus(self.outcome.tokens)
        cost = part.amount("cost")
        if cost is not None:
            self.outcome.cost = (self.outcome.cost or 0.0) + cost
        self.outcome.stop_reason = FINISH_REASONS.get(part.text("reason"))
        # It has no line for its end: a step after which no tool is used is the last, unless another starts.
        self.outcome.is_final = part.text("reason") not in ("", GOES_ON)
        yield from ()

    def error(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._find_session(line)
        error = line.object("error")
        message = error.object("data").text("message") or error.text("message", "name") or line.text("error")
        self.outcome.error = message or "it gave no reason"
        self.outcome.is_final = True
        yield Notice("error", self.outcome.error)

    def _find_session(self, line: LooseObject) -> None:
        found = line.text("sessionID") or line.object("part").text("sessionID")
        self.outcome.session_id = found or self.outcome.session_id

    KINDS: ClassVar[Mapping[str, LineHandler]] = {
        "step_start": step_started,
        "text": text,
        "reasoning": reasoning,
        "tool_use": tool_use,
        "step_finish": step_finished,
        "error": error,
    }


def _tokens(tokens: LooseObject) -> TokenCounts:
    cache = tokens.object("cache")
    return TokenCounts(
        tokens.count("input") or 0,
        tokens.count("output") or 0,
        cache.count("read"),
        cache.count("write"),
        tokens.count("reasoning"),
        tokens.count("total"),
    )

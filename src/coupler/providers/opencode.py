"""OpenCode: `opencode run --format json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from coupler.events import Notice, Text, Thought
from coupler.providers.command_line import (
    ALLOW_ALL,
    ALLOW_EDITS,
    READ_ONLY,
    CommandLineAgent,
    Described,
    Invocation,
    Order,
    named,
)
from coupler.providers.streams import Loose, ProviderError, Reading, Said, StreamParser, Tokens, plan_of

CONFIG, PERMISSION = "OPENCODE_CONFIG_CONTENT", "OPENCODE_PERMISSION"
"""Settings by the environment: they are merged into the user's, whose files stay as they are."""

FINISH_REASONS = {"length": "max_tokens", "content-filter": "refusal"}


class OpenCode(CommandLineAgent):
    """OpenCode by its command line. What it would ask for is rejected, for nobody is there to ask."""

    name = "opencode"
    flags: ClassVar[Mapping[str, str]] = {"agent": "--agent", "title": "--title", "variant": "--variant"}

    def invocation(self, order: Order) -> Invocation:
        words = ["run", "--format", "json", "--thinking"]
        if order.resume:
            words += ["--session", order.resume]
        if order.model:
            words += ["--model", order.model]
        if order.mode == ALLOW_ALL:
            words.append("--dangerously-skip-permissions")
        words += [*self._flags, *self._arguments]
        return Invocation(words, order.prompt.encode(), self._settings(order))

    def parser(self) -> StreamParser:
        return OpenCodeStream()

    def _settings(self, order: Order) -> dict[str, str | None]:
        rules = self._rules(order)
        ours: dict[str, Any] = {}
        if rules:
            # An agent's own rules are stronger than the general ones.
            ours = {"permission": rules, "agent": {self._agent: {"permission": rules}}}
        if order.mcp_servers:
            ours["mcp"] = {name: _server(server) for name, server in named(order.mcp_servers).items()}
        if self._system_prompt:
            ours["instructions"] = [order.scratch.write("instructions.md", self._system_prompt)]
        env: dict[str, str | None] = {}
        if ours:
            env[CONFIG] = _merged(order.env, CONFIG, ours)
        if rules:
            env[PERMISSION] = _merged(order.env, PERMISSION, rules)
        return env

    @property
    def _agent(self) -> str:
        words = [word.partition("=")[2] for word in self._flags if word.startswith("--agent=")]
        return words[0] if words else "build"

    def _rules(self, order: Order) -> dict[str, str]:
        rules = dict.fromkeys(self._allowed_tools, "allow")
        if order.mode == ALLOW_EDITS:
            rules["edit"] = "allow"
        elif order.mode == READ_ONLY:
            rules |= {"edit": "deny", "bash": "deny"}
        return rules


def _merged(env: Mapping[str, str], name: str, ours: dict[str, Any]) -> str:
    """Our settings over those that the variable has already."""
    try:
        theirs = msgspec.json.decode(env.get(name) or "{}")
    except msgspec.DecodeError as error:
        raise ProviderError(
            f"The environment variable {name} is not JSON: {error}. Correct or unset it."
        ) from None
    return msgspec.json.encode(_over(Loose(theirs).members, ours)).decode()


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


def _server(server: Described) -> Described:
    if server["type"] == "stdio":
        command = [server["command"], *server["args"]]
        return {"type": "local", "command": command, "environment": server["env"], "enabled": True}
    return {"type": "remote", "url": server["url"], "headers": server["headers"], "enabled": True}


class OpenCodeStream(StreamParser):
    """Reads `--format json`; a tool call comes once, when it is over."""

    def step_started(self, line: Loose) -> Iterator[Said]:
        self._find_session(line)
        yield from ()

    def text(self, line: Loose) -> Iterator[Said]:
        self._find_session(line)
        part = line.object("part")
        if text := part.text("text"):
            yield Text(text, part.text("id") or self.new_id("text"))

    def reasoning(self, line: Loose) -> Iterator[Said]:
        self._find_session(line)
        part = line.object("part")
        if text := part.text("text"):
            yield Thought(text, part.text("id") or self.new_id("reasoning"))

    def tool_use(self, line: Loose) -> Iterator[Said]:
        self._find_session(line)
        part, state = line.object("part"), line.object("part").object("state")
        name = part.text("tool", "name")
        arguments = state.raw("input") if state else part.raw("input")
        if name == "todowrite" and (todos := Loose(arguments).objects("todos")):
            yield plan_of(todos)
            return
        call_id = part.text("callID", "id") or self.new_id(name)
        yield from self.call(call_id, name, arguments)
        if state.text("status") not in ("pending", "running"):
            failed = state.text("status") == "error"
            yield from self.result(
                call_id, state.text("output", "error"), failed=failed, raw=state.raw("metadata")
            )

    def step_finished(self, line: Loose) -> Iterator[Said]:
        self._find_session(line)
        part = line.object("part")
        if tokens := part.object("tokens"):
            self.outcome.tokens = _tokens(tokens).plus(self.outcome.tokens)
        cost = part.amount("cost")
        if cost is not None:
            self.outcome.cost = (self.outcome.cost or 0.0) + cost
        self.outcome.stop_reason = FINISH_REASONS.get(part.text("reason"))
        yield from ()

    def error(self, line: Loose) -> Iterator[Said]:
        self._find_session(line)
        error = line.object("error")
        message = error.object("data").text("message") or error.text("message", "name") or line.text("error")
        self.outcome.error = message or "it gave no reason"
        yield Notice("error", self.outcome.error)

    def _find_session(self, line: Loose) -> None:
        found = line.text("sessionID") or line.object("part").text("sessionID")
        self.outcome.session_id = found or self.outcome.session_id

    KINDS: ClassVar[Mapping[str, Reading]] = {
        "step_start": step_started,
        "text": text,
        "reasoning": reasoning,
        "tool_use": tool_use,
        "step_finish": step_finished,
        "error": error,
    }


def _tokens(tokens: Loose) -> Tokens:
    cache = tokens.object("cache")
    return Tokens(
        tokens.count("input") or 0,
        tokens.count("output") or 0,
        cache.count("read"),
        cache.count("write"),
        tokens.count("reasoning"),
        tokens.count("total"),
    )

"""Runs Codex: `codex exec --json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from coupler.events import Notice, Text, Thought, ToolOutput, ToolUpdate
from coupler.providers.command_line import (
    ALLOW_ALL,
    ALLOW_EDITS,
    READ_ONLY,
    CommandLineAgent,
    ProgramInvocation,
    TurnRequest,
    mcp_configs,
)
from coupler.providers.streams import (
    LineHandler,
    LooseObject,
    ProviderError,
    StreamedText,
    StreamEvent,
    StreamParser,
    TokenCounts,
    parse_text,
    plan_of,
    text_item,
)
from coupler.schema.v1 import ToolCallLocation

SANDBOXES = {READ_ONLY: "read-only", ALLOW_EDITS: "workspace-write"}


class Codex(CommandLineAgent):
    """Codex by its command line. It never asks in this mode: its sandbox decides."""

    name = "codex"
    flags = ("ephemeral", "ignore_user_config", "skip_git_repo_check", "strict_config")
    has_allowed_tools = False
    has_output_schema = True
    counts_whole_session = True

    def invocation(self, request: TurnRequest) -> ProgramInvocation:
        words, env = ["exec"], dict[str, str | None]()
        if request.resume:
            words += ["resume", request.resume]
        words.append("--json")
        if request.model:
            words += ["--model", request.model]
        words += self._permissions(request)
        if self._system_prompt:
            words += _setting(
                "developer_instructions", self.as_argument(self._system_prompt, "The system prompt")
            )
        for name, server in mcp_configs(request.mcp_servers).items():
            words += _server(name, server, env, request.env)
        if self._output_schema is not None:
            words += ["--output-schema", request.scratch.write_json("schema.json", self._output_schema)]
        words += [*self._flags, *self._arguments]
        return ProgramInvocation([*words, "-"], request.prompt.encode(), env)

    def parser(self) -> StreamParser:
        return CodexStream()

    def _permissions(self, request: TurnRequest) -> list[str]:
        if request.mode == ALLOW_ALL:
            return ["--dangerously-bypass-approvals-and-sandbox"]
        # As settings, because `exec resume` does not know `--sandbox` and `--add-dir`.
        words = _setting("approval_policy", "never")
        if request.mode in SANDBOXES:
            words += _setting("sandbox_mode", SANDBOXES[request.mode])
        if request.mode == ALLOW_EDITS and request.directories:
            words += _setting("sandbox_workspace_write.writable_roots", list(request.directories))
        return words


def _setting(key: str, value: Any) -> list[str]:
    return ["-c", f"{key}={_toml(value)}"]


def _server(
    name: str, server: dict[str, Any], env: dict[str, str | None], given: Mapping[str, str]
) -> list[str]:
    """Return a server's settings.

    Secrets go by the environment, because command lines are visible to everyone.
    """
    prefix = f"mcp_servers.{_key(name)}"
    # A server that the client wants to be used is allowed as a whole; it would ask, and nobody can answer.
    allowed = _setting(f"{prefix}.default_tools_approval_mode", "approve")
    if server["type"] == "stdio":
        words = allowed + _setting(f"{prefix}.command", server["command"])
        words += _setting(f"{prefix}.args", server["args"])
        forwarded, shown = _divided(server["env"], env, given)
        words += _setting(f"{prefix}.env_vars", forwarded) if forwarded else []
        return words + (_setting(f"{prefix}.env", shown) if shown else [])
    if server["type"] != "http":
        raise ProviderError(
            f"Codex cannot use the MCP server {name!r}: it knows no servers of the kind {server['type']}."
        )
    headers = {
        header: f"COUPLER_MCP_HEADER_{len(env) + number}" for number, header in enumerate(server["headers"])
    }
    env.update({variable: server["headers"][header] for header, variable in headers.items()})
    words = allowed + _setting(f"{prefix}.url", server["url"])
    return words + (_setting(f"{prefix}.env_http_headers", headers) if headers else [])


def _divided(
    variables: Mapping[str, str], env: dict[str, str | None], given: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Split the variables: those that the program can forward from its environment, and the others."""
    shown = {
        name: value for name, value in variables.items() if env.get(name, given.get(name, value)) != value
    }
    forwarded = [name for name in variables if name not in shown]
    env.update({name: variables[name] for name in forwarded})
    return forwarded, shown


def _key(name: str) -> str:
    """Quote the name as a part of a dotted key: the program splits at dots and knows no quotes."""
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name
    )


def _toml(value: Any) -> str:
    """Format a value as TOML.

    Its strings are those of JSON, but for the characters that JSON leaves as they are.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return msgspec.json.encode(str(value)).decode().replace("\x7f", "\\u007f")


class CodexStream(StreamParser):
    """Parses `--json`, with the earlier `item_type` and the current `type`."""

    def __init__(self) -> None:
        super().__init__()
        self._texts = StreamedText()

    @staticmethod
    def kind_of(line: LooseObject) -> str:
        kind = line.text("type")
        return f"{kind}/{_item_kind(line.object('item'))}" if kind.startswith("item.") else kind

    def started(self, line: LooseObject) -> Iterable[StreamEvent]:
        self.outcome.session_id = line.text("thread_id") or self.outcome.session_id
        return ()

    def completed(self, line: LooseObject) -> Iterable[StreamEvent]:
        self.outcome.is_final = True
        if usage := line.object("usage"):
            self.outcome.tokens = _tokens(usage)
        return ()

    def failed(self, line: LooseObject) -> Iterable[StreamEvent]:
        self.outcome.is_final = True
        error = line.object("error").text("message") or line.text("message")
        self.outcome.error = error or self.outcome.warning or "it gave no reason"
        return ()

    def warned(self, line: LooseObject) -> Iterator[StreamEvent]:
        message = line.text("message") or line.object("item").text("message")
        self.outcome.warning = message or self.outcome.warning
        yield Notice("warning", message or "Something went wrong")

    def message(self, line: LooseObject) -> Iterator[StreamEvent]:
        item = line.object("item")
        item_id = self._item_id(line, "message")
        if text := self._texts.so_far(item_id, item.text("text")):
            yield Text(text, item_id)

    def reasoning(self, line: LooseObject) -> Iterator[StreamEvent]:
        item = line.object("item")
        item_id = self._item_id(line, "reasoning")
        if text := self._texts.so_far(item_id, item.text("text")):
            yield Thought(text, item_id)

    def todo_list(self, line: LooseObject) -> Iterator[StreamEvent]:
        yield plan_of(line.object("item").objects("items"))

    def tool(self, line: LooseObject) -> Iterator[StreamEvent]:
        item = line.object("item")
        kind = _item_kind(item)
        item_id = self._item_id(line, kind)
        name, arguments = _tool_call(kind, item)
        if item_id not in self._calls:
            yield from self.call(item_id, name, arguments)
        if grown := self._texts.so_far(item_id, item.text("aggregated_output")):
            yield ToolOutput(item_id, text_item(grown))
        if line.text("type") == "item.completed":
            raw = _raw_result(item)
            failed = item.text("status") in ("failed", "declined") or (item.count("exit_code") or 0) != 0
            yield from self.result(item_id, _result_text(item), failed=failed, raw=raw)

    def file_change(self, line: LooseObject) -> Iterator[StreamEvent]:
        item = line.object("item")
        item_id = self._item_id(line, "file_change")
        changes = item.objects("changes")
        paths = [path for change in changes if (path := change.text("path"))]
        if item_id not in self._calls:
            self._calls[item_id] = False
            yield ToolUpdate(
                id=item_id,
                title=f"Change {', '.join(paths) or 'files'}"[:120],
                kind="edit",
                status="in_progress",
                name="file_change",
                locations=tuple(ToolCallLocation(path) for path in paths) or UNSET,
                raw_input=[change.members for change in changes],
            )
        if line.text("type") == "item.completed":
            shown = "\n".join(
                f"{change.text('kind') or 'update'} {change.text('path')}" for change in changes
            )
            yield from self.result(item_id, shown, failed=item.text("status") == "failed")

    def _item_id(self, line: LooseObject, kind: str) -> str:
        stage = line.text("type")
        begins, ends = stage == "item.started", stage == "item.completed"
        return line.object("item").text("id") or self.item_id(kind, begins=begins, ends=ends)

    _ITEMS: ClassVar[Mapping[str, LineHandler]] = {
        "agent_message": message,
        "assistant_message": message,
        "reasoning": reasoning,
        "command_execution": tool,
        "function_call": tool,
        "mcp_tool_call": tool,
        "collab_tool_call": tool,
        "web_search": tool,
        "file_change": file_change,
        "todo_list": todo_list,
        "error": warned,
    }
    IGNORED = frozenset({"turn.started"})
    KINDS: ClassVar[Mapping[str, LineHandler]] = {
        "thread.started": started,
        "turn.completed": completed,
        "turn.failed": failed,
        "error": warned,
        **{
            f"item.{stage}/{kind}": reading
            for kind, reading in _ITEMS.items()
            for stage in ("started", "updated", "completed")
        },
    }


def _item_kind(item: LooseObject) -> str:
    return item.text("item_type", "type")


def _tool_call(kind: str, item: LooseObject) -> tuple[str, Any]:
    """Return the tool's name and arguments, in each of the formats."""
    match kind:
        case "command_execution" if "command" in item:
            return "shell", {"command": item.raw("command")}
        case "mcp_tool_call":
            return item.text("tool") or "mcp", item.raw("arguments")
        case "collab_tool_call":
            return item.text("tool") or kind, {"prompt": item.text("prompt")}
        case "web_search":
            return kind, {"query": item.text("query")}
        case _:
            return item.text("name") or "shell", parse_text(item.text("arguments")) or None


def _result_text(item: LooseObject) -> str:
    if message := item.object("error").text("message"):
        return message
    blocks = item.object("result").objects("content")
    return "\n".join(block.text("text") for block in blocks if block.text("text"))


def _raw_result(item: LooseObject) -> Any:
    if "exit_code" in item:
        return {"exitCode": item.raw("exit_code")}
    return item.raw("result")


def _tokens(usage: LooseObject) -> TokenCounts:
    read, written = usage.count("cached_input_tokens"), usage.count("cache_write_input_tokens")
    thought = usage.count("reasoning_output_tokens")
    whole_input, whole_output = usage.count("input_tokens") or 0, usage.count("output_tokens") or 0
    return TokenCounts(
        max(whole_input - (read or 0) - (written or 0), 0),
        max(whole_output - (thought or 0), 0),
        read,
        written,
        thought,
        usage.count("total_tokens"),
    )

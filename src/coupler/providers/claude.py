"""Runs Claude Code: `claude -p` with its stream of JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from coupler.events import Notice, Text, Thought, ToolOutput, Usage
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
    RecentKeys,
    StreamedText,
    StreamEvent,
    StreamParser,
    TokenCounts,
    plan_of,
    text_item,
)

CHANGING_TOOLS = (
    "Bash,PowerShell,Edit,MultiEdit,Write,NotebookEdit,EnterWorktree,ExitWorktree,CronCreate,CronDelete,"
    "ScheduleWakeup,Workflow"
)
"""Its tools that change or run something, of all versions."""

UNSHOWN_KINDS = (
    "system/hook_started system/hook_response system/status system/task_started system/task_progress "
    "system/task_updated system/task_notification stream_event/content_block_stop "
    "stream_event/message_delta stream_event/message_stop "
)


class Claude(CommandLineAgent):
    """Claude Code by its command line."""

    name = "claude"
    models = ("opus", "sonnet", "haiku")
    flags = (
        "agent",
        "effort",
        "fallback_model",
        "max_budget_usd",
        "max_turns",
        "settings",
        "setting_sources",
    )
    has_output_schema = True

    def invocation(self, request: TurnRequest) -> ProgramInvocation:
        words = ["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"]
        words += self._permissions(request)
        if request.model:
            words += ["--model", request.model]
        if self._system_prompt:
            words += ["--append-system-prompt", self.as_argument(self._system_prompt, "The system prompt")]
        if request.resume:
            words.append(f"--resume={request.resume}")
        if request.mcp_servers:
            file = request.scratch.write_json("mcp.json", {"mcpServers": mcp_configs(request.mcp_servers)})
            words += ["--mcp-config", file]
        for directory in request.directories:
            words += ["--add-dir", directory]
        if self._output_schema is not None:
            schema = msgspec.json.encode(self._output_schema).decode()
            words += ["--json-schema", self.as_argument(schema, "The output schema")]
        # It refuses to run inside of itself, and a shell that it opened may well be where we run.
        return ProgramInvocation(
            [*words, *self._flags, *self._arguments], request.prompt.encode(), {"CLAUDECODE": None}
        )

    def parser(self) -> StreamParser:
        return ClaudeStream()

    def _permissions(self, request: TurnRequest) -> list[str]:
        if request.mode == ALLOW_ALL:
            return ["--dangerously-skip-permissions"]
        # A server that the client wants to be used is allowed as a whole.
        servers = [f"mcp__{re.sub('[^a-zA-Z0-9_-]', '_', name)}" for name in mcp_configs(request.mcp_servers)]
        words = ["--permission-mode", "acceptEdits" if request.mode == ALLOW_EDITS else "default"]
        if allowed := [*self._allowed_tools, *servers]:
            words += ["--allowedTools", ",".join(allowed)]
        if request.mode == READ_ONLY:
            words += ["--disallowedTools", CHANGING_TOOLS]
        return words


class ClaudeStream(StreamParser):
    """Parses `--output-format stream-json`, with and without partial messages."""

    def __init__(self) -> None:
        super().__init__()
        self._texts, self._thoughts = StreamedText(), StreamedText()
        self._message_ids: RecentKeys[str] = RecentKeys()
        self._plans: RecentKeys[None] = RecentKeys()
        self._has_text = False
        self._used = 0

    @staticmethod
    def kind_of(line: LooseObject) -> str:
        kind = line.text("type")
        if kind == "system":
            return f"system/{line.text('subtype')}"
        return f"stream_event/{line.object('event').text('type')}" if kind == "stream_event" else kind

    def init(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._find_session(line)
        for server in line.objects("mcp_servers"):
            if server.text("status") == "failed":
                yield Notice("warning", f"The MCP server {server.text('name')} could not be used")

    def compacted(self, line: LooseObject) -> Iterator[StreamEvent]:
        yield Notice("info", "The earlier conversation was summarized")

    def rate_limited(self, line: LooseObject) -> Iterator[StreamEvent]:
        limit = line.object("rate_limit_info")
        if limit.text("status") not in ("", "allowed"):
            yield Notice("warning", f"The rate limit is near or reached: {limit.text('status')}")

    def tried_again(self, line: LooseObject) -> Iterator[StreamEvent]:
        reason = line.text("error") or f"status {line.count('error_status')}"
        self.outcome.warning = f"the model's server failed: {reason}"
        tries = f"try {line.count('attempt') or 1} of {line.count('max_retries') or 1}"
        yield Notice("warning", f"The model's server failed, {tries}", reason)

    def message_started(self, line: LooseObject) -> Iterable[StreamEvent]:
        self._message_ids[_parent(line)] = line.object("event").object("message").text("id")
        return ()

    def block_started(self, line: LooseObject) -> Iterator[StreamEvent]:
        block = line.object("event").object("content_block")
        if block.text("type") in ("tool_use", "server_tool_use"):
            yield from self._used_tool(block, _parent(line), is_whole=False)

    def block_grew(self, line: LooseObject) -> Iterator[StreamEvent]:
        delta, parent = line.object("event").object("delta"), _parent(line)
        match delta.text("type"):
            case "text_delta":
                key = f"{parent}/{self._message_ids.get(parent, '')}"
                yield from self._text(self._texts.piece(key, delta.text("text")), parent, key)
            case "thinking_delta":
                key = f"{parent}/{self._message_ids.get(parent, '')}"
                yield Thought(self._thoughts.piece(key, delta.text("thinking")), key)

    def assistant(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._find_session(line)
        message, parent = line.object("message"), _parent(line)
        message_id = message.text("id") or self._message_ids.get(parent) or self.new_id("message")
        key = f"{parent}/{message_id}"
        blocks = message.objects("content") or [
            LooseObject({"type": "text", "text": message.text("content")})
        ]
        for block in blocks:
            match block.text("type"):
                case "text":
                    yield from self._text(self._texts.whole(key, block.text("text")), parent, key)
                case "thinking":
                    if thought := self._thoughts.whole(key, block.text("thinking")):
                        yield Thought(thought, key)
                case "tool_use" | "server_tool_use":
                    yield from self._used_tool(block, parent)
                case kind if kind.endswith("tool_result"):
                    yield from self._tool_answered(block)
        if not parent and (usage := message.object("usage")):
            self._used = _tokens(usage).sum

    def user(self, line: LooseObject) -> Iterator[StreamEvent]:
        for block in line.object("message").objects("content"):
            if block.text("type").endswith("tool_result"):
                yield from self._tool_answered(block)

    def finished(self, line: LooseObject) -> Iterator[StreamEvent]:
        self._find_session(line)
        outcome = self.outcome
        outcome.is_final = True
        if usage := line.object("usage"):
            outcome.tokens = _tokens(usage)
        outcome.cost = line.amount("total_cost_usd", "cost_usd")
        if "structured_output" in line:
            outcome.structured = line.raw("structured_output")
        yield from self._refused(line)
        yield from self._context(line)
        self._judge(line)
        if not self._has_text and outcome.error is None and line.text("result"):
            yield Text(line.text("result"), "result")

    def _judge(self, line: LooseObject) -> None:
        subtype, text = line.text("subtype"), line.text("result")
        if subtype == "error_max_turns":
            self.outcome.stop_reason = "max_turn_requests"
        elif line.is_true("is_error") or subtype.startswith("error"):
            self.outcome.error = text or "; ".join(line.texts("errors")) or subtype or "it gave no reason"
        elif line.text("stop_reason") in ("max_tokens", "refusal"):
            self.outcome.stop_reason = line.text("stop_reason")

    def _refused(self, line: LooseObject) -> Iterator[StreamEvent]:
        tools = dict.fromkeys(denial.text("tool_name") for denial in line.objects("permission_denials"))
        if tools:
            hint = "Choose another mode, or name what is allowed in `allowed_tools`."
            yield Notice("warning", f"Denied: {', '.join(tools)}", hint)

    def _context(self, line: LooseObject) -> Iterator[StreamEvent]:
        models = line.object("modelUsage").members.values()
        size = max((LooseObject(model).count("contextWindow") or 0 for model in models), default=0)
        if self._used and size:
            yield Usage(self._used, size)

    def _find_session(self, line: LooseObject) -> None:
        self.outcome.session_id = line.text("session_id") or self.outcome.session_id

    def _text(self, text: str, parent: str, key: str) -> Iterator[StreamEvent]:
        if not text:
            return
        if parent:  # what a sub-agent says is what its tool call shows
            yield ToolOutput(parent, text_item(text))
        else:
            self._has_text = True
            yield Text(text, key)

    def _used_tool(self, block: LooseObject, parent: str, *, is_whole: bool = True) -> Iterator[StreamEvent]:
        name, arguments = block.text("name"), block.raw("input")
        # Announced when its block starts, and once more as a part of its message.
        call_id = block.text("id") or self.item_id(name, begins=not is_whole, ends=is_whole)
        if name == "TodoWrite":
            self._plans[call_id] = None
            self._calls.setdefault(call_id, False)
            if todos := LooseObject(arguments).objects("todos"):
                yield plan_of(todos)
            return
        meta = {"meta": {"coupler": {"parent": parent}}} if parent else {}
        yield from self.call(call_id, name, arguments or None, **meta)

    def _tool_answered(self, block: LooseObject) -> Iterator[StreamEvent]:
        call_id = self.answering(block.text("tool_use_id"))
        if call_id in self._plans:
            self._calls[call_id] = True
            return
        content = block.raw("content")
        yield from self.result(call_id, _shown(content), failed=block.is_true("is_error"), raw=content)

    IGNORED = frozenset(UNSHOWN_KINDS.split())
    KINDS: ClassVar[Mapping[str, LineHandler]] = {
        "system/init": init,
        "system/compact_boundary": compacted,
        "system/api_retry": tried_again,
        "stream_event/message_start": message_started,
        "stream_event/content_block_start": block_started,
        "stream_event/content_block_delta": block_grew,
        "assistant": assistant,
        "user": user,
        "rate_limit_event": rate_limited,
        "result": finished,
    }


def _parent(line: LooseObject) -> str:
    """Return the tool call of the sub-agent that says this; empty for the agent itself."""
    return line.text("parent_tool_use_id")


def _tokens(usage: LooseObject) -> TokenCounts:
    return TokenCounts(
        usage.count("input_tokens") or 0,
        usage.count("output_tokens") or 0,
        usage.count("cache_read_input_tokens"),
        usage.count("cache_creation_input_tokens"),
    )


def _shown(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = [LooseObject(item) for item in content] if isinstance(content, list) else []
    return "\n".join(
        block.text("text") or f"[{block.text('type') or 'something'}]" for block in blocks if block
    )

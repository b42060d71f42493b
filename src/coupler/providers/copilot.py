"""Runs GitHub Copilot: `copilot -p --output-format=json`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from coupler.events import Notice, Text, Thought, ToolOutput, Usage
from coupler.providers.command_line import (
    ALLOW_ALL,
    ALLOW_EDITS,
    LONGEST_ARGUMENT,
    READ_ONLY,
    CommandLineAgent,
    ProgramInvocation,
    TurnRequest,
    mcp_configs,
)
from coupler.providers.streams import (
    LineHandler,
    LooseObject,
    StreamedText,
    StreamEvent,
    StreamParser,
    TokenCounts,
    text_item,
)

PERMISSIONS: Mapping[str, tuple[str, ...]] = {
    READ_ONLY: ("--deny-tool=write", "--deny-tool=shell"),
    ALLOW_EDITS: ("--allow-tool=write",),
    ALLOW_ALL: ("--allow-all",),
}
FINISH_REASONS = {"length": "max_tokens", "content_filter": "refusal"}

UNSHOWN_KINDS = (
    "session.idle session.shutdown session.mcp_server_status_changed session.mcp_servers_loaded "
    "session.tools_updated session.skills_loaded session.background_tasks_changed "
    "session.mcp_server_tools_loaded user.message assistant.turn_start assistant.turn_end "
    "assistant.streaming_delta assistant.message_start assistant.tool_call_delta assistant.idle "
    "model.call_start model.call_failure model.call_finished model.call_final_result "
)


class Copilot(CommandLineAgent):
    """GitHub Copilot by its command line. What it would ask for is denied, because nobody can be asked."""

    name = "copilot"
    flags = ("agent", "autopilot", "effort", "max_ai_credits", "max_autopilot_continues", "mode")

    def invocation(self, request: TurnRequest) -> ProgramInvocation:
        words = ["--output-format=json", "--silent", "--no-ask-user"]
        if request.resume:
            words.insert(0, f"--resume={request.resume}")
        if request.model:
            words.append(f"--model={request.model}")
        words += PERMISSIONS.get(request.mode, ())
        words += [f"--allow-tool={tool}" for tool in self._allowed_tools]
        words += [word for directory in request.directories for word in ("--add-dir", directory)]
        if request.mcp_servers:
            servers = mcp_configs(request.mcp_servers)
            described = {name: {**server, "tools": ["*"]} for name, server in servers.items()}
            file = request.scratch.write_json("mcp.json", {"mcpServers": described})
            words += [f"--additional-mcp-config=@{file}", *(f"--allow-tool={name}" for name in servers)]
        words += [*self._flags, *self._arguments]
        # One variable allows everything, whatever the command line says.
        env = {} if request.mode == ALLOW_ALL else {"COPILOT_ALLOW_ALL": None}
        prompt = self.briefed_prompt(request)
        # On Windows it is a script for a shell, which would read what a prompt says as its own language.
        if len(prompt.encode()) > LONGEST_ARGUMENT or sys.platform == "win32":
            return ProgramInvocation(words, prompt.encode(), env)
        return ProgramInvocation([f"--prompt={prompt}", *words], b"", env)

    def parser(self) -> StreamParser:
        return CopilotStream()


class CopilotStream(StreamParser):
    """Parses `--output-format=json`, the events of its sessions."""

    def __init__(self) -> None:
        super().__init__()
        self._texts, self._thoughts = StreamedText(), StreamedText()
        self._counted: TokenCounts | None = None
        self._written = 0
        self._has_text = False
        self._has_thought = False
        self._summary = ""

    def session(self, line: LooseObject) -> Iterable[StreamEvent]:
        data = line.object("data")
        self.outcome.session_id = data.text("sessionId") or line.text("sessionId") or self.outcome.session_id
        return ()

    def message_piece(self, line: LooseObject) -> Iterator[StreamEvent]:
        data = line.object("data")
        yield from self._text(line, self._texts.piece(data.text("messageId"), data.text("deltaContent")))

    def message(self, line: LooseObject) -> Iterator[StreamEvent]:
        data = line.object("data")
        if not self._has_thought and data.text("reasoningText"):
            yield Thought(data.text("reasoningText"), data.text("messageId"))
        self._has_thought = False
        self._written += data.count("outputTokens") or 0
        yield from self._text(line, self._texts.final(data.text("messageId"), data.text("content")))

    def thought_piece(self, line: LooseObject) -> Iterator[StreamEvent]:
        data, self._has_thought = line.object("data"), True
        key = data.text("reasoningId")
        yield Thought(self._thoughts.piece(key, data.text("deltaContent")), key)

    def thought(self, line: LooseObject) -> Iterator[StreamEvent]:
        data, self._has_thought = line.object("data"), True
        key = data.text("reasoningId")
        if text := self._thoughts.whole(key, data.text("content")):
            yield Thought(text, key)

    def intent(self, line: LooseObject) -> Iterator[StreamEvent]:
        if text := line.object("data").text("intent"):
            yield Thought(text, f"intent/{text}")

    def usage(self, line: LooseObject) -> Iterable[StreamEvent]:
        data = line.object("data")
        self._counted = _tokens(data).plus(self._counted)
        if not _parent(line):
            self.outcome.stop_reason = FINISH_REASONS.get(data.text("finishReason"))
        return ()

    def context(self, line: LooseObject) -> Iterator[StreamEvent]:
        used, size = line.object("data").count("currentTokens"), line.object("data").count("tokenLimit")
        if used is not None and size is not None:
            yield Usage(used, size)

    def tool_started(self, line: LooseObject) -> Iterator[StreamEvent]:
        data, parent = line.object("data"), _parent(line)
        name = data.text("mcpToolName", "toolName")
        meta = {"meta": {"coupler": {"parent": parent}}} if parent else {}
        yield from self.call(
            data.text("toolCallId") or self.new_id(name), name, data.raw("arguments"), **meta
        )

    def tool_output(self, line: LooseObject) -> Iterator[StreamEvent]:
        data = line.object("data")
        if text := data.text("partialOutput"):
            call_id = self.answering(data.text("toolCallId"))
            yield ToolOutput(call_id, text_item(self._texts.piece(call_id, text)))

    def tool_progress(self, line: LooseObject) -> Iterator[StreamEvent]:
        data = line.object("data")
        if text := data.text("progressMessage"):
            yield ToolOutput(self.answering(data.text("toolCallId")), text_item(f"{text}\n"))

    def tool_finished(self, line: LooseObject) -> Iterator[StreamEvent]:
        data = line.object("data")
        call_id, result = self.answering(data.text("toolCallId")), data.object("result")
        shown = result.text("content", "detailedContent") or data.object("error").text("message")
        failed = data.raw("success") is False
        yield from self.result(
            call_id, self._texts.final(call_id, shown), failed=failed, raw=result.members or None
        )

    def noticed(self, line: LooseObject) -> Iterator[StreamEvent]:
        if message := line.object("data").text("message"):
            severity = "warning" if line.text("type") == "session.warning" else "info"
            yield Notice(severity, message)

    def failed(self, line: LooseObject) -> Iterator[StreamEvent]:
        self.outcome.warning = line.object("data").text("message") or self.outcome.warning
        yield Notice("error", self.outcome.warning or "Something went wrong")

    def task_complete(self, line: LooseObject) -> Iterable[StreamEvent]:
        self._summary = line.object("data").text("summary")
        return ()

    def finished(self, line: LooseObject) -> Iterable[StreamEvent]:
        self.session(line)
        self.outcome.is_final = True
        self.outcome.tokens = self._counted or (TokenCounts(output=self._written) if self._written else None)
        if (line.count("exitCode") or 0) != 0:
            reason = self.outcome.warning or f"it reports exit code {line.count('exitCode')}"
            self.outcome.error = reason
        return ()

    def end(self) -> list[StreamEvent]:
        """Return its summary, if it said nothing else."""
        return [] if self._has_text or not self._summary else [Text(self._summary, "summary")]

    def _text(self, line: LooseObject, text: str) -> Iterator[StreamEvent]:
        parent = _parent(line)
        if not text:
            return
        if parent:  # what a sub-agent says is what its tool call shows, where that is known
            known = line.object("data").text("parentToolCallId")
            yield ToolOutput(known, text_item(text)) if known else Thought(text, parent)
        else:
            self._has_text = True
            yield Text(text, line.object("data").text("messageId"))

    IGNORED = frozenset(UNSHOWN_KINDS.split())
    KINDS: ClassVar[Mapping[str, LineHandler]] = {
        "session.start": session,
        "session.resume": session,
        "session.usage_info": context,
        "session.warning": noticed,
        "session.info": noticed,
        "session.error": failed,
        "session.task_complete": task_complete,
        "assistant.intent": intent,
        "assistant.reasoning": thought,
        "assistant.reasoning_delta": thought_piece,
        "assistant.message": message,
        "assistant.message_delta": message_piece,
        "assistant.usage": usage,
        "tool.execution_start": tool_started,
        "tool.execution_partial_result": tool_output,
        "tool.execution_progress": tool_progress,
        "tool.execution_complete": tool_finished,
        "result": finished,
    }


def _parent(line: LooseObject) -> str:
    """Return the sub-agent, or its tool call, that says this; empty for the agent itself."""
    return line.object("data").text("parentToolCallId") or line.text("agentId")


def _tokens(data: LooseObject) -> TokenCounts:
    read, written, thought = (
        data.count("cacheReadTokens"),
        data.count("cacheWriteTokens"),
        data.count("reasoningTokens"),
    )
    whole_input, whole_output = data.count("inputTokens") or 0, data.count("outputTokens") or 0
    return TokenCounts(
        max(whole_input - (read or 0) - (written or 0), 0),
        max(whole_output - (thought or 0), 0),
        read,
        written,
        thought,
    )

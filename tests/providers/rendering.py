"""What parsers say, in one line an event, for comparison with what was written down."""

from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET

from coupler.events import Notice, Plan, Text, Thought, ToolOutput, ToolUpdate, Usage
from coupler.providers.claude import ClaudeStream
from coupler.providers.codex import CodexStream
from coupler.providers.copilot import CopilotStream
from coupler.providers.gemini import GeminiStream
from coupler.providers.openai import OpenAIStream
from coupler.providers.opencode import OpenCodeStream
from coupler.providers.streams import StreamParser
from coupler.schema.v1 import Content, Diff, TextContent

PARSERS: dict[str, type[StreamParser]] = {
    "claude": ClaudeStream,
    "codex": CodexStream,
    "gemini": GeminiStream,
    "copilot": CopilotStream,
    "opencode": OpenCodeStream,
    "openai": OpenAIStream,
}


def rendered(event: Any) -> str:
    match event:
        case Text(text, message_id):
            return f"text {message_id} {_quoted(text)}"
        case Thought(text, message_id):
            return f"thought {message_id} {_quoted(text)}"
        case Notice(severity, title, description):
            return f"notice {severity} {_quoted(title)}{' ' + _quoted(description) if description else ''}"
        case Plan(entries):
            return "plan " + ", ".join(
                f"{each.status}/{each.priority} {_quoted(each.content)}" for each in entries
            )
        case Usage(used, size):
            return f"usage {used} of {size}"
        case ToolUpdate(id=id):
            told = {name: getattr(event, name) for name in event.__struct_fields__ if name != "id"}
            told["locations"] = UNSET if event.locations is UNSET else [each.path for each in event.locations]
            words = [f"{name}={_quoted(value)}" for name, value in told.items() if value is not UNSET]
            return f"call {id} {' '.join(words)}"
        case ToolOutput(id, Content(TextContent(text))):
            return f"output {id} {_quoted(text)}"
        case ToolOutput(id, Diff(path, new, old)):
            return f"diff {id} {path} {_quoted(None if old is UNSET else old)} {_quoted(new)}"
    raise TypeError(f"no rendering of {event!r}")


def rendered_outcome(parser: StreamParser) -> list[str]:
    outcome = parser.outcome
    facts = {
        "session": outcome.session_id,
        "tokens": outcome.tokens
        and {name: getattr(outcome.tokens, name) for name in outcome.tokens.__struct_fields__},
        "cost": outcome.cost,
        "stop": outcome.stop_reason,
        "error": outcome.error,
        "final": outcome.is_final or None,
    }
    if isinstance(parser, OpenAIStream):
        facts["wanted"] = [list(call) for call in parser.wanted] or None
    return [f"= {name} {_quoted(value)}" for name, value in facts.items() if value is not None]


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

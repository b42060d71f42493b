"""Recorded streams of every provider: each line is known, and each event reaches an ACP client."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, to_builtins

from coupler.events import Notice, Plan, Text, Thought, ToolOutput, ToolUpdate, Usage
from coupler.providers.streams import LooseObject, parse_object
from coupler.schema.v1 import Diff
from providers.rendering import PARSERS, rendered, rendered_outcome
from providers.stub import STREAMS, Stub, lines_of
from raw_client import serve
from tables import table

NAMES = sorted(path.stem for path in STREAMS.glob("*.ndjson"))
OF_PROGRAMS = [name for name in NAMES if not name.startswith("openai") and not name.endswith("failed")]
AGENTS = {
    "claude": "Claude",
    "codex": "Codex",
    "gemini": "Gemini",
    "copilot": "Copilot",
    "opencode": "OpenCode",
}


def test_a_line_of_very_many_values_is_not_read() -> None:
    assert parse_object(b'{"a":[' + b"1," * 200_000 + b"1]}") is not None
    assert parse_object(b'{"a":[' + b"1," * 300_000 + b"1]}") is None


def provider_of(name: str) -> str:
    return name.partition("-")[0]


@table("name", NAMES)
def test_a_recorded_stream_says_what_was_written_down(name: str) -> None:
    parser = PARSERS[provider_of(name)]()

    said = [
        event
        for line in (STREAMS / f"{name}.ndjson").read_bytes().splitlines()
        for event in parser.read(line)
    ]
    said += parser.end()

    lines = [*map(rendered, said), *rendered_outcome(parser)]
    assert lines == (STREAMS / f"{name}.events").read_text().splitlines()
    assert (parser.unknown, parser.garbage) == (0, 0)


WITHOUT_IDS: dict[str, list[dict[str, Any]]] = {
    "claude": [
        {"type": "assistant", "message": {"id": "m", "content": [
            {"type": "tool_use", "name": "TodoWrite", "input": {"todos": [{"content": "x"}]}},
            {"type": "tool_use", "name": "Read", "input": {"file_path": "/a"}},
            {"type": "tool_use", "name": "Read", "input": {"file_path": "/b"}},
        ]}},
        {"type": "user", "message": {"content": [
            {"type": "tool_result", "content": "noted"},
            {"type": "tool_result", "content": "one"}, {"type": "tool_result", "content": "two"},
        ]}},
    ],
    "claude in pieces": [
        {"type": "stream_event", "event": {"type": "content_block_start", "content_block": {
            "type": "tool_use", "name": "Read", "input": {}}}},
        {"type": "stream_event", "event": {"type": "content_block_start", "content_block": {
            "type": "tool_use", "name": "Read", "input": {}}}},
        {"type": "assistant", "message": {"id": "m", "content": [
            {"type": "tool_use", "name": "Read", "input": {"file_path": "/a"}},
            {"type": "tool_use", "name": "Read", "input": {"file_path": "/b"}},
        ]}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": "one"}]}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": "two"}]}},
    ],
    "gemini": [
        {"type": "tool_use", "tool_name": "Read", "parameters": {"file_path": "/a"}},
        {"type": "tool_use", "tool_name": "Read", "parameters": {"file_path": "/b"}},
        {"type": "tool_result", "status": "success", "output": "one"},
        {"type": "tool_result", "status": "success", "output": "two"},
    ],
    "copilot": [
        {"type": "tool.execution_start", "data": {"toolName": "Read", "arguments": {"path": "/a"}}},
        {"type": "tool.execution_start", "data": {"toolName": "Read", "arguments": {"path": "/b"}}},
        {"type": "tool.execution_partial_result", "data": {"partialOutput": "o"}},
        {"type": "tool.execution_complete", "data": {"success": True, "result": {"content": "one"}}},
        {"type": "tool.execution_complete", "data": {"success": True, "result": {"content": "two"}}},
    ],
    "codex": [
        {"type": f"item.{stage}", "item": {
            "type": "mcp_tool_call", "tool": "Read", "arguments": {"path": path},
            **({"result": {"content": [{"text": text}]}} if stage == "completed" else {}),
        }}
        for stage in ("started", "updated", "completed")
        for path, text in (("/a", "one"), ("/b", "two"))
    ],
}  # fmt: skip


@table("form", WITHOUT_IDS)
def test_calls_and_results_without_ids_belong_together_in_their_order(form: str) -> None:
    parser = PARSERS[form.partition(" ")[0]]()
    said = [event for line in WITHOUT_IDS[form] for event in parser.read(json.dumps(line).encode())]

    calls = told(said, Path("/"))["calls"]
    assert [(call["title"], call["output"], call["status"]) for call in calls.values()] == [
        ("Read: /a", "one", "completed"),
        ("Read: /b", "two", "completed"),
    ]


def test_messages_of_codex_without_ids_are_said_once() -> None:
    parser = PARSERS["codex"]()
    texts = [("started", "He"), ("updated", "Hello"), ("completed", "Hello."), ("completed", "Bye.")]
    lines = [
        {"type": f"item.{stage}", "item": {"type": "agent_message", "text": text}} for stage, text in texts
    ]
    said = [event for line in lines for event in parser.read(json.dumps(line).encode())]
    assert told(said, Path("/"))["text"] == "Hello.Bye."
    assert len({event.message_id for event in said if isinstance(event, Text)}) == 2


@table(
    ("pieces", "whole", "shown"),
    [
        (["Hel", "lo."], "Hello.", "Hello."),
        (["Hello "], "Hello there.", "Hello there."),
        (["the fake", " model"], "the **** model", "the fake model"),
        (["Hello"], "Hello", "Hello"),
        ([], "Hello.", "Hello."),
        (["Hi"], "A whole answer.", "HiA whole answer."),
    ],
)
def test_copilots_answer_is_said_once(pieces: list[str], whole: str, shown: str) -> None:
    parser = PARSERS["copilot"]()
    lines = [
        {"type": "assistant.message_delta", "data": {"messageId": "m", "deltaContent": piece}}
        for piece in pieces
    ]
    lines.append({"type": "assistant.message", "data": {"messageId": "m", "content": whole}})
    said = [event for line in lines for event in parser.read(json.dumps(line).encode())]
    assert told(said, Path("/"))["text"] == shown


@table("provider", PARSERS)
def test_every_kind_of_line_is_in_the_table_and_every_reading_is_recorded(provider: str) -> None:
    parser = PARSERS[provider]
    recorded = {
        parser.kind_of(LooseObject(line))
        for name in NAMES
        if provider_of(name) == provider
        for line in lines_of(name)
    }
    assert recorded <= parser.KINDS.keys() | parser.IGNORED
    assert {parser.KINDS[kind] for kind in recorded - parser.IGNORED} == set(parser.KINDS.values())


@pytest.mark.parametrize("name", OF_PROGRAMS)
def test_every_event_of_a_stream_reaches_a_client_of_a_served_session(
    name: str, stub: Callable[[str], Stub], tmp_path: Path, project: Path
) -> None:
    provider = provider_of(name)
    stub(provider).streams(name)
    agent = tmp_path / "agent.py"
    agent.write_text(f"from coupler.providers import {AGENTS[provider]} as Agent\nagent = Agent()\n")
    parser = PARSERS[provider]()
    said = [
        event for line in lines_of(name) for event in parser.read(json.dumps(line).encode())
    ] + parser.end()

    with serve(agent) as client:
        client.initialize(session={"notices": {}})
        session = client.new_session(str(project))
        updates, answer = client.prompt(session, "What is here?")

    assert seen(updates) == told(said, project)
    assert answer["result"]["stopReason"] == "end_turn"
    tokens, usage = parser.outcome.tokens, answer["result"].get("usage")
    if tokens is None:
        assert usage is None and provider == "copilot"  # with a key of one's own it counts nothing
    else:
        counted = (usage["totalTokens"], usage.get("cachedReadTokens"), usage.get("thoughtTokens"))
        assert counted == (tokens.sum, tokens.cached_read, tokens.thought)
    costs = [update["cost"]["amount"] for update in updates if "cost" in update]
    assert costs == ([] if parser.outcome.cost is None else [pytest.approx(parser.outcome.cost)])


def told(said: list[Any], project: Path) -> dict[str, Any]:
    """What the events come to."""
    state: dict[str, Any] = {"text": "", "thoughts": "", "notices": [], "plans": [], "usage": [], "calls": {}}
    for event in said:
        match event:
            case Text(text):
                state["text"] += text
            case Thought(text):
                state["thoughts"] += text
            case Notice(severity, title):
                state["notices"].append((severity, title))
            case Plan(entries):
                state["plans"].append([(entry.content, entry.status, entry.priority) for entry in entries])
            case Usage(used, size):
                state["usage"].append((used, size))
            case ToolUpdate(id=id):
                call = state["calls"].setdefault(id, {"output": ""})
                for field in ("title", "kind", "status", "name", "raw_input", "raw_output", "meta"):
                    if (value := getattr(event, field)) is not UNSET:
                        call[field] = value
                if event.locations is not UNSET:
                    call["paths"] = [str(project / location.path) for location in event.locations]
            case ToolOutput(id, Diff(path, new)):
                state["calls"][id]["output"] += f"{project / path}: {new}"
            case ToolOutput(id, item):
                state["calls"][id]["output"] += to_builtins(item)["content"]["text"]
    return state


def seen(updates: list[dict[str, Any]]) -> dict[str, Any]:
    """What the updates come to."""
    state: dict[str, Any] = {"text": "", "thoughts": "", "notices": [], "plans": [], "usage": [], "calls": {}}
    for update in updates:
        match update["sessionUpdate"]:
            case "agent_message_chunk":
                state["text"] += update["content"]["text"]
            case "agent_thought_chunk":
                state["thoughts"] += update["content"]["text"]
            case "notice":
                state["notices"].append((update["severity"], update["title"]))
            case "plan":
                entries = update["entries"]
                state["plans"].append(
                    [(each["content"], each["status"], each["priority"]) for each in entries]
                )
            case "usage_update" if "cost" not in update:
                state["usage"].append((update["used"], update["size"]))
            case "tool_call" | "tool_call_update":
                fold(state["calls"].setdefault(update["toolCallId"], {"output": ""}), update)
    return state


def fold(call: dict[str, Any], update: dict[str, Any]) -> None:
    names = {"rawInput": "raw_input", "rawOutput": "raw_output", "_meta": "meta"}
    for field in ("title", "kind", "status", "name", *names):
        if field in update:
            call[names.get(field, field)] = update[field]
    if "locations" in update:
        call["paths"] = [location["path"] for location in update["locations"]]
    if "content" in update:
        call["output"] = "".join(
            f"{item['path']}: {item['newText']}" if item["type"] == "diff" else item["content"]["text"]
            for item in update["content"]
        )


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.data())
@settings(max_examples=40)
@pytest.mark.parametrize("provider", PARSERS)
def test_no_line_breaks_a_parser(provider: str, data: st.DataObject) -> None:
    """Recorded lines with some of their values replaced by anything, and lines that are nothing at all."""
    names = [name for name in NAMES if provider_of(name) == provider]
    lines = [line for name in names for line in lines_of(name)]
    parser = PARSERS[provider]()
    for _ in range(5):
        line = data.draw(st.sampled_from(lines))
        parser.read(json.dumps(spoiled(line, data)).encode())
    garbage = data.draw(st.binary(max_size=30))
    parser.read(garbage)
    parser.end()


def spoiled(value: Any, data: st.DataObject) -> Any:
    if data.draw(st.integers(0, 9)) == 0:
        return data.draw(ODD)
    if isinstance(value, dict):
        return {key: spoiled(item, data) for key, item in value.items()}
    if isinstance(value, list):
        return [spoiled(item, data) for item in value]
    return value


@table("provider", PARSERS)
def test_lines_that_nobody_knows_are_counted_and_passed_over(provider: str) -> None:
    parser = PARSERS[provider]()

    assert parser.read(b'{"type": "a.kind.of.tomorrow", "object": "of.tomorrow"}') == []
    assert parser.read(b"npm warn: something is old") == []
    assert parser.read(b"[1, 2]") == []

    assert (parser.unknown, parser.garbage) == (1, 2)


def test_bytes_that_are_not_text_cost_a_sign_and_not_the_line() -> None:
    parser = PARSERS["gemini"]()

    (event,) = parser.read(b'{"type":"message","role":"assistant","content":"caf\xe9 \\ud83d"}')

    assert isinstance(event, Text)
    assert event.text.startswith("caf\ufffd ")

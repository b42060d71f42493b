"""What steps and workflows are made of: retries, gates, agents' settings, MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coupler.workflow.language import definition as d
from coupler.workflow.language.table import Record


def common_of(record: Record, id: str, kind: str) -> dict[str, Any]:
    """What every step may say; of an `approve` step, the question and its timeout are its own matter."""
    is_approve = kind == "approve"
    return {
        "id": id,
        "position": record.node.position,
        "is_named": "id" in record.values,
        "condition": record.get("if"),
        "timeout": None if is_approve else record.get("timeout"),
        "retry": retry_of(record.get("retry")),
        "on_error": on_error_of(record.get("on_error")),
        "goto": goto_of(record.get("goto")),
        "gate": None if is_approve else _gate(record.get("approve")),
        **record.only("description", "env", "cwd", "once"),
    }


def _gate(value: str | bool | Record | None) -> d.Gate | None:
    match value:
        case None:
            return None
        case str():
            return d.Gate(question=value)
        case Record():
            return gate_of(value)
        case _:
            return d.Gate()


def gate_of(record: Record) -> d.Gate:
    return d.Gate(**record.values)


def retry_of(value: int | Record | None) -> d.Retry | None:
    match value:
        case None:
            return None
        case int():
            return d.Retry(attempts=value)
        case _:
            return d.Retry(**value.values)


def on_error_of(value: str | Record | None) -> d.OnError | None:
    if value is None:
        return None
    if not isinstance(value, Record):
        return d.OnError(_handling(value))
    if "goto" in value.values:
        return d.OnError(_handling(value))
    handlings = {kind: _handling(each) for kind, each in value.values.items()}
    default = handlings.pop("default", "fail")
    return d.OnError(default, handlings)


def _handling(value: Any) -> d.Handling:
    if isinstance(value, Record):
        goto = goto_of(value.get("goto"))
        assert goto is not None
        return goto
    handling: d.Handling = value
    return handling


def goto_of(value: str | Record | None) -> d.Goto | None:
    match value:
        case None:
            return None
        case str():
            return d.Goto(value)
        case _:
            return d.Goto(value.get("step"), value.get("max"))


def limits_of(record: Record | None) -> d.Limits | None:
    return None if record is None else d.Limits(**record.values)


def prompted_of(record: Record) -> d.Prompted:
    """How an agent is set up, of a step, a profile or the defaults."""
    tools = record.get("tools")
    return d.Prompted(
        tools=None if tools is None else d.Tools(tools.get("allow", ()), tools.get("deny", ())),
        mcp_servers=servers_of(record.get("mcp_servers", {})),
        continues=record.get("continue"),
        budget=limits_of(record.get("budget")),
        **record.only(
            "prompt",
            "prompt_file",
            "system",
            "model",
            "mode",
            "options",
            "files",
            "intercept",
            "context",
            "skills",
            "output",
            "repairs",
        ),
    )


def servers_of(records: Mapping[str, Record]) -> tuple[d.Server, ...]:
    return tuple(_server(name, record) for name, record in records.items())


def _server(name: str, record: Record) -> d.Server:
    if "url" in record.values:
        kind = record.get("type", "http")
        return d.Server(name=name, url=record.get("url"), type=kind, headers=record.get("headers", {}))
    command = (record.get("command"), *record.get("args", ()))
    return d.Server(name=name, command=command, env=record.get("env", {}))

"""Permission requests of real agents, as their published code and recordings of them have it.

A form is what is announced before the question, if anything is, and the call that the question is about.
"""

from __future__ import annotations

import json
from typing import Any

Form = dict[str, Any]

OURS = "<ours>"
"""Stands in a form for the name of the server that has the user's functions."""

# Asks for each form in the prompt, and writes down what it was told.
ASKS = """
    from mcp_client import opened, turns
    for prompt, entries in turns(http=True):
        text = prompt["params"]["prompt"][0]["text"]
        ours = entries[0]["name"] if entries else "coupler"
        for number, form in enumerate(json.loads(text.replace("<ours>", ours))):
            if "announced" in form:
                send(update("tool_call", **form["announced"]))
            send(permission(number, **form["asked"]))
            note("answer", answer_to(number)["result"]["outcome"].get("optionId"))
        send(end(prompt))
"""


def asked(**call: Any) -> Form:
    return {"asked": {"toolCallId": "c", **call}}


def asked_by_agents(server: str, tool: str, given: dict[str, Any]) -> dict[str, Form]:
    """Return the requests of real agents for a tool of an MCP server with these arguments."""
    asking = {
        "message": f'Allow the {server} MCP server to run tool "{tool}"?',
        "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_params": given},
        "requestedSchema": {"type": "object", "properties": {}},
    }
    codex = {"toolCallId": "x1", "title": "Approve MCP tool call", "status": "pending"}
    shown = {"server": server, "tool": tool, "arguments": given}
    claude = {"toolCallId": "t1", "title": f"mcp__{server}__{tool}", "rawInput": given}
    return {
        "claude": {
            "announced": {**claude, "_meta": {"claudeCode": {"toolName": f"mcp__{server}__{tool}"}}},
            "asked": claude,
        },
        "claude without an announcement": {"asked": {**claude, "toolCallId": "t2"}},
        "qwen": asked(
            title=json.dumps(given),
            kind="other",
            rawInput=given,
            _meta={"toolName": f"mcp__{server}__{tool}"},
        ),
        "gemini": asked(
            toolCallId=f"mcp_{server}_{tool}__mcp_{server}_{tool}_1794942042251_0",
            title=f"{tool} ({server} MCP Server)",
            kind="other",
            locations=[],
        ),
        "gemini before": asked(toolCallId=f"mcp_{server}_{tool}-1731000000000", title="{}", kind="other"),
        "gemini with an id of the model's server": asked(
            toolCallId="9f1c", title=f"{tool} ({server} MCP Server)", kind="other"
        ),
        "agentao": asked(title=f"mcp_{server}_{tool}", kind="other", rawInput=given),
        "fast-agent": asked(title=f"{server}/{tool}", kind="execute", rawInput=given),
        "opencode": asked(title=f"{server}_{tool}", kind="other", rawInput={}),
        "codex": {
            "announced": {"toolCallId": "x1", "title": f"Tool: {server}/{tool}", "rawInput": shown},
            "asked": {
                **codex,
                "rawInput": {"server_name": server, "id": "mcp_tool_call_approval_x1", "request": asking},
            },
        },
        "codex without an announcement": {
            "asked": {
                **codex,
                "toolCallId": "x2",
                "rawInput": {"server_name": server, "id": 7, "turn_id": "1", "request": asking},
            }
        },
        "codex that says nothing more": {
            "announced": {"toolCallId": "x3", "title": f"Tool: {server}/{tool}", "rawInput": shown},
            "asked": {"toolCallId": "x3"},
        },
        "vibe": {
            "announced": {
                "toolCallId": "v1",
                "title": f"mcp_{server}.{tool}",
                "kind": "other",
                "rawInput": given,
                "_meta": {"tool_name": f"mcp_{server}.{tool}", "effect_kind": "tool"},
            },
            "asked": {"toolCallId": "v1"},
        },
        "vibe before": {
            "announced": {
                "toolCallId": "v1",
                "title": server,
                "kind": "other",
                "rawInput": json.dumps(given),
                "_meta": {"tool_name": f"{server}_{tool}"},
            },
            "asked": {"toolCallId": "v1"},
        },
        "copilot": asked(title=tool, name=f"{server}-{tool}", rawInput=given),
        "a served agent of Coupler": asked(
            title=f"{server}: {tool}", name=f"mcp__{server}__{tool}", rawInput=given
        ),
    }


def with_input(form: Form, given: Any, **more: Any) -> Form:
    """The same form with another input, wherever it has it."""
    found = json.loads(json.dumps(form))
    for part in found.values():
        match part.get("rawInput"):
            case {"arguments": dict()}:
                part["rawInput"]["arguments"] = given
            case {"request": {"_meta": dict(meta)}}:
                meta["tool_params"] = given
            case str():
                part["rawInput"] = json.dumps(given)
            case _:
                part["rawInput"] = given
    found["asked"] |= more
    return found

"""Tools that the user gave to an agent: allowed without asking, in the forms in which real agents ask."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from client.stage import Scripted, run
from coupler import Policy
from coupler.client.policy import PermissionRequest
from coupler.schema.v1 import McpServerStdio

Script = Callable[[str], Scripted]
Form = dict[str, Any]

PLAIN = Path(__file__).parents[1] / "agent" / "servers" / "plain.py"
TICKETS = McpServerStdio("tickets", sys.executable, [str(PLAIN), "fine"], [])

# Asks for each form in the prompt, and writes down what it was told.
ASKS = """
    from mcp_client import opened, turns
    for prompt, entries in turns(http=True):
        for number, form in enumerate(json.loads(prompt["params"]["prompt"][0]["text"])):
            if "announced" in form:
                send(update("tool_call", **form["announced"]))
            send(permission(number, **form["asked"]))
            note("answer", answer_to(number)["result"]["outcome"].get("optionId"))
        send(end(prompt))
"""


class City(msgspec.Struct):
    name: str
    path: str = ""


def lookup(city: str, path: str = "", command: str = "", options: dict[str, Any] | None = None) -> str:
    """Look a city up."""
    return city


def answers(script: Script, forms: list[Form], **options: Any) -> list[str | None]:
    """What a session with the function and a typed answer tells an agent that asks in these forms."""
    agent = script(ASKS)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new(tools=[lookup], output=City, mcp_servers=[TICKETS], **options)
            await session.prompt(json.dumps(forms))

    run(story())
    return agent.noted("answer")


def asked(**call: Any) -> Form:
    return {"asked": {"toolCallId": "c", **call}}


def each_name(tool: str) -> dict[str, Form]:
    """How real agents ask whether they may call a tool of the server `coupler`, with these arguments."""
    given = {"city": "Oslo"} if tool == "lookup" else {"name": "Oslo"}
    asking = {
        "message": f'Allow the coupler MCP server to run tool "{tool}"?',
        "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_params": given},
        "requestedSchema": {"type": "object", "properties": {}},
    }
    codex = {"toolCallId": "x1", "title": "Approve MCP tool call", "status": "pending"}
    shown = {"server": "coupler", "tool": tool, "arguments": given}
    claude = {"toolCallId": "t1", "title": f"mcp__coupler__{tool}", "rawInput": given}
    return {
        "claude": {
            "announced": {**claude, "_meta": {"claudeCode": {"toolName": f"mcp__coupler__{tool}"}}},
            "asked": claude,
        },
        "claude without an announcement": {"asked": claude},
        "qwen": asked(
            title=json.dumps(given), kind="other", rawInput=given, _meta={"toolName": f"mcp__coupler__{tool}"}
        ),
        "gemini": asked(
            toolCallId=f"mcp_coupler_{tool}__mcp_coupler_{tool}_1794942042251_0",
            title=f"{tool} (coupler MCP Server)",
            kind="other",
            locations=[],
        ),
        "gemini before": asked(toolCallId=f"mcp_coupler_{tool}-1731000000000", title="{}", kind="other"),
        "gemini with an id of the model's server": asked(
            toolCallId="9f1c", title=f"{tool} (coupler MCP Server)", kind="other"
        ),
        "agentao": asked(title=f"mcp_coupler_{tool}", kind="other", rawInput=given),
        "fast-agent": asked(title=f"coupler/{tool}", kind="execute", rawInput=given),
        "opencode": asked(title=f"coupler_{tool}", kind="other", rawInput={}),
        "codex": {
            "announced": {"toolCallId": "x1", "title": f"Tool: coupler/{tool}", "rawInput": shown},
            "asked": {
                **codex,
                "rawInput": {"server_name": "coupler", "id": "mcp_tool_call_approval_x1", "request": asking},
            },
        },
        "codex without an announcement": {
            "asked": {
                **codex,
                "toolCallId": "x2",
                "rawInput": {"server_name": "coupler", "id": 7, "turn_id": "1", "request": asking},
            }
        },
        "codex that says nothing more": {
            "announced": {"toolCallId": "x3", "title": f"Tool: coupler/{tool}", "rawInput": shown},
            "asked": {"toolCallId": "x3"},
        },
        "vibe": {
            "announced": {
                "toolCallId": "v1",
                "title": "coupler",
                "kind": "other",
                "rawInput": json.dumps(given),
                "_meta": {"tool_name": f"coupler_{tool}"},
            },
            "asked": {"toolCallId": "v1"},
        },
        "copilot": asked(title="lookup", name=f"coupler-{tool}", rawInput=given),
        "a served agent of Coupler": asked(
            title=f"coupler: {tool}", name=f"mcp__coupler__{tool}", rawInput=given
        ),
    }


NAMES = [*each_name("lookup")]


def judged(script: Script, forms: dict[str, Form], **options: Any) -> dict[str, str | None]:
    return dict(zip(forms, answers(script, [*forms.values()], **options), strict=True))


@pytest.mark.parametrize("tool", ["lookup", "structured_output"])
@pytest.mark.parametrize("policy", [None, "deny-all", "ask", lambda request: False])
def test_what_the_user_handed_over_is_allowed_in_the_form_of_every_agent(
    script: Script, tool: str, policy: Any
) -> None:
    assert judged(script, each_name(tool), permissions=policy) == dict.fromkeys(NAMES, "yes")


def test_rules_that_deny_or_ask_still_count(script: Script) -> None:
    named = dict.fromkeys(NAMES, "no")
    for rules in ({"deny": ["mcp:coupler"]}, {"deny": ["tool:lookup"]}, {"ask": ["mcp:coupler(lookup)"]}):
        assert judged(script, each_name("lookup"), permissions=Policy.patterns(**rules)) == named, rules


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


def test_what_is_among_the_tools_own_arguments_is_its_own_affair(script: Script) -> None:
    given = {
        "city": "x",
        "path": "/etc/passwd",
        "command": "rm -rf /",
        "options": {"url": "https://a.example"},
    }
    forms = {name: with_input(form, given) for name, form in each_name("lookup").items()}
    assert judged(script, forms) == dict.fromkeys(NAMES, "yes")
    forms = {
        name: with_input(form, {"path": "notes/a"}, locations=[{"path": "notes/a"}])
        for name, form in each_name("lookup").items()
    }
    assert judged(script, forms) == dict.fromkeys(NAMES, "yes")


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"cmd": "rm -rf build"}, {}),
        ({"city": "x", "shell_command": "ls"}, {}),
        ({"city": "x", "file_path": "/etc/passwd"}, {}),
        ({"city": "x", "more": {"url": "https://a.example/"}}, {}),
        ({"city": "x"}, {"locations": [{"path": "/etc/passwd"}]}),
        ({"city": "x"}, {"content": [{"type": "diff", "path": "a.py", "newText": "x", "oldText": None}]}),
        ({"city": "x", "env": {"PATH": "/tmp"}}, {}),
    ],
)
def test_a_name_allows_nothing_but_the_call_itself(script: Script, given: Any, more: Form) -> None:
    forms = {name: with_input(form, given, **more) for name, form in each_name("lookup").items()}
    assert judged(script, forms) == dict.fromkeys(NAMES, "no")


def test_a_command_that_looks_like_the_name_of_a_tool_is_a_command(script: Script) -> None:
    forms = {
        "title of a command": asked(title="coupler/lookup", kind="execute"),
        "title that repeats the input": asked(
            title="coupler/lookup", kind="execute", rawInput={"command": "coupler/lookup"}
        ),
        "title of another tool by its id": asked(
            toolCallId="run_shell_command-1731000000000", title="lookup (coupler MCP Server)", kind="execute"
        ),
        "title of another tool by its name": asked(
            title="mcp__coupler__lookup", name="Bash", rawInput={"command": "ls"}
        ),
        "title of another tool by its meta": asked(
            title="mcp__coupler__lookup", rawInput={}, _meta={"claudeCode": {"toolName": "WebSearch"}}
        ),
        "names that disagree": asked(name="mcp__coupler__lookup", _meta={"toolName": "Bash"}, rawInput={}),
        "another server": asked(name="mcp__tickets__lookup", rawInput={"city": "x"}),
        "another tool": asked(name="mcp__coupler__deploy", rawInput={}),
        "a plain name": asked(title="lookup", name="lookup", rawInput={"city": "x"}),
        "an input with more than the call": asked(
            title="Do", rawInput={"server": "coupler", "tool": "lookup", "arguments": {}, "force": True}
        ),
    }
    assert judged(script, forms) == dict.fromkeys(forms, "no")


def test_nothing_is_handed_over_in_a_session_without_tools(script: Script) -> None:
    agent = script(ASKS)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            await session.prompt(json.dumps([*each_name("lookup").values()]))

    run(story())
    assert agent.noted("answer") == ["no"] * len(NAMES)


def test_a_function_is_asked_about_everything_else(script: Script) -> None:
    heard: list[str] = []

    def decide(request: PermissionRequest) -> bool:
        heard.append(request.tool_call.title)
        return False

    forms = {"own": asked(name="mcp__coupler__lookup"), "other": asked(title="Look around", name="look")}
    assert judged(script, forms, permissions=decide) == {"own": "yes", "other": "no"}
    assert heard == ["Look around"]

"""`intercept`: an agent reaches its MCP servers through us, and each call is told and judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from coupler.events import ToolCall, ToolUpdate
from coupler.workflow.journal.run_events import ApprovalAsked, Noted
from workflow.agent_stage import Script, Talking, stage_of

PLAIN = Path(__file__).parents[2] / "agent" / "servers" / "plain.py"
CALLING = """
from mcp_client import opened, turns
for prompt, servers in turns(TAKES):
    (entry,) = servers
    note("entry", entry)
    server = opened(entry)
    note("tools", sorted(tool["name"] for tool in server.tools()))
    result_of_call = server.call("echo", {"text": "hi"})
    send(say(json.dumps(result_of_call)), end(prompt))
"""


@pytest.mark.parametrize("takes", ["http=True", ""], ids=["http", "program"])
@pytest.mark.parametrize(
    ("keys", "passes", "asked"),
    [
        ("", True, 0),
        (', tools: {deny: ["mcp:tickets(echo)"]}', False, 0),
        (', approve: {tools: ["mcp:tickets(*)"]}', True, 1),
    ],
    ids=["free", "denied", "asked"],
)
def test_a_call_is_told_judged_and_passed_on(
    script: Script, tmp_path: Path, takes: str, keys: str, passes: bool, asked: int
) -> None:
    agent = script(CALLING.replace("TAKES", takes))
    server = json.dumps({"command": sys.executable, "args": [str(PLAIN), "fine"]})
    stage = stage_of(
        agent,
        tmp_path,
        f"""
        mcp_servers: {{tickets: {server}}}
        steps: [{{id: x, agent: AGENT, prompt: go, intercept: true{keys}}}]
        """,
    )
    stage.front = Talking(x=True)

    finished = stage.run()

    assert finished.status == "success", finished.message
    (entry,) = agent.noted("entry")
    assert entry["name"] == "tickets"
    assert "plain.py" not in json.dumps(entry)  # it is ours
    answer = json.loads(stage.result("x").text or "")
    assert answer.get("isError", False) is not passes
    (started,), (*_, ended) = stage.told(ToolCall), stage.told(ToolUpdate)
    assert (started.title, started.name, started.raw_input) == (
        "tickets: echo",
        "mcp__tickets__echo",
        {"text": "hi"},
    )
    assert (ended.id, ended.status) == (started.id, "completed" if passes else "failed")
    assert len(stage.all(ApprovalAsked)) == asked


@pytest.mark.parametrize("takes", ["http=True", ""], ids=["http", "program"])
def test_the_step_goes_on_without_a_server_that_cannot_be_used(
    script: Script, tmp_path: Path, takes: str
) -> None:
    agent = script(CALLING.replace("TAKES", takes))
    server = json.dumps({"command": sys.executable, "args": [str(PLAIN), "fine"]})
    stage = stage_of(
        agent,
        tmp_path,
        f"""
        mcp_servers: {{tickets: {server}, gone: {{command: no-such-program}}}}
        steps: [{{id: x, agent: AGENT, prompt: go, intercept: true}}]
        """,
    )

    finished = stage.run()

    assert finished.status == "success", finished.message
    (entry,) = agent.noted("entry")
    assert entry["name"] == "tickets"
    (noted,) = stage.all(Noted)
    assert noted.text.startswith("the MCP server `gone` could not be started: The program 'no-such-program'")
    assert noted.text.endswith("; the agent works without it")


@pytest.mark.parametrize(
    ("title", "status", "told"),
    [
        ("tickets: echo", "in_progress", ["tickets: echo"]),
        ("Looking around", "in_progress", ["Looking around", "tickets: echo", "tickets: echo"]),
        ("tickets: echo", "completed", ["tickets: echo", "tickets: echo", "tickets: echo"]),
    ],
    ids=["honest", "of something else", "over"],
)
def test_a_call_cannot_hide_behind_another_one_of_the_agent(
    script: Script, tmp_path: Path, title: str, status: str, told: list[str]
) -> None:
    agent = script(
        f"""
        from mcp_client import opened, turns
        for prompt, servers in turns(http=True):
            server = opened(servers[0])
            send(update("tool_call", toolCallId="mine", title={title!r}, kind="other", status={status!r}))
            for _ in range({len(told) - 1 or 1}):
                server.call("echo", {{"text": "hi"}}, _meta={{"id": "mine"}})
            send(end(prompt))
        """
    )
    server = json.dumps({"command": sys.executable, "args": [str(PLAIN), "fine"]})
    stage = stage_of(
        agent,
        tmp_path,
        f"mcp_servers: {{tickets: {server}}}\nsteps: [{{id: x, agent: AGENT, prompt: go, intercept: true}}]",
    )

    stage.run()

    assert [each.title for each in stage.told(ToolCall)] == told

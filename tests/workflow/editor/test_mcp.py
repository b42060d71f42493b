"""MCP servers of the editor in workflows: they reach the agents of steps, win on a name, and are intercepted.

All tests share one `coupler serve`, with a session and a workflow each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.sessions.steps import reopen
from agent.steps import leave, still_serves, text_of
from providers.stub import Stub
from raw_client import RawClient
from workflow.agent_stage import Script
from workflow.served_agents import Desk, nested
from workflow.served_project import served

TOKEN = "tok-3f9a-xyzzy-71"

CALLING = """
from mcp_client import opened, turns
for prompt, servers in turns():
    for entry in servers:
        server = opened(entry)
        called = server.call("echo", {"text": text_of(prompt)})
        note("called", {"entry": entry, "result": called})
        server.close()
    send(say("called " + " ".join(entry["name"] for entry in servers)), end(prompt))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the served process, and stubs of programs."""
    place = tmp_path_factory.mktemp("served")
    (place / "bin").mkdir()
    return place


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[RawClient]:
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    with served(home=place, cwd=place, env={"PATH": path}) as client:
        yield client
        leave(client)


@pytest.fixture
def desk(client: RawClient, place: Path, tmp_path: Path) -> Desk:
    still_serves(client)
    client._held.clear()
    return Desk(client, place, tmp_path)


def test_a_server_of_the_editor_is_called_by_the_agent_of_a_step(desk: Desk, script: Script) -> None:
    agent = script(CALLING)
    command = desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent)

    shown = desk.editor(desk.entry("tickets", "editor")).prompt(command)

    assert shown.reason == "end_turn", shown.last_message
    (called,) = agent.noted("called")
    assert called["result"]["content"][0]["text"] == '{"text": "go"}'
    assert desk.starts("editor") == 1


def test_the_editors_server_wins_on_a_name_which_is_told_once_and_all_others_stay(
    desk: Desk, script: Script
) -> None:
    agent = script(CALLING)
    command = desk.workflow(
        f"""
        mcp_servers: {{tickets: {desk.declared("workflow")}, search: {desk.declared("search")}}}
        steps:
          - {{id: x, agent: AGENT, prompt: go}}
          - {{id: y, agent: AGENT, prompt: again, mcp_servers: {{tickets: {desk.declared("workflow")}}}}}
        """,
        agent,
    )

    shown = desk.editor(desk.entry("tickets", "editor")).prompt(command)

    assert shown.reason == "end_turn", shown.last_message
    assert (desk.starts("editor"), desk.starts("search"), desk.starts("workflow")) == (2, 2, 0)
    told = [step for step in ("x", "y") if "MCP server `tickets`" in text_of(shown.call(step))]
    assert told == ["x"]


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_a_run_that_goes_on_has_the_servers_that_the_session_was_opened_with(
    desk: Desk, script: Script, tmp_path: Path, method: str
) -> None:
    agent = script(CALLING)
    command = desk.workflow(
        "steps: [{id: name, ask: Who?}, {id: x, agent: AGENT, prompt: '{{ steps.name.text }}'}]", agent
    )
    editor = desk.editor(desk.entry("tickets", "before"))
    assert editor.prompt(command).meta["status"] == "parked"
    editor.client.call("session/close", {"sessionId": editor.session})
    editor.client._held.clear()

    reopen(editor.client, method, editor.session, tmp_path, mcpServers=[desk.entry("notes", "after")])
    shown = editor.prompt("Ann")

    assert shown.reason == "end_turn", shown.last_message
    assert [each["entry"]["name"] for each in agent.noted("called")] == ["notes"]
    assert (desk.starts("before"), desk.starts("after")) == (0, 1)


def test_a_native_agent_gets_the_editors_server_in_its_own_way(desk: Desk, place: Path) -> None:
    program = Stub(place / "bin", "claude").streams("claude-current")
    command = desk.workflow('steps: [{id: x, agent: "claude:native", prompt: go}]')

    shown = desk.editor(desk.entry("tickets", "editor")).prompt(command)

    assert shown.reason == "end_turn", shown.last_message
    (files,) = (json.loads(each["text"]) for each in program.runs[-1]["files"].values())
    assert files["mcpServers"]["tickets"]["args"] == desk.words("editor")


@pytest.mark.parametrize(
    ("keys", "answers", "passes"),
    [
        ("", [], True),
        ('tools: {deny: ["mcp:tickets(echo)"]}', [], False),
        ('approve: {tools: ["mcp:tickets(*)"]}', ["allow"], True),
        ('approve: {tools: ["mcp:tickets(*)"]}', ["deny"], False),
    ],
    ids=["free", "denied", "asked and allowed", "asked and refused"],
)
def test_an_intercepted_call_to_the_editors_server_is_shown_judged_and_kept(
    desk: Desk, script: Script, keys: str, answers: list[str], passes: bool
) -> None:
    agent = script(CALLING)
    command = desk.workflow(
        f"steps: [{{id: x, agent: AGENT, prompt: {TOKEN}, intercept: true, {keys}}}]", agent
    )
    editor = desk.editor(desk.entry("tickets", "editor", TICKETS_TOKEN=TOKEN))

    shown = editor.prompt(command, *answers)

    assert shown.reason == "end_turn", shown.last_message
    (called,) = agent.noted("called")
    assert called["result"].get("isError", False) is not passes
    assert (TOKEN in called["result"]["content"][0]["text"]) is passes  # who needs it has it as it is
    (call,) = nested(shown)
    assert (call["title"], call["status"]) == ("tickets: echo", "completed" if passes else "failed")
    assert [asked["toolCall"]["toolCallId"] for asked in editor.asked] == [call["toolCallId"]] * len(answers)
    kept = desk.kept(shown.run)
    assert [each["event"] for each in kept if each.get("call") or each["event"].startswith("tool_")] == [
        "tool_call",
        *(["approval_asked", "approval_answered"] if answers else []),
        *(["tool_call_update"] if passes else []),
        "tool_call_update",
    ]
    assert TOKEN not in json.dumps([shown.updates, editor.asked, kept])


def test_a_dialog_about_an_intercepted_call_is_closed_when_the_agents_turn_ends(
    desk: Desk, script: Script, tmp_path: Path
) -> None:
    agent = script(
        """
        import time
        from threading import Thread
        from mcp_client import opened, turns
        for prompt, servers in turns(http=True):
            server = opened(servers[0])
            Thread(target=server.call, args=("echo", {}), daemon=True).start()
            while not os.path.exists("seen"):
                time.sleep(0.005)
            send(say("never mind"), end(prompt))
        """
    )
    text = 'steps: [{id: x, agent: AGENT, prompt: go, intercept: true, approve: {tools: ["mcp:tickets(*)"]}}]'
    editor = desk.editor(desk.entry("tickets", "editor"))
    request = editor.begin(desk.workflow(text, agent))
    frames = editor.until("session/request_permission", '"id"')

    (tmp_path / "seen").touch()
    frames += editor.until("$/cancel_request")
    shown = editor.finish(request, before=[frame for frame in frames if "id" not in frame])

    assert shown.reason == "end_turn", shown.last_message
    assert [call["status"] for call in nested(shown)] == ["failed"]

"""A call that was not permitted, and of which the agent says no more: nobody shows it as completed.

Gemini CLI does that: the permission request is all that it sends of such a call. Other agents announce it
before they ask.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import forked
from client.stage import Scripted
from raw_client import COUPLER, Frame, RawClient, is_answer_to

GEMINI = """
    for prompt in prompts():
        options = [("proceed_once", "allow_once"), ("cancel", "reject_once")]
        call = {"title": "Run rm x", "kind": "execute", "status": "pending", "locations": []}
        if text_of(prompt) == "announced":
            send(update("tool_call", toolCallId="c1", **call))
        send(permission(1, options, **call, content=[]))
        note("answer", answer_to(1)["result"]["outcome"])
        send(say("I was not allowed to."), end(prompt))
"""

FORMS = ("as gemini", "announced")

pytestmark = pytest.mark.parametrize("form", FORMS)


@pytest.fixture
def agent(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path, 1, GEMINI)


def run(*words: str, cwd: Path, input: str = "") -> str:
    done = forked.run(
        [*COUPLER, *words], cwd=cwd, input=input, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return str(done.stdout)


def test_exec_tells_that_it_failed(form: str, agent: Scripted, tmp_path: Path) -> None:
    command = shlex.join(agent.command)
    lines = run("exec", "--format", "ndjson", "--permissions", "deny-all", command, form, cwd=tmp_path)
    events = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]

    statuses = [event["status"] for event in events if event["event"] == "tool_call"]
    assert statuses == (["pending", "failed"] if form == "announced" else [])
    result = events[-1]
    assert [each["title"] for each in result["denied"]] == ["Run rm x"]
    assert [call["status"] for call in result["tool_calls"]] == ["failed"]
    assert agent.noted("answer") == [{"outcome": "selected", "optionId": "cancel"}]


def test_chat_tells_that_it_was_not_allowed(form: str, agent: Scripted, tmp_path: Path) -> None:
    command = shlex.join(agent.command)
    said = run("chat", "--permissions", "deny-all", command, cwd=tmp_path, input=f"{form}\n")

    assert "[Not allowed: Run rm x" in said
    assert ("[failed] Run rm x" in said) == (form == "announced")
    assert "[completed]" not in said and "[pending]" not in said


def test_a_step_records_it_as_failed(form: str, agent: Scripted, tmp_path: Path) -> None:
    _write_flow(tmp_path, agent, form)
    events = [json.loads(line) for line in run("run", "./flow.yaml", "--json", cwd=tmp_path).splitlines()]

    ended = [event for event in events if event["event"] == "tool_call_update"]
    told = [(event["status"], event["content"][0]["content"]["text"]) for event in ended]
    assert told == ([("failed", "not permitted")] if form == "announced" else [])
    assert any(event.get("text", "").startswith("denied: Run rm x") for event in events)


@pytest.mark.parametrize("served", ["relay", "workflow"])
def test_an_editor_sees_it_failed_now_and_in_a_replay(
    form: str, served: str, agent: Scripted, tmp_path: Path
) -> None:
    _write_flow(tmp_path, agent, form)
    words = ["--", *agent.command] if served == "relay" else ["flow.yaml"]
    with RawClient(*COUPLER, "serve", *words, cwd=tmp_path) as client:
        client.initialize()
        session = client.new_session(str(tmp_path))
        shown = _last_shown(client, client.prompt_request(session, form))
        client.close_stdin()
        client.wait()
    with RawClient(*COUPLER, "serve", *words, cwd=tmp_path) as client:
        client.initialize()
        place = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        replayed = _last_shown(client, client.request("session/load", place))
        client.close_stdin()
        client.wait()

    for calls in (shown, replayed):
        [call] = [call for id, call in calls.items() if id.endswith("c1")]
        assert call["status"] == "failed"
        assert "not permitted" in str(call["content"])
    assert agent.noted("answer") == [{"outcome": "selected", "optionId": "cancel"}]


def _write_flow(directory: Path, agent: Scripted, form: str) -> None:
    step = {"id": "it", "agent": shlex.join(agent.command), "prompt": form}
    (directory / "flow.yaml").write_text(json.dumps({"steps": [step]}))


def _last_shown(client: RawClient, request: Frame) -> dict[str, dict[str, Any]]:
    """Send a request, reject what is asked, and return all tool calls as they stand at its answer."""
    calls: dict[str, dict[str, Any]] = {}
    client.send(request)
    while not is_answer_to(frame := client.read(), request["id"]):
        params = frame["params"]
        if frame["method"] == "session/request_permission":
            [no] = [each["optionId"] for each in params["options"] if each["kind"] == "reject_once"]
            outcome = {"outcome": "selected", "optionId": no}
            client.send({"id": frame["id"], "result": {"outcome": outcome}})
        elif (update := params["update"])["sessionUpdate"].startswith("tool_call"):
            calls.setdefault(update["toolCallId"], {}).update(update)
    return calls

"""The status of an agent's tool call behind Coupler: pending until it is permitted, then in progress."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from client.stage import Scripted
from raw_client import COUPLER, Frame, RawClient, is_answer_to

ASKING = """
    for prompt in prompts():
        call = {"title": "Run rm x", "kind": "execute"}
        match text_of(prompt):
            case "announced":
                send(update("tool_call", toolCallId="c1", status="pending", **call))
                send(permission(1, **call))
            case "without a status":
                send(update("tool_call", toolCallId="c1", **call))
                send(permission(1, **call))
            case "asked only":
                send(permission(1, **call))
            case "running at once":
                send(update("tool_call", toolCallId="c1", status="in_progress", **call))
                send(update("tool_call_update", toolCallId="c1", status="pending"))
                send(permission(1, status="pending", **call))
        if answer_to(1)["result"]["outcome"].get("optionId") == "yes":
            if text_of(prompt) != "running at once":
                send(update("tool_call_update", toolCallId="c1", status="in_progress"))
            send(update("tool_call_update", toolCallId="c1", status="completed"))
        else:
            send(update("tool_call_update", toolCallId="c1", status="failed"))
        send(end(prompt))
"""


@pytest.mark.parametrize("served", ["relay", "workflow"])
@pytest.mark.parametrize("answer", ["yes", "no"])
@pytest.mark.parametrize("form", ["announced", "without a status", "asked only", "running at once"])
def test_a_call_is_pending_until_it_is_permitted(form: str, answer: str, served: str, tmp_path: Path) -> None:
    agent = Scripted(tmp_path, 1, ASKING)
    step = {"id": "it", "agent": shlex.join(agent.command), "prompt": form}
    (tmp_path / "flow.yaml").write_text(json.dumps({"steps": [step]}))
    words = ["--", *agent.command] if served == "relay" else ["flow.yaml"]
    with RawClient(*COUPLER, "serve", *words, cwd=tmp_path) as client:
        client.initialize()
        session = client.new_session(str(tmp_path))
        shown = _statuses(client, client.prompt_request(session, form), answer)
        client.close_stdin()
        client.wait()

    ended = {"yes": "completed", "no": "failed"}[answer]
    if form == "running at once":  # as the agent says; the question does not take it back
        assert shown == ["in_progress", "asked in_progress", ended]
    else:
        started = ["in_progress"] if answer == "yes" else []
        assert shown == ["pending", "asked pending", *started, ended]


def _statuses(client: RawClient, request: Frame, answer: str) -> list[str]:
    """Send a prompt, answer the question, and return the statuses of the agent's call and the question's."""
    statuses: list[str] = []
    client.send(request)
    while not is_answer_to(frame := client.read(), request["id"]):
        params: dict[str, Any] = frame["params"]
        if frame["method"] == "session/request_permission":
            statuses.append(f"asked {params['toolCall'].get('status')}")
            kind = "allow_once" if answer == "yes" else "reject_once"
            [chosen] = [each["optionId"] for each in params["options"] if each["kind"] == kind]
            client.send(
                {"id": frame["id"], "result": {"outcome": {"outcome": "selected", "optionId": chosen}}}
            )
        elif "status" in (update := params["update"]) and update["toolCallId"].endswith("c1"):
            statuses.append(update["status"])
    return statuses

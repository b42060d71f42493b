"""A served project passes the whole conformance kit, with a workflow that uses all that editors can show."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

import pytest

import forked
from client.stage import Scripted
from coupler.conformance.assertion import catalogue
from coupler.conformance.candidate import Candidate
from coupler.conformance.examination import examine
from raw_client import COUPLER, PATIENCE
from workflow.served_project import write_workflow

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("quick_starts", "unmeasured")]

EVERYTHING = """
description: Use every feature
steps:
  - {id: sure, approve: "Go on?", on_deny: skip}
  - id: both
    parallel:
      - {id: fix, agent: AGENT, prompt: Fix it., approve: {tools: [edit], on_deny: skip}}
      - {id: look, run: "pwd; exit 3", on_error: continue}
  - {id: color, ask: "Which color?", enum: [red, blue]}
"""
SLOW = 'steps: [{id: wait, run: "echo begun; exec sleep 60"}]'

AGENT = """
import subprocess

while True:
    frame = read()
    match frame.get("method"):
        case "initialize":
            send(result(frame, HELLO))
        case "session/new":
            cwd, servers = frame["params"]["cwd"], frame["params"]["mcpServers"]
            send(result(frame, {"sessionId": "s1"}))
        case "session/prompt":
            for server in servers:
                env = os.environ | {each["name"]: each["value"] for each in server["env"]}
                subprocess.run([server["command"], *server["args"]], env=env, stdin=subprocess.DEVNULL)
            call = {"toolCallId": "c1", "title": "Edit app.py", "kind": "edit", "name": "edit"}
            call["locations"] = [{"path": os.path.join(cwd, "app.py"), "line": 1}]
            send(update("tool_call", **call, status="pending"), permission("p1", **call))
            is_allowed = answer_to("p1")["result"]["outcome"].get("optionId") == "yes"
            status = "completed" if is_allowed else "failed"
            usage = {"inputTokens": 100, "outputTokens": 20, "totalTokens": 120}
            send(update("tool_call_update", toolCallId="c1", status=status), say("It is fixed."))
            send(end(frame, usage=usage))
"""
"""Connects to the servers that it is given, asks before an edit, and tells what it used."""

DOES_NOT_APPLY = {
    "A18",  # sessions need no login
    "A19",  # without a model there is a login, which the kit cannot do
    *("A35", "A36", "A38", "A39", "A40"),  # sessions have no options
    "A50",  # what was used is told with the answer
    "A57",  # commands are local processes, and in no terminal of the client's
}


def test_a_served_project_keeps_to_every_sentence_that_applies_to_it(tmp_path: Path) -> None:
    agent = Scripted(tmp_path, 1, AGENT)
    project = tmp_path / "project"
    everything = EVERYTHING.replace("AGENT", json.dumps(shlex.join(agent.command)))
    for name, text in {"everything": everything, "slow": SLOW}.items():
        write_workflow(project / ".coupler" / "workflows", name, text)
    forked.run([*COUPLER, "trust", "--yes"], cwd=project, check=True, capture_output=True, timeout=PATIENCE)

    served = Candidate([*COUPLER, "serve"], project, prompt="/everything", slow_prompt="/slow")
    report = asyncio.run(examine(served, catalogue("agent")))

    outcomes = {
        outcome: {each.assertion.id: each.message for each in report.results if each.outcome == outcome}
        for outcome in ("failed", "warned", "skipped")
    }
    assert outcomes["failed"] == outcomes["warned"] == {}
    assert outcomes["skipped"].keys() == DOES_NOT_APPLY, outcomes["skipped"]

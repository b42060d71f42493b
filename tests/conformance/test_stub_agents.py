"""`coupler check` and `coupler agents doctor` on small agents of no library, good and bad in one way each."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forked

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unmeasured")]

PATIENCE = 120.0

STUB = """
import json, os, sys, threading, time
KIND = sys.argv[1]
cancelled, writing = threading.Event(), threading.Lock()
output = open(1, "w", buffering=1 << 16)

def send(message):
    message = {"jsonrpc": "2.0", **message}
    with writing:
        output.write(json.dumps(message, indent=2 if KIND == "pretty" else None) + "\\n")
        if KIND != "unflushed":
            output.flush()

def update(session, kind, **body):
    params = {"sessionId": session, "update": {"sessionUpdate": kind, **body}}
    send({"method": "session/update", "params": params})

def turn(asked):
    session = asked["params"]["sessionId"]
    for number in range(20 if KIND == "deaf" else 3):
        update(session, "agent_message_chunk", content={"type": "text", "text": f"{number} "})
        if KIND != "deaf" and cancelled.wait(0.02):
            break
        time.sleep(0.03 if KIND == "deaf" else 0)
    reason = "cancelled" if KIND != "deaf" and cancelled.is_set() else "end_turn"
    send({"id": asked["id"], "result": {"stopReason": reason}})
    if KIND == "late":
        update(session, "session_info_update", title="A title")
        update(session, "available_commands_update", availableCommands=[])
        update(session, "usage_update", used=1, size=2)

def initialize(asked):
    info = {"name": "stub", "version": "1"}
    if KIND == "two" and asked["params"]["protocolVersion"] == 65535:
        return {"protocolVersion": 2, "info": info, "capabilities": {"session": {}}}
    return {"protocolVersion": 1, "agentInfo": info, "agentCapabilities": {}}

sessions, greeted = 0, False
for line in sys.stdin.buffer:
    try:
        asked = json.loads(line)
    except ValueError:
        continue
    method = asked.get("method")
    if "id" not in asked:
        if method == "session/cancel":
            cancelled.set()
    elif method == "initialize":
        greeted = True
        send({"id": asked["id"], "result": initialize(asked)})
    elif KIND == "strict" and not greeted:
        send({"id": asked["id"], "error": {"code": -32600, "message": "initialize first"}})
        sys.exit(1)
    elif method == "session/new":
        sessions += 1
        send({"id": asked["id"], "result": {"sessionId": f"s{os.getpid()}-{sessions}"}})
    elif method == "session/prompt":
        cancelled.clear()
        threading.Thread(target=turn, args=(asked,)).start()
    else:
        send({"id": asked["id"], "error": {"code": -32601, "message": "no such method"}})
"""


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    file = tmp_path / "stub.py"
    file.write_text(STUB)
    return file


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [sys.executable, "-m", "coupler", *map(str, words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )


def checked(stub: Path, kind: str, *only: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The report of `coupler check` on one kind of stub, and its results by id."""
    chosen = ["--only", ",".join(only)] if only else []
    done = run("check", *chosen, "--json", "--", sys.executable, stub, kind)
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["passes"] else 1), done.stderr
    return report, {result["id"]: result for result in report["results"]}


def diagnosed(stub: Path, kind: str) -> tuple[bool, dict[str, dict[str, Any]]]:
    """Whether `coupler agents doctor` finds one kind of stub healthy, and its findings by their subject."""
    done = run("agents", "doctor", shlex.join([sys.executable, str(stub), kind]), "--json")
    diagnosis = json.loads(done.stdout)
    assert done.returncode == (0 if diagnosis["is_healthy"] else 1), done.stderr
    return diagnosis["is_healthy"], {finding["about"]: finding for finding in diagnosis["findings"]}


def test_an_agent_that_ignores_a_cancel_fails_without_a_slow_prompt(stub: Path) -> None:
    report, found = checked(stub, "deaf", "A52")

    assert not report["passes"]
    assert found["A52"]["outcome"] == "failed"
    assert "updates came after the cancel" in found["A52"]["message"]
    assert 'ended with "end_turn"' in found["A52"]["message"]


def test_the_doctor_tells_that_a_cancel_is_ignored(stub: Path) -> None:
    healthy, found = diagnosed(stub, "deaf")

    assert not healthy
    assert found["cancel"]["level"] == "problem"
    assert "updates came after the cancel" in found["cancel"]["sentence"]


@pytest.mark.parametrize(
    ("kind", "assertion", "advice"),
    [
        ("unflushed", "A01", "flush stdout after every message"),
        ("pretty", "A08", "every message on one line"),
    ],
)
def test_output_that_no_client_can_read_fails_in_seconds_with_what_to_do(
    kind: str, assertion: str, advice: str, stub: Path
) -> None:
    report, found = checked(stub, kind)

    assert advice in found[assertion]["message"]
    assert report["seconds"] < 20, "the reason is known at once; silence would take 30 s"
    assert {id for id, result in found.items() if result["outcome"] == "failed"} <= {"A01", "A08"}


def test_what_cannot_be_read_is_the_first_finding_that_is_shown(stub: Path) -> None:
    done = run("check", "--", sys.executable, stub, "pretty")

    first = next(line for line in done.stdout.splitlines() if line.startswith("FAIL"))
    assert first.split()[1] == "A08"
    assert done.returncode == 1


@pytest.mark.parametrize(("kind", "advice"), [("unflushed", "flush stdout"), ("pretty", "on one line")])
def test_the_doctor_says_what_keeps_its_output_from_being_read(kind: str, advice: str, stub: Path) -> None:
    healthy, found = diagnosed(stub, kind)

    assert not healthy
    assert advice in found["conversation"]["sentence"]


@pytest.mark.parametrize(
    ("kind", "assertions"),
    [
        ("late", ["A45", "A52"]),
        ("strict", ["A01", "A07"]),
        ("two", ["A01", "A02", "A06", "A60", "S01"]),
    ],
)
def test_a_right_agent_conforms_whatever_its_ways(kind: str, assertions: list[str], stub: Path) -> None:
    report, found = checked(stub, kind, *assertions)

    wrong = {id: each["message"] for id, each in found.items() if each["outcome"] in ("failed", "warned")}
    assert wrong == {}
    assert report["passes"]


def test_a_relayed_agent_conforms(stub: Path) -> None:
    relay = [sys.executable, "-m", "coupler", "serve", "--", sys.executable, stub, "plain"]
    done = run("check", "--only", "A01,A28,A44,A45,A52,S01", "--json", "--", *relay)

    counts = json.loads(done.stdout)["counts"]
    assert (done.returncode, counts["passed"], counts["skipped"]) == (0, 6, 0), done.stdout


def test_the_doctor_takes_title_commands_and_usage_after_the_answer(stub: Path) -> None:
    healthy, found = diagnosed(stub, "late")

    assert healthy, found
    assert "order" not in found


def test_findings_are_written_in_json_and_not_in_python(stub: Path) -> None:
    stub.write_text(STUB.replace('"agentInfo": info', '"agentInfo": {"name": None, "old": True}'))
    _, found = checked(stub, "plain", "A06", "A60", "S01")

    said = " ".join(each["message"] for each in found.values())
    assert '{"name": null, "old": true}' in said
    assert [word for word in ("None", "True", "'", "`str`") if word in said] == []

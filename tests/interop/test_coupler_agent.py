"""Clients on the official SDKs drive Coupler's agent."""

import json
import subprocess
from typing import Any

import pytest

pytestmark = pytest.mark.long


def drive(client: list[str], agent: list[str], prompt: str, permission: str = "-") -> dict[str, Any]:
    """Let a client prompt an agent once; return its report."""
    done = subprocess.run([*client, prompt, permission, *agent], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_they_shake_hands_and_a_prompt_is_answered(sdk_client: list[str], coupler_agent: list[str]) -> None:
    report = drive(sdk_client, coupler_agent, "3")
    assert report["initialized"]["protocolVersion"] == 1
    assert report["initialized"]["agentInfo"]["name"]
    assert report["sessionId"]
    assert report["chunks"] == ["0 ", "1 ", "2 "]
    assert report["stopReason"] == "end_turn"


def test_twenty_thousand_updates_arrive_in_order(sdk_client: list[str], coupler_agent: list[str]) -> None:
    report = drive(sdk_client, coupler_agent, "20000")
    assert report["chunks"] == [f"{i} " for i in range(20_000)]
    assert report["stopReason"] == "end_turn"


def test_a_long_turn_is_cancelled(sdk_client: list[str], coupler_agent: list[str]) -> None:
    report = drive(sdk_client, coupler_agent, "slow")
    assert report["chunks"] == ["started"]
    assert report["stopReason"] == "cancelled"
    assert report["seconds"] < 5


@pytest.mark.parametrize(("permission", "said"), [("allow_once", "allowed"), ("reject_once", "rejected")])
def test_permission_is_asked_and_the_answer_is_obeyed(
    sdk_client: list[str], coupler_agent: list[str], permission: str, said: str
) -> None:
    report = drive(sdk_client, coupler_agent, "ask", permission)
    assert report["chunks"] == [said]
    [asked] = report["asked"]
    [announced] = [update for update in report["updates"] if update["sessionUpdate"] == "tool_call"]
    assert asked["toolCall"]["toolCallId"] == announced["toolCallId"]
    assert announced["title"] == "Delete notes.txt"
    assert announced["kind"] == "delete"
    statuses = [update["status"] for update in report["updates"] if "status" in update]
    assert statuses[-1] in {"completed", "failed"}
    assert report["stopReason"] == "end_turn"

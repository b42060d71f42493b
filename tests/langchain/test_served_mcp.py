"""MCP tools in a served LangChain agent, over stdio: as the user sees and decides them."""

import json
import subprocess
import sys
import time

import pytest

from agent.steps import asks, cancel, end_of, final_call, text_of, tool_updates
from labs.langchain.desk import CLERK, SERVERS, server
from raw_client import PATIENCE, texts
from runtime.test_child import gone_within


def test_tools_of_the_session_are_offered_and_asked_about_under_the_models_own_call(desk):
    at = desk(CLERK)

    answers = at.does(["read_memo", {"text": "x"}])

    assert answers == [["success", '{"text": "x"}']]
    (question,) = at.asked
    assert question["params"]["toolCall"]["toolCallId"] == "call_1_0"
    call = final_call(at.updates)
    assert (call["toolCallId"], call["kind"], call["status"]) == ("call_1_0", "read", "completed")
    assert text_of(call) == '{"text": "x"}'
    assert len({update["toolCallId"] for update in tool_updates(at.updates)}) == 1


def test_a_no_is_an_error_that_the_model_reads(desk):
    at = desk(CLERK)

    ((status, content),) = at.does(["count", {}], answer="reject_once")

    assert status == "error"
    assert "not permitted by the user" in content
    assert final_call(at.updates)["status"] == "failed"


def test_blocks_are_shown_as_the_server_gave_them(desk):
    at = desk(CLERK)

    at.does(["show", {}])

    shown = [item["content"]["type"] for item in final_call(at.updates)["content"]]
    assert shown == ["text", "image", "audio", "resource", "resource", "resource_link"]


def test_progress_and_questions_reach_the_user(desk):
    at = desk(CLERK, elicitation={"form": {}})
    reply = {"elicitation/create": {"result": {"action": "accept", "content": {"colour": "red"}}}}

    assert at.does(["count", {}]) == [["success", "counted"]]
    assert text_of(final_call(at.updates)) == "1/3 step 1\n2/3 step 2\n3/3 step 3\ncounted"

    ((_, content),) = at.does(["order", {}], replies=reply)
    assert json.loads(content) == {"action": "accept", "content": {"colour": "red"}}
    assert at.asked[-1]["params"]["toolCallId"] == "call_2_0"


def test_one_that_fails_is_told_once_and_costs_only_its_own_tools(desk):
    at = desk(server("plain.py", "exit", name="bad"), CLERK)

    assert "read_memo" in at.names()
    assert "The tools of the MCP server `bad` are missing" in texts(at.updates)
    assert "no licence found" in texts(at.updates)

    assert "read_memo" in at.names()
    assert "missing" not in texts(at.updates)


def test_other_sessions_have_none_of_them(desk):
    with_clerk, without = desk(CLERK), desk()

    assert "read_memo" in with_clerk.names()
    assert "read_memo" not in without.names()


def test_names_that_two_servers_have_get_their_prefixes(desk):
    at = desk(CLERK, server("clerk.py", name="other"))
    names = at.names()
    assert {"clerk_count", "other_count"} <= {*names}
    assert "count" not in names


def test_a_cancel_while_a_server_works_ends_the_turn_and_the_session_goes_on(desk):
    at = desk(CLERK)
    request = at.begin(["sleep", {}])
    *_, question = at.client.read_until(asks("session/request_permission"))
    outcome = {"outcome": "selected", "optionId": "allow_once"}
    at.client.send({"id": question["id"], "result": {"outcome": outcome}})
    at.client.read_until(
        lambda frame: frame.get("params", {}).get("update", {}).get("status") == "in_progress"
    )
    at.client.send(cancel(at.session))

    updates, answer = end_of(at.client, request)

    assert answer["result"] == {"stopReason": "cancelled"}
    assert tool_updates(updates)[-1]["status"] == "failed"
    assert "read_memo" in at.names()


def test_they_end_with_the_session(desk, tmp_path):
    at = desk(server("plain.py", "fine", tmp_path / "starts", name="plain"))
    assert "echo" in at.names()
    (pid,) = map(int, (tmp_path / "starts").read_text().split())

    at.client.call("session/close", {"sessionId": at.session})

    assert gone_within(PATIENCE, pid)


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_servers_behind_an_address_are_used_in_the_same_way(desk, transport):
    command = [sys.executable, str(SERVERS / "shop.py"), transport]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline())
        url = f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
        at = desk({"name": "shop", "type": transport, "url": url, "headers": []})
        assert at.does(["price", {"item": "tea"}]) == [["success", "tea: 3 EUR"]]
        process.kill()


@pytest.mark.slow
def test_one_that_hangs_holds_up_the_first_model_call_for_ten_seconds_and_no_other(desk):
    begun = time.monotonic()
    at = desk(server("plain.py", "mute", name="mute"), CLERK)
    assert time.monotonic() - begun < 5

    assert "read_memo" in at.names()
    assert 8 < time.monotonic() - begun < 20

    again = time.monotonic()
    assert "read_memo" in at.names()
    assert time.monotonic() - again < 5


def test_servers_that_the_editor_changes_are_changed(desk, tmp_path):
    at = desk(CLERK)
    assert "read_memo" in at.names()

    params = {"sessionId": at.session, "cwd": str(tmp_path)}
    others = [server("plain.py", "fine", name="plain")]
    assert "result" in at.client.call("session/resume", {**params, "mcpServers": others})

    names = at.names()
    assert "echo" in names
    assert "read_memo" not in names

"""What belongs to the session works in every agent that a tool runs, whatever that agent runs in."""

import json
import re
import time

import pytest

from agent.steps import asks, cancel, end_of, final_call, text_of
from labs.langchain.desk import CLERK
from labs.langchain.ordering import accepted, selected
from raw_client import PATIENCE
from runtime.test_child import gone_within

WAYS = {
    "in the same loop": ("async def", "await inner.ainvoke(given)"),
    "in another loop": ("def", "asyncio.run(inner.ainvoke(given))"),
    "in a thread": ("def", "inner.invoke(given)"),
}
HELD_UP = ("async def", "inner.invoke(given)")
"""This agent lets everything wait for it, and so whoever it waits for as well."""


def delegating(way, inner):
    define, done = way
    return f"""
from coupler.langchain import current

inner = {inner}

@tool
{define} delegate(task: str) -> str:
    "Let another do it."
    given = {{"messages": [("user", task)]}}
    usual, current.LOOP_PATIENCE = current.LOOP_PATIENCE, {0.1 if way is HELD_UP else 30}
    try:
        return ({done})["messages"][-1].text
    finally:
        current.LOOP_PATIENCE = usual

agent = agent_with(tools=[delegate])
"""


def delegated(at, name, arguments, **more):
    """Have a tool called by the inner agent; what that was answered, and the titles of what was asked."""
    [[status, content]] = at.does(("delegate", {"task": json.dumps([(name, arguments)])}), **more)
    assert status == "success", content
    [answer] = json.loads(content)
    return answer, [question["params"]["toolCall"]["title"] for question in at.asked]


def wait_until(holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
class TestEverywhere:
    def test_editor_tools_ask_and_do(self, order, tmp_path, way):
        (tmp_path / "a.txt").write_text("text\n")
        at = order(delegating(way, "agent_with(tools=acp.editor_tools())"))

        read = delegated(at, "read_file", {"path": "a.txt"})
        ran = delegated(at, "run_command", {"command": "echo hi"})
        refused = delegated(at, "write_file", {"path": "b.txt", "content": "b"}, reply="reject_once")
        wrote = delegated(at, "write_file", {"path": "b.txt", "content": "b"})

        assert read == (["success", "     1\ttext"], [])
        assert ran == (["success", "hi\n(exit code 0)"], ["Run echo hi"])
        assert (refused[0][0], refused[1]) == ("error", ["Write b.txt"])
        assert (wrote[0][0], wrote[1]) == ("success", ["Write b.txt"])
        assert (tmp_path / "b.txt").read_text() == "b"
        calls = [*at.calls.values()]
        assert [(call["name"], call["status"]) for call in calls] == [
            ("delegate", "completed"),
            ("write_file", "completed"),
        ]

    def test_mcp_tools_are_offered_and_called(self, order, way):
        at = order(delegating(way, "agent_with(acp.tools(), tools=[])"), servers=[CLERK])

        answer, asked = delegated(at, "read_memo", {"text": "x"})

        assert answer == ["success", json.dumps({"text": "x"})]
        assert len(asked) == 1

    def test_a_cancel_ends_what_they_do(self, order, tmp_path, way):
        at = order(delegating(way, "agent_with(tools=acp.editor_tools())"))
        task = json.dumps(
            [("run_command", {"command": "echo $$ > pid.part; mv pid.part pid; exec sleep 60"})]
        )
        request = at.client.prompt_request(at.id, json.dumps([("delegate", {"task": task})]))
        at.client.send(request)
        *_, question = at.client.read_until(asks("session/request_permission"))
        at.client.send({"id": question["id"], "result": selected("allow_once")})
        wait_until((tmp_path / "pid").exists)

        at.client.send(cancel(at.id))

        assert end_of(at.client, request)[1]["result"]["stopReason"] == "cancelled"
        assert gone_within(PATIENCE, int((tmp_path / "pid").read_text()))

    def test_a_mode_holds(self, order, way):
        at = order(delegating(way, "agent_with(acp.modes('read-only'))"))

        (status, content), asked = delegated(at, "write_file", {"path": "a", "content": "b"})

        assert (status, asked) == ("error", [])
        assert "no such tool in the mode" in content
        assert [(call["name"], call["status"]) for call in at.calls.values()] == [
            ("delegate", "completed"),
            ("write_file", "failed"),
        ]


@pytest.mark.parametrize(
    "waits", ["acp.current().wait_for(forever())", "asyncio.run(acp.current().on_loop(forever()))"]
)
def test_what_a_thread_waits_for_ends_with_the_turn(order, tmp_path, waits):
    at = order(
        f"""
@tool
def hold(text: str) -> str:
    "Wait for something."
    async def forever():
        Path(session.cwd, "begun").touch()
        try:
            await asyncio.sleep(60)
        finally:
            Path(session.cwd, "ended").touch()
    {waits}

agent = agent_with(tools=[hold])
"""
    )
    request = at.client.prompt_request(at.id, json.dumps([("hold", {"text": "x"})]))
    at.client.send(request)
    wait_until((tmp_path / "begun").exists)

    at.client.send(cancel(at.id))

    assert end_of(at.client, request)[1]["result"]["stopReason"] == "cancelled"
    wait_until((tmp_path / "ended").exists)


def test_progress_is_shown_and_a_form_asked_for_in_another_loop(order):
    at = order(
        """
@tool
def count(what: str) -> int:
    "Ask how many there are."
    async def asked():
        await acp.current().progress("asking ")
        return await acp.current().ask("How many?", int)
    return asyncio.run(asked()).value

agent = agent_with(tools=[count])
""",
        forms=True,
    )

    def reply(frame):
        return accepted(value=3) if frame["method"] == "elicitation/create" else selected("allow_once")

    assert at.does(("count", {"what": "x"}), reply=reply) == [["success", "3"]]
    assert text_of(final_call(at.updates)) == "asking 3"


def test_an_editor_tool_that_would_wait_for_ever_is_an_error_that_the_model_reads(order):
    at = order(delegating(HELD_UP, "agent_with(tools=acp.editor_tools())"))

    (status, content), asked = delegated(at, "read_file", {"path": "order.py"})

    assert (status, asked) == ("error", [])
    assert "holds up the event loop" in content
    assert "ainvoke" in content


def test_so_is_an_mcp_tool(order):
    at = order(
        """
@tool
async def use(text: str) -> str:
    "Use a tool without awaiting it."
    given = {"name": "read_memo", "args": {"text": text}, "id": "c", "type": "tool_call"}
    return acp.current().tools["read_memo"].invoke(given).text

agent = agent_with(acp.tools(), tools=[use])
""",
        servers=[CLERK],
    )

    [[_, content]] = at.does(("use", {"text": "x"}))

    assert content.startswith("read_memo was not used: ")
    assert "holds up the event loop" in content


def test_mcp_tools_that_cannot_be_asked_for_are_left_out_and_the_log_says_why(order):
    at = order(delegating(HELD_UP, "agent_with(acp.tools(), tools=[lookup])"), servers=[CLERK])

    (status, content), _ = delegated(at, "read_memo", {"text": "x"})

    assert (status, "not a valid tool" in content) == ("error", True)
    wait_until(lambda: re.search(rb"MCP servers are left out: .*holds up the event loop", at.client.stderr))

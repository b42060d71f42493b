"""The editor's tools in a served agent, over stdio: commands, as the user decides them, and sessions."""

import asyncio

import pytest

from agent.steps import asks, cancel, end_of, final_call, text_of, tool_updates
from coupler.langchain.editor_tools.tools import editor_tools
from labs.langchain.desk import Desk, one
from raw_client import PATIENCE
from runtime.test_child import gone_within


class TestCommands:
    def test_a_command_is_asked_about_as_it_is_and_its_output_shown_as_it_comes(self, desk, tmp_path):
        at = desk()

        answer = one(at.does(["run_command", {"command": "echo out; echo err >&2; exit 3"}]))

        assert answer == ("success", "out\nerr\n(exit code 3)")
        (question,) = at.asked
        assert question["params"]["toolCall"]["rawInput"]["command"] == "echo out; echo err >&2; exit 3"
        call = final_call(at.updates)
        assert (call["kind"], call["status"], text_of(call)) == (
            "execute",
            "failed",
            "out\nerr\n\nexit code 3",
        )

    def test_a_command_that_takes_too_long_is_ended(self, desk):
        command = {"command": "echo begun; sleep 60", "timeout": 0.5}
        assert one(desk().does(["run_command", command])) == (
            "success",
            "begun\n(it was ended after 0.5 s)",
        )

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"command": "true", "directory": "/"}, "outside of the session's directories"),
            ({"command": "true", "timeout": 0}, "a number of seconds up to 3600"),
        ],
    )
    def test_what_cannot_be_run_is_an_error_and_nobody_is_asked(self, desk, arguments, problem):
        at = desk()
        status, content = one(at.does(["run_command", arguments]))
        assert status == "error"
        assert problem in content
        assert at.asked == []

    def test_a_cancel_ends_the_command(self, desk, tmp_path):
        at = desk()
        request = at.begin(["run_command", {"command": "echo $$ > pid; echo there; exec sleep 60"}])
        *_, question = at.client.read_until(asks("session/request_permission"))
        outcome = {"outcome": "selected", "optionId": "allow_once"}
        at.client.send({"id": question["id"], "result": {"outcome": outcome}})
        at.client.read_until(
            lambda frame: "there" in str(frame.get("params", {}).get("update", {}).get("content"))
        )
        at.client.send(cancel(at.session))

        updates, answer = end_of(at.client, request)

        assert answer["result"] == {"stopReason": "cancelled"}
        assert gone_within(PATIENCE, int((tmp_path / "pid").read_text()))
        assert tool_updates(updates)[-1]["status"] == "failed"


def test_two_sessions_work_in_their_own_folders_at_once(clients, tmp_path):
    client = clients()
    desks = []
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who.txt").write_text(name)
        desks.append(Desk(client, tmp_path / name))
    requests = [at.begin(["run_command", {"command": "cat who.txt"}]) for at in desks]
    questions = {}
    while len(questions) < 2:
        frame = client.read()
        if frame.get("method") == "session/request_permission":
            questions[frame["params"]["sessionId"]] = frame
    outputs = {at.session: "" for at in desks}
    # Both wait at once; the one that was asked last is answered first.
    outcome = {"result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}
    client.send(*({"id": questions[at.session]["id"], **outcome} for at in reversed(desks)))
    left = {request["id"] for request in requests}
    while left:
        frame = client.read()
        if frame.get("id") in left and "result" in frame:
            left.discard(frame["id"])
        elif frame.get("method") == "session/update":
            update = frame["params"]["update"]
            if update["sessionUpdate"] == "agent_message_chunk":
                outputs[frame["params"]["sessionId"]] += update["content"]["text"]

    said = [outputs[at.session] for at in desks]
    assert said == [f'[["success", "{name}\\n(exit code 0)"]]' for name in ("left", "right")]


def test_without_being_served_they_say_what_to_do():
    async def story():
        tool = editor_tools()[0]
        return await tool.ainvoke({"name": tool.name, "args": {"path": "a"}, "id": "c1", "type": "tool_call"})

    message = asyncio.run(story())
    assert (message.status, message.content) == (
        "error",
        "this tool works in an editor's session: serve the agent to use it",
    )

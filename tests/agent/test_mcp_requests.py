"""What an MCP server tells and asks in the middle of a call: it reaches the user, and nobody else."""

import sys
from pathlib import Path

import pytest

from agent.steps import OBEDIENT, asks, cancel, end_of, final_call, text_of
from raw_client import texts

CLERK = Path(__file__).parent / "servers" / "clerk.py"
FORMS = {"elicitation": {"form": {}, "url": {}}}
YES = {"result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}

pytestmark = pytest.mark.usefixtures("unmeasured")


def clerk(manner="old"):
    return {"name": "clerk", "command": sys.executable, "args": [str(CLERK), manner], "env": []}


class Desk:
    """A session with the server; every use of a tool is permitted."""

    def __init__(self, client, manner="old"):
        self.client = client
        answer = client.call("session/new", {"cwd": "/", "mcpServers": [clerk(manner)]})
        self.session = answer["result"]["sessionId"]

    def begin(self, tool, limit=None):
        code = (
            f"result = await turn.mcp.call('clerk', {tool!r}, timeout={limit})\nawait turn.say(result.text)"
        )
        request = self.client.prompt_request(self.session, code)
        self.client.send(request)
        *_, dialog = self.client.read_until(asks("session/request_permission"))
        self.client.send({"id": dialog["id"], **YES})
        return request

    def asked(self, tool, limit=None):
        """What the user is asked once the tool is permitted."""
        request = self.begin(tool, limit)
        *_, question = self.client.read_until(asks("elicitation/create"))
        return request, question


def test_progress_is_shown_by_the_call_before_its_result(share):
    desk = Desk(share(OBEDIENT)[0])

    updates, _ = end_of(desk.client, desk.begin("count"))

    assert text_of(final_call(updates)) == "1/3 step 1\n2/3 step 2\n3/3 step 3\ncounted"


@pytest.mark.parametrize(("manner", "prefix"), [("old", ""), ("new", "s ")])
def test_a_question_is_a_form_that_names_the_server_and_belongs_to_the_call(share, manner, prefix):
    desk = Desk(share(OBEDIENT, **FORMS)[0], manner)

    request, question = desk.asked("order")
    reply = {"action": "accept", "content": {"colour": "blue"}}
    desk.client.send({"id": question["id"], "result": reply})
    updates, _ = end_of(desk.client, request)

    params = question["params"]
    assert params["message"] == "the MCP server `clerk` asks: Which colour?"
    assert [*params["requestedSchema"]["properties"]] == ["colour"]
    assert params["toolCallId"] == final_call(updates)["toolCallId"]
    assert texts(updates) == f'{prefix}{{"action": "accept", "content": {{"colour": "blue"}}}}'


@pytest.mark.parametrize(
    "reply", [{"result": {"action": "decline"}}, {"error": {"code": -32603, "message": "no"}}]
)
def test_what_the_user_does_not_answer_is_declined(share, reply):
    desk = Desk(share(OBEDIENT, **FORMS)[0])

    request, question = desk.asked("order")
    desk.client.send({"id": question["id"], **reply})

    assert texts(end_of(desk.client, request)[0]) == '{"action": "decline"}'


def test_a_page_is_opened_with_the_users_consent(share):
    desk = Desk(share(OBEDIENT, **FORMS)[0])

    request, question = desk.asked("sign")
    desk.client.send({"id": question["id"], "result": {"action": "accept"}})

    assert (question["params"]["mode"], question["params"]["url"]) == ("url", "https://example.com/sign")
    assert texts(end_of(desk.client, request)[0]) == '{"action": "accept"}'


def test_a_form_that_asks_for_a_secret_is_declined_and_never_shown(share):
    desk = Desk(share(OBEDIENT, **FORMS)[0])

    updates, _ = end_of(desk.client, desk.begin("pry"))

    assert texts(updates) == '{"action": "decline"}'


def test_a_cancel_takes_the_question_back_and_the_server_is_used_on(share):
    desk = Desk(share(OBEDIENT, **FORMS)[0])

    request, question = desk.asked("order")
    desk.client.send(cancel(desk.session))
    frames = desk.client.read_until(lambda frame: frame.get("id") == request["id"] and "result" in frame)

    assert frames[-1]["result"] == {"stopReason": "cancelled"}
    taken_back = [frame for frame in frames if frame.get("method") == "$/cancel_request"]
    assert [frame["params"]["requestId"] for frame in taken_back] == [question["id"]]
    assert texts(end_of(desk.client, desk.begin("read_memo"))[0]) == "{}"

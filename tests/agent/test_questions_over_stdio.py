"""Questions in a turn, over stdio: in the way that the client offered, and with every kind of answer."""

import pytest

from agent.steps import asks, end_of, error_of
from raw_client import texts

ASKING = """
from dataclasses import dataclass
from typing import Literal

@dataclass
class Trip:
    place: str
    days: int = 3

async def agent(turn):
    if turn.text == "url":
        answer = await turn.ask_url("Log in there", "https://example.com/login")
        if answer.accepted:
            await turn.complete_url(answer.id)
    elif turn.text == "choice":
        answer = await turn.ask("Which one?", Literal["red", "blue"])
    else:
        answer = await turn.ask("Where to?", Trip)
    await turn.say(f"{answer.action} {answer.value}")
"""
FORMS = {"elicitation": {"form": {}}}
PAGES = {"elicitation": {"url": {}}}


def converse_about(client, session, text, method, reply):
    request = client.prompt_request(session, text)
    client.send(request)
    *_, question = client.read_until(asks(method))
    client.send({"id": question["id"], **reply})
    updates, answer = end_of(client, request)
    return question["params"], updates, answer


def test_a_form_is_shown_and_its_answer_typed(share):
    client, session = share(ASKING, **FORMS)
    reply = {"result": {"action": "accept", "content": {"place": "Rome", "days": 5}}}

    params, updates, _ = converse_about(client, session, "form", "elicitation/create", reply)

    assert (params["mode"], params["sessionId"], params["message"]) == ("form", session, "Where to?")
    assert params["requestedSchema"]["properties"]["days"]["type"] == "integer"
    assert texts(updates) == "accept Trip(place='Rome', days=5)"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"result": {"action": "decline"}}, "decline None"),
        ({"result": {"action": "cancel"}}, "cancel None"),
        ({"error": {"code": -32603, "message": "no"}}, "decline None"),
        ({"result": {"action": "whatever"}}, "decline None"),
    ],
)
def test_to_decline_is_an_answer(share, reply, said):
    client, session = share(ASKING, **FORMS)

    _, updates, answer = converse_about(client, session, "form", "elicitation/create", reply)

    assert texts(updates) == said
    assert answer["result"] == {"stopReason": "end_turn"}


def test_a_choice_is_a_permission_dialog_for_clients_without_forms(share):
    client, session = share(ASKING)
    reply = {"result": {"outcome": {"outcome": "selected", "optionId": "choice_2"}}}

    params, updates, _ = converse_about(client, session, "choice", "session/request_permission", reply)

    assert [option["name"] for option in params["options"][:2]] == ["red", "blue"]
    assert texts(updates) == "accept blue"


def test_other_questions_are_put_in_the_chat(share):
    client, session = share(ASKING)

    updates, _ = client.prompt(session, "form")

    assert "Where to?" in texts(updates)
    assert texts(updates).endswith("decline None")


def test_a_page_is_opened_and_completed(share):
    client, session = share(ASKING, **PAGES)

    params, _, _ = converse_about(
        client, session, "url", "elicitation/create", {"result": {"action": "accept"}}
    )

    assert (params["mode"], params["url"]) == ("url", "https://example.com/login")
    completions = [line for line in client.lines if b"elicitation/complete" in line]
    assert params["elicitationId"].encode() in completions[-1]


@pytest.mark.parametrize("offered", [{}, {"elicitation": {}}, {"elicitation": {"form": None, "url": None}}])
def test_nothing_is_asked_in_a_way_that_was_not_offered(share, offered):
    client, session = share(ASKING, **offered)

    for text in ("form", "url"):
        _, answer = client.prompt(session, text)
        assert answer["result"] == {"stopReason": "end_turn"}
    assert not [line for line in client.lines if b"elicitation/create" in line]


def test_a_cancel_wins_over_an_open_form(share):
    client, session = share(ASKING, **FORMS)
    request = client.prompt_request(session, "form")
    client.send(request)
    client.read_until(asks("elicitation/create"))

    client.send({"method": "session/cancel", "params": {"sessionId": session}})

    assert client.answer_to(request)["result"] == {"stopReason": "cancelled"}


def test_a_form_that_asks_for_a_secret_is_the_agent_s_fault(share):
    client, session = share(
        """
        async def agent(turn):
            await turn.ask("Your password?", str)
        """,
        **FORMS,
    )

    assert error_of(client.prompt(session)[1]) == (-32603, "agent_failed")

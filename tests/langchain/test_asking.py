"""Tools that ask the user themselves, by `acp.current()`: from coroutines and from plain functions."""

import pytest

CHOOSES = """
COLORS = {"type": "string", "enum": ["red", "blue"]}

@tool
async def choose() -> str:
    "Let the user choose."
    answer = await acp.current().ask("Which color?", COLORS)
    return f"{answer.accepted}: {answer.value}"

@tool
def choose_in_thread() -> str:
    "Let the user choose."
    answer = acp.current().ask_and_wait("Which color?", COLORS)
    return f"{answer.accepted}: {answer.value}"

@tool
async def choose_wrongly() -> str:
    "Let the user choose."
    return str(acp.current().ask_and_wait("Which color?", COLORS))

agent = agent_with(tools=[choose, choose_in_thread, choose_wrongly])
"""


def choosing(color):
    def reply(question):
        (field,) = question["params"]["requestedSchema"]["properties"]
        return {"action": "accept", "content": {field: color}}

    return reply


@pytest.mark.parametrize("name", ["choose", "choose_in_thread"])
@pytest.mark.parametrize(
    ("reply", "answer"), [(choosing("blue"), "True: blue"), ({"action": "decline"}, "False: None")]
)
def test_a_tool_is_told_what_the_user_answers(order, name, reply, answer):
    at = order(CHOOSES, forms=True)

    assert at.does((name, {}), reply=reply) == [["success", answer]]
    (question,) = at.asked
    assert question["params"]["message"] == "Which color?"


def test_a_coroutine_that_would_stop_everything_is_told_to_await(order):
    ((status, content),) = order(CHOOSES, forms=True).does(("choose_wrongly", {}))

    assert (status, "await `ask` instead" in content) == ("error", True)

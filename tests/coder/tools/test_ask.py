"""`ask_user` in a served agent: by a form, by a dialog, in the chat, and what the model reads of each."""

import pytest

from agent.steps import text_of, update_of
from labs.langchain.ordering import accepted, offered, order, stages
from raw_client import is_answer_to

__all__ = ["order", "stages"]

SOURCE = """
from coupler.coder.tools.questions import ask_tools
agent = agent_with(tools=[*TOOLS, *ask_tools(session)])
"""

QUESTION = {"question": "Which database?"}
CHOICE = {"question": "Which database?", "options": ["SQLite", "Postgres"]}


@pytest.fixture(autouse=True)
def has_all_imported(langchain_loaded):
    """Processes that are started begin with LangChain imported."""
    with langchain_loaded.used():
        yield


def asking(order, **more):
    return order(SOURCE, **more)


def one(answers):
    ((status, content),) = answers
    return status, content


def prompted(at, text, reply=None):
    """Prompt, and return the frames up to the answer: an agent that has asked in the chat says no JSON."""
    request = at.client.prompt_request(at.id, text)
    at.client.send(request)
    frames = []
    while not frames or not is_answer_to(frames[-1], request["id"]):
        frames.append(at.client.read())
    at.updates = [update_of(frame) for frame in frames if frame.get("method") == "session/update"]
    assert frames[-1]["result"]["stopReason"] == "end_turn"
    return "".join(
        update["content"]["text"] for update in at.updates if update["sessionUpdate"] == "agent_message_chunk"
    )


class TestForms:
    def test_an_open_question_is_a_form_with_one_line_under_the_models_own_call(self, order):
        at = asking(order, forms=True)

        answer = one(at.does(("ask_user", QUESTION), reply=accepted(answer=" SQLite ")))

        (question,) = at.asked
        assert answer == ("success", "The user answered: SQLite")
        assert question["params"]["message"] == "Which database?"
        assert question["params"]["toolCallId"] == "call_1_0"
        assert [*question["params"]["requestedSchema"]["properties"]] == ["answer"]
        call = at.calls["call_1_0"]
        assert (call["kind"], call["status"]) == ("think", "completed")
        assert "Which database?" in call["title"]
        assert text_of(call) == "The user answered: SQLite"
        assert [*at.calls] == ["call_1_0"]

    def test_options_can_be_chosen_or_answered_in_own_words(self, order):
        at = asking(order, forms=True)

        assert one(at.does(("ask_user", CHOICE), reply=accepted(choice="Postgres")))[1].endswith(": Postgres")
        fields = at.asked[0]["params"]["requestedSchema"]["properties"]
        assert fields["choice"]["enum"] == ["SQLite", "Postgres"]

        content = one(at.does(("ask_user", CHOICE), reply=accepted(other="none at all")))[1]
        assert content.endswith(": none at all")

    def test_several_options_can_be_chosen(self, order):
        at = asking(order, forms=True)

        content = one(
            at.does(
                ("ask_user", {**CHOICE, "multiple": True}),
                reply=accepted(choice=["Postgres", "SQLite"], other="and files"),
            )
        )[1]

        assert content == "The user answered: Postgres\nSQLite\nand files"

    def test_a_form_that_was_sent_off_empty_is_shown_again(self, order):
        at = asking(order, forms=True)
        replies = iter([accepted(), accepted(choice="SQLite")])

        content = one(at.does(("ask_user", CHOICE), reply=lambda frame: next(replies)))[1]

        assert content == "The user answered: SQLite"
        assert "expected an answer" in at.asked[1]["params"]["message"]

    @pytest.mark.parametrize(
        ("action", "told"), [("decline", "The user declined"), ("cancel", "The user closed")]
    )
    def test_no_answer_is_told_to_the_model_and_the_turn_goes_on(self, order, action, told):
        at = asking(order, forms=True)

        status, content = one(at.does(("ask_user", CHOICE), reply={"action": action}))

        assert status == "success"
        assert content.startswith(told)


class TestDialogs:
    def test_without_forms_options_are_a_dialog_of_the_models_own_call(self, order):
        at = asking(order)

        content = one(at.does(("ask_user", CHOICE), reply="choice_2"))[1]

        (question,) = at.asked
        assert content == "The user answered: Postgres"
        assert question["params"]["toolCall"]["toolCallId"] == "call_1_0"
        assert "Which database?" in question["params"]["toolCall"]["title"]
        assert [option["name"] for option in question["params"]["options"]] == [
            "SQLite",
            "Postgres",
            "Decline to answer",
        ]
        assert [*at.calls] == ["call_1_0"]

    def test_a_declined_dialog_is_told_to_the_model(self, order):
        at = asking(order)

        assert one(at.does(("ask_user", CHOICE), reply="decline"))[1].startswith("The user declined")
        assert "decline" in offered(at.asked[0])

    def test_a_cancelled_dialog_is_told_to_the_model(self, order):
        at = asking(order)

        content = one(at.does(("ask_user", CHOICE), reply={"outcome": {"outcome": "cancelled"}}))[1]

        assert content.startswith("The user closed")


class TestChat:
    def test_an_open_question_ends_the_turn_and_the_next_prompt_is_its_answer(self, order):
        at = asking(order)

        said = prompted(at, '[["ask_user", {"question": "Which database?"}]]')

        assert "Which database?" in said
        assert at.calls["call_1_0"]["status"] == "completed"

        assert at.says("the small one") == '[["success", "The user answered: the small one"]]'
        assert at.asked == []

    def test_more_options_than_a_dialog_shows_are_listed_and_may_be_named_by_number(self, order):
        at = asking(order)
        options = [f"way {number}" for number in range(1, 12)]

        said = prompted(
            at, f'[["ask_user", {{"question": "Which?", "options": {options}}}]]'.replace("'", '"')
        )

        assert "11. way 11" in said
        assert at.says("11") == '[["success", "The user answered: way 11"]]'

    def test_the_answer_also_finds_its_question_after_the_session_was_loaded_again(self, order):
        at = asking(order)
        prompted(at, '[["ask_user", {"question": "Which database?"}]]')
        at.client.call("session/close", {"sessionId": at.id})
        at.client.call("session/load", {"sessionId": at.id, "cwd": str(at.cwd), "mcpServers": []})

        assert at.says("SQLite") == '[["success", "The user answered: SQLite"]]'

    def test_of_two_questions_at_once_one_is_asked_and_the_other_one_is_told_why_not(self, order):
        at = asking(order)

        said = prompted(at, '[["ask_user", {"question": "First?"}], ["ask_user", {"question": "Second?"}]]')

        assert ("First?" in said) != ("Second?" in said)
        answers = at.says("yes")
        assert "The user answered: yes" in answers
        assert "another question is asked already" in answers

    def test_another_question_can_be_asked_in_the_next_turn(self, order):
        at = asking(order)
        prompted(at, '[["ask_user", {"question": "First?"}]]')
        at.says("one")

        said = prompted(at, '[["ask_user", {"question": "Second?"}]]')

        assert "Second?" in said
        assert at.says("two") == '[["success", "The user answered: two"]]'


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"question": "  "}, "the question is empty"),
        ({"question": "x" * 4001}, "the question is too long"),
        ({"question": "Please enter your API key."}, "asks for a secret"),
        ({"question": "Which?", "options": [str(number) for number in range(21)]}, "there are 21 options"),
        ({"question": "Which?", "options": ["a", " "]}, "an option is empty"),
        ({"question": "Which?", "options": ["a", "b" * 201]}, "an option is too long"),
        ({"question": "Which?", "options": ["same", "same "]}, "there is only one option"),
        ({"question": "Which?", "multiple": True}, "`multiple` is for questions with options"),
    ],
)
def test_what_nobody_can_be_asked_is_an_error_that_says_what_to_do(order, arguments, problem):
    at = asking(order, forms=True)

    status, content = one(at.does(("ask_user", arguments)))

    assert status == "error"
    assert problem in content
    assert at.asked == []


def test_a_rule_can_deny_questions(order, tmp_path):
    (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["tool:ask_user"]\n')
    at = asking(order, forms=True)

    status, content = one(at.does(("ask_user", QUESTION)))

    assert status == "error"
    assert "tool:ask_user" in content
    assert at.asked == []

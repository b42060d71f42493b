"""Interrupts of served graphs: reviews of tool calls in both forms, and questions with and without forms."""

import json

import pytest

from agent.steps import asks, cancel, final_call, leave, text_of, update_of
from coupler.langchain.graph_run import MOST_INVALID_ANSWERS
from labs.langchain.acting import Stage, by_id
from labs.langchain.ordering import TO_ORDER, accepted, offered, selected
from raw_client import is_answer_to, texts

WRITE = ("write_file", {"path": "a.txt", "content": "x"})
LOOKUP = ("lookup", {"topic": "tea"})


@pytest.mark.parametrize("form", ["batched", "per_call"])
class TestReviews:
    def order(self, order, form, allowed="True", **more):
        return order(
            "agent = agent_with(HumanInTheLoopMiddleware("
            f'{{"write_file": {allowed}, "lookup": True}}, interrupt_mode="{form}"))',
            **more,
        )

    def test_each_call_is_asked_about_under_its_own_id_and_runs_after_a_yes(self, order, form):
        at = self.order(order, form)

        answers = at.does(WRITE, LOOKUP)

        assert answers == [["success", "wrote 'x' to a.txt with 420"], ["success", "about tea"]]
        ids = {question["params"]["toolCall"]["toolCallId"] for question in at.asked}
        assert ids == {"call_1_0", "call_1_1"}
        assert [call["status"] for call in at.calls.values()] == ["completed", "completed"]
        assert list(at.calls) == ["call_1_0", "call_1_1"]

    def test_a_no_is_an_error_that_the_model_reads_and_the_sibling_runs(self, order, form):
        at = self.order(order, form)

        answers = at.does(
            WRITE,
            LOOKUP,
            reply=lambda frame: (
                "reject_once" if frame["params"]["toolCall"]["toolCallId"] == "call_1_0" else "allow_once"
            ),
        )

        by_status = dict(answers)
        assert by_status["success"] == "about tea"
        assert "not permitted by the user" in by_status["error"]
        assert at.calls["call_1_0"]["status"] == "failed"

    def test_the_call_runs_as_the_user_edits_it(self, order, form):
        at = self.order(order, form, forms=True)

        ((status, content),) = at.does(
            WRITE,
            reply=lambda frame: (
                "edit" if "options" in frame["params"] else accepted(path="b", content="y", mode=1)
            ),
        )

        assert status == "success"
        assert content.endswith("wrote 'y' to b with 1")
        assert at.calls["call_1_0"]["rawInput"] == {"path": "b", "content": "y", "mode": 1}

    def test_the_user_answers_in_the_tool_s_place(self, order, form):
        at = self.order(order, form, forms=True)

        answers = at.does(
            WRITE, reply=lambda frame: "respond" if "options" in frame["params"] else accepted(value="by me")
        )

        assert answers == [["success", "by me"]]
        assert at.calls["call_1_0"]["status"] == "completed"

    @pytest.mark.parametrize("allowed", ["True", '{"allowed_decisions": ["approve", "reject"]}'])
    def test_a_rejection_carries_a_reason(self, order, form, allowed):
        at = self.order(order, form, allowed, forms=True)

        ((status, told),) = at.does(
            WRITE,
            reply=lambda frame: "why_not" if "options" in frame["params"] else accepted(value="it is late"),
        )

        assert status == "error"
        assert told.endswith("with reason: it is late")
        assert at.calls["call_1_0"]["status"] == "failed"
        assert "Why not?" in at.asked[1]["params"]["message"]

    def test_a_reason_that_is_not_given_is_a_rejection_all_the_same(self, order, form):
        at = self.order(order, form, forms=True)

        ((status, told),) = at.does(
            WRITE, reply=lambda frame: "why_not" if "options" in frame["params"] else {"action": "decline"}
        )

        assert status == "error"
        assert "not permitted by the user" in told

    def test_only_decisions_that_the_review_allows_are_offered(self, order, form):
        at = self.order(order, form, '{"allowed_decisions": ["approve", "edit"]}', forms=True)

        at.does(WRITE, reply="approve")

        assert set(offered(at.asked[0])) == {"approve", "edit", "allow_always"}

    @pytest.mark.parametrize("allowed", ['["approve", "edit"]', '["edit"]'])
    def test_a_no_that_the_review_has_no_word_for_is_an_error_that_the_model_reads(
        self, order, form, allowed
    ):
        at = self.order(order, form, f'{{"allowed_decisions": {allowed}}}', forms=True)

        answers = at.does(
            WRITE,
            LOOKUP,
            reply=lambda frame: (
                {"action": "decline"}
                if "options" not in frame["params"]
                else "edit"
                if frame["params"]["toolCall"]["toolCallId"] == "call_1_0"
                else "approve"
            ),
        )

        by_status = dict(answers)
        assert by_status["success"] == "about tea"
        assert "was not run: not permitted by the user" in by_status["error"]
        assert at.calls["call_1_0"]["status"] == "failed"

    def test_it_holds_in_the_agent_of_a_tool_as_well(self, order, form):
        at = order(
            f"""
review = HumanInTheLoopMiddleware(
    {{"lookup": {{"allowed_decisions": ["approve", "edit"]}}}}, interrupt_mode="{form}"
)
inner = agent_with(review, tools=[lookup])

@tool
async def delegate(task: str) -> str:
    "Delegate."
    return (await inner.ainvoke({{"messages": [("user", task)]}}))["messages"][-1].text

agent = agent_with(tools=[delegate])
""",
            forms=True,
        )

        ((_, content),) = at.does(
            ("delegate", {"task": json.dumps([LOOKUP])}),
            reply=lambda frame: "edit" if "options" in frame["params"] else {"action": "decline"},
        )

        ((status, told),) = json.loads(content)
        assert at.asked[0]["params"]["toolCall"]["toolCallId"] == list(at.calls)[1]
        assert status == "error"
        assert "was not run: not permitted by the user" in told

    def test_what_was_always_allowed_is_not_asked_again(self, order, form):
        at = self.order(order, form)

        at.does(LOOKUP, reply="allow_always")
        assert at.does(LOOKUP) == [["success", "about tea"]]
        assert at.asked == []

    def test_a_cancel_while_a_review_stands_leaves_a_session_that_works(self, order, form):
        at = self.order(order, form)
        prompt = at.client.prompt_request(at.id, '[["lookup", {"topic": "a"}]]')
        at.client.send(prompt)
        at.client.read_until(asks("session/request_permission"))

        at.client.send(cancel(at.id))
        assert at.client.answer_to(prompt)["result"]["stopReason"] == "cancelled"

        at.client._held.clear()
        assert at.does(LOOKUP) == [["success", "about tea"]]

    def test_the_user_is_asked_about_all_calls_before_one_is_answered(self, order, form):
        at = self.order(order, form)
        prompt = at.client.prompt_request(at.id, json.dumps([WRITE, LOOKUP]))
        at.client.send(prompt)

        asked = [at.client.read_until(asks("session/request_permission"))[-1] for _ in range(2)]

        assert {each["params"]["toolCall"]["toolCallId"] for each in asked} == {"call_1_0", "call_1_1"}
        for each in asked:
            at.client.send({"id": each["id"], "result": selected("allow_once")})
        assert at.client.answer_to(prompt)["result"]["stopReason"] == "end_turn"

    @pytest.mark.parametrize("allowed", ["True", '{"allowed_decisions": ["approve"]}'])
    def test_a_rule_of_coupler_toml_rejects_unasked(self, order, form, tmp_path, allowed):
        (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["tool:write_file"]\n')
        at = self.order(order, form, allowed)

        assert at.does(WRITE)[0][0] == "error"
        assert at.asked == []


def test_a_tool_that_asks_in_the_middle_is_permitted_once_and_gets_its_answer(order):
    at = order(
        """
class Reply(BaseModel):
    sure: bool

@tool
async def confirm(what: str) -> str:
    "Confirm."
    return f"{what}: {interrupt('Really?', response_schema=Reply).sure}"

agent = agent_with(acp.permissions({"confirm": "ask"}), tools=[confirm, lookup])
""",
        forms=True,
    )

    answers = at.does(
        ("confirm", {"what": "it"}),
        LOOKUP,
        reply=lambda frame: "allow_once" if "options" in frame["params"] else accepted(sure=True),
    )

    assert answers == [["success", "it: True"], ["success", "about tea"]]
    assert [frame["method"] for frame in at.asked] == ["session/request_permission", "elicitation/create"]
    assert [call["status"] for call in at.calls.values()] == ["completed", "completed"]


@pytest.mark.parametrize(
    "asking_first",
    [
        'acp.permissions({"confirm": acp.Rule("ask", decisions=("approve", "edit", "reject"))})',
        'acp.permissions({"confirm": "ask"}), HumanInTheLoopMiddleware({"confirm": True})',
    ],
)
def test_a_tool_that_asks_in_the_middle_is_changed_once(order, asking_first):
    at = order(CONFIRMS.replace("agent_with(", f"agent_with({asking_first}, "), forms=True)

    ((status, content),) = at.does(
        ("confirm", {"what": "a"}),
        reply=lambda frame: (
            "edit"
            if "options" in frame["params"]
            else accepted(value="yes")
            if "value" in frame["params"]["requestedSchema"]["properties"]
            else accepted(what="b")
        ),
    )

    asked = [frame["params"].get("message", "permission") for frame in at.asked]
    assert asked == ["permission", "Confirm: a", "And b?"]
    assert (status, content.splitlines()[-1]) == ("success", "yes")


def test_two_questions_at_once_are_two_forms_and_each_gets_its_own_answer(order):
    at = order(
        """
@tool
async def confirm(what: str) -> str:
    "Confirm."
    return interrupt(f"And {what}?")

agent = agent_with(tools=[confirm])
""",
        forms=True,
    )

    answers = at.does(
        ("confirm", {"what": "a"}),
        ("confirm", {"what": "b"}),
        reply=lambda frame: accepted(value=frame["params"]["message"].upper()),
    )

    assert answers == [["success", "AND A?"], ["success", "AND B?"]]


CONFIRMS = """
@tool
async def confirm(what: str) -> str:
    "Confirm."
    return interrupt(f"And {what}?")

agent = agent_with(tools=[confirm, lookup])
"""


@pytest.mark.parametrize(
    ("forms", "reason"), [(True, "the agent stopped before"), (False, "continues with the next prompt")]
)
def test_a_call_whose_question_has_no_answer_was_not_carried_out(order, forms, reason):
    at = order(CONFIRMS, forms=forms)
    request = at.client.prompt_request(at.id, json.dumps([("confirm", {"what": "a"}), LOOKUP]))
    at.client.send(request)
    if forms:
        *_, form = at.client.read_until(asks("elicitation/create"))
        at.client.send({"id": form["id"], "result": {"action": "decline"}})

    frames = at.client.read_until(lambda frame: is_answer_to(frame, request["id"]))

    ended = final_call([update_of(frame) for frame in frames if is_about(frame, "call_1_0")])
    assert ended["status"] == "failed"
    assert reason in text_of(ended)


def is_about(frame, call_id):
    return frame.get("params", {}).get("update", {}).get("toolCallId") == call_id


ASKS = """
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

class Settings(BaseModel):
    size: Literal["small", "large"]
    count: int = 1

def ask(state):
    answer = interrupt({value!r}{schema})
    return {{"messages": [AIMessage(repr(answer))]}}

agent = StateGraph(MessagesState).add_node(ask).add_edge(START, "ask").add_edge("ask", END).compile()
"""


def asking(value, schema=""):
    return ASKS.format(value=value, schema=schema)


def test_a_question_with_a_schema_is_a_form(order):
    at = order(asking("Which one?", ", response_schema=Settings"), forms=True)

    answer = at.says("go", reply=accepted(size="large", count=3))

    assert answer == "Settings(size='large', count=3)"
    (form,) = at.asked
    assert form["params"]["message"] == "Which one?"
    assert set(form["params"]["requestedSchema"]["properties"]) == {"size", "count"}


def test_a_question_without_a_schema_asks_for_a_text(order):
    at = order(asking({"question": "Who?", "about": "tea"}), forms=True)

    assert at.says("go", reply=accepted(value="me")) == "'me'"
    assert at.asked[0]["params"]["message"] == 'Who?\n\n{\n  "about": "tea"\n}'


def test_choices_in_the_value_are_a_dialog_for_a_client_without_forms(order):
    at = order(asking({"question": "Which?", "options": ["red", "blue"]}))

    assert at.says("go", reply="choice_2") == "'blue'"


def test_a_schema_that_no_form_can_show_is_answered_with_json(order):
    schema = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    at = order(asking("Which?", f", response_schema={schema}"), forms=True)
    replies = iter([accepted(value="no json"), accepted(value="[[1, 2]]")])

    assert at.says("go", reply=lambda frame: next(replies)) == "[[1, 2]]"
    assert '"items"' in at.asked[0]["params"]["message"]


def test_an_answer_that_may_be_left_out_is_asked_for_as_what_it_is(order):
    at = order(asking("Who?", ", response_schema=str | None"), forms=True)

    assert at.says("go", reply=accepted(value="me")) == "'me'"
    assert at.asked[0]["params"]["message"] == "Who?"


def test_a_question_whose_answers_never_fit_is_told_of_and_ends_the_turn(order):
    at = order(asking("How many?", ", response_schema=int"), forms=True)

    answer = at.says("go", reply=accepted(value="many"))

    assert "The agent's question has no answer" in answer
    assert "whole number" in answer


def test_an_answer_that_the_graph_cannot_use_is_asked_for_again(order):
    at = order(asking("Which?", ", response_schema=list[int]"), forms=True)
    replies = iter([accepted(value='["one"]'), accepted(value="[1]")])

    assert at.says("go", reply=lambda frame: next(replies)) == "[1]"
    assert "The answer did not fit" in texts(at.updates)


def test_a_list_is_written_in_lines_or_with_commas_in_forms_and_in_the_chat(order):
    question = asking("Which?", ", response_schema=list[int]")
    at = order(question, forms=True)

    assert at.says("go", reply=accepted(value="1, 2")) == "[1, 2]"
    at = order(question)
    assert at.says("go") == (
        "Which?\n\nWrite each on a line of its own, or all with commas between them.\n\n"
        "Write `cancel` to drop the question."
    )
    assert at.says("1\n2") == "[1, 2]"


def test_what_no_form_can_ask_for_is_written_as_json(order):
    at = order(asking("Which?", ", response_schema=dict[str, list[int]]"))

    question = at.says("go")
    assert "Answer with JSON of this schema" in question
    assert "Please answer with text" not in question
    at.says("hm")
    assert "That is no answer to the agent's question: expected JSON." in texts(at.updates)
    assert at.says('{"a": [1]}') == "{'a': [1]}"


def test_the_only_value_of_an_answer_has_no_name(order):
    at = order(asking("How many?", ", response_schema=int"))
    at.says("go")

    at.says("many")

    assert "That is no answer to the agent's question: expected a whole number." in texts(at.updates)


def test_answers_that_the_graph_can_never_use_end_the_turn(order):
    at = order(asking("Which?", ", response_schema=list[int]"), forms=True)
    request = at.client.prompt_request(at.id, "go")
    at.client.send(request)
    for _ in range(MOST_INVALID_ANSWERS + 1):
        *_, form = at.client.read_until(asks("elicitation/create"))
        at.client.send({"id": form["id"], "result": accepted(value='["one"]')})

    assert "valid integer" in at.client.answer_to(request)["error"]["message"]


def test_a_secret_is_not_asked_for_however_deep_it_is(order):
    hidden = {"properties": {"login": {"type": "object", "properties": {"password": {"type": "string"}}}}}
    at = order(asking("Sign in", f", response_schema={hidden}"), forms=True)

    answer = at.client.call("session/prompt", at.client.prompt_request(at.id, "go")["params"])

    assert "the question asks for a secret" in answer["error"]["message"]


def test_without_forms_the_question_is_put_into_the_chat_and_the_next_prompt_answers_it(order):
    at = order(asking("Who is it?"))

    assert at.says("go").startswith("Who is it?")
    assert at.says("me") == "'me'"


def test_questions_at_once_are_put_into_the_chat_one_by_one(order):
    at = order(CONFIRMS)

    assert at.says(json.dumps([("confirm", {"what": "a"}), ("confirm", {"what": "b"})])).startswith("And a?")
    assert at.says("first").startswith("And b?")
    assert json.loads(at.says("second")) == [["success", "first"], ["success", "second"]]


def test_what_is_permitted_beside_a_question_in_the_chat_runs_once(order):
    review = 'HumanInTheLoopMiddleware({"lookup": True}, interrupt_mode="per_call")'
    at = order(CONFIRMS.replace("agent_with(", f"agent_with({review}, "))

    at.says(json.dumps([("confirm", {"what": "a"}), LOOKUP]))
    assert [frame["method"] for frame in at.asked] == ["session/request_permission"]
    assert at.calls["call_1_1"]["status"] == "completed"

    assert json.loads(at.says("yes")) == [["success", "yes"], ["success", "about tea"]]
    assert at.asked == []


def test_a_call_goes_on_whose_sibling_asks_what_the_user_does_not_answer(order):
    at = order(CONFIRMS, forms=True)
    calls = [("confirm", {"what": "a"}), ("confirm", {"what": "b"})]
    declined = {"action": "decline"}

    replies = {"And a?": declined, "And b?": accepted(value="yes")}
    request = at.client.prompt_request(at.id, json.dumps(calls))
    at.client.send(request)
    for _ in calls:
        *_, form = at.client.read_until(asks("elicitation/create"))
        at.client.send({"id": form["id"], "result": replies[form["params"]["message"]]})
    frames = at.client.read_until(lambda frame: is_answer_to(frame, request["id"]))

    ended = by_id([update_of(frame) for frame in frames[:-1]])
    assert {key: call["status"] for key, call in ended.items()} == {
        "call_1_0": "failed",
        "call_1_1": "completed",
    }


INSIDE = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

done = []

def prepare(state):
    done.append("prepared")
    return {"messages": [AIMessage("Prepared.")]}

def ask(state):
    done.append(interrupt("Who?"))
    done.append(interrupt("When?"))
    return {"messages": [AIMessage(repr(done))]}

inner = StateGraph(MessagesState).add_sequence([prepare, ask]).add_edge(START, "prepare").compile()
agent = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner").compile()
"""

IN_A_TOOL = (
    INSIDE
    + """
@tool
async def delegate(what: str) -> str:
    "Delegate."
    return (await inner.ainvoke({"messages": [("user", what)]}))["messages"][-1].text

agent = agent_with(tools=[delegate])
"""
)


def test_a_graph_inside_of_the_graph_goes_on_where_it_asked_in_the_chat(order):
    at = order(INSIDE)

    assert at.says("go").startswith("Who?")
    assert at.says("me").startswith("When?")
    assert at.says("now") == "['prepared', 'me', 'me', 'now']"
    assert "Prepared." not in texts(at.updates)


def test_a_graph_inside_of_a_tool_goes_on_there_too_after_a_restart(order):
    at = order(IN_A_TOOL)

    assert at.says(json.dumps([("delegate", {"what": "it"})])).startswith("Who?")
    reopen(at)
    assert at.says("me").startswith("When?")
    ((status, content),) = json.loads(at.says("now"))
    assert (status, content.count("prepared")) == ("success", 0)  # that was done before
    assert content.endswith("'me', 'now']")


def reopen(at):
    assert "result" in at.client.call("session/close", {"sessionId": at.id})
    params = {"sessionId": at.id, "cwd": str(at.cwd), "mcpServers": []}
    assert "result" in at.client.call("session/resume", params)


def test_an_answer_in_the_chat_survives_a_restart(order):
    at = order(asking("How many?", ', response_schema={"type": "integer"}'))
    at.says("go")
    reopen(at)

    assert at.says("42") == "42"


def test_a_question_is_answered_in_another_process_after_a_wrong_answer_there(tmp_path):
    (tmp_path / "order.py").write_text(asking("Which one?", ", response_schema=Settings"))
    first = Stage(TO_ORDER, tmp_path / "home")
    client, session = first.session(tmp_path)
    assert texts(client.prompt(session, "go")[0]).startswith("Which one?")
    first.close()

    with Stage(TO_ORDER, tmp_path / "home").client as client:
        load = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        assert "result" in client.call("session/load", load)
        client._held.clear()
        assert "size: expected one of small, large" in texts(client.prompt(session, "size: none")[0])
        assert texts(client.prompt(session, "Large")[0]) == "Settings(size='large', count=1)"
        leave(client)


@pytest.mark.parametrize("form", ["batched", "per_call"])
class TestReviewsInTheChat:
    """A client without forms: the dialog has an option to decide in the chat, where more can be said."""

    def asked(self, order, form, *calls, allowed="True", reply="chat"):
        at = order(
            "agent = agent_with(HumanInTheLoopMiddleware("
            f'{{"write_file": {allowed}, "lookup": True}}, interrupt_mode="{form}"))'
        )
        return at, at.says(json.dumps(calls or [WRITE]), reply=reply)

    def test_the_question_shows_the_call_and_how_it_is_answered(self, order, form):
        at, question = self.asked(order, form)

        options = {each["optionId"]: each["name"] for each in at.asked[0]["params"]["options"]}
        assert options["chat"] == "In the chat: change it, say why not, answer in its place"
        assert "- path: a.txt" in question
        for way in ("- `approve`", "- `edit`", "`reject: reason`", "`respond: text`", "`cancel`"):
            assert way in question
        assert at.calls["call_1_0"]["status"] == "failed"

    @pytest.mark.parametrize("answer", ["no, because it is late", "reject: because it is late"])
    def test_a_rejection_carries_a_reason(self, order, form, answer):
        at, _ = self.asked(order, form)

        ((status, told),) = json.loads(at.says(answer))

        assert status == "error"
        assert told.endswith("with reason: because it is late")

    @pytest.mark.parametrize("answer", ["edit\npath: b.txt\nmode: 1", "path: b.txt\nMode: 1"])
    def test_arguments_are_changed(self, order, form, answer):
        at, _ = self.asked(order, form)

        ((status, told),) = json.loads(at.says(answer))

        assert status == "success"
        assert told.endswith("wrote 'x' to b.txt with 1")
        (call,) = at.calls.values()
        assert (call["status"], call["rawInput"]["path"]) == ("completed", "b.txt")

    def test_the_user_answers_in_the_tool_s_place(self, order, form):
        at, _ = self.asked(order, form)

        assert json.loads(at.says("respond: it is written")) == [["success", "it is written"]]

    def test_a_yes_lets_it_run_and_nobody_is_asked_again(self, order, form):
        at, _ = self.asked(order, form)
        reopen(at)

        assert json.loads(at.says("Yes")) == [["success", "wrote 'x' to a.txt with 420"]]
        assert at.asked == []

    def test_what_does_not_fit_or_is_not_allowed_is_asked_again(self, order, form):
        at, question = self.asked(order, form, allowed='{"allowed_decisions": ["edit", "respond"]}')
        assert "`approve`" not in question
        assert "approve" not in str(at.asked[0]["params"]["options"])

        for wrong in ("yes", "hm", "mode: many", "", "no"):
            assert at.says(wrong) == question, wrong

        assert json.loads(at.says("respond: done")) == [["success", "done"]]

    def test_it_is_dropped_by_the_same_word(self, order, form):
        at, _ = self.asked(order, form)

        assert "The question was dropped" in at.says("cancel")
        assert at.does(LOOKUP) == [["success", "about tea"]]

    def test_what_was_decided_in_dialogs_beside_it_is_kept(self, order, form):
        at, question = self.asked(
            order,
            form,
            WRITE,
            LOOKUP,
            reply=lambda frame: (
                "chat" if frame["params"]["toolCall"]["toolCallId"] == "call_1_0" else "allow_once"
            ),
        )
        assert "a.txt" in question

        assert json.loads(at.says("respond: done")) == [["success", "done"], ["success", "about tea"]]
        assert at.asked == []

    def test_several_are_decided_one_after_another(self, order, form):
        at, question = self.asked(order, form, WRITE, LOOKUP)
        assert "a.txt" in question

        assert "tea" in at.says("respond: done")
        assert at.asked == []
        answers = json.loads(at.says("no: not now"))
        assert answers[0] == ["success", "done"]
        assert answers[1][1].endswith("with reason: not now")


INBOX_TOOL = """
@tool
async def send(to: str, text: str) -> str:
    "Send a message."
    about = {{"action": "send", "args": {{"to": to, "text": text}}}}
    request = {{"action_request": about, "config": {config}, "description": "Is it polite?"}}
    (answer,) = interrupt({value})
    return json.dumps(answer)

agent = agent_with(tools=[send])
"""
INBOX_NODE = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

def review(state):
    about = {{"action": "Send the letter", "args": {{"to": "Ann"}}}}
    request = {{"action_request": about, "config": {config}, "description": "Is it polite?"}}
    return {{"messages": [AIMessage(json.dumps(interrupt({value})))]}}

agent = StateGraph(MessagesState).add_node("review", review).add_edge(START, "review").compile()
"""
SEND = ("send", {"to": "Ann", "text": "Hi"})


def inbox(*allowed):
    names = ("ignore", "respond", "edit", "accept")
    return (
        json.dumps({f"allow_{name}": name in allowed for name in names})
        .replace("true", "True")
        .replace("false", "False")
    )


ALL = inbox("ignore", "respond", "edit", "accept")


@pytest.mark.parametrize("value", ["[request]", "request"])
class TestAgentInbox:
    """Interrupts as Agent Inbox answers them are reviews."""

    @pytest.mark.parametrize(
        ("option", "filled", "answer"),
        [
            ("approve", None, {"type": "accept", "args": None}),
            ("reject", None, {"type": "ignore", "args": None}),
            ("respond", {"value": "Not today"}, {"type": "response", "args": "Not today"}),
            ("why_not", {"value": "rude"}, {"type": "response", "args": "The call was not run: rude."}),
            (
                "edit",
                {"to": "Bob", "text": "Hi"},
                {"type": "edit", "args": {"action": "send", "args": {"to": "Bob", "text": "Hi"}}},
            ),
        ],
        ids=lambda row: row if isinstance(row, str) else "",
    )
    def test_a_tool_gets_what_the_user_has_decided(self, order, value, option, filled, answer):
        at = order(INBOX_TOOL.format(config=ALL, value=value), forms=True)

        ((status, told),) = at.does(
            SEND, reply=lambda frame: option if "options" in frame["params"] else accepted(**(filled or {}))
        )

        assert (status, json.loads(told)) == ("success", answer)
        asked = at.asked[0]["params"]["toolCall"]
        assert asked["toolCallId"] == "call_1_0"
        assert "Is it polite?" in text_of(asked)
        (call,) = at.calls.values()
        assert call["status"] == "completed"

    @pytest.mark.parametrize(
        ("option", "answer", "status"),
        [("approve", "accept", "completed"), ("reject", "ignore", "failed")],
    )
    def test_a_node_that_is_no_tool_is_asked_about_as_a_call(self, order, value, option, answer, status):
        at = order(INBOX_NODE.format(config=ALL, value=value), forms=True)

        assert json.loads(at.says("go", reply=option)) == [{"type": answer, "args": None}]
        (call,) = at.calls.values()
        assert (call["status"], call["rawInput"]) == (status, {"to": "Ann"})

    def test_what_is_not_allowed_is_not_offered_and_a_no_is_never_a_yes(self, order, value):
        at = order(INBOX_NODE.format(config=inbox("accept", "edit"), value=value), forms=True)

        no = {"outcome": {"outcome": "cancelled"}}
        assert json.loads(at.says("go", reply=no)) == [{"type": "ignore", "args": None}]
        assert {"approve", "edit"} <= set(offered(at.asked[0])) <= {"approve", "edit", "allow_always"}

    def test_each_of_two_questions_about_the_same_is_a_call(self, order, value):
        source = INBOX_NODE.format(config=ALL, value=value)
        twice = f"[interrupt({value}), interrupt({value})]"
        at = order(source.replace(f"interrupt({value})", twice), forms=True)

        answers = json.loads(at.says("go", reply=lambda frame: ["approve", "reject"][len(at.asked) - 1]))

        assert [each[0]["type"] for each in answers] == ["accept", "ignore"]
        assert [call["status"] for call in at.calls.values()] == ["completed", "failed"]

    def test_without_forms_more_is_said_in_the_chat(self, order, value):
        at = order(INBOX_NODE.format(config=ALL, value=value))

        question = at.says("go", reply="chat")

        assert "Is it polite?" in question
        assert json.loads(at.says("respond: Not today")) == [{"type": "response", "args": "Not today"}]


def test_a_question_that_is_declined_ends_the_turn_and_the_next_prompt_begins_anew(order):
    at = order(asking("Who?"), forms=True)
    request = at.client.prompt_request(at.id, "go")
    at.client.send(request)
    *_, form = at.client.read_until(lambda frame: frame.get("method") == "elicitation/create")
    at.client.send({"id": form["id"], "result": {"action": "decline"}})
    answer = at.client.answer_to(request)
    assert answer["result"]["stopReason"] == "end_turn"

    assert at.says("again", reply=accepted(value="me")) == "'me'"


class TestBreakpoints:
    def test_the_user_is_asked_at_each_and_the_graph_goes_on_where_it_stands(self, order):
        at = order('agent = agent_with(interrupt_before=["tools"])')

        answers = at.does(LOOKUP, reply="choice_1")

        assert answers == [["success", "about tea"]]
        assert "before tools" in str(at.asked)
        assert at.calls["call_1_0"]["status"] == "completed"

    def test_a_no_ends_the_turn_and_the_next_prompt_begins_anew(self, order):
        at = order('agent = agent_with(interrupt_before=["tools"])')

        assert at.says(json.dumps([LOOKUP]), reply="choice_2") == ""
        assert at.answer["result"]["stopReason"] == "end_turn"
        assert at.calls["call_1_0"]["status"] == "failed"

        assert at.does(LOOKUP, reply="choice_1") == [["success", "about tea"]]

    def test_a_client_with_forms_is_asked_by_one(self, order):
        at = order('agent = agent_with(interrupt_after=["model"])', forms=True)

        assert at.does(LOOKUP, reply=accepted(value="Go on")) == [["success", "about tea"]]
        # After the last answer nothing is left to go on with.
        assert [frame["method"] for frame in at.asked] == ["elicitation/create"]

    def test_a_node_of_a_graph_inside_of_the_graph_is_named(self, order):
        at = order(BREAKS_INSIDE)

        at.says("go", reply="choice_1")

        assert texts(at.updates) == "insideend"
        assert ["before second" in str(frame) for frame in at.asked] == [True, False]
        assert "before last" in str(at.asked[1])


BREAKS_INSIDE = """
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

def saying(text):
    return lambda state: {"messages": [AIMessage(text)] if text else []}

inner = StateGraph(MessagesState).add_node("first", saying("")).add_node("second", saying("inside"))
inner = inner.add_edge(START, "first").add_edge("first", "second").compile(interrupt_before=["second"])
agent = StateGraph(MessagesState).add_node("inner", inner).add_node("last", saying("end"))
agent = agent.add_edge(START, "inner").add_edge("inner", "last").compile(interrupt_before=["last"])
"""


def test_a_value_that_is_only_like_a_review_is_a_question(order):
    odd = {"action_requests": [{"name": "x", "args": "not by name"}], "review_configs": []}
    at = order(asking(odd), forms=True)

    assert at.says("go", reply=accepted(value="me")) == "'me'"


class TestAnswersInTheChat:
    REVIEW = """
class Review(BaseModel):
    decision: Literal["write", "change"]
    wish: str = ""
"""

    def order(self, order, value="What now?", schema=", response_schema=Review", **more):
        return order(self.REVIEW + asking(value, schema), **more)

    def test_the_question_says_how_it_is_answered(self, order):
        asked = self.order(order).says("go")

        assert asked.startswith("What now?")
        assert "- Decision: one of write, change" in asked
        assert "`write` alone is an answer" in asked
        assert "Write `cancel` to drop the question." in asked

    @pytest.mark.parametrize("answer", ["write", "Decision: write", '{"decision": "write"}'])
    def test_plain_words_are_read_against_the_schema(self, order, answer):
        at = self.order(order)
        at.says("go")

        assert at.says(answer) == "Review(decision='write', wish='')"

    def test_what_does_not_fit_is_asked_again_as_often_as_needed(self, order):
        at = self.order(order)
        at.says("go")

        for wrong in ("paint it", "", "decision: paint"):
            asked = at.says(wrong)
            assert asked.startswith("What now?"), wrong
            assert "That is no answer to the agent's question" in texts(at.updates)
            reopen(at)

        assert at.says("change: say less") == "Review(decision='change', wish='say less')"

    def test_a_question_is_dropped_by_a_word_and_the_next_prompt_begins_anew(self, order):
        at = self.order(order)
        at.says("go")

        assert "The question was dropped" in at.says("Cancel")
        assert at.says("write").startswith("What now?")

    def test_a_question_that_names_the_word_gets_it_as_an_answer(self, order):
        at = order(asking("Order it, or cancel?"))

        assert "drop the question" not in at.says("go")
        assert at.says("cancel") == "'cancel'"

    def test_attachments_are_text_for_a_question_that_asks_for_text(self, order):
        at = order(asking("What is it about?"))
        at.says("go")

        assert at.says(attached("this")) == repr("this\n\n[Resource: a.txt](file:///a.txt)")

    def test_other_attachments_are_told_to_be_left_out(self, order):
        at = self.order(order)
        at.says("go")

        assert at.says(attached("write")) == "Review(decision='write', wish='')"
        assert "Attachments are not part of an answer" in texts(at.updates)

    def test_an_answer_without_text_is_asked_again(self, order):
        at = order(asking("What is it about?"))
        at.says("go")

        assert at.says([PICTURE]).startswith("What is it about?")
        assert at.says("tea") == "'tea'"

    def test_questions_of_branches_are_asked_again_each_for_itself(self, order):
        at = order(BRANCHES)

        assert at.says("go").startswith("How many left?")
        assert at.says("x").startswith("How many left?")
        assert at.says("1").startswith("How many right?")
        assert at.says("x").startswith("How many right?")
        assert at.says("2") == "{'left': 1, 'right': 2}"

    def test_a_question_inside_of_a_graph_is_asked_again_there(self, order):
        at = order(INSIDE.replace('interrupt("When?")', 'interrupt("When?", response_schema=int)'))
        at.says("go")

        assert at.says("me").startswith("When?")
        assert at.says("later").startswith("When?")
        assert at.says("12") == "['prepared', 'me', 'me', 12]"


PICTURE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def attached(text):
    return [
        {"type": "text", "text": text},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"},
    ]


BRANCHES = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

got = {}

def asking(side):
    async def ask(state):
        got[side] = interrupt(f"How many {side}?", response_schema=int)
    return ask

def end(state):
    return {"messages": [AIMessage(repr(dict(sorted(got.items()))))]}

agent = StateGraph(MessagesState).add_node("left", asking("left")).add_node("right", asking("right"))
agent = agent.add_node(end).add_edge(START, "left").add_edge(START, "right")
agent = agent.add_edge(["left", "right"], "end").compile()
"""

SENDS = """
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

def ask(state):
    answer = interrupt("Send it?")
    is_sent = bool({test})
    why = interrupt("What do you think of that?")
    return {{"messages": [AIMessage(f"{{'sent' if is_sent else 'not sent'}}, {{why}}")]}}

agent = StateGraph(MessagesState).add_node(ask).add_edge(START, "ask").compile(checkpointer={saver})
"""


@pytest.mark.parametrize("saver", ["None", "InMemorySaver()"])
@pytest.mark.parametrize("test", ["answer", 'answer != "no"', 'answer.lower() == "yes"'])
class TestYesAndNo:
    """The node asks twice, so that its first answer is read from the checkpointer when it runs again."""

    def test_a_no_in_the_chat_is_one_to_every_kind_of_graph(self, order, test, saver):
        at = order(SENDS.format(test=test, saver=saver))

        assert at.says("go").startswith("Send it?")
        at.says("no")
        assert at.says("fine") == "not sent, fine"

    def test_so_is_a_no_in_a_form_and_a_yes_is_a_yes(self, order, test, saver):
        at = order(SENDS.format(test=test, saver=saver), forms=True)

        for answer, then in (("no", "not sent, x"), ("yes", "sent, x")):
            replies = {"Send it?": accepted(value=answer), "What do you think of that?": accepted(value="x")}
            assert at.says("go", reply=lambda frame, told=replies: told[frame["params"]["message"]]) == then


ENTRYPOINT = """
from langgraph.func import entrypoint

@entrypoint()
def agent(text: str) -> str:
    return "You are " + interrupt("Who?") if text == "ask" else f"Answer to {text}"
"""

WITHOUT_MESSAGES = """
from langgraph.graph import START, StateGraph

class State(TypedDict):
    question: str
    answer: str

def answer(state):
    said = "You are " + interrupt("Who?") if state["question"] == "ask" else "Answer to " + state["question"]
    return {"answer": said}

class Question(TypedDict):
    question: str

agent = StateGraph(State, input_schema=Question).add_node(answer).add_edge(START, "answer").compile()
"""

TALKING_BRANCHES = """
from langchain_core.messages import AIMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import CachePolicy

def saying(text):
    async def say(state):
        return {"messages": [AIMessage(text)]}
    return say

def asking(side):
    async def ask(state):
        return {"messages": [AIMessage(f"{side}: {interrupt(side + '?')}.")]}
    return ask

inner = StateGraph(MessagesState).add_node("done", saying("Done.")).add_node("left", asking("left"))
inner = inner.add_node("right", asking("right")).add_node("last", saying("Last."), cache_policy=CachePolicy())
inner = inner.add_edge(START, "done").add_edge(START, "left").add_edge(START, "right")
inner = inner.add_edge(["done", "left", "right"], "last").compile(cache=cache)
agent = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner").compile()
"""


class TestWhatWasSaidBefore:
    @pytest.mark.parametrize("source", [ENTRYPOINT, WITHOUT_MESSAGES])
    def test_the_last_answer_is_not_said_again_at_a_question(self, order, source):
        at = order(source)

        assert at.says("tea") == "Answer to tea"
        assert at.says("ask").startswith("Who?")
        assert at.says("me") == "You are me"

    @pytest.mark.parametrize("inside", [True, False])
    def test_messages_of_other_branches_are_not_said_again_after_an_answer(self, order, inside):
        source = TALKING_BRANCHES.replace("cache=cache", "cache=InMemoryCache()")
        at = order(source if inside else source + "\nagent = inner")
        for _ in range(2):  # the second time the last node has its message from a cache
            # LangGraph gives the questions of a graph inside of another one in any order.
            first, second = ("left", "right") if at.says("go").startswith("left?") else ("right", "left")
            assert texts(at.updates).startswith(f"Done.{first}?")
            at.says("1")
            assert texts(at.updates).startswith(f"{first}: 1.{second}?")
            at.says("2")
            assert texts(at.updates) == f"{second}: 2.Last."

    def test_nor_in_a_turn_in_which_one_is_answered_and_the_other_is_not(self, order):
        at = order(TALKING_BRANCHES.replace("cache=cache", ""), forms=True)
        replies = {"left?": accepted(value="1"), "right?": {"action": "decline"}}

        at.says("go", reply=lambda frame: replies[frame["params"]["message"]])

        assert texts(at.updates) == "Done.left: 1."

"""`acp.permissions` in a served agent: what is asked, what is offered, and what a no means."""

import pytest

from agent.steps import asks, cancel, text_of
from labs.langchain.acting import statuses
from labs.langchain.ordering import accepted, offered, selected
from raw_client import is_answer_to

WRITE = ("write_file", {"path": "a.txt", "content": "x"})
LOOKUP = ("lookup", {"topic": "tea"})


def test_a_rule_asks_under_the_model_s_own_call_and_the_tool_runs_after_a_yes(order):
    at = order('agent = agent_with(acp.permissions({"write_*": "ask"}))')

    answers = at.does(WRITE)

    assert answers == [["success", "wrote 'x' to a.txt with 420"]]
    (question,) = at.asked
    asked = question["params"]["toolCall"]
    assert (asked["toolCallId"], asked["kind"], asked["title"]) == ("call_1_0", "edit", "Write file: a.txt")
    assert asked["locations"] == [{"path": str(at.cwd / "a.txt")}]
    assert asked["content"] == [
        {"type": "diff", "path": str(at.cwd / "a.txt"), "newText": "x", "oldText": None}
    ]
    assert statuses(at.updates, "call_1_0") == ["pending", "in_progress", "completed"]
    assert list(at.calls) == ["call_1_0"]


def test_a_tool_without_a_rule_runs_unasked(order):
    at = order('agent = agent_with(acp.permissions({"write_*": "ask"}))')

    assert at.does(LOOKUP) == [["success", "about tea"]]
    assert at.asked == []


def test_a_denied_call_is_an_error_that_the_model_reads_and_its_siblings_go_on(order):
    at = order('agent = agent_with(acp.permissions({"write_*": "deny"}))')

    (refused, found) = at.does(WRITE, LOOKUP)

    assert refused[0] == "error"
    assert "acp.permissions denies `write_*`" in refused[1]
    assert found == ["success", "about tea"]
    assert at.asked == []
    assert [call["status"] for call in at.calls.values()] == ["failed", "completed"]


def test_parallel_calls_are_asked_at_once_and_each_runs_by_its_own_answer(order):
    at = order('agent = agent_with(acp.permissions({"lookup": "ask"}))')
    prompt = at.client.prompt_request(at.id, '[["lookup", {"topic": "a"}], ["lookup", {"topic": "b"}]]')
    at.client.send(prompt)

    *_, first = at.client.read_until(asks("session/request_permission"))
    *_, second = at.client.read_until(asks("session/request_permission"))
    at.client.send({"id": second["id"], "result": selected("allow_once")})
    at.client.read_until(lambda frame: frame.get("params", {}).get("update", {}).get("status") == "completed")
    at.client.send({"id": first["id"], "result": selected("reject_once")})
    *updates, _ = at.client.read_until(lambda frame: is_answer_to(frame, prompt["id"]))

    ids = [frame["params"]["toolCall"]["toolCallId"] for frame in (first, second)]
    assert sorted(ids) == ["call_1_0", "call_1_1"]
    failed = [frame["params"]["update"] for frame in updates if "toolCallId" in str(frame)]
    assert {update["toolCallId"] for update in failed if update.get("status") == "failed"} == {ids[0]}


def test_a_cancel_while_a_question_stands_ends_the_turn_and_the_next_prompt_works(order):
    at = order('agent = agent_with(acp.permissions({"lookup": "ask"}))')
    prompt = at.client.prompt_request(at.id, '[["lookup", {"topic": "a"}]]')
    at.client.send(prompt)
    at.client.read_until(asks("session/request_permission"))

    at.client.send(cancel(at.id))
    *_, answer = at.client.read_until(lambda frame: is_answer_to(frame, prompt["id"]))

    assert answer["result"]["stopReason"] == "cancelled"
    assert at.does(LOOKUP) == [["success", "about tea"]]


def test_an_always_is_remembered_for_the_session(order):
    at = order('agent = agent_with(acp.permissions({"lookup": "ask"}))')

    at.does(LOOKUP, reply="allow_always")
    assert "allow_always" in offered(at.asked[0])
    assert at.does(LOOKUP) == [["success", "about tea"]]
    assert at.asked == []


def test_also_what_is_harmless_is_asked_about_if_the_author_wants_it(order):
    at = order('agent = agent_with(acp.permissions({"read_file": "ask"}))')

    assert at.does(("read_file", {"path": "a.txt"}), reply="reject_once")[0][0] == "error"
    assert len(at.asked) == 1


def test_rules_of_coupler_toml_decide_before_anybody_is_asked(order, tmp_path):
    (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["tool:lookup", "edit(secret/**)"]\n')
    at = order('agent = agent_with(acp.permissions({"*": "allow"}))')

    refused, other, written = at.does(
        LOOKUP,
        ("write_file", {"path": "secret/a", "content": ""}),
        ("write_file", {"path": "a", "content": ""}),
    )

    assert (refused[0], other[0], written[0]) == ("error", "error", "success")
    assert "coupler.toml" in refused[1]
    assert at.asked == []


def test_a_rule_of_coupler_toml_holds_for_tools_that_the_author_says_nothing_about(order, tmp_path):
    (tmp_path / "coupler.toml").write_text('[permissions]\nask = ["execute"]\ndeny = ["tool:lookup"]\n')
    at = order("agent = agent_with()")

    ran, refused = at.does(("run_command", {"command": "ls"}), LOOKUP)

    assert (ran, refused[0]) == (["success", "ran ls"], "error")
    assert [question["params"]["toolCall"]["toolCallId"] for question in at.asked] == ["call_1_0"]


@pytest.mark.parametrize(
    ("command", "rules", "questions"),
    [
        ("[[ -e plan ]]", "", 0),
        ("[[ -e plan ]]", 'deny = ["execute(rm *)"]', 1),
        # Nobody knows which program this is, so the floor wants it to be seen.
        ("$(cat plan)", "", 1),
    ],
)
def test_a_command_that_cannot_be_judged_is_asked_about_if_it_may_be_what_a_rule_means(
    order, tmp_path, command, rules, questions
):
    (tmp_path / "coupler.toml").write_text(f"[permissions]\n{rules}\n")
    at = order("agent = agent_with()")

    assert at.does(("run_command", {"command": command})) == [["success", f"ran {command}"]]
    assert len(at.asked) == questions


def test_a_rule_can_say_something_with_its_question(order):
    at = order(
        'agent = agent_with(acp.permissions({"lookup": acp.Rule("ask", message="This costs money.")}))'
    )

    at.does(LOOKUP)

    assert text_of(at.asked[0]["params"]["toolCall"]) == "This costs money."


def test_arguments_of_which_none_can_be_changed_are_approved_by_the_wish_to_change_them(order):
    at = order(
        """
@tool
async def now() -> str:
    "Tell the time."
    return "noon"

agent = agent_with(acp.permissions({"now": acp.Rule("ask", decisions=["edit"])}), tools=[now])
""",
        forms=True,
    )

    assert at.does(("now", {}), reply="edit") == [["success", "noon"]]
    assert len(at.asked) == 1


def test_a_rule_says_what_kind_its_tools_are(order):
    at = order('agent = agent_with(acp.permissions({"lookup": {"effect": "allow", "kind": "search"}}))')

    at.does(LOOKUP)

    assert at.calls["call_1_0"]["kind"] == "search"


def test_a_hidden_start_is_shown_when_the_user_is_asked(order):
    at = order('agent = agent_with(acp.tools(starts=False), acp.permissions({"lookup": "ask"}))')

    at.does(LOOKUP)

    assert statuses(at.updates, "call_1_0")[0] == "pending"


class TestDecisions:
    RULE = 'acp.permissions({"write_*": acp.Rule("ask", decisions=%s)})'

    def order(self, order, decisions, **more):
        return order(f"agent = agent_with({self.RULE % (decisions,)})", **more)

    @pytest.mark.parametrize(
        ("decisions", "expected"),
        [
            (("approve", "reject"), {"allow_once", "allow_always", "reject_once", "reject_always"}),
            (("approve", "edit", "reject"), {"approve", "edit", "reject", "allow_always", "reject_always"}),
            (("edit", "reject"), {"edit", "reject", "reject_always"}),
            (("approve", "edit"), {"approve", "edit", "allow_always"}),
            (("approve",), {"approve", "allow_always"}),
            (("respond", "reject"), {"respond", "reject", "reject_always"}),
        ],
    )
    def test_only_allowed_decisions_are_offered(self, order, decisions, expected):
        at = self.order(order, decisions, forms=True)

        at.does(WRITE, reply={"outcome": {"outcome": "cancelled"}})

        assert set(offered(at.asked[0])) == expected

    def test_what_needs_a_form_is_not_offered_to_a_client_without_forms(self, order):
        at = self.order(order, ("approve", "edit", "respond", "reject"))

        at.does(WRITE)

        assert set(offered(at.asked[0])) == {"allow_once", "allow_always", "reject_once", "reject_always"}

    def test_if_nothing_can_be_offered_the_answer_is_no(self, order):
        at = self.order(order, ("edit", "reject"))

        ((status, content),) = at.does(WRITE)

        assert (status, at.asked) == ("error", [])
        assert "the client cannot show one" in content

    def test_the_user_changes_the_arguments_in_a_form_of_the_tool_s_own_schema(self, order):
        at = self.order(order, ("approve", "edit"), forms=True)

        def reply(frame):
            if frame["method"] == "session/request_permission":
                return "edit"
            return accepted(path="b.txt", content="y", mode=384)

        ((status, content),) = at.does(WRITE, reply=reply)

        form = at.asked[1]["params"]
        fields = form["requestedSchema"]["properties"]
        assert {name: field.get("default") for name, field in fields.items()} == {
            "path": "a.txt",
            "content": "x",
            "mode": 420,
        }
        assert form["requestedSchema"]["required"] == ["path", "content"]
        assert form["toolCallId"] == "call_1_0"
        assert status == "success"
        assert content.endswith("wrote 'y' to b.txt with 384")
        assert "The user has changed the arguments" in content
        assert at.calls["call_1_0"]["rawInput"] == {"path": "b.txt", "content": "y", "mode": 384}
        assert at.calls["call_1_0"]["title"] == "Write file: b.txt"

    def test_a_form_that_is_declined_is_a_no(self, order):
        at = self.order(order, ("approve", "edit"), forms=True)

        ((status, content),) = at.does(
            WRITE, reply=lambda frame: "edit" if "options" in frame["params"] else {"action": "decline"}
        )

        assert status == "error"
        assert "not permitted by the user" in content

    def test_the_user_answers_in_the_tool_s_place(self, order):
        at = self.order(order, ("respond", "reject"), forms=True)

        answers = at.does(
            WRITE,
            reply=lambda frame: "respond" if "options" in frame["params"] else accepted(value="done by me"),
        )

        assert answers == [["success", "done by me"]]

    def test_what_a_form_cannot_show_is_written_as_json_and_secrets_stay_as_they_are(self, order):
        at = order(
            'agent = agent_with(acp.permissions({"store": acp.Rule("ask", decisions=["edit"])}))', forms=True
        )
        forms = iter([accepted(record="no json"), accepted(record='{"b": 2}')])

        ((_, content),) = at.does(
            ("store", {"record": {"a": 1}, "api_key": "k"}),
            reply=lambda frame: "edit" if "options" in frame["params"] else next(forms),
        )

        _, first, second = at.asked
        fields = first["params"]["requestedSchema"]["properties"]
        assert {name: field["default"] for name, field in fields.items()} == {"record": '{"a":1}'}
        assert "expected JSON" in second["params"]["message"]
        assert content.endswith("stored {\"b\": 2} with 'k'")

    def test_what_a_rule_denies_the_user_cannot_write_into_the_form(self, order, tmp_path):
        (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["edit(secret/**)"]\n')
        at = self.order(order, ("edit",), forms=True)

        ((status, content),) = at.does(
            WRITE,
            reply=lambda frame: (
                "edit" if "options" in frame["params"] else accepted(path="secret/a", content="x")
            ),
        )

        assert status == "error"
        assert "coupler.toml" in content


@pytest.mark.parametrize("asking", ['acp.permissions({"write_file": "ask"})', 'acp.modes("interactive")'])
@pytest.mark.parametrize(("answer", "status"), [("reject_once", "error"), ("allow_once", "success")])
@pytest.mark.parametrize("running", ["inner.invoke({})", "asyncio.run(inner.ainvoke({}))"])
def test_an_agent_that_a_plain_tool_runs_asks_too(order, asking, answer, status, running):
    ran = running.format('{"messages": [("user", "go")]}')
    at = order(
        f"""
@tool("write_file")
def write(path: str) -> str:
    "Write a file."
    return path

model = ScriptedModel(script=[[call("write_file", "inner", path="a")], ["found"]])
inner = create_agent(model, [write], middleware=[{asking}, acp.plan(on=["tool_calls"]), acp.tools()])

@tool
def delegate() -> str:
    "Let another do it."
    return {ran}["messages"][2].status

agent = agent_with(tools=[delegate])
"""
    )

    assert at.does(("delegate", {}), reply=answer) == [["success", status]]
    assert [question["params"]["toolCall"]["toolCallId"] for question in at.asked] == ["inner"]


def test_an_agent_that_is_run_where_nobody_can_be_asked_is_refused(order):
    at = order(
        """
from coupler.langchain import current
current.LOOP_PATIENCE = 0.1
model = ScriptedModel(script=[[call("look", "inner")], ["found"]])

@tool
def look() -> str:
    "Look."
    return ""

inner = create_agent(model, [look], middleware=[acp.permissions({"look": "ask"})], checkpointer=False)

@tool
async def delegate() -> str:
    "Let another do it, and let everything else wait."
    content = inner.invoke({"messages": [("user", "go")]})["messages"][2].content
    current.LOOP_PATIENCE = 5.0
    return content

agent = agent_with(tools=[delegate])
"""
    )

    ((_, content),) = at.does(("delegate", {}))
    assert "await `ainvoke`" in content


def test_a_permission_is_for_one_call_also_if_a_model_uses_its_id_again(order):
    at = order(
        """
script = [[call("lookup", "same", topic="a")], [call("lookup", "same", topic="b")], ["done"]]
agent = agent_with(acp.permissions({"lookup": "ask"}), model=ScriptedModel(script=script))
"""
    )

    at.says("go")

    assert [question["params"]["toolCall"]["rawInput"]["topic"] for question in at.asked] == ["a", "b"]
    asked = [question["params"]["toolCall"]["toolCallId"] for question in at.asked]
    assert asked == list(at.calls)
    assert len({*asked}) == 2


def test_arguments_that_are_changed_after_the_question_are_judged_anew(order, tmp_path):
    (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["edit(secret/**)"]\n')
    at = order(
        """
from langchain.agents.middleware import wrap_tool_call

@wrap_tool_call
async def divert(request, handler):
    call = {**request.tool_call, "args": {"path": "secret/a", "content": "x"}}
    return await handler(request.override(tool_call=call))

agent = agent_with(acp.permissions({"write_file": "ask"}), divert)
"""
    )

    assert at.does(WRITE)[0][0] == "error"


def test_what_looks_like_a_secret_is_not_asked_for_in_a_form(order):
    at = order(
        """
@tool
async def enter_password(account: str) -> str:
    "Get it."
    return "hidden"

agent = agent_with(acp.permissions({"*": acp.Rule("ask", decisions=["respond"])}), tools=[enter_password])
""",
        forms=True,
    )

    ((status, content),) = at.does(("enter_password", {"account": "mine"}), reply="respond")
    assert status == "error"
    assert "the user could not be asked" in content

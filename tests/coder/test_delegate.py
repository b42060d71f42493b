"""`delegate` to sub-agents in a served agent: what they have, what they may do, how it is shown."""

import json

import pytest

from agent.steps import cancel, end_of, text_of, update_of
from labs.langchain.acting import by_id
from labs.langchain.ordering import order, stages

__all__ = ["order", "stages"]

SOURCE = """
from labs.langchain.scripted_model import fail
from coupler.coder.tools.questions import ask_tools
from coupler.coder.sub_agents import delegate_tools

{before}

def make_graph(sub_agent):
    own = {own}
    return create_agent({model}, own, middleware=[{todos}*sub_agent.middleware])

agent = agent_with(*[{more}], tools=[*TOOLS, *ask_tools(), *delegate_tools(make_graph, session)])
"""

LOOKUP = '[["lookup", {"topic": "tea"}]]'


ALL = "[*TOOLS, *ask_tools(), *delegate_tools(make_graph, session)]"
IN_THREE_TURNS = "(setattr(sub_agent.middleware[0], 'most_turns', 3), TOOLS)[1]"


@pytest.fixture(autouse=True)
def has_all_imported(langchain_loaded):
    """Processes that are started begin with LangChain imported."""
    with langchain_loaded.used():
        yield


def delegating(order, *, own=ALL, model="scripted()", before="", more="", todos=""):
    """A session with an agent, and more middleware, whose sub-agents have these tools and this model."""
    return order(SOURCE.format(own=own, model=model, before=before, more=more, todos=todos))


def one(answers):
    ((status, content),) = answers
    return status, content


def nested_in(calls, id):
    """The calls that a client shows below another one."""
    return [call for call in calls.values() if call.get("_meta", {}).get("coupler", {}).get("parent") == id]


class TestWork:
    def test_the_report_is_the_last_text_and_all_that_is_done_is_nested_below_the_call(self, order):
        at = delegating(order)

        status, content = one(at.does(("delegate", {"task": LOOKUP})))

        assert (status, content) == ("success", '[["success", "about tea"]]')
        call = at.calls["call_1_0"]
        (lookup,) = nested_in(at.calls, "call_1_0")
        assert (lookup["name"], lookup["status"]) == ("lookup", "completed")
        assert text_of(call).strip() == content
        assert (call["kind"], call["status"]) == ("think", "completed")

    def test_the_call_tells_who_had_which_task_how_it_ended_and_after_how_many_turns(self, order):
        at = delegating(order)

        at.does(("delegate", {"task": LOOKUP, "agent": "explore"}))

        call = at.calls["call_1_0"]
        assert call["title"] == f"Delegate to explore: {LOOKUP} (done, 2 turns)"
        assert call["rawOutput"] == {
            "agent": "explore",
            "status": "completed",
            "turns": 2,
            "stop_reason": "end_turn",
        }

    def test_nothing_of_it_is_said_by_the_agent_itself(self, order):
        at = delegating(order)

        at.does(("delegate", {"task": "tell"}))

        said = [update for update in at.updates if update["sessionUpdate"] == "agent_message_chunk"]
        assert len({update["messageId"] for update in said}) == 1

    def test_a_sub_agent_knows_its_task_and_nothing_else_of_the_conversation(self, order):
        at = delegating(order, model="ScriptedModel(script=lambda messages: [str(len(messages))])")
        at.says("tell")

        assert one(at.does(("delegate", {"task": "count"}))) == ("success", "2")

    def test_several_work_at_once(self, order):
        at = delegating(
            order,
            own="[met]",
            before="""
there = asyncio.Barrier(2)

@tool
async def met() -> str:
    "Wait for the other one."
    async with asyncio.timeout(20):
        await there.wait()
    return "met"
""",
        )
        task = {"task": '[["met", {}]]'}

        assert at.does(("delegate", task), ("delegate", task)) == [["success", '[["success", "met"]]']] * 2
        assert [len(nested_in(at.calls, f"call_1_{number}")) for number in range(2)] == [1, 1]


class TestTools:
    def test_a_sub_agent_has_the_tools_but_cannot_ask_or_delegate_itself(self, order):
        at = delegating(order)

        told = json.loads(one(at.does(("delegate", {"task": "tell"})))[1])

        assert told["tools"] == ["write_file", "read_file", "run_command", "lookup", "store"]
        assert "You are a sub-agent" in told["system"][0]

    def test_an_explorer_has_those_that_only_look(self, order):
        at = delegating(order)

        told = json.loads(one(at.does(("delegate", {"task": "tell", "agent": "explore"})))[1])

        assert told["tools"] == ["read_file"]
        assert "You only look" in told["system"][0]

    @pytest.mark.parametrize(
        ("agent", "tool"),
        [
            ("explore", ["write_file", {"path": "a", "content": "x"}]),
            ("explore", ["run_command", {"command": "ls"}]),
            ("coder", ["delegate", {"task": "tell"}]),
            ("coder", ["ask_user", {"question": "May I?"}]),
        ],
    )
    def test_a_tool_that_it_does_not_have_is_refused_though_the_model_calls_it(self, order, agent, tool):
        at = delegating(order)

        report = json.loads(one(at.does(("delegate", {"task": json.dumps([tool]), "agent": agent})))[1])

        assert report[0][0] == "error"
        assert "a sub-agent does not have this tool" in report[0][1]
        (refused,) = nested_in(at.calls, "call_1_0")
        assert refused["status"] == "failed"

    def test_what_it_wants_to_change_the_user_is_asked_about_under_its_own_call(self, order):
        at = delegating(order, own="acp.editor_tools(session)")
        write = json.dumps([["write_file", {"path": "new.txt", "content": "x"}]])

        report = json.loads(one(at.does(("delegate", {"task": write})))[1])

        (question,) = at.asked
        (written,) = nested_in(at.calls, "call_1_0")
        assert question["params"]["toolCall"]["toolCallId"] == written["toolCallId"]
        assert report[0][0] == "success"
        assert (at.cwd / "new.txt").read_text() == "x"

    def test_a_no_of_the_user_holds_for_a_sub_agent(self, order):
        at = delegating(order, own="acp.editor_tools(session)")
        write = json.dumps([["write_file", {"path": "new.txt", "content": "x"}]])

        report = json.loads(one(at.does(("delegate", {"task": write}), reply="reject_once"))[1])

        assert report[0][0] == "error"
        assert not (at.cwd / "new.txt").exists()

    @pytest.mark.parametrize("mode", ["read-only", "planning"])
    def test_where_the_session_changes_nothing_no_sub_agent_does(self, order, mode):
        at = delegating(order, more='acp.modes(acp.Mode("read-only"), acp.Mode("planning"))')
        at.set_mode(mode)

        told = json.loads(one(at.does(("delegate", {"task": "tell"})))[1])

        assert told["tools"] == ["read_file"]

    def test_its_todos_are_not_the_sessions_plan(self, order):
        at = delegating(
            order, more="TodoListMiddleware(), acp.plan()", own="[]", todos="TodoListMiddleware(), "
        )
        todos = {"todos": [{"content": "mine", "status": "pending"}]}

        at.does(("delegate", {"task": json.dumps([["write_todos", todos]])}))
        assert at.plans == []

        at.does(("write_todos", todos))
        assert at.plans[0] == [("mine", "pending")]

    def test_a_rule_that_denies_holds_for_a_sub_agent(self, order, tmp_path):
        (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["tool:lookup"]\n')
        at = delegating(order)

        report = json.loads(one(at.does(("delegate", {"task": LOOKUP})))[1])

        assert report[0][0] == "error"
        assert "tool:lookup" in report[0][1]


class TestBounds:
    def test_after_its_last_turn_it_has_to_report_and_the_model_is_told_that_it_was_stopped(self, order):
        model = """ScriptedModel(script=lambda messages: (
            ["so far so good"] if "used all turns" in messages[-1].text
            else ["looking", call("lookup", f"look_{len(messages)}", topic="tea")]
        ))"""
        at = delegating(order, own=IN_THREE_TURNS, model=model)

        status, content = one(at.does(("delegate", {"task": "look for ever"})))

        assert status == "success"
        assert content.startswith("so far so good\n\n(It was stopped because it has used all turns")
        assert at.calls["call_1_0"]["title"].endswith("(stopped, 3 turns)")
        assert at.calls["call_1_0"]["rawOutput"]["stop_reason"] == "max_turn_requests"
        assert len(nested_in(at.calls, "call_1_0")) == 2

    def test_one_that_does_not_report_then_is_ended(self, order):
        model = (
            'ScriptedModel(script=lambda messages: [call("lookup", f"look_{len(messages)}", topic="tea")])'
        )
        at = delegating(order, own=IN_THREE_TURNS, model=model)

        status, content = one(at.does(("delegate", {"task": "look for ever"})))

        assert (status, content.splitlines()[0]) == ("success", "(It has said nothing.)")
        assert at.calls["call_1_0"]["rawOutput"]["turns"] == 3

    def test_four_work_at_the_same_time_and_others_wait(self, order):
        at = delegating(
            order,
            own="[enter]",
            before="""
inside, most, full = 0, 0, asyncio.Event()

@tool
async def enter() -> str:
    "Be here together with others."
    global inside, most
    inside += 1
    most = max(most, inside)
    if inside == 4:
        full.set()
    async with asyncio.timeout(20):
        await full.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    inside -= 1
    return str(most)
""",
        )
        task = {"task": '[["enter", {}]]'}

        answers = at.does(*[("delegate", task)] * 6)

        assert {json.loads(report)[0][1] for _, report in answers} == {"4"}

    def test_a_cancel_ends_all(self, order):
        at = delegating(
            order,
            own="[hang]",
            before="""
@tool
async def hang() -> str:
    "Never return."
    try:
        await asyncio.Event().wait()
    finally:
        with (Path(session.cwd) / "ended").open("a") as file:
            file.write("x")
""",
        )
        task = {"task": '[["hang", {}]]'}
        request = at.client.prompt_request(at.id, json.dumps([["delegate", task], ["delegate", task]]))
        at.client.send(request)
        running = set()
        while len(running) < 2:
            update = update_of(at.client.read())
            if update.get("status") == "in_progress" and update["toolCallId"] not in ("call_1_0", "call_1_1"):
                running.add(update["toolCallId"])

        at.client.send(cancel(at.id))
        updates, answer = end_of(at.client, request)

        assert answer["result"] == {"stopReason": "cancelled"}
        failed = {update["toolCallId"] for update in updates if update.get("status") == "failed"}
        assert failed == {"call_1_0", "call_1_1", *running}
        assert (at.cwd / "ended").read_text() == "xx"
        outputs = [call["rawOutput"] for call in by_id(updates).values() if "rawOutput" in call]
        assert [(output["status"], output["turns"]) for output in outputs] == [("cancelled", 1)] * 2

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"task": "  "}, "the task is empty"),
            ({"task": "x" * 20_001}, "the task is too long"),
            ({"task": "do it", "agent": "explor"}, "did you mean 'explore'?"),
            ({"task": "do it", "agent": "rm -rf /"}, "there is no agent"),
            ({"task": "do it", "agent": "python3"}, "there is no agent"),
            ({"task": "do it", "agent": "coder:acp"}, "there is no agent"),
        ],
    )
    def test_what_cannot_be_given_away_is_an_error_that_says_what_can(self, order, arguments, problem):
        at = delegating(order)

        status, content = one(at.does(("delegate", arguments)))

        assert status == "error"
        assert problem in content

    def test_a_model_that_fails_fails_the_call_and_the_other_agent_is_told_why(self, order):
        at = delegating(order, model='ScriptedModel(script=[[fail(RuntimeError("no power"))]])')

        status, content = one(at.does(("delegate", {"task": "think"})))

        assert status == "error"
        assert "coder could not carry out the task" in content
        assert "no power" in content
        call = at.calls["call_1_0"]
        assert call["status"] == "failed"
        assert call["title"].endswith("(failed, 1 turn)")
        assert call["rawOutput"]["status"] == "failed"


def test_the_model_is_told_whom_there_is(order):
    at = order(
        """
from coupler.coder.sub_agents import delegate_tools

@tool
async def described() -> str:
    "Tell what the model is told of delegate."
    [delegate] = delegate_tools(None, session)
    return delegate.description

agent = agent_with(tools=[described])
"""
    )

    description = one(at.does(("described", {})))[1]

    assert "- coder: works as you do" in description
    assert "- explore: the same, but it only reads" in description


def test_an_agent_that_works_for_another_one_gives_nothing_away(order):
    at = order(
        """
import os
from coupler.coder.sub_agents import delegate_tools

os.environ["COUPLER_DELEGATED"] = "1"
try:
    agent = agent_with(tools=delegate_tools(None, session))
finally:
    del os.environ["COUPLER_DELEGATED"]
"""
    )

    assert at.tells()["tools"] == []

"""`acp.modes` and `acp.models` in a served agent: offered to the user, and switched while it works."""

import pytest

from agent.steps import asks, end_of
from coupler import acp
from labs.langchain.acting import by_id
from labs.langchain.desk import CLERK
from labs.langchain.ordering import selected
from tables import table

ALL = ["write_file", "read_file", "run_command", "lookup", "store"]


def opened(at, *servers):
    """What a session is told when it is opened again."""
    params = {"sessionId": at.id, "cwd": str(at.cwd), "mcpServers": [*servers]}
    return at.client.call("session/resume", params)["result"]


def test_the_ready_made_modes_are_offered_with_descriptions_and_the_default_first(order):
    at = order('agent = agent_with(acp.modes(default="interactive"))')

    modes = opened(at)["modes"]

    assert modes["currentModeId"] == "interactive"
    assert {mode["id"] for mode in modes["availableModes"]} == {
        "agentic",
        "interactive",
        "read-only",
        "planning",
    }
    assert all(mode["description"] for mode in modes["availableModes"])


def test_read_only_offers_reading_and_searching_tools_and_says_so(order):
    at = order('agent = agent_with(acp.modes("agentic", "read-only"), system_prompt="Be brief.")')

    assert at.tells()["tools"] == ALL
    at.set_mode("read-only")
    told = at.tells()

    assert told["tools"] == ["read_file"]
    assert told["system"][0].startswith("Be brief.\n\nYou are in read-only mode")


def test_the_tools_of_a_provider_are_offered_by_their_names_and_a_prompt_of_parts_grows_by_one(order):
    at = order(
        """
system = SystemMessage([{"type": "text", "text": "Be brief."}])
agent = agent_with(acp.modes("read-only"), tools=[lookup, {"type": "search_web"}, {"type": "run_code"}],
                   system_prompt=system)
"""
    )

    told = at.tells()
    assert told["tools"] == ["{'type': 'search_web'}"]
    assert "Be brief." in told["system"][0]
    assert "You are in read-only mode" in told["system"][0]


def test_planning_offers_no_executing_tools(order):
    at = order('agent = agent_with(acp.modes("planning"), tools=[*TOOLS, *TodoListMiddleware().tools])')

    assert at.tells()["tools"] == ["read_file", "write_todos"]


@pytest.mark.parametrize("middleware", ["acp.tools(), acp.modes()", "acp.modes(), acp.tools()"])
def test_the_tools_of_servers_are_those_of_the_mode_whichever_comes_first(order, middleware):
    at = order(f"agent = agent_with({middleware}, tools=[])")
    opened(at, CLERK)

    offered = {}
    for mode in ("agentic", "planning", "agentic"):
        at.set_mode(mode)
        offered[mode] = at.tells()["tools"]

    assert {"read_memo", "count"} <= set(offered["agentic"])
    assert offered["planning"] == ["read_memo"]


def test_a_tool_that_the_mode_lacks_does_not_run_even_if_the_model_calls_it(order):
    at = order('agent = agent_with(acp.modes("read-only"))')

    refused, read = at.does(("run_command", {"command": "ls"}), ("read_file", {"path": "a"}))

    assert (refused[0], read) == ("error", ["success", "text of a"])
    assert "no such tool in the mode 'Read only'" in refused[1]
    assert at.calls["call_1_0"]["status"] == "failed"


def test_interactive_asks_before_changes_and_agentic_does_not(order):
    at = order('agent = agent_with(acp.modes("interactive", "agentic"))')
    calls = ("write_file", {"path": "a", "content": ""}), ("read_file", {"path": "a"})

    at.does(*calls)
    assert [question["params"]["toolCall"]["toolCallId"] for question in at.asked] == ["call_1_0"]
    at.set_mode("agentic")
    at.does(*calls)
    assert at.asked == []


def test_a_mode_and_a_rule_that_both_want_to_ask_ask_once(order):
    at = order('agent = agent_with(acp.modes("interactive"), acp.permissions({"write_*": "ask"}))')

    assert at.does(("write_file", {"path": "a", "content": ""}))[0][0] == "success"
    assert len(at.asked) == 1


def test_a_switch_in_the_middle_of_a_turn_holds_from_the_next_call_on(order):
    at = order(
        """
write = lambda id: [call("write_file", id, path="a", content="")]
model = ScriptedModel(script=[write("first"), write("second"), ["done"]])
agent = agent_with(acp.modes("interactive", "read-only"), model=model)
"""
    )
    prompt = at.client.prompt_request(at.id, "go")
    at.client.send(prompt)
    *_, question = at.client.read_until(asks("session/request_permission"))

    assert "result" in at.set_mode("read-only")
    at.client.send({"id": question["id"], "result": selected("allow_once")})
    updates, answer = end_of(at.client, prompt)

    assert answer["result"]["stopReason"] == "end_turn"
    assert {id: call["status"] for id, call in by_id(updates).items() if "status" in call} == {
        "first": "completed",
        "second": "failed",
    }


def test_a_mode_of_one_s_own_has_a_prompt_tools_a_model_and_rules(order):
    at = order(
        """
careful = acp.Mode("careful", "Takes its time", prompt="Take your time.", tools=["lookup", "kind:execute"],
                   model=scripted("slow one"), permissions={"lookup": "deny"})
agent = agent_with(acp.modes(careful, "agentic"))
"""
    )

    assert at.tells() == {
        "model": "slow one",
        "tools": ["run_command", "lookup"],
        "system": ["Take your time."],
    }
    ((status, content),) = at.does(("lookup", {"topic": "tea"}))
    assert status == "error"
    assert "the mode careful denies `lookup`" in content


def test_the_mode_of_a_session_is_kept(order):
    at = order("agent = agent_with(acp.modes())")
    at.set_mode("planning")
    assert "result" in at.client.call("session/close", {"sessionId": at.id})

    assert opened(at)["modes"]["currentModeId"] == "planning"
    assert at.tells()["tools"] == ["read_file"]


def test_models_are_an_option_and_the_chosen_one_answers(order):
    at = order(
        'agent = agent_with(acp.models({"small": scripted("a"), "large": scripted("b")}, default="large"))'
    )
    option = {"sessionId": at.id, "configId": "model", "value": "small"}

    assert at.tells()["model"] == "b"
    answer = at.client.call("session/set_config_option", option)
    (select,) = answer["result"]["configOptions"]
    assert (select["currentValue"], select["category"]) == ("small", "model")
    assert at.tells()["model"] == "a"


@table(
    ("source", "told"),
    [
        ('acp.modes("agentic", default="agnetic")', "did you mean 'agentic'?"),
        ('acp.modes("read_only")', "did you mean 'read-only'?"),
        ('acp.modes("agentic", "agentic")', "two modes are called 'agentic'"),
        ('acp.modes(acp.Mode("x", tools=["kind:reed"]))', "did you mean 'read'?"),
        ('acp.models(["a"], default="b")', "is one of its choices (a)"),
    ],
)
def test_a_mistake_is_told_when_the_agent_is_made(source, told):
    with pytest.raises(ValueError, match=r".") as refused:
        eval(source, {"acp": acp})
    assert told in str(refused.value)

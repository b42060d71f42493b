"""Plans in a served agent: of todo lists, states, tool calls, reasoning, planning mode, and by hand."""

import pytest

from coupler import acp
from coupler.langchain.plan import plan_entry, plan_steps
from tables import table

TODOS = (
    "write_todos",
    {"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]},
)
SHOWN = [("a", "completed"), ("b", "pending")]


@pytest.mark.parametrize("plan", ["", "acp.plan()"])
def test_todos_are_the_plan_and_the_finished_one_is_sent_once_more(order, plan):
    at = order(f"agent = agent_with(TodoListMiddleware(), {plan})")

    at.does(TODOS)

    assert at.plans == [SHOWN, SHOWN]
    assert at.updates[-1]["sessionUpdate"] == "plan"


def test_todos_are_no_plan_if_other_sources_are_wanted(order):
    at = order('agent = agent_with(TodoListMiddleware(), acp.plan(on={"manual"}))')

    at.does(TODOS)

    assert at.plans == []


def test_tool_calls_are_the_steps_of_a_plan(order):
    at = order('agent = agent_with(acp.plan(on={"tool_calls"}))')

    at.does(("lookup", {"topic": "tea"}))

    assert at.plans == [
        [("Lookup: tea", "in_progress")],
        [("Lookup: tea", "completed")],
        [("Lookup: tea", "completed")],
    ]


def test_a_list_in_the_model_s_reasoning_is_a_plan(order):
    at = order(
        'model = ScriptedModel(script=[[think("First:\\n1. look\\n2. leap\\n"), "done"]])\n'
        'agent = agent_with(acp.plan(on={"reasoning"}), model=model)'
    )

    at.says("go")

    assert at.plans[0] == [("look", "pending"), ("leap", "pending")]


def test_a_plan_in_the_state_is_shown(order):
    at = order(
        """
from langgraph.graph import END, START, MessagesState, StateGraph

class State(MessagesState):
    plan: list[str]

def decide(state):
    return {"plan": ["look", "leap"], "messages": [("ai", "ok")]}

agent = StateGraph(State).add_node(decide).add_edge(START, "decide").add_edge("decide", END).compile()
"""
    )

    at.says("go")

    assert at.plans[0] == [("look", "pending"), ("leap", "pending")]


def test_what_the_model_answers_in_planning_mode_is_a_plan(order):
    at = order(
        'model = ScriptedModel(script=[["Like this:\\n\\n", "1. **look**\\n2. leap\\n\\nReady?"]])\n'
        'agent = agent_with(acp.modes("planning", "agentic"), acp.plan(), model=model)'
    )

    at.says("go")
    assert at.plans[0] == [("look", "pending"), ("leap", "pending")]
    at.set_mode("agentic")
    at.says("go")
    assert at.plans == []


def test_tools_show_plans_by_hand_from_coroutines_and_from_threads(order):
    at = order(
        """
@tool
async def first() -> str:
    "First."
    acp.emit_plan(["look", {"content": "leap", "status": "in_progress", "priority": "high"}])
    return ""

@tool
def second() -> str:
    "Second."
    acp.emit_plan(["rest"])
    return ""

agent = agent_with(tools=[first, second])
"""
    )

    at.does(("first", {}))
    assert at.plans[0] == [("look", "pending"), ("leap", "in_progress")]
    at.does(("second", {}))
    assert at.plans[0] == [("rest", "pending")]


def test_entries_can_be_built_otherwise_and_a_fault_in_that_costs_only_the_plan(order):
    at = order(
        "agent = agent_with(TodoListMiddleware(), "
        "acp.plan(build=lambda source, todos: [f\"{source}: {todos[0]['content']}\"]))"
    )
    at.does(TODOS)
    assert at.plans[0] == [("todos: a", "pending")]

    at = order("agent = agent_with(TodoListMiddleware(), acp.plan(build=lambda source, value: 1 / 0))")
    assert at.does(TODOS)[0][0] == "success"
    assert at.plans == []


@table(
    ("text", "steps"),
    [
        ("1. a\n2) b", ["a", "b"]),
        ("- [x] a\n- [ ] b", ["a", "b"]),
        ("* a\n\n  more of a\n\n* b\nThat is all.", ["a", "b"]),
        ("1. old\n2. old\n\nBetter:\n\n1. a\n2. b", ["a", "b"]),
        ("1. only one", None),
        ("no list", None),
        ("", None),
        ("-5 degrees\n-6 degrees", None),
    ],
)
def test_the_last_list_in_a_text_is_its_plan(text, steps):
    found = plan_steps(text)
    assert (found and [step["content"] for step in found]) == steps


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a", ("a", "medium", "pending")),
        ({"step": "a", "status": "done"}, ("a", "medium", "completed")),
        ({"title": " a\nb ", "priority": "low", "status": "weird"}, ("a b", "low", "pending")),
    ],
)
def test_entries_are_read_as_kindly_as_possible(value, shown):
    entry = plan_entry(value)
    assert entry is not None
    assert (entry.content, entry.priority, entry.status) == shown


def test_what_has_no_text_is_no_entry():
    assert plan_entry({"status": "done"}) is None
    with pytest.raises(TypeError):
        plan_entry(3)


def test_a_source_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="did you mean 'todos'"):
        acp.plan(on={"todo"})

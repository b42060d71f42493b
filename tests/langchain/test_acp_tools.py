"""`acp.tools` in a served agent: every override as the client sees it."""

import pytest

from agent.steps import text_of

LOOKUP = ("lookup", {"topic": "tea"})


def looked_up(order, wishes):
    at = order(f"agent = agent_with(acp.tools({wishes}))")
    assert at.does(LOOKUP) == [["success", "about tea"]]
    return at


def test_without_overrides_the_name_and_the_arguments_say_it_all(order):
    call = looked_up(order, "").calls["call_1_0"]

    assert (call["kind"], call["title"], text_of(call)) == ("other", "Lookup: tea", "about tea")
    assert "locations" not in call


@pytest.mark.parametrize(
    ("wish", "key", "shown"),
    [
        ('kind={"look*": "search"}', "kind", "search"),
        ('kind=lambda name, args: "fetch"', "kind", "fetch"),
        ('title={"lookup": "Looking for {topic}"}', "title", "Looking for tea"),
        ('title=lambda name, args: f"{name}!"', "title", "lookup!"),
        (
            'content={"lookup": lambda args, result: f"found {result.content}"}',
            "content",
            [{"type": "content", "content": {"type": "text", "text": "found about tea"}}],
        ),
        (
            'locations={"lookup": lambda args: [("/etc/hosts", 3)]}',
            "locations",
            [{"path": "/etc/hosts", "line": 3}],
        ),
    ],
)
def test_an_override_is_what_the_client_sees(order, wish, key, shown):
    assert looked_up(order, wish).calls["call_1_0"][key] == shown


def test_a_place_can_be_named_by_an_argument(order):
    at = looked_up(order, 'locations={"lookup": "topic"}')

    assert at.calls["call_1_0"]["locations"] == [{"path": str(at.cwd / "tea")}]


@pytest.mark.parametrize(
    ("wish", "order_of_updates"), [("", ["tool_call", "plan"]), ("starts=False", ["plan", "tool_call"])]
)
def test_without_starts_a_call_is_shown_when_it_is_over(order, wish, order_of_updates):
    at = order(
        f"""
@tool
async def act() -> str:
    "Act."
    acp.emit_plan(["this happens while it runs"])
    return "done"

agent = agent_with(acp.tools({wish}), tools=[act])
"""
    )
    at.does(("act", {}))

    told = [update["sessionUpdate"] for update in at.updates]
    assert [kind for kind in told if kind in ("plan", "tool_call")][:2] == order_of_updates
    assert at.calls["call_1_0"]["status"] == "completed"
    assert text_of(at.calls["call_1_0"]) == "done"


def test_without_results_only_the_status_is_shown(order):
    call = looked_up(order, "results=False").calls["call_1_0"]

    assert call["status"] == "completed"
    assert "content" not in call
    assert "rawOutput" not in call


def test_of_two_wishes_the_first_counts(order):
    at = order('agent = agent_with(acp.tools(title={"lookup": "first"}), acp.tools(title={"*": "second"}))')

    at.does(LOOKUP, ("read_file", {"path": "a"}))

    assert [call["title"] for call in at.calls.values()] == ["first", "second"]

"""A conversation that grows: the same as LangGraph and LangChain make of it, without a look at all of it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages

from coupler.coder.assembly import AddMessages
from coupler.coder.compaction import WithinWindow, within_window
from coupler.langchain.messages import PerMessage


def some_messages(chance: random.Random, before: list[Any]) -> Any:
    """What a node may write: mostly new messages, sometimes others for those there are."""
    ids = [message.id for message in before]
    match chance.randrange(8):
        case 0 if ids:
            return [RemoveMessage(chance.choice(ids))]
        case 1 if ids:
            return [AIMessage("another", id=chance.choice(ids)), HumanMessage("new", id="h")]
        case 2:
            return [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("anew", id=f"a{chance.random()}")]
        case 3:
            return {"role": "user", "content": "of no class", "id": f"d{chance.random()}"}
        case 4:
            return HumanMessage("alone", id=f"o{chance.random()}")
        case _:
            return [AIMessage("x", id=f"x{chance.random()}"), ToolMessage("y", tool_call_id="1", id="t")]


@pytest.mark.parametrize("seed", range(5))
def test_messages_are_added_as_langgraph_adds_them(seed: int) -> None:
    chance, adder = random.Random(seed), AddMessages()
    mine: Any = []
    theirs: Any = []
    for _ in range(60):
        new = some_messages(chance, theirs)
        # A branch looks at what the state will be before it is.
        adder.add(mine, new)

        mine, theirs = adder.add(mine, new), add_messages(theirs, new)

        assert [(type(each), each.content) for each in mine] == [
            (type(each), each.content) for each in theirs
        ]
        assert all(each.id for each in mine)


def test_a_list_that_somebody_has_added_to_is_looked_at_again() -> None:
    adder = AddMessages()
    first = adder.add([], [HumanMessage("a", id="a")])
    first.append(HumanMessage("b", id="b"))

    assert [each.content for each in adder.add(first, [HumanMessage("another b", id="b")])] == [
        "a",
        "another b",
    ]


def test_something_is_computed_once_of_each_message_and_again_behind_a_change() -> None:
    computed: list[str] = []

    def compute(message: BaseMessage) -> str:
        computed.append(str(message.content))
        return str(message.content).upper()

    values = PerMessage(compute)
    a, b, c = (HumanMessage(text) for text in "abc")

    assert values([a, b]) == ["A", "B"]
    assert values([HumanMessage("a"), b, c]) == ["A", "B", "C"]
    assert computed == ["a", "b", "c"]
    assert values([a, c]) == ["A", "C"]
    assert values([a, c, b]) == ["A", "C", "B"]
    assert computed == ["a", "b", "c", "c", "b"]


def test_long_texts_are_cut_in_a_growing_conversation_as_in_a_whole_one() -> None:
    chance, shown = random.Random(1), WithinWindow()
    messages: list[Any] = [HumanMessage("read")]
    for step in range(40):
        messages.append(AIMessage("", id=f"a{step}"))
        texts = ["x" * chance.randrange(2_000) for _ in range(chance.randrange(4))]
        messages += [ToolMessage(text, tool_call_id=f"{step}") for text in texts]
        for end in sorted({len(messages) - 1, len(messages)}):
            assert shown(messages[:end], 1_000) == within_window(messages[:end], 1_000)
    assert shown(messages, 500) == within_window(messages, 500)
    assert shown(messages[:9], 500) == within_window(messages[:9], 500)

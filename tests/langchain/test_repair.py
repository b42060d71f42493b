"""Conversations that broke off, and what mends them."""

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage

from coupler.langchain.checkpoints import INTERRUPTED, calls_without_result, continuation, repairs
from tables import table


def calling(*ids):
    return AIMessage("", tool_calls=[{"name": "do", "args": {}, "id": id} for id in ids])


def result(id, text="done"):
    return ToolMessage(text, tool_call_id=id)


ASKED = HumanMessage("do it")


@table(
    "messages",
    [[], [ASKED], [ASKED, AIMessage("done")], [ASKED, calling("a"), result("a"), AIMessage("done")]],
    ids=["nothing", "a question", "an answer", "a call with its result"],
)
def test_a_whole_conversation_is_left_alone(messages):
    assert repairs(messages) == []


def test_calls_without_results_get_one_that_says_so():
    added = repairs([ASKED, calling("a", "b"), result("a")])

    assert [(message.tool_call_id, message.content, message.status) for message in added] == [
        ("b", INTERRUPTED, "error")
    ]


def test_a_result_that_had_come_is_used():
    added = repairs([ASKED, calling("a", "b")], kept=[result("b", "there")])

    assert [(message.tool_call_id, message.content) for message in added] == [
        ("a", INTERRUPTED),
        ("b", "there"),
    ]


def test_a_call_that_could_not_be_read_needs_a_result_as_well():
    wrong = {"name": "do", "args": "{oops", "id": "a", "error": None, "type": "invalid_tool_call"}

    [added] = repairs([ASKED, AIMessage("", invalid_tool_calls=[wrong])])

    assert added.tool_call_id == "a"


def test_an_answer_that_was_cut_off_gets_its_beginning_back_behind_everything_else():
    added = repairs([ASKED, calling("a")], unfinished="Well, ")

    assert [message.type for message in added] == ["tool", "ai"]
    assert added[-1].content == "Well, "


def test_calls_without_results_in_the_middle_have_the_messages_stated_anew():
    later = HumanMessage("and now?")

    remove, *whole = repairs([ASKED, calling("a"), later])

    assert isinstance(remove, RemoveMessage)
    assert [message.type for message in whole] == ["human", "ai", "tool", "human"]


def test_a_call_with_the_id_of_an_earlier_one_that_was_answered_has_no_result_yet():
    call = {"name": "add", "args": {}, "id": "call_0", "type": "tool_call"}
    answered = [HumanMessage("a"), AIMessage("", tool_calls=[call]), ToolMessage("3", tool_call_id="call_0")]

    [added] = repairs([*answered, HumanMessage("b"), AIMessage("", tool_calls=[call])])

    assert (added.tool_call_id, added.status) == ("call_0", "error")


def test_a_call_without_an_id_gets_one_so_that_a_result_can_name_it():
    call = {"name": "add", "args": {}, "id": None, "type": "tool_call"}

    *_, message, result = repairs([HumanMessage("a"), AIMessage("", tool_calls=[call])])

    assert message.tool_calls[0]["id"] == result.tool_call_id != ""


def test_what_was_said_inside_is_added_with_results_for_its_calls():
    inside = calling("a")

    added = repairs([ASKED], more=[inside])

    assert added[0] is inside
    assert [message.tool_call_id for message in added[1:]] == ["a"]


def test_only_a_conversation_inside_that_goes_on_with_the_outer_one_is_part_of_it():
    asked, said, own = HumanMessage("do it", id="1"), AIMessage("on it", id="2"), HumanMessage("help", id="3")

    assert continuation([asked], [asked, said]) == [said]
    assert continuation([asked], [own, said]) == []
    assert continuation([asked, said], [asked]) == []


def test_calls_are_open_until_they_have_a_result_of_their_own():
    messages = [ASKED, calling("a"), result("a"), calling("a", "b"), result("b"), AIMessage("done")]

    assert calls_without_result(messages) == [("a", "do")]

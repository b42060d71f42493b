"""Where a conversation is cut: calls stay with their results, and nothing unseen is lost."""

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from client.stage import unhurried
from coupler.coder.compaction import Compacted, beginning_to_summarize, visible_messages, within_window

LENGTHS = st.integers(0, 4000)


def _step(number, lengths):
    """An answer with calls, and their results."""
    calls = [{"name": "read", "args": {}, "id": f"{number}-{at}"} for at in range(len(lengths))]
    results = [
        ToolMessage("x" * length, tool_call_id=call["id"])
        for call, length in zip(calls, lengths, strict=True)
    ]
    return [AIMessage("I look.", tool_calls=calls), *results]


@st.composite
def conversations(draw):
    """Prompts, each with some steps and an answer; the last may not be answered yet."""
    messages = []
    for turn in range(draw(st.integers(1, 4))):
        messages.append(HumanMessage("y" * draw(LENGTHS)))
        for step in range(draw(st.integers(0, 4))):
            messages += _step(f"{turn}-{step}", draw(st.lists(LENGTHS, min_size=1, max_size=3)))
        messages.append(AIMessage("z" * draw(LENGTHS)))
    if draw(st.booleans()):
        messages.pop()
    for number, message in enumerate(messages):
        message.id = str(number)
    return messages


@unhurried
@given(conversations(), st.integers(0, 5000))
def test_calls_stay_with_their_results_and_what_waits_for_an_answer_stays(messages, keep):
    cut = beginning_to_summarize(messages, keep)
    kept = messages[cut:]

    assert not kept or not isinstance(kept[0], ToolMessage)
    called = {call["id"] for each in kept if isinstance(each, AIMessage) for call in each.tool_calls}
    assert called == {each.tool_call_id for each in kept if isinstance(each, ToolMessage)}
    if not isinstance(messages[-1], AIMessage):
        assert kept, "the model has not seen its end yet"


@unhurried
@given(conversations(), st.integers(0, 5000), st.integers(0, 5000))
def test_who_keeps_more_cuts_no_later(messages, one, other):
    less, more = sorted((one, other))

    assert beginning_to_summarize(messages, more) <= beginning_to_summarize(messages, less)


@unhurried
@given(conversations(), st.integers(100, 3000))
def test_what_is_made_to_fit_stays_the_same_when_more_comes(messages, window):
    whole = within_window(messages, window)

    for end in range(1, len(messages)):
        if not isinstance(messages[end], ToolMessage):
            assert within_window(messages[:end], window) == whole[:end]


@unhurried
@given(conversations(), st.integers(0, 5000))
def test_the_summary_stands_before_what_is_kept(messages, keep):
    cut = beginning_to_summarize(messages, keep)
    if cut == 0:
        return
    compacted = Compacted(until=messages[cut - 1].id, seen=messages[-1].id, text="notes", read=[], changed=[])

    first, *rest = visible_messages({"messages": messages, "compacted": compacted})

    assert first.text == "notes"
    assert rest == messages[cut:]

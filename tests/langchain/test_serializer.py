"""What a graph holds is kept as far as it can be, and never a reason to fail."""

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from coupler.langchain.serializer import StateSerializer
from tables import table


def kept(value):
    serializer = StateSerializer()
    return serializer.loads_typed(serializer.dumps_typed(value))


def circular():
    value = {}
    value["self"] = [value, value]
    return value


ARTIFACTS = {
    "an object": object(),
    "a key": {object(): 1},
    "a circle": circular(),
    "a number": 2**80,
    "a function": circular,
}


@table("artifact", ARTIFACTS.values(), ids=ARTIFACTS)
def test_an_artifact_that_cannot_be_written_costs_only_itself(artifact):
    messages = [HumanMessage("hello"), ToolMessage("done", tool_call_id="c", artifact=artifact)]

    before, after = kept({"messages": messages})["messages"]

    assert before == messages[0]
    assert (after.content, after.tool_call_id) == ("done", "c")
    assert after.artifact is not None


def test_numbers_beyond_the_format_keep_their_digits():
    call = {"name": "add", "args": {"a": 2**70, "b": 1}, "id": "c", "type": "tool_call"}

    message = kept([AIMessage("", tool_calls=[call])])[0]

    assert message.tool_calls[0]["args"] == {"a": str(2**70), "b": 1}


def test_what_can_be_written_stays_as_it_is():
    value = {"messages": [HumanMessage("a")], "kinds": {1, 2}}

    assert kept(value) == value

"""Models choose the ids of their calls, and choose badly: no call gets what another one was permitted."""

import json

import pytest

TELLS = 'json.dumps([[m.status, m.content] for m in messages if m.type == "tool"])'

ONE_ID_FOR_TWO = f"""
def script(messages):
    if messages[-1].type == "human":
        read = call("read_file", "c", path="a.txt")
        return [read, call("run_command", "c", index=1, command="echo done")]
    return [{TELLS}]

agent = agent_with(model=ScriptedModel(script=script), tools=acp.editor_tools())
"""

THE_ID_OF_THE_CALL_AROUND = f"""
def inner_script(messages):
    if messages[-1].type == "human":
        return [call("run_command", "c", command="echo done")]
    return [str(messages[-1].content)]

inner = agent_with(model=ScriptedModel(script=inner_script), tools=acp.editor_tools())

@tool
async def delegate(task: str) -> str:
    "Have another agent do it."
    answer = await inner.ainvoke({{"messages": [HumanMessage(task)]}})
    return answer["messages"][-1].text

def script(messages):
    if messages[-1].type == "human":
        return [call("delegate", "c", task="x")]
    return [{TELLS}]

asks = acp.permissions({{"delegate": "ask"}})
agent = agent_with(asks, model=ScriptedModel(script=script), tools=[delegate])
"""


def only(*words):
    """Say yes to calls with one of these words in their title, and no to all others."""

    def reply(frame):
        is_meant = any(word in frame["params"]["toolCall"]["title"] for word in words)
        return "allow_once" if is_meant else "reject_once"

    return reply


def test_a_call_with_the_id_of_its_sibling_is_asked_about(order, tmp_path):
    (tmp_path / "a.txt").write_text("text\n")
    session = order(ONE_ID_FOR_TWO)

    results = json.loads(session.says("go", reply=only()))

    assert [question["params"]["toolCall"]["title"] for question in session.asked] == ["Run echo done"]
    assert results[0] == ["success", "     1\ttext"]
    assert results[1][0] == "error"
    assert sorted(call["status"] for call in session.calls.values()) == ["completed", "failed"]


def test_a_call_in_a_call_of_the_same_id_is_another_one(order):
    session = order(THE_ID_OF_THE_CALL_AROUND)

    [[status, content]] = json.loads(session.says("go", reply=only("Delegate")))

    outer, inner = session.calls
    assert [question["params"]["toolCall"]["toolCallId"] for question in session.asked] == [outer, inner]
    assert (status, content) == ("success", "it was not done: not permitted by the user")
    assert [call["status"] for call in session.calls.values()] == ["completed", "failed"]
    assert session.calls[inner]["_meta"]["coupler"]["parent"] == outer


@pytest.mark.parametrize("ending", ["SystemExit(3)", "KeyboardInterrupt()", "BaseException('odd')"])
def test_a_tool_that_wants_to_end_everything_ends_its_turn_and_leaves_a_usable_conversation(order, ending):
    session = order(f"""
@tool
async def leave() -> str:
    "End the process."
    raise {ending}

def script(messages):
    if messages[-1].text == "leave":
        return [call("leave", "c")]
    return [json.dumps([m.type for m in messages])]

agent = agent_with(model=ScriptedModel(script=script), tools=[leave])
""")
    _, answer = session.client.prompt(session.id, "leave")
    assert answer["error"]["code"] == -32603

    assert json.loads(session.says("go on")) == ["human", "ai", "tool", "human"]

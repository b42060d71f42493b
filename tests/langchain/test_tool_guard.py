"""Rules of `coupler.toml` hold for every tool that runs in a served graph, whoever runs it."""

import json

import pytest

INNER = """
@tool
def lookup(topic: str) -> str:
    "Look something up, in a coroutine or not."
    return f"about {topic}"

def inner_script(messages):
    if messages[-1].type == "human":
        # The same id as the call around it: models count as they like.
        return [call("lookup", "call_1_0", topic="secrets")]
    return [str(messages[-1].content)]

inner = agent_with(model=ScriptedModel(script=inner_script), tools=[lookup])
"""

IN_A_COROUTINE = """
@tool
async def delegate(task: str) -> str:
    "Have another agent do it."
    answer = await inner.ainvoke({"messages": [HumanMessage(task)]})
    return answer["messages"][-1].text

agent = agent_with(tools=[delegate])
"""

IN_A_THREAD = """
@tool
def delegate(task: str) -> str:
    "Have another agent do it."
    return inner.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

agent = agent_with(tools=[delegate])
"""

WITHOUT_A_NODE_FOR_TOOLS = """
@tool
async def delegate(task: str) -> str:
    "Use another tool."
    try:
        return await lookup.ainvoke({"topic": task})
    except Exception as error:
        return str(error)

agent = agent_with(tools=[delegate])
"""

ON_THE_LOOP = """
@tool
def lookup(topic: str) -> str:
    "Look something up."
    return f"about {topic}"

@tool
async def delegate(task: str) -> str:
    "Use another tool, and await nothing."
    try:
        return lookup.invoke({"topic": task})
    except Exception as error:
        return str(error)

agent = agent_with(tools=[delegate])
"""

WAYS = [
    pytest.param(INNER + IN_A_COROUTINE, id="by an agent in a coroutine"),
    pytest.param(INNER + IN_A_THREAD, id="by an agent in a plain function"),
    pytest.param(WITHOUT_A_NODE_FOR_TOOLS, id="by the code of another tool"),
    pytest.param(ON_THE_LOOP, id="by code that awaits nothing"),
]


@pytest.mark.parametrize("source", WAYS)
def test_a_denied_tool_is_not_run(order, tmp_path, source):
    (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["tool:lookup"]\n')
    session = order(source)

    [[_, content]] = session.does(("delegate", {"task": "secrets"}))

    assert "was not run: not permitted" in content
    assert "about secrets" not in json.dumps(session.updates)
    assert session.asked == []
    assert [call["status"] for call in session.calls.values()] == ["completed", "failed"]


@pytest.mark.parametrize("source", WAYS[:3])
@pytest.mark.parametrize("answer", ["allow_once", "reject_once"])
def test_a_tool_that_has_to_be_asked_about_is_asked_about_once(order, tmp_path, source, answer):
    (tmp_path / "coupler.toml").write_text('[permissions]\nask = ["tool:lookup"]\n')
    session = order(source)

    [[_, content]] = session.does(("delegate", {"task": "secrets"}), reply=answer)

    [question] = session.asked
    assert question["params"]["toolCall"]["name"] == "lookup"
    assert question["params"]["toolCall"]["toolCallId"] == list(session.calls)[1]
    assert (content == "about secrets") == (answer == "allow_once")


def test_where_nobody_can_be_asked_the_answer_is_no(order, tmp_path):
    (tmp_path / "coupler.toml").write_text('[permissions]\nask = ["tool:lookup"]\n')
    session = order(ON_THE_LOOP)

    [[_, content]] = session.does(("delegate", {"task": "secrets"}))

    assert "nobody can be asked" in content
    assert session.asked == []

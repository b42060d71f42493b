"""The namespace `coupler.acp`, and its middleware in agents that are not served."""

import asyncio
import json
import subprocess
import sys

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from coupler import acp
from labs.langchain.scripted_model import ScriptedModel, call


@tool
def write_file(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


def agent():
    model = ScriptedModel(script=[[call("write_file", "1", path="a")], ["done"]])
    every = [
        acp.permissions({"*": "deny"}),
        acp.permissions({"*": "ask"}),
        acp.modes("read-only"),
        acp.models({"other": ScriptedModel(script=[["other"]])}),
        acp.plan(on={"todos", "tool_calls", "reasoning", "manual"}),
        acp.tools(starts=False, title={"*": "x"}),
    ]
    return create_agent(model, [write_file], middleware=every)


def test_in_an_agent_that_is_not_served_everything_passes():
    messages = agent().invoke({"messages": [("user", "go")]})["messages"]

    assert [message.content for message in messages[2:]] == ["wrote a", "done"]


def test_nor_does_anything_happen_in_one_that_is_awaited():
    messages = asyncio.run(agent().ainvoke({"messages": [("user", "go")]}))["messages"]

    assert [message.content for message in messages[2:]] == ["wrote a", "done"]


def test_without_an_editor_there_is_no_current_prompt_and_a_plan_goes_nowhere():
    assert acp.current() is None
    acp.emit_plan(["a"])


def test_every_public_name_is_there_and_no_other():
    assert set(acp.__all__) <= set(dir(acp))
    assert all(getattr(acp, name) is not None for name in acp.__all__)
    with pytest.raises(AttributeError, match="permission"):
        acp.permission  # noqa: B018


def test_the_namespace_loads_nothing_of_langchain_before_a_name_is_used():
    program = "import json, sys; from coupler import acp; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", program]))

    assert not [name for name in loaded if name.startswith(("langchain", "langgraph", "coupler.langchain"))]


def test_without_langchain_a_name_says_what_to_install():
    program = (
        "import sys; sys.modules['langchain'] = None\n"
        "from coupler import acp\n"
        "try: acp.permissions\n"
        "except ImportError as error: print(error)"
    )
    told = subprocess.check_output([sys.executable, "-c", program], text=True)

    assert told == '`acp.permissions` needs more packages: pip install "coupler[langchain]"\n'

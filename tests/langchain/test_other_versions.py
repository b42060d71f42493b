"""LangChain and LangGraph without the private names in use: a fallback, or an error with the version."""

import logging
import subprocess
import sys
from importlib import metadata

import pytest
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from coupler.coder.model import openai_chat
from coupler.langchain import middleware, tool_guard, usage


@tool
def lookup(topic: str) -> str:
    """Look something up."""
    return topic


def test_tools_of_another_tool_node_are_left_as_they_are_and_the_log_names_the_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = StateGraph(MessagesState).add_node("tools", ToolNode([lookup])).add_edge(START, "tools").compile()
    assert tool_guard.guarded(graph) is not graph
    tool_guard._tell_of_unknown_version.cache_clear()
    monkeypatch.delattr(ToolNode, "_afunc")

    with caplog.at_level(logging.WARNING, "coupler.langchain"):
        assert tool_guard.guarded(graph) is graph
        assert tool_guard.guarded(graph) is graph

    [told] = caplog.messages
    version = metadata.version("langgraph-prebuilt")
    assert told.startswith(
        f"langgraph-prebuilt {version} is not supported: a tool that raises ends the turn; "
    )


@pytest.mark.parametrize(
    ("kind", "name", "module"),
    [
        ("BaseTool", "_to_args_and_kwargs", "coupler.langchain.mcp_tools"),
        ("BaseTool", "_parse_input", "coupler.langchain.editor_tools.tool_use"),
    ],
)
def test_methods_that_nothing_can_replace_are_missed_at_the_start(kind: str, name: str, module: str) -> None:
    code = f"from langchain_core.tools import {kind}\ndel {kind}.{name}\nimport {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    version = metadata.version("langchain-core")
    assert f"MissingExtraError: langchain-core {version} is not supported, its " in done.stderr
    assert f'has no {name}: pip install "coupler[langchain]" installs a version that is' in done.stderr


def test_middleware_whose_methods_take_something_else_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def awrap_tool_call(self, request, handler, runtime):
        raise NotImplementedError

    before = awrap_tool_call.__code__
    monkeypatch.setattr(AgentMiddleware, "awrap_tool_call", awrap_tool_call)

    middleware.run_plain_middleware_in_threads()

    assert AgentMiddleware.awrap_tool_call.__code__ is before


def test_a_model_that_does_not_tell_its_name_in_private_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeListChatModel(responses=[])
    for kind in type(model).__mro__:
        if "_get_ls_params" in vars(kind):
            monkeypatch.delattr(kind, "_get_ls_params")

    assert usage._name_of(model) is None


def test_the_client_of_another_version_converts_as_langchain_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_chat, "IS_KNOWN_VERSION", False)
    model = openai_chat.OpenAIChat(model="any", api_key="none")

    payload = model._get_request_payload([HumanMessage("hello")])

    assert payload["messages"] == [{"role": "user", "content": "hello"}]
    assert openai_chat.AS_IT_IS not in payload

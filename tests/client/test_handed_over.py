"""Tools that the user gave to an agent: allowed without asking, in the forms in which real agents ask."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from client.stage import Scripted, run
from client.vendor_forms import ASKS, OURS, Form, asked, asked_by_agents, with_input
from coupler import Policy
from coupler.client.policy import PermissionRequest
from coupler.schema.v1 import McpServerStdio

Script = Callable[[str], Scripted]

PLAIN = Path(__file__).parents[1] / "agent" / "servers" / "plain.py"
TICKETS = McpServerStdio("tickets", sys.executable, [str(PLAIN), "fine"], [])


class City(msgspec.Struct):
    name: str
    path: str = ""


def lookup(city: str, path: str = "", command: str = "", options: dict[str, Any] | None = None) -> str:
    """Look a city up."""
    return city


def answers(script: Script, forms: list[Form], **options: Any) -> list[str | None]:
    """Ask in these forms, with the function and a typed answer; returns what the agent is told."""
    agent = script(ASKS)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new(tools=[lookup], output=City, mcp_servers=[TICKETS], **options)
            await session.prompt(json.dumps(forms))

    run(story())
    return agent.noted("answer")


def each_name(tool: str) -> dict[str, Form]:
    """Return the requests of real agents for a tool of the server that has the functions."""
    return asked_by_agents(OURS, tool, {"city": "Oslo"} if tool == "lookup" else {"name": "Oslo"})


NAMES = [*each_name("lookup")]


def judged(script: Script, forms: dict[str, Form], **options: Any) -> dict[str, str | None]:
    return dict(zip(forms, answers(script, [*forms.values()], **options), strict=True))


@pytest.mark.parametrize("tool", ["lookup", "structured_output"])
@pytest.mark.parametrize("policy", [None, "deny-all", "ask", lambda request: False])
def test_what_the_user_handed_over_is_allowed_in_the_form_of_every_agent(
    script: Script, tool: str, policy: Any
) -> None:
    assert judged(script, each_name(tool), permissions=policy) == dict.fromkeys(NAMES, "yes")


def test_what_is_handed_over_is_known_beside_a_server_of_the_same_name(script: Script) -> None:
    agent = script(ASKS)
    theirs = msgspec.structs.replace(TICKETS, name="coupler")
    ours = each_name("lookup")
    theirs_asked = asked_by_agents("coupler", "lookup", {"city": "Oslo"})
    forms = [*ours.values(), *theirs_asked.values()]

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new(tools=[lookup], mcp_servers=[theirs])
            await session.prompt(json.dumps(forms))

    run(story())
    assert agent.noted("answer") == ["yes"] * len(ours) + ["no"] * len(NAMES)


def test_rules_that_deny_or_ask_still_count(script: Script) -> None:
    named = dict.fromkeys(NAMES, "no")
    for rules in ({"deny": ["mcp:coupler"]}, {"deny": ["tool:lookup"]}, {"ask": ["mcp:coupler(lookup)"]}):
        assert judged(script, each_name("lookup"), permissions=Policy.patterns(**rules)) == named, rules


def test_who_only_says_a_name_like_ours_gains_nothing_by_it(script: Script) -> None:
    claimed = {
        name: asked(name=f"mcp__{name}__lookup", title="Do", kind="read", rawInput={"city": "Oslo"})
        for name in ("coupler", "Coupler", "coupler-2", "coupler2aaaaa", "coupler_2", f"{OURS}2")
    }
    allowed = Policy.patterns(allow=["mcp:coupler", "read", "tool:lookup"])
    assert judged(script, claimed, permissions=allowed) == dict.fromkeys(claimed, "no")


def test_a_rule_for_a_server_of_the_users_does_not_mean_ours(script: Script) -> None:
    theirs = msgspec.structs.replace(TICKETS, name="coupler")
    forms = [asked(name=f"mcp__{name}__lookup", rawInput={}) for name in (OURS, "coupler")]

    def answered(**rules: Any) -> list[str | None]:
        agent = script(ASKS)

        async def story() -> None:
            async with agent.connect() as remote:
                policy = Policy.patterns(**rules)
                session = await remote.new(tools=[lookup], mcp_servers=[theirs], permissions=policy)
                await session.prompt(json.dumps(forms))

        run(story())
        return agent.noted("answer")

    assert answered(deny=["mcp:coupler"]) == ["yes", "no"]
    assert answered(allow=["mcp:coupler"], deny=["mcp:coupler-2"]) == ["no", "yes"]


def test_what_is_among_the_tools_own_arguments_is_its_own_affair(script: Script) -> None:
    given = {
        "city": "x",
        "path": "/etc/passwd",
        "command": "rm -rf /",
        "options": {"url": "https://a.example"},
    }
    forms = {name: with_input(form, given) for name, form in each_name("lookup").items()}
    assert judged(script, forms) == dict.fromkeys(NAMES, "yes")
    forms = {
        name: with_input(form, {"path": "notes/a"}, locations=[{"path": "notes/a"}])
        for name, form in each_name("lookup").items()
    }
    assert judged(script, forms) == dict.fromkeys(NAMES, "yes")


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"cmd": "rm -rf build"}, {}),
        ({"city": "x", "shell_command": "ls"}, {}),
        ({"city": "x", "file_path": "/etc/passwd"}, {}),
        ({"city": "x", "more": {"url": "https://a.example/"}}, {}),
        ({"city": "x"}, {"locations": [{"path": "/etc/passwd"}]}),
        ({"city": "x"}, {"content": [{"type": "diff", "path": "a.py", "newText": "x", "oldText": None}]}),
        ({"city": "x", "env": {"PATH": "/tmp"}}, {}),
    ],
)
def test_a_name_allows_nothing_but_the_call_itself(script: Script, given: Any, more: Form) -> None:
    forms = {name: with_input(form, given, **more) for name, form in each_name("lookup").items()}
    assert judged(script, forms) == dict.fromkeys(NAMES, "no")


def test_a_command_that_looks_like_the_name_of_a_tool_is_a_command(script: Script) -> None:
    forms = {
        "title of a command": asked(title=f"{OURS}/lookup", kind="execute"),
        "title that repeats the input": asked(
            title=f"{OURS}/lookup", kind="execute", rawInput={"command": f"{OURS}/lookup"}
        ),
        "title of another tool by its id": asked(
            toolCallId="run_shell_command-1731000000000", title=f"lookup ({OURS} MCP Server)", kind="execute"
        ),
        "title of another tool by its name": asked(
            title=f"mcp__{OURS}__lookup", name="Bash", rawInput={"command": "ls"}
        ),
        "title of another tool by its meta": asked(
            title=f"mcp__{OURS}__lookup", rawInput={}, _meta={"claudeCode": {"toolName": "WebSearch"}}
        ),
        "names that disagree": asked(name=f"mcp__{OURS}__lookup", _meta={"toolName": "Bash"}, rawInput={}),
        "another server": asked(name="mcp__tickets__lookup", rawInput={"city": "x"}),
        "another tool": asked(name=f"mcp__{OURS}__deploy", rawInput={}),
        "a plain name": asked(title="lookup", name="lookup", rawInput={"city": "x"}),
        "an input with more than the call": asked(
            title="Do", rawInput={"server": OURS, "tool": "lookup", "arguments": {}, "force": True}
        ),
    }
    assert judged(script, forms) == dict.fromkeys(forms, "no")


def test_nothing_is_handed_over_in_a_session_without_tools(script: Script) -> None:
    agent = script(ASKS)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            await session.prompt(json.dumps([*each_name("lookup").values()]))

    run(story())
    assert agent.noted("answer") == ["no"] * len(NAMES)


def test_a_function_is_asked_about_everything_else(script: Script) -> None:
    heard: list[str] = []

    def decide(request: PermissionRequest) -> bool:
        heard.append(request.tool_call.title)
        return False

    forms = {"own": asked(name=f"mcp__{OURS}__lookup"), "other": asked(title="Look around", name="look")}
    assert judged(script, forms, permissions=decide) == {"own": "yes", "other": "no"}
    assert heard == ["Look around"]

"""Rules about MCP servers, for requests in the forms of real agents, and remedies that work with them."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from client.stage import Scripted, run
from client.vendor_forms import ASKS, Form, asked, asked_by_agents
from coupler import Policy
from coupler.client.observation import PermissionDecided
from coupler.mcp.tool_names import ToolName, name_in_id, names_in, qualified_name
from coupler.schema.v1 import McpServerStdio
from tables import table

Script = Callable[[str], Scripted]

PLAIN = Path(__file__).parents[1] / "agent" / "servers" / "plain.py"
GIVEN = {"text": "hi"}


def judged(
    script: Script, forms: dict[str, Form], permissions: Any, *servers: str
) -> dict[str, tuple[str | None, str | None]]:
    """Ask in these forms in a session with these servers; returns the answers and the remedies."""
    agent = script(ASKS)
    decided: list[str | None] = []

    def hear(event: object) -> None:
        if isinstance(event, PermissionDecided):
            decided.append(event.decision.remedy)

    async def story() -> None:
        async with agent.connect() as remote:
            given = [McpServerStdio(name, sys.executable, [str(PLAIN), "fine"], []) for name in servers]
            session = await remote.new(mcp_servers=given, permissions=permissions)
            session.on_event(hear)
            await session.prompt(json.dumps([*forms.values()]))

    run(story())
    answers = agent.noted("answer")
    return dict(zip(forms, zip(answers, decided, strict=True), strict=True))


def allowed(script: Script, forms: dict[str, Form], permissions: Any, *servers: str) -> set[str]:
    """The forms that are allowed."""
    told = judged(script, forms, permissions, *servers)
    return {name for name, (answer, _) in told.items() if answer == "yes"}


SERVERS = ["tickets", "my-tickets", "my_tickets", "my tickets"]
"""Names of servers; signs that fit in no name of a tool are replaced by agents."""


def spelled(server: str) -> dict[str, Form]:
    """The forms with the server's name as agents have it."""
    return asked_by_agents(server, "echo", GIVEN) | {
        f"{name}, replaced": form
        for name, form in asked_by_agents(server.replace(" ", "_").replace("-", "_"), "echo", GIVEN).items()
        if not name.startswith(("codex", "a served"))
    }


def test_a_rule_that_denies_a_server_holds_in_the_form_of_every_agent(script: Script) -> None:
    for server in SERVERS:
        for rule in (f"mcp:{server}", f"mcp:{server}(ec*)", "mcp:*(echo)", f"mcp:{server.upper()}"):
            policy = Policy.patterns(allow=["*"], deny=[rule], callback=lambda request: True)
            assert allowed(script, spelled(server), policy, server, "notes") == set(), (server, rule)
        policy = Policy.patterns(deny=["mcp:notes", f"mcp:{server}(look)"], callback=lambda request: True)
        forms = spelled(server)
        assert allowed(script, forms, policy, server, "notes") == {*forms}, server


def test_a_rule_that_allows_a_server_holds_in_the_form_of_every_agent(script: Script) -> None:
    for server in SERVERS:
        forms = spelled(server)
        policy = Policy.patterns(allow=[f"mcp:{server}(echo)"])
        assert allowed(script, forms, policy, server, "notes") == {*forms}, server
        for rule in (f"mcp:{server}(look)", "mcp:notes", "other", "tool:*"):
            assert allowed(script, forms, Policy.patterns(allow=[rule]), server, "notes") == set(), rule


def test_of_a_server_that_the_session_was_not_given_a_title_alone_allows_nothing(script: Script) -> None:
    forms = asked_by_agents("tickets", "echo", GIVEN)
    named = {"claude", "qwen", "gemini", "gemini before", "vibe", "a served agent of Coupler"}
    assert allowed(script, forms, Policy.patterns(allow=["mcp:tickets"])) == named
    marked = named | {name for name in forms if name.startswith(("claude", "gemini", "codex"))} | {"agentao"}
    policy = Policy.patterns(deny=["mcp:tickets"], callback=lambda request: True)
    assert allowed(script, forms, policy) == {*forms} - marked


def test_a_name_that_can_be_read_in_two_ways_counts_against_the_call(script: Script) -> None:
    forms = {"gemini": asked(toolCallId="mcp_git_hub_push-1731000000000", title="{}", kind="other")}
    for rule in ("mcp:git", "mcp:git_hub"):
        assert allowed(script, forms, Policy.patterns(allow=[rule]), "git", "git_hub") == set()
        policy = Policy.patterns(deny=[rule], callback=lambda request: True)
        assert allowed(script, forms, policy, "git", "git_hub") == set()
    assert allowed(script, forms, Policy.patterns(allow=["mcp:git"]), "git") == {"gemini"}


def test_a_tool_of_the_agents_own_is_not_taken_for_one_of_a_server(script: Script) -> None:
    forms = {
        "gemini": asked(toolCallId="run_shell_command-1731000000000", title="ls", kind="execute"),
        "named": asked(name="run_command", title="ls", kind="execute"),
    }
    assert allowed(script, forms, Policy.patterns(allow=["mcp:run"]), "run") == set()
    assert allowed(script, forms, Policy.patterns(allow=["tool:run_*"]), "run") == {*forms}
    policy = Policy.patterns(deny=["tool:run_shell_command"], callback=lambda request: True)
    assert allowed(script, forms, policy, "run") == {"named"}


OTHERS: dict[str, Form] = {
    "claude: a command": {
        "announced": {
            "toolCallId": "a1",
            "title": "Terminal",
            "kind": "execute",
            "rawInput": {},
            "_meta": {"claudeCode": {"toolName": "Bash"}},
        },
        "asked": {
            "toolCallId": "a1",
            "title": "`npm run build`",
            "rawInput": {"command": "npm run build", "description": "Build"},
        },
    },
    "claude: an edit": {
        "asked": {
            "toolCallId": "a2",
            "title": "Edit `src/a.py`",
            "rawInput": {"file_path": "src/a.py", "old_string": "a", "new_string": "b"},
        }
    },
    "claude: a search of the web": {
        "announced": {
            "toolCallId": "a3",
            "title": "tea",
            "kind": "fetch",
            "rawInput": {"query": "tea"},
            "_meta": {"claudeCode": {"toolName": "WebSearch"}},
        },
        "asked": {"toolCallId": "a3", "title": "tea", "rawInput": {"query": "tea"}},
    },
    "gemini: a command": asked(
        toolCallId="run_shell_command__run_shell_command_1794941685770_0",
        title="touch made",
        kind="execute",
        content=[{"type": "content", "content": {"type": "text", "text": "touch made"}}],
        locations=[],
    ),
    "gemini: a command, before": asked(
        toolCallId="run_shell_command-1731000000000-4", title="touch made", kind="execute"
    ),
    "gemini: an edit": asked(
        toolCallId="write_file-1731000000000",
        title="Writing to a.txt",
        kind="edit",
        content=[{"type": "diff", "path": "a.txt", "oldText": None, "newText": "x"}],
        locations=[{"path": "a.txt"}],
    ),
    "gemini: a page": asked(toolCallId="web_fetch-1731000000000", title="Fetch it", kind="fetch"),
    "qwen: a command": asked(
        title="touch made",
        kind="execute",
        rawInput={"command": "touch made", "is_background": False},
        _meta={"toolName": "run_shell_command"},
    ),
    "codex: a command": asked(
        title="touch made",
        kind="execute",
        rawInput={"call_id": "c", "command": ["bash", "-lc", "touch made"], "cwd": "."},
    ),
    "vibe: a command": {
        "announced": {
            "toolCallId": "v9",
            "title": "bash: touch made",
            "kind": "execute",
            "rawInput": '{"command":"touch made","timeout":null}',
            "_meta": {"tool_name": "bash"},
        },
        "asked": {"toolCallId": "v9"},
    },
    "opencode: a command": asked(
        title="Make it", kind="execute", rawInput={"command": "touch made", "description": "Make it"}
    ),
    "opencode: a page": asked(title="webfetch", kind="fetch", rawInput={"url": "https://a.example/x"}),
    "agentao: a command": asked(
        title="run_shell_command", kind="execute", rawInput={"command": "touch made"}
    ),
}


def test_the_rule_that_a_denial_prints_allows_the_same_request_when_it_comes_again(script: Script) -> None:
    forms = OTHERS | asked_by_agents("tickets", "echo", GIVEN)
    told = judged(script, forms, None, "tickets")
    for name, (answer, remedy) in told.items():
        assert answer == "no", name
        flags = re.findall(r"\((--allow .*?)\), or everything with the policy allow-all", remedy or "")
        assert flags, (name, remedy)
        rules = [word for word in shlex.split(flags[0]) if word != "--allow"]
        policy = Policy.patterns(allow=rules)
        assert allowed(script, {name: forms[name]}, policy, "tickets") == {name}, (name, rules)
    narrow = {name: remedy or "" for name, (_, remedy) in told.items()}
    assert "(--allow tool:run_shell_command)" in narrow["gemini: a command"]
    assert "(--allow tool:run_shell_command)" in narrow["gemini: a command, before"]
    assert "(--allow 'execute(touch made)')" in narrow["vibe: a command"]
    assert all(
        "(--allow 'mcp:tickets(echo)')" in narrow[name] for name in asked_by_agents("tickets", "echo", {})
    )


@table(
    "text, servers, names",
    [
        ("mcp__a__b", [], [("a", "b")]),
        ("mcp__a__b__c", [], [("a", "b__c")]),
        ("mcp__a__b__c", ["a__b"], [("a__b", "c")]),
        ("mcp_a_b_c", [], [("a", "b_c"), ("a_b", "c")]),
        ("mcp_a_b_c", ["a_b"], [("a_b", "c")]),
        ("mcp_a.b", ["a"], [("a", "b")]),
        ("mcp_a_b.c", ["a", "a_b"], [("a", "b.c"), ("a_b", "c")]),
        ("mcp_a.b_c", [], [("a", "b_c"), ("a.b", "c")]),
        ("b (a MCP Server)", [], [("a", "b")]),
        ("Tool: a/b", [], [("a", "b")]),
        ("a_b", [], []),
        ("a_b", ["a"], [("a", "b")]),
        ("a__b", ["a"], [("a", "b")]),
        ("a.b", ["a"], [("a", "b")]),
        ("a/b", ["a"], [("a", "b")]),
        ("a: b", ["a"], [("a", "b")]),
        ("a-b", ["a"], [("a", "b")]),
        ("a-2_b", ["a", "a-2"], [("a-2", "b")]),
        ("mcp_a-2_b", ["a", "a-2"], [("a-2", "b")]),
        ("my_server_b", ["my server"], [("my server", "b")]),
        ("ab", ["a"], []),
        ("a_", ["a"], []),
        ("mcp__", [], []),
        ("x" * 400, ["x"], []),
    ],
)
def test_names_are_read_with_the_servers_of_the_session(
    text: str, servers: list[str], names: list[tuple[str, str]]
) -> None:
    assert [(name.server, name.tool) for name in names_in(text, servers)] == names


@table("server, tool", [("a", "b"), ("a b", "c__d"), ("a__b", "c"), ("ä:ö", "x (y)"), (None, "read")])
def test_a_qualified_name_is_read_back(server: str | None, tool: str) -> None:
    servers = [] if server is None else [server]
    names = names_in(qualified_name(server, tool), servers) or [ToolName(None, tool)]
    assert [(name.server, name.tool) for name in names] == [(server, tool)]


@table(
    "id, name",
    [
        ("run_shell_command-1731000000000", "run_shell_command"),
        ("run_shell_command-1731000000000-12", "run_shell_command"),
        ("mcp_a_b__mcp_a_b_1794_0", "mcp_a_b"),
        ("read_file__call_9f1c22", "read_file"),
        ("call-1731000000000", None),
        ("call_9f1c", None),
        ("toolu_01ABC", None),
        ("5487081b-bfcb-4d30-b610-e7cf2a421256", None),
        ("", None),
    ],
)
def test_the_name_in_an_id_is_found(id: str, name: str | None) -> None:
    assert name_in_id(id) == name

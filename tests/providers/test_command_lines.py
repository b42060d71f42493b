"""The command lines of the providers, seen by programs that stand in for the real ones."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.stage import run
from coupler import AgentError, connect
from coupler.agent.agent import Agent
from coupler.client.quirks import Usual
from coupler.client.reply import Reply
from coupler.events import Notice
from coupler.providers import Claude, Codex, Copilot, Gemini, OpenCode, provider
from coupler.providers.claude import CHANGING_TOOLS
from coupler.schema.v1 import EnvVariable, HttpHeader, McpServerHttp, McpServerSse, McpServerStdio
from providers.stub import Stub, recorded
from tables import table

MakeStub = Callable[[str], Stub]

RESUMED = {
    "claude": ["--resume=5b1c-claude"],
    "codex": ["exec", "resume", "0199-codex"],
    "gemini": ["--resume=9e1f-gemini"],
    "copilot": ["--resume=aa77-copilot"],
    "opencode": ["--session", "ses_opencode"],
}
TOTALS = {"claude": 36687, "codex": 1090, "gemini": 1300, "copilot": 2238, "opencode": 2210}
DOCS = McpServerStdio("docs", "docs-server", ["--fast"], [EnvVariable("DOCS_TOKEN", "s3cret-docs-token")])
TICKETS = McpServerHttp(
    "tick.ets", "http://127.0.0.1:9/mcp", [HttpHeader("Authorization", "Bearer s3cret-key")]
)


def ask(agent: Agent | type[Agent], *prompts: str, cwd: Path, **options: Any) -> list[Reply]:
    """The replies to prompts of one session."""

    async def story() -> list[Reply]:
        async with connect(agent, cwd=cwd) as remote:
            session = await remote.new(**options)
            return [await session.prompt(prompt) for prompt in prompts]

    return run(story())


@pytest.mark.parametrize("name", RESUMED)
def test_a_turn_is_one_run_and_the_next_goes_on_with_its_session(
    name: str, stub: MakeStub, project: Path
) -> None:
    program = stub(name).streams(f"{name}-current")

    first, second = ask(provider(name), "What is here?", "And now?", cwd=project)

    assert first.text == second.text != ""
    assert first.stop_reason == "end_turn"
    assert (first.usage.cost, first.usage.total) == (pytest.approx(second.usage.cost), TOTALS[name])
    assert first.tool_calls
    assert all(not call.is_open for call in first.tool_calls)
    assert not {call.id for call in first.tool_calls} & {call.id for call in second.tool_calls}
    before, after = program.runs
    assert before["cwd"] == after["cwd"] == str(project)
    assert before["env"]["PWD"] == str(project)
    assert "What is here?" in (before["stdin"], *(word.partition("=")[2] for word in before["argv"]))
    assert not any(word in before["argv"] for word in RESUMED[name][-1:])
    words = " ".join(after["argv"])
    assert " ".join(RESUMED[name]) in words


def test_what_claude_reports_is_the_reply(stub: MakeStub, project: Path) -> None:
    stub("claude").streams("claude-current")

    (reply,) = ask(Claude, "Fix it", cwd=project)

    assert reply.text == "I look at it.\n\nFixed."
    assert reply.thoughts == "The file comes first."
    assert [entry.status for entry in reply.plan] == ["completed", "in_progress", "pending"]
    assert [(call.id, call.status) for call in reply.tool_calls][:2] == [
        ("toolu_read", "completed"),
        ("toolu_edit", "completed"),
    ]
    usage = reply.usage
    assert (usage.input, usage.output, usage.cached_read, usage.cached_write) == (20, 117, 36400, 150)
    assert (usage.total, usage.is_estimated) == (36687, False)
    assert (usage.context_used, usage.context_size) == (9268, 200_000)
    assert (usage.cost, usage.currency) == (0.0421, "USD")


def test_codex_counts_the_whole_thread_and_each_reply_its_own_turn(stub: MakeStub, project: Path) -> None:
    def turn(used: int) -> list[dict[str, Any]]:
        return [
            {"line": {"type": "thread.started", "thread_id": "t"}},
            {
                "line": {
                    "type": "item.completed",
                    "item": {"id": "item_0", "type": "agent_message", "text": "x"},
                }
            },
            {
                "line": {
                    "type": "turn.completed",
                    "usage": {"input_tokens": used, "output_tokens": used // 10},
                }
            },
        ]

    stub("codex").says(turn(1000), turn(1500))

    first, second = ask(Codex, "one", "two", cwd=project)

    assert (first.usage.input, first.usage.output, first.usage.total) == (1000, 100, 1100)
    assert (second.usage.input, second.usage.output, second.usage.total) == (500, 50, 550)


ALWAYS = {
    "claude": ["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"],
    "codex": ["exec", "--json"],
    "gemini": ["--output-format", "stream-json"],
    "copilot": ["--prompt=hello", "--output-format=json", "--silent", "--no-ask-user"],
    "opencode": ["run", "--format", "json", "--thinking"],
}
LAST = {"codex": ["-"]}
MODES: dict[str, dict[str, list[str]]] = {
    "claude": {
        "read_only": [
            "--permission-mode", "default", "--disallowedTools", CHANGING_TOOLS
        ],
        "deny_asks": ["--permission-mode", "default"],
        "allow_edits": ["--permission-mode", "acceptEdits"],
        "allow_all": ["--dangerously-skip-permissions"],
    },
    "codex": {
        "read_only": ["-c", 'approval_policy="never"', "-c", 'sandbox_mode="read-only"'],
        "deny_asks": ["-c", 'approval_policy="never"'],
        "allow_edits": ["-c", 'approval_policy="never"', "-c", 'sandbox_mode="workspace-write"'],
        "allow_all": ["--dangerously-bypass-approvals-and-sandbox"],
    },
    "gemini": {
        "read_only": ["--approval-mode=plan"],
        "deny_asks": ["--approval-mode=default"],
        "allow_edits": ["--approval-mode=auto_edit"],
        "allow_all": ["--approval-mode=yolo"],
    },
    "copilot": {
        "read_only": ["--deny-tool=write", "--deny-tool=shell"],
        "deny_asks": [],
        "allow_edits": ["--allow-tool=write"],
        "allow_all": ["--allow-all"],
    },
    "opencode": {
        "read_only": [],
        "deny_asks": [],
        "allow_edits": [],
        "allow_all": ["--dangerously-skip-permissions"],
    },
}  # fmt: skip


def without_policy(argv: list[str]) -> list[str]:
    """The arguments without the file of Gemini's policy, whose name is another one every time."""
    at = argv.index("--admin-policy") if "--admin-policy" in argv else len(argv)
    return argv[:at] + argv[at + 2 :]


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, modes in MODES.items() for mode in modes])
def test_a_mode_is_spelled_as_the_program_knows_it(
    name: str, mode: str, stub: MakeStub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_ALLOW_ALL", "true")
    program = stub(name).streams(f"{name}-old")

    ask(provider(name)(mode=mode), "hello", cwd=project)  # type: ignore[call-arg]

    assert without_policy(program.argv) == [*ALWAYS[name], *MODES[name][mode], *LAST.get(name, [])]
    if mode != "allow_all":
        assert not any(
            "dangerously" in word or "yolo" in word or "allow-all" in word for word in program.argv
        )
    if name == "copilot":
        assert ("COPILOT_ALLOW_ALL" in program.runs[0]["env"]) == (mode == "allow_all")


def test_opencode_is_told_by_its_environment_what_it_may_do(
    stub: MakeStub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"theme": "dark", "permission": {"bash": "allow"}}')
    program = stub("opencode").streams("opencode-old")

    ask(OpenCode(mode="read_only", allowed_tools=["webfetch"]), "hello", cwd=project)

    env = program.runs[0]["env"]
    rules = {"bash": "deny", "webfetch": "allow", "edit": "deny"}
    assert json.loads(env["OPENCODE_CONFIG_CONTENT"]) == {
        "theme": "dark",
        "permission": rules,
        "agent": {"build": {"permission": rules}},
    }
    assert json.loads(env["OPENCODE_PERMISSION"]) == rules


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "claude": (
        {"model": "claude-opus-4-5", "options": {"max_turns": 3}, "allowed_tools": ["Read", "Bash(ls:*)"]},
        "--permission-mode default --allowedTools Read,Bash(ls:*) --model claude-opus-4-5"
        " --append-system-prompt Be_brief. --max-turns=3 --extra",
    ),
    "codex": (
        {"model": "gpt-5-codex", "options": {"skip_git_repo_check": True, "ephemeral": False}},
        '--model gpt-5-codex -c approval_policy="never" -c developer_instructions="Be_brief."'
        " --skip-git-repo-check --extra",
    ),
    "gemini": (
        {"model": "flash", "options": {"skip_trust": True}, "allowed_tools": ["web_fetch"]},
        "--approval-mode=default --model flash --allowed-tools web_fetch --skip-trust --extra",
    ),
    "copilot": (
        {"model": "gpt-5", "options": {"effort": "high"}, "allowed_tools": ["shell(git:*)"]},
        "--model=gpt-5 --allow-tool=shell(git:*) --effort=high --extra",
    ),
    "opencode": (
        {"model": "openai/gpt-5", "options": {"variant": "high"}},
        "--model openai/gpt-5 --variant=high --extra",
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_model_options_tools_and_system_prompt_are_passed_on(
    name: str, stub: MakeStub, project: Path
) -> None:
    given, expected = OPTIONS[name]
    program = stub(name).streams(f"{name}-old")

    given = {"mode": "deny_asks", "system_prompt": "Be_brief.", "arguments": ["--extra"], **given}
    agent = provider(name)(**given)
    ask(agent, "hello", "again", cwd=project)

    first, second = program.runs
    always = ["--prompt=Be_brief.\n\nhello", *ALWAYS[name][1:]] if name == "copilot" else ALWAYS[name]
    assert without_policy(first["argv"]) == [*always, *expected.split(), *LAST.get(name, [])]
    if name == "gemini":  # it has no place for a system prompt but the first prompt
        assert (first["stdin"], second["stdin"]) == ("Be_brief.\n\nhello", "again")
    elif name == "copilot":
        assert "--prompt=again" in second["argv"]
    elif name == "opencode":
        (file,) = json.loads(second["env"]["OPENCODE_CONFIG_CONTENT"])["instructions"]
        assert second["files"][file] == {"text": "Be_brief.", "mode": "0o600"}
    else:
        assert "Be_brief." in " ".join(second["argv"])


def test_claude_gets_mcp_servers_by_a_file_of_its_own(stub: MakeStub, project: Path) -> None:
    program = stub("claude").streams("claude-old")

    ask(Claude, "hello", cwd=project, mcp_servers=[DOCS, TICKETS])

    (file,) = program.runs[0]["files"].values()
    assert file["mode"] == "0o600"
    assert json.loads(file["text"]) == {
        "mcpServers": {
            "docs": {
                "type": "stdio",
                "command": "docs-server",
                "args": ["--fast"],
                "env": {"DOCS_TOKEN": "s3cret-docs-token"},
            },
            "tick.ets": {
                "type": "http",
                "url": "http://127.0.0.1:9/mcp",
                "headers": {"Authorization": "Bearer s3cret-key"},
            },
        }
    }
    assert program.argv[program.argv.index("--allowedTools") + 1] == "mcp__docs,mcp__tick_ets"


def test_codex_gets_mcp_servers_by_settings_without_their_secrets(stub: MakeStub, project: Path) -> None:
    program = stub("codex").streams("codex-old")

    ask(Codex, "hello", cwd=project, mcp_servers=[DOCS, TICKETS])

    words = program.argv
    assert 'mcp_servers.docs.command="docs-server"' in words
    assert 'mcp_servers.docs.args=["--fast"]' in words
    assert 'mcp_servers.docs.default_tools_approval_mode="approve"' in words
    assert 'mcp_servers.tick_ets.default_tools_approval_mode="approve"' in words
    assert 'mcp_servers.docs.env_vars=["DOCS_TOKEN"]' in words
    assert 'mcp_servers.tick_ets.url="http://127.0.0.1:9/mcp"' in words
    (headers,) = [word for word in words if word.startswith("mcp_servers.tick_ets.env_http_headers=")]
    variable = headers.rpartition('= "')[2].rstrip('"}')
    assert program.runs[0]["env"][variable] == "Bearer s3cret-key"
    assert program.runs[0]["env"]["DOCS_TOKEN"] == "s3cret-docs-token"
    assert "s3cret" not in " ".join(words)


def test_codex_says_which_mcp_server_it_cannot_use(stub: MakeStub, project: Path) -> None:
    program = stub("codex").streams("codex-old")

    with pytest.raises(AgentError, match=r"Codex cannot use the MCP server 'old': .* of the kind sse"):
        ask(Codex, "hello", cwd=project, mcp_servers=[McpServerSse("old", "http://127.0.0.1:9", [])])

    assert program.runs == []


def test_gemini_gets_mcp_servers_by_settings_that_only_this_turn_sees(
    stub: MakeStub, project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "own"
    (home / ".gemini" / "extensions").mkdir(parents=True)
    settings = home / ".gemini" / "settings.json"
    settings.write_text('{"theme": "dark", "mcpServers": {"house": {"command": "house"}}}')
    (home / ".gemini" / "oauth_creds.json").write_text("{}")
    (home / ".env").write_text("A=b")
    program = stub("gemini").streams("gemini-read")
    agent = Gemini(env={"GEMINI_CLI_HOME": str(home)})

    ask(agent, "hello", cwd=project, mcp_servers=[DOCS, TICKETS])

    (ran,) = program.runs
    assert ran["env"]["GEMINI_CLI_HOME"] != str(home)
    seen = json.loads(ran["home"]["settings.json"]["text"])
    assert (ran["home"]["settings.json"]["mode"], seen["theme"]) == ("0o600", "dark")
    assert seen["mcpServers"]["house"] == {"command": "house"}
    assert seen["mcpServers"]["docs"]["env"] == {"DOCS_TOKEN": "s3cret-docs-token"}
    assert seen["mcpServers"]["tick.ets"]["httpUrl"] == "http://127.0.0.1:9/mcp"
    assert {"oauth_creds.json", "extensions", "tmp", "history"} <= ran["home"].keys()
    assert settings.read_text().startswith('{"theme"') and "docs" not in settings.read_text()
    assert (home / ".gemini" / "oauth_creds.json").exists()  # what stands behind a link stays


@pytest.mark.parametrize(("is_blind", "servers"), [(True, [DOCS]), (False, [DOCS]), (True, [])])
def test_gemini_tells_if_the_program_has_not_read_the_settings_with_the_servers(
    stub: MakeStub, project: Path, tmp_path: Path, is_blind: bool, servers: list[McpServerStdio]
) -> None:
    stub("gemini").says([*([{"blind": True}] if is_blind else []), *recorded("gemini-read")])
    agent = Gemini(env={"GEMINI_CLI_HOME": str(tmp_path / "own")})

    async def story() -> list[Notice]:
        async with connect(agent, cwd=project) as remote:
            session = await remote.new(mcp_servers=servers)
            return [event async for event in session.prompt("hello") if isinstance(event, Notice)]

    told = [notice.title for notice in run(story())]
    is_ignored = is_blind and bool(servers)
    assert told == (["The MCP servers of the session were not used"] if is_ignored else [])


def test_no_native_agent_is_waited_for_to_ask_for_tools(
    stub: MakeStub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Usual, "tools_wait", 1000.0)  # for programs that open their servers with the session
    stub("gemini").streams("gemini-read")

    def price(item: str) -> int:
        return 3

    [reply] = ask(Gemini(env={"GEMINI_CLI_HOME": str(project)}), "hello", cwd=project, tools=[price])

    assert reply.stop_reason == "end_turn"


@pytest.mark.parametrize("mode", MODES["gemini"])
def test_gemini_may_not_approve_its_own_plan_and_uses_given_servers_to_read(
    mode: str, stub: MakeStub, project: Path
) -> None:
    program = stub("gemini").streams("gemini-read")

    ask(Gemini(mode=mode), "hello", cwd=project, mcp_servers=[DOCS, TICKETS])

    policies = [file for path, file in program.runs[0]["files"].items() if path.endswith("policy.toml")]
    rules = [rule for file in policies for rule in tomllib.loads(file["text"])["rule"]]
    allowed = [rule["mcpName"] for rule in rules if rule["decision"] == "allow"]
    assert allowed == (["docs", "tick.ets"] if mode == "read_only" else [])
    denied = [rule["toolName"] for rule in rules if rule["decision"] == "deny"]
    assert denied == ([] if mode == "allow_all" else ["exit_plan_mode"])


def test_gemini_says_which_settings_it_cannot_add_servers_to(
    stub: MakeStub, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "own" / ".gemini").mkdir(parents=True)
    (tmp_path / "own" / ".gemini" / "settings.json").write_text("{ // mine\n}")
    program = stub("gemini").streams("gemini-read")

    with pytest.raises(AgentError, match=r"own/.gemini/settings.json is no plain JSON"):
        ask(Gemini(env={"HOME": str(tmp_path / "own")}), "hello", cwd=project, mcp_servers=[DOCS])

    assert program.runs == []


def test_copilot_gets_mcp_servers_by_a_file_of_its_own(stub: MakeStub, project: Path) -> None:
    program = stub("copilot").streams("copilot-old")

    ask(Copilot, "hello", cwd=project, mcp_servers=[DOCS])

    ((path, file),) = program.runs[0]["files"].items()
    assert f"--additional-mcp-config=@{path}" in program.argv
    assert "--allow-tool=docs" in program.argv
    assert (file["mode"], json.loads(file["text"])["mcpServers"]["docs"]["tools"]) == ("0o600", ["*"])


def test_opencode_gets_mcp_servers_by_its_environment(stub: MakeStub, project: Path) -> None:
    program = stub("opencode").streams("opencode-old")

    ask(OpenCode, "hello", cwd=project, mcp_servers=[DOCS, TICKETS])

    settings = json.loads(program.runs[0]["env"]["OPENCODE_CONFIG_CONTENT"])
    # Whatever the user's settings say: whoever names a server wants it used.
    assert settings["permission"].items() >= {"docs_*": "allow", "tick_ets_*": "allow"}.items()
    servers = settings["mcp"]
    assert servers["docs"]["command"] == ["docs-server", "--fast"]
    assert servers["docs"]["environment"] == {"DOCS_TOKEN": "s3cret-docs-token"}
    assert servers["tick.ets"]["headers"] == {"Authorization": "Bearer s3cret-key"}


SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}


def test_claude_answers_in_the_form_of_a_schema(stub: MakeStub, project: Path) -> None:
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "", "session_id": "s"}
    program = stub("claude").says([{"line": {**result, "structured_output": {"answer": 42}}}])

    (reply,) = ask(Claude(output_schema=SCHEMA), "hello", cwd=project)

    assert json.loads(reply.text) == {"answer": 42}
    assert json.loads(program.argv[program.argv.index("--json-schema") + 1]) == SCHEMA


def test_codex_answers_in_the_form_of_a_schema(stub: MakeStub, project: Path) -> None:
    program = stub("codex").streams("codex-old")

    ask(Codex(output_schema=SCHEMA), "hello", cwd=project)

    path = program.argv[program.argv.index("--output-schema") + 1]
    assert program.runs[0]["files"][path]["mode"] == "0o600"
    assert json.loads(program.runs[0]["files"][path]["text"]) == SCHEMA


def test_other_directories_of_the_session_are_named(stub: MakeStub, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    words = {
        "claude": ["--add-dir", str(other)],
        "codex": ["-c", f'sandbox_workspace_write.writable_roots=["{other}"]'],
        "gemini": ["--include-directories", str(other)],
        "copilot": ["--add-dir", str(other)],
    }
    for name, expected in words.items():
        program = stub(name).streams(f"{name}-old")
        agent = provider(name)(mode="allow_edits")  # type: ignore[call-arg]
        ask(agent, "hello", cwd=project, additional_directories=[str(other)])
        assert " ".join(expected) in " ".join(program.argv)


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "copilot", "opencode"])
def test_a_prompt_longer_than_a_command_line_arrives_whole(name: str, stub: MakeStub, project: Path) -> None:
    program = stub(name).streams(f"{name}-old")
    prompt = "-" + "long " * 100_000 + "\0end"

    ask(provider(name), prompt, cwd=project)

    assert program.runs[0]["stdin"] == prompt.replace("\0", " ")
    assert not any("long long" in word for word in program.argv)


def test_an_empty_prompt_starts_no_program(stub: MakeStub, project: Path) -> None:
    program = stub("claude").streams("claude-old")

    with pytest.raises(AgentError, match="The prompt is empty"):
        ask(Claude, " \n", cwd=project)

    assert program.runs == []


def test_a_program_of_another_name_and_environment_is_run(
    stub: MakeStub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("UNWANTED", "1")
    program = stub("my-claude").streams("claude-old")

    ask(Claude(program="my-claude", env={"WANTED": "yes", "UNWANTED": None}), "hello", cwd=project)

    env = program.runs[0]["env"]
    assert env["WANTED"] == "yes"
    assert not {"UNWANTED", "CLAUDECODE"} & env.keys()
    assert os.environ["UNWANTED"] == "1"


@table(
    ("make", "message"),
    [
        (lambda: Codex(allowed_tools=["x"]), "codex has no list of allowed tools"),
        (lambda: Gemini(output_schema=SCHEMA), "gemini takes no schema"),
        (lambda: Copilot(output_schema=SCHEMA), "copilot takes no schema"),
        (lambda: OpenCode(output_schema=SCHEMA), "opencode takes no schema"),
        (lambda: Claude(options={"max_turn": 3}), "claude has no option 'max_turn'.*mean 'max_turns'"),
        (lambda: Claude(mode="yolo"), "a mode is one of read_only, deny_asks, allow_edits, allow_all"),
        (lambda: provider("claud"), "no provider 'claud'.*did you mean 'claude'"),
    ],
)  # fmt: skip
def test_what_a_program_lacks_is_refused_at_once(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()

"""`[agents.NAME]` of coupler.toml holds wherever an agent is driven by its name."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import forked
from agent.steps import leave
from client.stage import Scripted
from coupler import Policy, ask, connect
from providers.stub import Stub, path_with
from raw_client import COUPLER, PATIENCE, RawClient
from workflow.agent_stage import Script
from workflow.conftest import script as script
from workflow.served_project import opened

WISHING = """
HELLO["agentCapabilities"] = {"loadSession": True}
MODES = [{"id": each, "name": each.title()} for each in ("usual", "careful")]
asked = 0
while True:
    frame = read()
    match frame.get("method"):
        case "initialize":
            send(result(frame, HELLO))
        case "session/new" | "session/load":
            here = frame["params"]["cwd"]
            modes = {"currentModeId": "usual", "availableModes": MODES}
            send(result(frame, {"sessionId": "s1", "modes": modes}))
        case "session/set_mode":
            note("mode", frame["params"]["modeId"])
            send(result(frame, {}))
        case "session/prompt":
            note("prompt", "".join(block.get("text", "") for block in frame["params"]["prompt"]))
            done = {}
            for kind, wish in WISHES:
                asked += 1
                call = {"title": wish, "kind": kind}
                if kind == "execute":
                    call["rawInput"] = {"command": wish}
                else:
                    call["locations"] = [{"path": os.path.join(here, wish)}]
                id = f"{os.getpid()}-{asked}"
                send(permission(id, None, **call))
                done[wish] = answer_to(id)["result"]["outcome"].get("optionId")
            path = os.path.join(here, "written.py")
            asked += 1
            id = f"{os.getpid()}-{asked}"
            send(request(id, "fs/write_text_file", sessionId="s1", path=path, content="x"))
            done["write"] = "result" in answer_to(id)
            note("done", done)
            send(say(json.dumps(done)), end(frame))
"""
"""Wants to do each of its wishes, then writes a file without asking."""

WISHES = [("edit", "app.py"), ("edit", "docs/a.md"), ("execute", "make test"), ("execute", "git push origin")]

Home = Callable[..., Scripted]


@pytest.fixture
def configured(script: Script, coupler_home: Path, tmp_path: Path) -> Home:
    """Write a table for the agent `reviewer`, with these keys."""

    def configure(keys: str, wishes: list[tuple[str, str]] = WISHES) -> Scripted:
        agent = script(WISHING.replace("WISHES", repr(wishes)))
        coupler_home.mkdir(parents=True, exist_ok=True)
        command = json.dumps(agent.command)
        (coupler_home / "coupler.toml").write_text(f"[agents.reviewer]\ncommand = {command}\n{keys}\n")
        (coupler_home / "guide.md").write_text("Mind the gap.\n")
        (coupler_home / "skill.md").write_text("Count twice.\n")
        (tmp_path / "work").mkdir(exist_ok=True)
        return agent

    return configure


RULES = 'tools = {allow = ["execute(make *)"], deny = ["edit(*.py)", "execute(git push *)"]}'
TOLD = 'system = "You review."\nskills = ["skill.md"]\ncontext = ["guide.md"]\nmode = "careful"'


def execute(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [*COUPLER, "exec", "reviewer", "go on", "--files", "write", *words],
        cwd=tmp_path / "work",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_rules_hold_in_exec_beside_whatever_policy_is_chosen(configured: Home, tmp_path: Path) -> None:
    agent = configured(RULES)
    for words, docs, make in (
        ((), "no", "yes"),
        (("--permissions", "allow-all"), "yes", "yes"),
        (("--permissions", "deny-all"), "no", "no"),
        (("--allow", "edit(**)"), "yes", "yes"),
        (("--deny", "execute(make *)"), "no", "no"),
    ):
        done = execute(tmp_path, *words)

        expected = {
            "app.py": "no",
            "docs/a.md": docs,
            "make test": make,
            "git push origin": "no",
            "write": False,
        }
        assert agent.noted("done")[-1] == expected, (words, done)
        assert not (tmp_path / "work" / "written.py").exists()


TERMINALS = """
for prompt in prompts():
    for number, (command, *words) in enumerate([["git", "push", "x"], ["sh", "-c", "git push x"], ["true"]]):
        id = f"{os.getpid()}-{number}"
        send(request(id, "terminal/create", sessionId="s1", command=command, args=words))
        note("terminal", "result" in answer_to(id))
    send(end(prompt))
"""


def test_rules_hold_for_commands_that_run_in_terminals_of_ours(
    script: Script, configured: Home, coupler_home: Path, tmp_path: Path
) -> None:
    configured(RULES)
    agent = script(TERMINALS)
    file = coupler_home / "coupler.toml"
    file.write_text(f"[agents.reviewer]\ncommand = {json.dumps(agent.command)}\n{RULES}\n")

    execute(tmp_path, "--terminals", "--permissions", "allow-all")

    assert agent.noted("terminal") == [False, False, True]


def test_exec_says_which_rule_of_the_table_is_against_a_call(configured: Home, tmp_path: Path) -> None:
    configured(RULES)

    done = execute(tmp_path, "--permissions", "allow-all")

    assert "`edit(*.py)` in [agents.reviewer]" in done.stderr, done


def test_nothing_of_the_table_is_allowed_with_deny_all_beside_other_rules(
    configured: Home, coupler_home: Path, tmp_path: Path
) -> None:
    agent = configured(f'{RULES}\n[permissions]\ndeny = ["execute(rm *)"]')

    execute(tmp_path, "--permissions", "deny-all")

    assert agent.noted("done")[-1]["make test"] == "no"


def test_what_may_be_denied_is_not_allowed_by_a_policy(configured: Home, tmp_path: Path) -> None:
    agent = configured(RULES, [("execute", "$PUSH origin"), ("execute", "git $WORD")])

    execute(tmp_path, "--permissions", "allow-all")

    assert agent.noted("done")[-1] == {"$PUSH origin": "no", "git $WORD": "no", "write": False}


def test_exec_tells_the_agent_what_its_table_says_and_sets_its_mode(configured: Home, tmp_path: Path) -> None:
    agent = configured(TOLD, [])

    assert execute(tmp_path).returncode == 0

    (prompt,) = agent.noted("prompt")
    places = [prompt.index(text) for text in ("You review.", "Count twice.", "Mind the gap.", "go on")]
    assert places == sorted(places)
    assert agent.noted("mode") == ["careful"]


def test_options_of_the_command_line_come_before_the_table(configured: Home, tmp_path: Path) -> None:
    agent = configured(TOLD, [])

    execute(tmp_path, "--mode", "usual")

    assert agent.noted("mode") == ["usual"]


def test_a_file_of_the_table_that_is_not_there_starts_nothing(configured: Home, tmp_path: Path) -> None:
    agent = configured('context = ["missing.md"]', [])

    done = execute(tmp_path)

    assert done.returncode != 0
    assert "missing.md" in done.stderr
    assert "[agents.reviewer]" in done.stderr
    assert agent.noted("prompt") == []


def test_a_rule_of_the_table_that_is_wrong_starts_nothing(configured: Home, tmp_path: Path) -> None:
    agent = configured('tools = {deny = ["edti(**)"]}', [])

    done = execute(tmp_path)

    assert done.returncode != 0
    assert "edti" in done.stderr
    assert agent.noted("prompt") == []


def test_a_chat_tells_the_agent_once_and_keeps_to_its_rules(configured: Home, tmp_path: Path) -> None:
    agent = configured(f"{RULES}\n{TOLD}")

    forked.run(
        [*COUPLER, "chat", "reviewer", "--permissions", "allow-all", "--files", "write"],
        cwd=tmp_path / "work",
        input="one\ntwo\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    first, second = agent.noted("prompt")
    assert "You review." in first
    assert second == "two"
    assert {(each["app.py"], each["git push origin"], each["write"]) for each in agent.noted("done")} == {
        ("no", "no", False)
    }


def test_a_command_of_the_agents_is_not_hidden_behind_instructions(configured: Home, tmp_path: Path) -> None:
    agent = configured(TOLD, [])

    forked.run(
        [*COUPLER, "chat", "reviewer"],
        cwd=tmp_path / "work",
        input="//compact now\ntwo\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    first, second = agent.noted("prompt")
    assert first.startswith("/")
    assert second.endswith("two")
    assert "You review." in second


def test_the_table_holds_for_connect_and_ask(configured: Home, tmp_path: Path) -> None:
    agent = configured(f"{RULES}\n{TOLD}")
    work = tmp_path / "work"

    async def driven() -> None:
        async with connect("reviewer", cwd=work, files="write") as remote:
            session = await remote.new(permissions="allow-all")
            await session.prompt("one")
            session.policy = Policy.allow_all()
            await session.prompt("two")

    asyncio.run(driven())
    ask("reviewer", "three", cwd=work, permissions="allow-all", files="write")

    assert [("You review." in each, each[-5:]) for each in agent.noted("prompt")] == [
        (True, "\n\none"),
        (False, "two"),
        (True, "three"),
    ]
    for done in agent.noted("done"):
        assert (done["app.py"], done["docs/a.md"], done["git push origin"]) == ("no", "yes", "no")
        assert done["write"] is False


def test_a_loaded_session_keeps_to_the_rules_and_is_not_told_again(configured: Home, tmp_path: Path) -> None:
    agent = configured(f"{RULES}\n{TOLD}")

    async def driven() -> None:
        async with connect("reviewer", cwd=tmp_path / "work", files="write") as remote:
            session = await remote.load("s1", permissions="allow-all")
            await session.prompt("one")

    asyncio.run(driven())

    assert agent.noted("prompt") == ["one"]
    assert agent.noted("done")[0]["app.py"] == "no"


def test_the_table_holds_for_an_agent_that_is_served_to_an_editor(configured: Home, tmp_path: Path) -> None:
    agent = configured(f"{RULES}\n{TOLD}")
    work = tmp_path / "work"
    with RawClient(*COUPLER, "serve", "--", "reviewer", cwd=work) as client:
        client.initialize()
        editor = opened(client, work)

        editor.prompt("one", "yes")
        leave(client)

    assert [each["toolCall"]["title"] for each in editor.asked] == ["docs/a.md"]
    assert agent.noted("done") == [
        {"app.py": "no", "docs/a.md": "yes", "make test": "yes", "git push origin": "no", "write": False}
    ]
    assert "Mind the gap." in agent.noted("prompt")[0]


def test_rules_of_a_program_that_asks_nobody_are_refused(
    coupler_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with(tmp_path))
    program = Stub(tmp_path, "claude").streams("claude-old")
    coupler_home.mkdir(parents=True)
    (coupler_home / "coupler.toml").write_text(
        '[agents.reviewer]\nagent = "claude:native"\ntools = {deny = ["edit(**)"]}\n'
    )
    (tmp_path / "work").mkdir()

    done = forked.run(
        [*COUPLER, "exec", "reviewer", "go"],
        cwd=tmp_path / "work",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert done.returncode != 0
    assert "asks nobody" in done.stderr
    assert "claude:acp" in done.stderr
    assert program.runs == []


def test_a_native_agent_is_started_with_what_its_table_says(
    coupler_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with(tmp_path))
    program = Stub(tmp_path, "claude").streams("claude-old")
    coupler_home.mkdir(parents=True)
    (coupler_home / "guide.md").write_text("Mind the gap.\n")
    (coupler_home / "coupler.toml").write_text(
        '[agents.reviewer]\nagent = "claude:native"\nmodel = "opus"\nsystem = "You review."\n'
        'context = ["guide.md"]\n'
    )
    (tmp_path / "work").mkdir()

    done = forked.run(
        [*COUPLER, "exec", "reviewer", "go"],
        cwd=tmp_path / "work",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert done.returncode == 0, done
    (ran,) = program.runs
    assert "opus" in ran["argv"]
    assert "You review." in str(ran)
    assert "Mind the gap." in str(ran)


def test_what_a_file_that_is_not_trusted_sets_is_named_as_such(tmp_path: Path, coupler_home: Path) -> None:
    file = tmp_path / "coupler.toml"
    file.write_text('[coder]\nmodel = "openai:large"\n[agents.mine]\ncommand = ["mine", "acp"]\n')
    remedy = "not trusted: read the file, then run `coupler trust` in its directory"

    def told(*command: str) -> str:
        ended = subprocess.run(
            [*COUPLER, *command], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert ended.returncode != 0
        assert "did you mean" not in ended.stderr
        return ended.stderr

    for command in (
        "exec mine hello",
        "chat mine",
        "serve --agent mine",
        "serve -- mine",
        "init --agent mine",
    ):
        assert f"the agent 'mine' is defined in {file} line 3, which is {remedy}" in told(*command.split())
    said = told("exec", "coder", "hello")
    assert f"No model is set: the model in {file} line 2 is {remedy}" in said

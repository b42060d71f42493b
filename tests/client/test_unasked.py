"""Files and terminals that an agent uses through us without asking: rules hold, and nobody is asked twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from client.stage import Scripted, run
from coupler import Policy
from coupler.client.policy import PermissionRequest

Script = Callable[[str], Scripted]

# Sends what the prompt says, as Python, one after the other, and notes whether it was done.
DOES = """
    for prompt in prompts():
        for number, frame in enumerate(eval(text_of(prompt)), 1):
            send({**frame, "id": number})
            answer = answer_to(number)
            note("answer", answer.get("result", answer.get("error")))
        send(end(prompt))
"""


def terminal(command: str, **more: Any) -> str:
    return f"request(0, 'terminal/create', sessionId='s1', command={command!r}, **{more!r})"


def writing(path: Path) -> str:
    return f"request(0, 'fs/write_text_file', sessionId='s1', path={str(path)!r}, content='x')"


def answers(script: Script, project: Path, policy: Any, *requests: str) -> list[Any]:
    """Send these requests, and return what the client answers."""
    agent = script(DOES)

    async def story() -> None:
        async with agent.connect(files="write", terminals=True) as remote:
            session = await remote.new(cwd=project, permissions=policy)
            await session.prompt(f"[{', '.join(requests)}]")

    run(story())
    return agent.noted("answer")


def test_rules_of_a_policy_hold_for_them(script: Script, tmp_path: Path) -> None:
    policy = Policy.patterns(deny=["edit(*.py)", "execute(touch secret *)"])
    ssh = [{"name": "GIT_SSH_COMMAND", "value": "touch pwned"}]

    written, refused, made, denied, doubtful = answers(
        script,
        tmp_path,
        policy,
        writing(tmp_path / "a.txt"),
        writing(tmp_path / "a.py"),
        terminal("true"),
        terminal("touch", args=["secret"]),
        terminal("git", args=["status"], env=ssh),
    )

    assert written == {}
    assert "is denied by `edit(*.py)` in the policy's deny rules" in refused["message"]
    assert "terminalId" in made
    assert "is denied by `execute(touch secret *)`" in denied["message"]
    assert "GIT_SSH_COMMAND" in doubtful["message"]
    assert ((tmp_path / "a.txt").exists(), (tmp_path / "a.py").exists()) == (True, False)


def test_the_floor_holds_for_terminals_whatever_the_policy_is(script: Script, tmp_path: Path) -> None:
    for policy in ("allow-all", "allow-reads", lambda request: True):
        wiped, made = answers(script, tmp_path, policy, terminal("rm -rf /"), terminal("true"))

        assert "would delete /, the root of the file system" in wiped["message"]
        assert "terminalId" in made


def test_what_was_allowed_in_a_turn_is_not_asked_about_again(script: Script, tmp_path: Path) -> None:
    asked: list[str] = []

    def decide(request: PermissionRequest) -> bool:
        asked.append(request.tool_call.title)
        return True

    policy = Policy.patterns(ask=["execute(true *)", "edit(a.txt)"], callback=decide)
    note = writing(tmp_path / "a.txt")
    wish = "permission(0, title='Run true', kind='execute', rawInput={'command': 'true'})"
    run_it = terminal("true")

    allowed, *made = answers(script, tmp_path, policy, wish, run_it, run_it, note, note)

    assert allowed["outcome"]["optionId"] == "yes"
    assert all("message" not in (each or {}) for each in made)
    assert asked == ["Run true", f"Write {tmp_path / 'a.txt'}"]


def test_a_cancel_takes_the_question_back_and_nothing_is_done(script: Script, tmp_path: Path) -> None:
    agent = script(DOES)
    asked, is_over = asyncio.Event(), asyncio.Event()

    async def decide(request: PermissionRequest) -> bool:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_over.set()
        return True

    async def story() -> None:
        policy = Policy.patterns(ask=["execute(touch *)"], callback=decide)
        async with agent.connect(terminals=True) as remote:
            session = await remote.new(cwd=tmp_path, permissions=policy)
            prompt = session.prompt(f"[{terminal('touch', args=['made'])}]")
            answering = asyncio.ensure_future(_reply(prompt))
            await asked.wait()
            await session.cancel()
            await is_over.wait()
            await answering

    async def _reply(prompt: Any) -> None:
        await prompt

    run(story())
    [answer] = agent.noted("answer")
    assert answer["message"] == "not permitted: the turn was cancelled"
    assert not (tmp_path / "made").exists()

"""Commands that an agent lets the client run: real process groups, with limits, and never left behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from client.asking import Asked, Script, ask
from client.stage import gone_within, is_running, run, until
from coupler import AgentError
from coupler.client import terminals
from coupler.client.terminals import OUTPUT_LIMIT

IDLE = "import time; time.sleep(60)"


def with_terminals(
    script: Script, story: Callable[[Asked], Awaitable[None]], cwd: Path, **session: Any
) -> None:
    ask(script, story, terminals=True, session={"cwd": cwd, **session})


async def create(asked: Asked, code: str, *args: str, **more: Any) -> str:
    """Run Python in a terminal, and give back its id."""
    answer = await asked.request("terminal/create", command=sys.executable, args=["-c", code, *args], **more)
    assert set(answer) == {"terminalId"}, answer
    return str(answer["terminalId"])


async def finished(asked: Asked, terminal: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """How a terminal ended, and its output."""
    ending = await asked.request("terminal/wait_for_exit", terminalId=terminal)
    return ending, await asked.request("terminal/output", terminalId=terminal)


async def eventually(asked: Asked, terminal: str, text: str) -> str:
    """The output, once this is in it."""
    while True:
        shown = await asked.request("terminal/output", terminalId=terminal)
        if text in shown["output"]:
            return str(shown["output"])


def outcome(script: Script, project: Path, code: str, *args: str, **more: Any) -> tuple[Any, Any]:
    found: list[tuple[Any, Any]] = []

    async def story(asked: Asked) -> None:
        found.append(await finished(asked, await create(asked, code, *args, **more)))

    with_terminals(script, story, project)
    return found[0]


def test_a_command_runs_and_its_output_and_exit_code_are_told(script: Script, tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1:], flush=True); print('oops', file=sys.stderr); sys.exit(3)"
    ending, shown = outcome(script, tmp_path, code, "a b", "$HOME")
    assert ending == {"exitCode": 3, "signal": None}
    assert shown == {
        "output": "['a b', '$HOME']\noops\n",
        "truncated": False,
        "exitStatus": {"exitCode": 3, "signal": None},
    }


def test_a_signal_is_told_by_its_name(script: Script, tmp_path: Path) -> None:
    ending, _ = outcome(script, tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert ending == {"exitCode": None, "signal": "SIGKILL"}


def test_while_it_runs_the_output_so_far_is_told_without_an_exit(script: Script, tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        terminal = await create(asked, f"print('so far', flush=True); {IDLE}")
        await eventually(asked, terminal, "so far\n")
        shown = await asked.request("terminal/output", terminalId=terminal)
        assert shown == {"output": "so far\n", "truncated": False}

    with_terminals(script, story, tmp_path)


def test_it_runs_in_the_sessions_directory_or_in_one_inside_of_it(script: Script, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    where = "import os; print(os.getcwd())"
    for cwd, expected in ((None, tmp_path), (str(tmp_path / "sub"), tmp_path / "sub")):
        _, shown = outcome(script, tmp_path, where, cwd=cwd)
        assert shown["output"].strip() == str(expected)


@pytest.mark.parametrize("cwd", ["..", "link", "../project2"])
def test_it_does_not_run_outside_of_the_sessions_directories(
    script: Script, tmp_path: Path, cwd: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "project2").mkdir()
    (project / "link").symlink_to(tmp_path)

    async def story(asked: Asked) -> None:
        error = await asked.request("terminal/create", command="true", cwd=f"{project}/{cwd}")
        assert error["data"] == {"reason": "outside_roots", "path": "cwd"}

    with_terminals(script, story, project)


def test_variables_are_added_to_our_environment(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "here")
    code = "import os; print(os.environ['OURS'], os.environ['THEIRS'])"
    _, shown = outcome(script, tmp_path, code, env=[{"name": "THEIRS", "value": "there"}])
    assert shown["output"] == "here there\n"


def test_a_line_for_the_shell_is_given_to_one(script: Script, tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        answer = await asked.request("terminal/create", command="echo one && echo two >&2 | cat; exit 4")
        ending, shown = await finished(asked, answer["terminalId"])
        assert (ending["exitCode"], sorted(shown["output"].split())) == (4, ["one", "two"])

    with_terminals(script, story, tmp_path)


@pytest.mark.parametrize(
    ("written", "limit", "output", "truncated"),
    [
        ("'abc'", 3, "abc", False),
        ("'abcd'", 3, "bcd", True),
        ("'line\\nother\\n'", 8, "e\nother\n", True),
        ("'aé'", 3, "aé", False),
        ("'éé'", 3, "é", True),
        ("'😀😀'", 7, "😀", True),
        ("'😀'", 3, "", True),
        ("'abc'", 0, "", True),
        ("b'\\xff\\xff'", 3, "\ufffd", True),
        ("'x' * 100000", 10, "x" * 10, True),
        ("'abc'", None, "abc", False),
        ("'abc'", 2**63, "abc", False),
    ],
)
def test_the_last_of_the_output_is_kept_from_a_whole_character_on(
    script: Script, tmp_path: Path, written: str, limit: int | None, output: str, truncated: bool
) -> None:
    code = f"import sys; w = {written}; sys.stdout.buffer.write(w if isinstance(w, bytes) else w.encode())"
    _, shown = outcome(script, tmp_path, code, outputByteLimit=limit)
    assert (shown["output"], shown["truncated"]) == (output, truncated)


def test_a_character_that_is_not_there_yet_is_not_shown_broken(script: Script, tmp_path: Path) -> None:
    halves = "import os, sys; os.write(1, b'a\\xf0\\x9f'); sys.stdin.read(); open('go').read(); "
    os.mkfifo(tmp_path / "go")

    async def story(asked: Asked) -> None:
        terminal = await create(asked, halves + "os.write(1, b'\\x98\\x80')")
        assert await eventually(asked, terminal, "a") == "a"
        (tmp_path / "go").open("w").close()
        _, shown = await finished(asked, terminal)
        assert shown["output"] == "a😀"

    with_terminals(script, story, tmp_path)


def test_endless_output_is_kept_within_the_limit_however_large_a_limit_is_named(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert OUTPUT_LIMIT == 16 * 1024 * 1024
    monkeypatch.setattr(terminals, "OUTPUT_LIMIT", 1000)
    _, shown = outcome(script, tmp_path, "print('x' * 5_000_000)", outputByteLimit=2**40)
    assert (len(shown["output"]), shown["truncated"]) == (1000, True)


def test_a_killed_command_ends_with_all_it_started_and_its_output_stays(
    script: Script, tmp_path: Path
) -> None:
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {IDLE!r}])\n"
        "print('child', child.pid, flush=True); time.sleep(60)"
    )

    async def story(asked: Asked) -> None:
        terminal = await create(asked, code)
        output = await eventually(asked, terminal, "child")
        child = int(output.split()[1])
        assert is_running(child)
        assert await asked.request("terminal/kill", terminalId=terminal) == {}
        ending, shown = await finished(asked, terminal)
        assert ending == {"exitCode": None, "signal": "SIGTERM"}
        assert (shown["output"], shown["exitStatus"]) == (output, ending)
        assert gone_within(5, child)
        assert await asked.request("terminal/kill", terminalId=terminal) == {}

    with_terminals(script, story, tmp_path)


def test_a_command_that_ignores_to_be_ended_is_killed(script: Script, tmp_path: Path) -> None:
    code = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {IDLE}"

    async def story(asked: Asked) -> None:
        terminal = await create(asked, code)
        await eventually(asked, terminal, "deaf")
        await asked.request("terminal/kill", terminalId=terminal)
        ending, _ = await finished(asked, terminal)
        assert ending["signal"] == "SIGKILL"

    with_terminals(script, story, tmp_path)


def test_who_waits_for_the_exit_is_answered_when_the_command_is_killed(
    script: Script, tmp_path: Path
) -> None:
    async def story(asked: Asked) -> None:
        terminal = await create(asked, IDLE)
        wait = f"request(100, 'terminal/wait_for_exit', sessionId='s1', terminalId={terminal!r})"
        kill = f"request(101, 'terminal/kill', sessionId='s1', terminalId={terminal!r})"
        waited, _ = await asked.send(f"[{wait}, {kill}]")
        assert waited["result"]["signal"] == "SIGTERM"

    with_terminals(script, story, tmp_path)


def test_what_a_command_left_in_the_background_does_not_hold_its_exit_and_ends_with_the_terminal(
    script: Script, tmp_path: Path
) -> None:
    code = (
        f"import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', {IDLE!r}]).pid, flush=True)"
    )

    async def story(asked: Asked) -> None:
        for end in ("kill", "release"):
            terminal = await create(asked, code)
            ending, shown = await finished(asked, terminal)
            assert ending["exitCode"] == 0
            assert is_running(int(shown["output"]))
            await asked.request(f"terminal/{end}", terminalId=terminal)
            assert gone_within(5, int(shown["output"]))

    with_terminals(script, story, tmp_path)


METHODS = ["terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"]


def test_a_released_terminal_is_unknown_and_its_command_has_ended(script: Script, tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        terminal = await create(asked, f"import os; print(os.getpid(), flush=True); {IDLE}")
        pid = int(await eventually(asked, terminal, "\n"))
        assert await asked.request("terminal/release", terminalId=terminal) == {}
        assert not is_running(pid)
        for method in METHODS:
            error = await asked.request(method, terminalId=terminal)
            assert (error["code"], error["data"]["reason"]) == (-32002, "resource_not_found")

    with_terminals(script, story, tmp_path)


def test_what_a_terminal_wrote_stays_known_to_us_after_its_release(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "MOST_RELEASED", 2)

    async def story(asked: Asked) -> None:
        names: list[str] = []
        for number in range(3):
            names.append(await create(asked, f"print({number})"))
            await finished(asked, names[-1])
            await asked.request("terminal/release", terminalId=names[-1])
        assert list(asked.session.terminals) == names[1:]
        shown = asked.session.terminals[names[2]].output()
        assert (shown.output, shown.truncated) == ("2\n", False)
        assert shown.exit_status
        assert shown.exit_status.exit_code == 0

    with_terminals(script, story, tmp_path)


def test_ids_cannot_be_guessed_and_are_known_to_their_session_alone(script: Script, tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        one, two = [await create(asked, IDLE) for _ in range(2)]
        assert one != two
        assert re.fullmatch(r"terminal_[0-9a-f]{32}", one)
        other = Asked(asked.remote, await asked.remote.new(cwd=tmp_path))
        other._last = 100
        for method in METHODS:
            error = await other.request(method, terminalId=one)
            assert error["data"] == {"reason": "resource_not_found", "path": "terminalId"}
        assert await asked.request("terminal/output", terminalId=one) == {"output": "", "truncated": False}

    with_terminals(script, story, tmp_path)


def test_a_session_has_a_limited_number_of_terminals(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "MOST_OPEN", 2)

    async def story(asked: Asked) -> None:
        first, _ = [await create(asked, "pass") for _ in range(2)]
        error = await asked.request("terminal/create", command="true")
        assert error["data"]["reason"] == "too_many_terminals"
        await asked.request("terminal/release", terminalId=first)
        await create(asked, "pass")

    with_terminals(script, story, tmp_path)


@pytest.mark.parametrize(
    "params",
    [
        {"command": "no-such-program-anywhere"},
        {"command": ""},
        {"command": "true\0"},
        {"command": "true", "args": ["\0"]},
        {"command": "true", "env": [{"name": "A=B", "value": ""}]},
        {"command": "true", "env": [{"name": "A", "value": "\0"}]},
        {"command": "true", "cwd": "/proc"},
        {"command": "true", "cwd": "relative"},
        {"command": "true", "cwd": "/\0"},
        {"command": ["true"]},
        {"command": "true", "args": "a"},
        {"command": None},
        {"command": "true", "sessionId": "ghost"},
        {},
    ],
)
def test_what_cannot_be_started_is_an_error_and_no_terminal(
    script: Script, tmp_path: Path, params: dict[str, Any]
) -> None:
    async def story(asked: Asked) -> None:
        error = await asked.request("terminal/create", **params)
        assert error["code"] in (-32602, -32603)
        assert error["data"]["reason"] in ("spawn_failed", "invalid_params", "outside_roots"), error
        await finished(asked, await create(asked, "pass"))

    with_terminals(script, story, tmp_path)


def test_a_directory_that_does_not_exist_is_told(script: Script, tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        error = await asked.request("terminal/create", command="true", cwd=str(tmp_path / "gone"))
        assert error["data"]["reason"] == "spawn_failed"
        assert str(tmp_path / "gone") in error["message"]

    with_terminals(script, story, tmp_path)


# Starts a process that notes its number, and goes on as the test says.
STARTS = """
    HELLO["agentCapabilities"] = {{"sessionCapabilities": {{"close": {{}}}}}}
    open_sessions()
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    send(request(1, "terminal/create", sessionId="s1", command={python!r}, args=["-c", code]))
    answer_to(1)
    {then}
"""


@pytest.mark.parametrize(
    "how", ["the session is closed", "the agent is closed", "the agent dies", "the caller is cancelled"]
)
def test_no_terminal_outlives_its_session(script: Script, tmp_path: Path, how: str) -> None:
    then = "read(); os._exit(1)" if how == "the agent dies" else "read(); send(result(read(), {})); read()"
    if how == "the session is closed":
        then = "send(result(read(), {})); read()"
    agent = script(STARTS.format(python=sys.executable, then=then))

    def pid() -> int:
        file = tmp_path / "pid"
        return int(file.read_text() or 0) if file.exists() else 0

    async def story() -> None:
        async with agent.connect(terminals=True) as remote:
            session = await remote.new(cwd=tmp_path)
            await until(pid)
            assert is_running(pid())
            if how == "the session is closed":
                await session.close()
                assert not is_running(pid())
            elif how == "the agent dies":
                with pytest.raises(AgentError, match="ended"):
                    await session.prompt("go")
                # Nobody has to ask for that.
                await until(lambda: not is_running(pid()))

    async def cancelled() -> None:
        task = asyncio.create_task(story_until_cancelled())
        await until(pid)
        task.cancel()
        await asyncio.wait([task])

    async def story_until_cancelled() -> None:
        async with agent.connect(terminals=True) as remote:
            await remote.new(cwd=tmp_path)
            await asyncio.Event().wait()

    run(cancelled() if how == "the caller is cancelled" else story())
    assert not is_running(pid())


# A client whose agent runs a command in a terminal.
CLIENT = """
import asyncio, sys
from coupler import Turn, connect

async def agent(turn: Turn) -> None:
    await turn.terminal.run("sh", "-c", "sleep 300 & echo $$ > pid.new; mv pid.new pid; wait")

async def main() -> None:
    async with connect(agent, terminals=True) as remote:
        await (await remote.new()).prompt("go")

asyncio.run(main())
"""


def test_no_terminal_outlives_a_client_that_is_killed(tmp_path: Path) -> None:
    async def story() -> None:
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, cwd=tmp_path)
        await until((tmp_path / "pid").exists)
        client.kill()
        await client.wait()
        group = int((tmp_path / "pid").read_text())
        await until(lambda: group not in map(_group_of, psutil.process_iter()))

    run(story())


def _group_of(process: psutil.Process) -> int | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else os.getpgid(process.pid)
    except (ProcessLookupError, psutil.Error):
        return None


def test_a_terminal_that_is_wanted_while_the_session_closes_is_refused(
    script: Script, tmp_path: Path
) -> None:
    agent = script("""
        HELLO["agentCapabilities"] = {"sessionCapabilities": {"close": {}}}
        open_sessions()
        closing = read()
        send(request(1, "terminal/create", sessionId="s1", command="sleep", args=["60"]))
        answer_to(1)
        send(result(closing, {}))
        read()
    """)

    async def story() -> None:
        async with agent.connect(terminals=True) as remote:
            await (await remote.new(cwd=tmp_path)).close()

    run(story())
    assert agent.answers_to(1)[0]["error"]["data"]["reason"] == "session_ended"


def test_a_kill_while_hundreds_of_outputs_are_asked_for_answers_all_of_them(
    script: Script, tmp_path: Path
) -> None:
    async def story(asked: Asked) -> None:
        terminal = await create(asked, "while True: print('x' * 100)", outputByteLimit=1000)
        output = f"request(n, 'terminal/output', sessionId='s1', terminalId={terminal!r})"
        kill = f"request(900, 'terminal/kill', sessionId='s1', terminalId={terminal!r})"
        answers = await asked.send(f"[*({output} for n in range(100, 400)), {kill}]")
        assert all(len(answer["result"].get("output", "")) <= 1000 for answer in answers)
        ending, _ = await finished(asked, terminal)
        assert ending["signal"] == signal.SIGTERM.name

    with_terminals(script, story, tmp_path)

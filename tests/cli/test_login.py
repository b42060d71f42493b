"""`coupler login`: in the terminal, by the agent, and when there is nothing to do."""

from __future__ import annotations

import os
import shlex
import sys

import pytest

import forked
from cli.typing_at import Typist
from client.stage import Scripted

# An agent as vendors make them: with a word it is a login for people, without it speaks ACP.
VENDOR = """
from pathlib import Path
token = Path(sys.argv[1]).with_suffix(".token")
if sys.argv[2:3] == ["login"]:
    print("Your token, for " + os.environ["WHO"] + "?", flush=True)
    said = sys.stdin.readline().strip()
    if not said:
        raise SystemExit(3)
    token.write_text(said)
    raise SystemExit(0)
terminal = {"id": "shell", "name": "In a shell", "type": "terminal", "args": ["login"], "env": {"WHO": "Ann"}}
METHODS = [terminal]
while True:
    frame = read()
    match frame["method"]:
        case "initialize":
            offered = frame["params"]["clientCapabilities"].get("auth", {}).get("terminal")
            send(result(frame, {**HELLO, "authMethods": METHODS if offered else METHODS[1:]}))
        case "session/new" if token.exists():
            send(result(frame, {"sessionId": "s1"}))
        case "authenticate" if frame["params"]["methodId"] == "browser":
            token.write_text("by the browser")
            send(result(frame, {}))
        case _:
            send(error(frame, -32000, "log in first"))
"""
SEVERAL = VENDOR.replace(
    "METHODS = [terminal]",
    'METHODS = [terminal, {"id": "browser", "name": "In the browser", "description": "Opens a page"}]',
)


@pytest.fixture
def scripted(tmp_path):
    made = []

    def make(body):
        made.append(Scripted(tmp_path, len(made), body))
        return made[-1]

    yield make
    for agent in made:
        agent.check()


def login(agent, *words, text=""):
    return forked.run(
        [sys.executable, "-m", "coupler", "login", shlex.join(agent.command), *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ},
        check=False,
    )


def token_of(agent):
    file = agent.log.with_suffix(".token")
    return file.read_text() if file.exists() else None


def test_a_login_for_the_terminal_runs_the_agents_program_with_the_methods_words(scripted):
    agent = scripted(VENDOR)
    done = login(agent, text="sesame\n")
    assert (done.returncode, token_of(agent)) == (0, "sesame")
    assert "Your token, for Ann?" in done.stdout
    assert done.stdout.endswith("is logged in.\n")
    assert agent.received_of("authenticate") == []


def test_a_login_that_fails_is_told_with_its_exit_code(scripted):
    agent = scripted(VENDOR)
    done = login(agent)
    assert done.returncode == 1
    assert done.stderr.endswith("ended with exit code 3\n")


def test_an_agent_that_is_logged_in_is_left_alone(scripted):
    agent = scripted(VENDOR)
    login(agent, text="sesame\n")
    done = login(agent, text="other\n")
    assert (done.returncode, token_of(agent)) == (0, "sesame")
    assert "is logged in: it opens sessions" in done.stdout


def test_a_method_that_is_named_is_used_again(scripted):
    agent = scripted(VENDOR)
    login(agent, text="sesame\n")
    assert login(agent, "shell", text="other\n").returncode == 0
    assert token_of(agent) == "other"


def test_other_methods_are_asked_of_the_agent(scripted):
    agent = scripted(SEVERAL)
    done = login(agent, "browser")
    assert (done.returncode, token_of(agent)) == (0, "by the browser")
    assert "In the browser" in done.stdout


def test_a_command_with_a_path_of_here_is_started_here(tmp_path, monkeypatch):
    (tmp_path / "agent.py").write_text(
        "from coupler import Turn, serve\nasync def agent(turn: Turn) -> None: ...\nserve(agent)\n"
    )
    monkeypatch.chdir(tmp_path)
    done = forked.run(
        [sys.executable, "-m", "coupler", "login", f"{shlex.quote(sys.executable)} agent.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "is logged in: it opens sessions" in done.stdout


def test_several_methods_are_listed_and_one_must_be_named(scripted):
    done = login(scripted(SEVERAL))
    assert done.returncode == 2
    assert "1. shell (terminal) In a shell\n2. browser (agent) In the browser: Opens a page\n" in done.stderr
    assert "name one of them as METHOD" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_at_a_terminal_one_of_several_is_chosen_by_its_number(scripted):
    agent = scripted(SEVERAL)
    command = shlex.join(agent.command)
    with Typist(sys.executable, "-m", "coupler", "login", command) as person:
        person.sees("Number")
        person.types("1\n")
        person.sees("Your token, for Ann?")
        person.types("typed\n")
        assert person.ends() == 0
    assert token_of(agent) == "typed"


def test_the_methods_can_be_listed_alone(scripted):
    agent = scripted(SEVERAL)
    done = login(agent, "--list")
    assert done.returncode == 0
    assert done.stdout.startswith("1. shell (terminal) In a shell\n")
    assert agent.received_of("session/new") == []


def test_a_method_that_there_is_not_is_wrong_usage(scripted):
    done = login(scripted(SEVERAL), "telepathy")
    assert done.returncode == 2
    assert "has no way 'telepathy' to log in, only shell, browser" in done.stderr


def test_an_agent_without_logins_says_so(scripted):
    agent = scripted("""
    hello()
    send(error(read(), -32000, "log in first"))
    read()
    """)
    done = login(agent)
    assert done.returncode == 1
    assert "offers no login over the protocol: log in as its manual says" in done.stderr


def test_what_is_driven_without_acp_says_what_to_do_instead():
    done = forked.run(
        [sys.executable, "-m", "coupler", "login", "openai"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "coupler login: OpenAI-compatible server is driven without ACP here, and `coupler login` is for ACP "
        'forms. `coupler exec openai "hello"` shows whether it answers. If it does not: '
        "Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own.\n"
    )

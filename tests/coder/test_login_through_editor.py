"""Logging in to the coder's model from an editor, and what there is without a login."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forked
from coder.script import ScriptedModel
from coder.served_coder import Coder, surroundings
from coupler.conformance.assertion import catalogue
from coupler.conformance.candidate import Candidate
from coupler.conformance.examination import examine
from raw_client import COUPLER, Frame, RawClient

AUTH_REQUIRED = -32000
TERMINAL: dict[str, Any] = {"auth": {"terminal": True}}
KEY = "sk-of-a-login-0123456789abcdef"

WORKFLOW = """\
name: greet
description: Says hello.
steps:
  - id: hello
    run: echo hello from a workflow
outputs:
  said: ${{ steps.hello.stdout }}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def serve(home: Path, project: Path, *words: str, **env: str) -> RawClient:
    variables = {**surroundings(home, None), "COUPLER_API_KEY": "", **env}
    return RawClient(*COUPLER, "serve", *words, env=variables, cwd=project)


def log_in(home: Path, url: str) -> None:
    done = forked.run(
        [*COUPLER, "login", "coder", "--model", "openai:scripted", "--base-url", url, "--no-check"],
        env={**os.environ, **surroundings(home, None), "COUPLER_API_KEY": ""},
        input=f"{KEY}\n",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def forget(home: Path) -> None:
    done = forked.run(
        [*COUPLER, "login", "coder", "--forget"],
        env={**os.environ, **surroundings(home, None)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def methods(hello: Frame) -> list[Frame]:
    offered: list[Frame] = hello["result"]["authMethods"]
    return offered


def test_a_client_with_terminals_is_offered_the_login_in_one(home: Path, project: Path) -> None:
    with serve(home, project) as client:
        [method] = methods(client.initialize(**TERMINAL))

    assert (method["type"], method["args"]) == ("terminal", ["--login"])
    assert "_meta" not in method


def test_another_client_is_offered_to_have_it_looked_at_again(
    home: Path, project: Path, scripted_model: ScriptedModel
) -> None:
    with serve(home, project) as client:
        [method] = methods(client.initialize())
        assert "type" not in method
        assert "_meta" not in method
        refused = client.call("authenticate", {"methodId": method["id"]})
        assert refused["error"]["code"] == AUTH_REQUIRED
        assert "coupler login coder" in refused["error"]["message"]
        assert "ollama" in refused["error"]["data"]["explanation"]

        log_in(home, scripted_model.server.url)

        assert client.call("authenticate", {"methodId": method["id"]})["result"] == {}
        unknown = client.call("authenticate", {"methodId": "nothing"})
        assert unknown["error"]["code"] == -32602


def test_a_client_that_asks_in_meta_is_told_the_whole_command(home: Path, project: Path) -> None:
    with serve(home, project) as client:
        [method] = methods(client.initialize(_meta={"terminal-auth": True}))

    command = method["_meta"]["terminal-auth"]
    assert "type" not in method
    assert [command["command"], *command["args"]] == [sys.executable, "-m", "coupler", "login", "coder"]


def test_with_a_model_and_its_key_no_login_is_offered(home: Path, project: Path) -> None:
    with serve(home, project, COUPLER_MODEL="anthropic:a") as client:
        assert len(methods(client.initialize())) == 1
    with serve(home, project, COUPLER_MODEL="anthropic:a", ANTHROPIC_API_KEY=KEY) as client:
        hello = client.initialize()
        assert methods(hello) == []
        assert "logout" not in hello["result"]["agentCapabilities"]["auth"]
    with serve(home, project, "--model", "ollama:m") as client:
        assert methods(client.initialize()) == []


def test_only_a_prompt_that_needs_the_model_wants_a_login_and_after_it_the_session_goes_on(
    coder: Coder, home: Path, project: Path
) -> None:
    coder.model.plays("I am here.")
    workflows = home / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "greet.yaml").write_text(WORKFLOW)
    with serve(home, project) as client:
        client.initialize()
        session = client.new_session(str(project))

        updates, ran = client.prompt(session, "/greet")
        told, refused = client.prompt(session, "Hello")
        log_in(home, coder.model.server.url)
        said, answered = client.prompt(session, "Hello again")

    assert ran["result"]["stopReason"] == "end_turn", updates
    assert "hello from a workflow" in str(updates)
    assert refused["error"]["code"] == AUTH_REQUIRED
    assert refused["error"]["message"].startswith("No model is set: run `coupler login coder`")
    assert "COUPLER_BASE_URL" in refused["error"]["data"]["explanation"]
    assert "agent_message_chunk" not in str(told)
    assert answered["result"]["stopReason"] == "end_turn"
    assert "I am here." in str(said)


def test_what_an_earlier_start_answered_does_not_outlive_a_login_or_logout(
    home: Path, project: Path, scripted_model: ScriptedModel
) -> None:
    def offered() -> int:
        with serve(home, project) as client:
            return len(methods(client.initialize()))

    assert [offered(), offered()] == [1, 1]
    log_in(home, scripted_model.server.url)
    assert [offered(), offered()] == [0, 0]
    forget(home)
    assert [offered(), offered()] == [1, 1]
    (home / "coupler.toml").write_text('[coder]\nmodel = "ollama:m"\n')
    assert [offered(), offered()] == [0, 0]


def test_the_model_of_a_project_counts_as_soon_as_it_is_trusted(home: Path, project: Path) -> None:
    (project / "coupler.toml").write_text('[coder]\nmodel = "ollama:m"\n')

    def offered() -> int:
        with serve(home, project) as client:
            return len(methods(client.initialize()))

    assert [offered(), offered()] == [1, 1]
    trusted = forked.run(
        [*COUPLER, "trust", "--yes"],
        cwd=project,
        env={**os.environ, **surroundings(home, None)},
        capture_output=True,
        text=True,
    )
    assert trusted.returncode == 0, trusted.stderr
    assert [offered(), offered()] == [0, 0]


def test_logout_deletes_what_the_login_stored_and_the_next_prompt_wants_one(
    home: Path, project: Path, scripted_model: ScriptedModel
) -> None:
    log_in(home, scripted_model.server.url)
    with serve(home, project) as client:
        hello = client.initialize()
        assert hello["result"]["agentCapabilities"]["auth"]["logout"] == {}
        session = client.new_session(str(project))

        assert client.call("logout", {})["result"] == {}

        _, refused = client.prompt(session, "Hello")
        assert refused["error"]["code"] == AUTH_REQUIRED
    assert not (home / "credentials.json").exists()


def test_the_arguments_of_the_terminal_login_log_in_and_exit(home: Path, project: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COUPLER, "serve", "--login"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=project,
        env={**os.environ, **surroundings(home, None), "COUPLER_API_KEY": ""},
    )
    os.close(theirs)
    os.write(ours, b"local:m\n")
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:
        pass  # Linux reports the end of a terminal as an error
    os.close(ours)

    assert process.wait(20) == 0, shown.decode()
    with serve(home, project) as client:
        assert methods(client.initialize()) == []


@pytest.mark.long
@pytest.mark.usefixtures("quick_starts", "unmeasured")
def test_the_coder_without_a_model_keeps_to_the_protocol(home: Path, project: Path) -> None:
    served = Candidate(
        [*COUPLER, "serve"],
        project,
        env={**surroundings(home, None), "COUPLER_API_KEY": ""},
        timeout=30.0,
        startup_timeout=30.0,
    )

    report = asyncio.run(examine(served, catalogue("agent")))

    wrong = {
        each.assertion.id: each.message for each in report.results if each.outcome in ("failed", "warned")
    }
    assert wrong == {}
    passed = {each.assertion.id for each in report.results if each.outcome == "passed"}
    assert {"A16", "A17"} <= passed
    assert len(passed) > 20, "what needs no turn is examined all the same"

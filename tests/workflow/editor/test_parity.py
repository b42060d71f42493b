"""One workflow, run in an editor and at a command line, with every kind of agent: the same result and story.

All cases share one `coupler serve`, whose home is also that of the command line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from agent.steps import leave, still_serves
from providers.model_server import ModelServer, recording
from providers.stub import Stub, path_with
from raw_client import COUPLER, PATIENCE, RawClient
from workflow.acp_stub import AcpStub
from workflow.project import OTHERS
from workflow.served_project import Editor, opened, served, write_workflow

pytestmark = pytest.mark.usefixtures("unmeasured")

Event = dict[str, Any]

AGENTS = {
    "acp": "claude:acp",
    "claude": "claude:native",
    "codex": "codex:native",
    "gemini": "gemini:native",
    "copilot": "copilot:native",
    "opencode": "opencode:native",
    "openai": "openai",
}

MORE = {"acp": "tools: {allow: [edit]}", "openai": "model: small"}
"""What their steps need besides."""

WORKFLOW = """
    inputs: {{what: {{rest: true}}}}
    steps:
      - {{id: look, run: "echo look at {{{{ inputs.what }}}}"}}
      - {{id: sure, approve: "Fix {{{{ inputs.what }}}}?"}}
      - id: both
        parallel:
          - id: fix
            agent: "{agent}"
            prompt: "Fix {{{{ inputs.what }}}}"
            {more}
          - {{id: skipped, if: "false", run: echo never}}
      - {{id: each, for_each: [1, 2], steps: [{{id: count, run: "echo {{{{ item }}}}"}}]}}
      - {{id: flaky, run: exit 3, retry: {{attempts: 2, delay: 1ms}}, on_error: continue}}
    outputs:
      said: "{{{{ steps.fix.text }}}}"
      tokens: "{{{{ steps.fix.usage.total_tokens }}}}"
      counted: "{{{{ steps.each.results | map(attribute='count') | map(attribute='stdout') | list }}}}"
      code: "{{{{ steps.flaky.exit_code }}}}"
"""

CLOCKS = {"at", "seq", "duration"}
NAMES = {"run", "session", "session_id", "call", "by"}
"""What two runs of one workflow do not share: ids, and whether a person or an option has said yes."""
PIECES = {"text", "thought", "output"}
"""What comes in as many pieces as a pipe makes of it."""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of both: programs that stand in for agents, and a server that does for a model."""
    programs = tmp_path_factory.mktemp("bin")
    for name in ("claude", "codex", "gemini", "copilot", "opencode"):
        Stub(programs, name).streams(f"{name}-current")
    AcpStub(programs, "claude-agent-acp").answers({"edits": {"app.py": "x = 2\n"}, "says": "It is fixed."})
    with ModelServer(recording("openai-whole")) as server:
        yield {
            "PATH": path_with(programs),
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
            "COUPLER_HOME": str(tmp_path_factory.mktemp("home")),
        }


@pytest.fixture(scope="module")
def client(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    home = Path(env["COUPLER_HOME"])
    for name, agent in AGENTS.items():
        text = WORKFLOW.format(agent=agent, more=MORE.get(name, ""))
        write_workflow(home / "workflows", f"fix-{name}", text)
    with served(home=home, cwd=home, env=env) as client:
        yield client
        leave(client)


@pytest.fixture
def editor(client: RawClient, tmp_path: Path) -> Editor:
    still_serves(client)
    client._held.clear()
    return opened(client, tmp_path)


@pytest.mark.parametrize("name", AGENTS)
def test_a_run_in_an_editor_and_one_in_a_terminal_have_one_result_and_one_story(
    editor: Editor, env: dict[str, str], tmp_path: Path, name: str
) -> None:
    shown = editor.prompt(f"/fix-{name} the tests", "allow")
    ran = events(env, "run", f"fix-{name}", "the tests", "--json", "--yes", "--cwd", str(tmp_path))
    kept = events(env, "runs", "logs", shown.run, "--json")

    assert shown.reason == "end_turn", shown.last_message
    assert shown.meta["outputs"] == ran[-1]["outputs"] == kept[-1]["outputs"]
    assert ran[-1]["outputs"]["said"] and ran[-1]["outputs"]["tokens"]
    assert story(kept) == story(ran)
    assert {"step_started", "step_finished", "text", "approval_asked", "retry_planned"} <= {
        each["event"] for each in ran
    }


def events(env: dict[str, str], *words: str) -> list[Event]:
    """What a command of Coupler's tells, line by line."""
    mine = {key: value for key, value in os.environ.items() if key not in OTHERS}
    done = forked.run(
        [*COUPLER, *words], env=mine | env, capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def story(events: list[Event]) -> list[Event]:
    """What has happened, without what only clocks and pipes decide, and with every id as a number."""
    told: list[Event] = []
    calls: dict[str, int] = {}
    for event in events:
        plain: Event = _plain(event)
        for key in ("call", "id"):
            if key == "call" in event or (key == "id" and event["event"].startswith("tool_")):
                plain[key] = calls.setdefault(event[key], len(calls))
        last = told[-1] if told else {}
        if event["event"] in PIECES and _without_text(last) == _without_text(plain):
            last["text"] += plain["text"]
        else:
            told.append(plain)
    return told


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items() if key not in CLOCKS | NAMES}
        case list():
            return [*map(_plain, value)]
        case _:
            return value


def _without_text(event: Event) -> Event:
    return {key: value for key, value in event.items() if key != "text"}

"""A cancel at every point of a run: answered in time, all settled, the session free, the run to be resumed.

All cases share one `coupler serve`, with a session each in a directory of its own. What a workflow waits in
ends at once when there is a file `go`, so that a resumed run comes to its end.
"""

from __future__ import annotations

import json
import shlex
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.steps import leave, still_serves
from client.stage import Scripted
from coder.waiting import until
from providers.stub import Stub, path_with, recorded
from raw_client import Frame, RawClient
from workflow.served_project import Editor, Shown, opened, served, write_workflow

pytestmark = pytest.mark.slow

CANCEL_LIMIT = 6.0
"""Seconds after which a cancelled turn has to be answered."""

AGENT = """
import signal, time

for prompt in prompts():
    session = prompt["params"]["sessionId"]
    task, _, go = text_of(prompt).strip().partition(" ")
    if os.path.exists(go):
        send(say("All is well.", session), end(prompt))
        continue
    left = {"cancel"}
    call = {"toolCallId": "c1", "title": "Looking around", "kind": "edit", "status": "in_progress"}
    match task:
        case "talk":
            send(say("here", session))
        case "work":
            send(update("tool_call", session, **call))
        case "ask":
            left.add(f"p{os.getpid()}")
            send(permission(f"p{os.getpid()}", None, session, **call))
        case "sulk" | "cling":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            send(say("here", session))
            if task == "cling":
                read_until(is_cancel)
                send(end(prompt, "cancelled"))
            while True:
                time.sleep(60)
    while left:
        frame = read()
        left.discard("cancel" if is_cancel(frame) else frame.get("id"))
    send(end(prompt, "cancelled"))
"""

WAITING = "test -e go && exit 0; echo here; exec sleep 600"
DEAF = "test -e go && exit 0; trap '' TERM; echo here; while :; do sleep 0.1; done"

POINTS = {
    "a-command": f'- {{id: wait, run: "{WAITING}"}}',
    "a-deaf-command": f'- {{id: wait, run: "{DEAF}"}}',
    "a-for-each": f"""
        - id: loop
          for_each: [1, 2, 3]
          max_concurrent: 2
          steps: [{{id: wait, run: "{WAITING}"}}]
    """,
    "a-while": f"""
        - {{id: zero, set: {{rounds: 0}}}}
        - id: loop
          while: vars.rounds < 2
          steps:
            - {{id: count, set: {{rounds: vars.rounds + 1}}}}
            - {{id: wait, run: "test {{{{ vars.rounds }}}} = 1 && exit 0; {WAITING}"}}
    """,
    "a-parallel": f"""
        - id: both
          parallel:
            - {{id: wait, run: "{WAITING}"}}
            - [{{id: before, run: "true"}}, {{id: beside, run: "{WAITING}"}}]
    """,
    "a-called-workflow": "- {id: called, call: a-command}",
    "the-delay-of-a-retry": """
        - {id: wait, run: "test -e go", retry: {attempts: 3, delay: 60s}, description: here}
    """,
    "an-approval": "- {id: wait, approve: here}",
    "a-gate": '- {id: wait, run: "true", approve: here}',
    "a-form": "- {id: wait, ask: here, enum: [red, blue]}",
    "a-native-agent": '- {id: wait, agent: "codex:native", prompt: Fix it.}',
    "an-agents-text": '- {id: wait, agent: AGENT, prompt: "talk {{ run.cwd }}/go"}',
    "an-agents-call": '- {id: wait, agent: AGENT, prompt: "work {{ run.cwd }}/go"}',
    "an-agents-dialog": """
        - {id: wait, agent: AGENT, prompt: "ask {{ run.cwd }}/go", approve: {tools: [edit]}}
    """,
    "an-agent-that-does-not-end": '- {id: wait, agent: AGENT, prompt: "cling {{ run.cwd }}/go"}',
    "a-deaf-agent": '- {id: wait, agent: AGENT, prompt: "sulk {{ run.cwd }}/go"}',
}
MARKS = {
    "the-delay-of-a-retry": ("tool_call_update", "attempt 2 of 3"),
    "an-approval": ("session/request_permission",),
    "a-gate": ("session/request_permission",),
    "a-form": ("elicitation/create",),
    "a-native-agent": ("tool_call", "item_2"),
    "an-agents-text": ("agent_message_chunk", "here"),
    "an-agents-call": ("tool_call", "Looking around"),
    "an-agents-dialog": ("session/request_permission",),
    "an-agent-that-does-not-end": ("agent_message_chunk", "here"),
    "a-deaf-agent": ("agent_message_chunk", "here"),
}
"""What is seen when the run is at its point; else that a command says that it is there."""

WORKFLOW = """
hooks: {cancel: [{id: tidy, run: echo tidied >> hooks}], end: [{id: last, run: echo ended >> hooks}]}
steps:
  - {id: first, run: echo one >> done}
POINT
  - {id: after, run: echo two >> done}
outputs: {all: well}
"""

HOOKED = f"""
hooks: {{cancel: [{{id: tidy, run: "{DEAF}"}}]}}
steps: [{{id: wait, run: "{WAITING}"}}]
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    agent = Scripted(tmp_path_factory.mktemp("agent"), 1, AGENT)
    yield agent
    agent.check()


@pytest.fixture(scope="module")
def client(agent: Scripted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    home, programs = tmp_path_factory.mktemp("served"), tmp_path_factory.mktemp("bin")
    stream = recorded("codex-current")
    Stub(programs, "codex").says([*stream[:5], {"hang": True}], stream)
    command = json.dumps(shlex.join(agent.command))
    for name, point in POINTS.items():
        text = textwrap.indent(textwrap.dedent(point).strip(), "  ")
        text = text.replace("AGENT", command)
        write_workflow(home / "workflows", name, WORKFLOW.replace("POINT", text))
    write_workflow(home / "workflows", "hooked", HOOKED)
    write_workflow(home / "workflows", "hello", 'steps: [{run: "true"}]\noutputs: {said: hello}')
    env = {"PATH": path_with(programs)}
    with served(home=home, cwd=home, env=env, elicitation={"form": {}}) as client:
        yield client
        leave(client)


@pytest.fixture
def editor(client: RawClient, tmp_path: Path) -> Editor:
    still_serves(client)
    client._held.clear()
    return opened(client, tmp_path)


@pytest.mark.parametrize("point", POINTS)
def test_a_cancel_at_any_point_settles_all_and_leaves_a_run_that_can_be_resumed(
    editor: Editor, tmp_path: Path, point: str
) -> None:
    request = editor.begin(f"/{point}")
    frames = editor.until(*MARKS.get(point, ("tool_call_update", '"here\\n"')))
    began = time.monotonic()
    editor.cancel()
    close_dialogs(editor, frames)
    cancelled = editor.finish(request, before=frames)
    seconds = time.monotonic() - began

    assert cancelled.reason == "cancelled"
    assert seconds < CANCEL_LIMIT
    assert is_settled(cancelled)
    for call in cancelled.calls.values():
        outcome = call["_meta"]["coupler"].get("outcome")
        assert (call["status"] == "failed") == (outcome == "cancelled"), call
    assert cancelled.meta["status"] == "cancelled"
    assert (tmp_path / "hooks").read_text().endswith("tidied\nended\n")
    assert editor.prompt("/hello").last_message == "hello"
    assert not children_of(editor.client)

    (tmp_path / "go").touch()
    editor.forms = [{"action": "accept", "content": {"wait": "red"}}]
    resumed = editor.prompt(
        f"/resume {cancelled.run}", *["allow"] * point.startswith(("an-approval", "a-gate"))
    )
    assert (resumed.reason, resumed.run) == ("end_turn", cancelled.run), resumed.last_message
    assert resumed.meta["outputs"] == {"all": "well"}
    assert is_settled(resumed)
    times = 2 if point == "a-called-workflow" else 1  # it is made of the same steps
    assert (tmp_path / "done").read_text() == "one\n" * times + "two\n" * times


def test_a_cancel_closes_the_dialog_for_the_agent_that_has_asked_for_it(
    editor: Editor, agent: Scripted
) -> None:
    request = editor.begin("/an-agents-dialog")
    frames = editor.until("session/request_permission")
    editor.cancel()
    editor.finish(request, before=frames)  # whether or not the editor says that it has closed it

    (asked,) = agent.noted("asked")[-1:]
    (answer,) = agent.answers_to(asked["id"])
    assert answer["result"] == {"outcome": {"outcome": "cancelled"}}


def test_hooks_that_do_not_end_are_ended(editor: Editor, tmp_path: Path) -> None:
    request = editor.begin("/hooked")
    frames = editor.until("tool_call_update", '"here\\n"')
    began = time.monotonic()
    editor.cancel()
    cancelled = editor.finish(request, before=frames)

    assert time.monotonic() - began < CANCEL_LIMIT
    assert (cancelled.reason, cancelled.meta["status"]) == ("cancelled", "cancelled")
    assert is_settled(cancelled)
    assert cancelled.status("hooks.cancel.tidy") == "failed"
    # What was killed takes a moment to be gone.
    until(lambda: not children_of(editor.client))


def close_dialogs(editor: Editor, frames: list[Frame]) -> None:
    """A client that cancels says of every dialog and form that it has closed it."""
    closed = {
        "session/request_permission": {"outcome": {"outcome": "cancelled"}},
        "elicitation/create": {"action": "cancel"},
    }
    for frame in frames:
        if frame.get("method") in closed:
            editor.client.send({"id": frame["id"], "result": closed[frame["method"]]})


def is_settled(shown: Shown) -> bool:
    return bool(shown.calls) and {call["status"] for call in shown.calls.values()} <= {"completed", "failed"}


def children_of(client: RawClient) -> list[psutil.Process]:
    return psutil.Process(client.process.pid).children(recursive=True)

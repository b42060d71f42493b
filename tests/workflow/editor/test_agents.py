"""What the agents of steps ask, in an editor: dialogs, forms, pages and files, judged by rules first.

All tests share one `coupler serve`, with a session and a workflow each.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.steps import leave, still_serves, text_of
from cli.typing_at import Typist
from client.stage import Scripted
from raw_client import Frame, RawClient
from workflow.agent_stage import Script
from workflow.served_agents import Desk, nested
from workflow.served_project import Editor, served

OFFERED = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "elicitation": {"form": {}, "url": {}},
}

EDITING = """
for prompt in prompts():
    path = os.path.join(os.getcwd(), "app.py")
    call = {
        "title": "Edit app.py",
        "kind": "edit",
        "locations": [{"path": path}],
        "content": [{"type": "diff", "path": path, "oldText": "x = 1", "newText": "x = 2"}],
    }
    send(permission(os.getpid(), None, **call))
    outcome = answer_to(os.getpid())["result"]["outcome"]
    note("outcome", outcome)
    status = "completed" if outcome.get("optionId") == "yes" else "failed"
    send(update("tool_call_update", toolCallId="c1", status=status), say(json.dumps(outcome)), end(prompt))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the served process."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[RawClient]:
    with served(home=place, cwd=place, **OFFERED) as client:
        yield client
        leave(client)


@pytest.fixture
def desk(client: RawClient, place: Path, tmp_path: Path) -> Desk:
    still_serves(client)
    client._held.clear()
    return Desk(client, place, tmp_path)


# Permission


@pytest.mark.parametrize(("answer", "status"), [("allow", "completed"), ("deny", "failed")])
def test_what_no_rule_decides_is_asked_under_the_agents_own_call_with_what_it_shows(
    desk: Desk, script: Script, tmp_path: Path, answer: str, status: str
) -> None:
    agent = script(EDITING)
    editor = desk.editor()

    shown = editor.prompt(desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent), answer)

    (call,) = nested(shown)
    (asked,) = editor.asked
    path = str(tmp_path / "app.py")
    about = asked["toolCall"]
    assert (about["toolCallId"], about["title"], about["kind"]) == (call["toolCallId"], "Edit app.py", "edit")
    assert about["locations"] == [{"path": path}]
    assert about["_meta"] == call["_meta"]
    assert path in text_of(about)
    diff = {"type": "diff", "path": path, "oldText": "x = 1", "newText": "x = 2"}
    assert about["content"][-1] == diff
    assert call["content"] == [diff]
    assert call["status"] == status
    assert json.loads(shown.messages[0])["optionId"] == ("yes" if answer == "allow" else "no")


GROWING = """
for prompt in prompts():
    def shows(what, text, **fields):
        diff = {"type": "diff", "path": "/app.py", "oldText": "", "newText": text}
        content = [{"type": "content", "content": {"type": "text", "text": "done"}}, diff]
        return update(what, toolCallId="c1", content=content, **fields)

    send(shows("tool_call", "x", title="Edit", kind="edit", status="in_progress"))
    send(shows("tool_call_update", "x = "), shows("tool_call_update", "x = 1", status="completed"))
    send(end(prompt))
"""


def test_a_change_that_grows_is_shown_once_as_it_is_in_the_end(desk: Desk, script: Script) -> None:
    agent = script(GROWING)

    shown = desk.editor().prompt(desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent))

    (call,) = nested(shown)
    assert [item["newText"] for item in call["content"] if item["type"] == "diff"] == ["x = 1"]
    assert text_of(call) == "done"


def test_a_yes_for_good_is_not_asked_for_again(desk: Desk, script: Script) -> None:
    agent = script(EDITING)
    editor = desk.editor()
    command = desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent)

    first = editor.prompt(command, "allow_always")
    second = editor.prompt(command)

    (asked,) = editor.asked
    kinds = [option["kind"] for option in asked["options"]]
    assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"]
    assert [nested(shown)[0]["status"] for shown in (first, second)] == ["completed", "completed"]


def test_a_yes_for_good_decides_what_waits_behind_it_as_well(desk: Desk, script: Script) -> None:
    agents = [script(EDITING) for _ in range(2)]
    left, right = (json.dumps(shlex.join(agent.command)) for agent in agents)
    branches = f"{{id: l, agent: {left}, prompt: go}}, {{id: r, agent: {right}, prompt: go}}"
    editor = desk.editor()

    editor.prompt(desk.workflow(f"steps: [{{id: both, parallel: [{branches}]}}]"), "allow_always")

    assert len(editor.asked) == 1
    assert [agent.noted("outcome")[0]["optionId"] for agent in agents] == ["yes", "yes"]


def test_a_gate_of_the_workflow_offers_no_answer_for_good(desk: Desk, script: Script) -> None:
    agent = script(EDITING)
    editor = desk.editor()
    gated = "steps: [{id: x, agent: AGENT, prompt: go, approve: {tools: [edit]}}]"

    editor.prompt(desk.workflow(gated, agent), "allow")

    assert [option["kind"] for option in editor.asked[0]["options"]] == ["allow_once", "reject_once"]


@pytest.mark.parametrize(
    ("on_deny", "status", "code", "goes_on"),
    [("fail", "failed", 3, False), ("skip", "success", 0, True), ("stop", "cancelled", 130, False)],
)
def test_a_no_to_a_call_of_the_gate_ends_the_step_as_on_deny_says(
    desk: Desk, script: Script, tmp_path: Path, on_deny: str, status: str, code: int, goes_on: bool
) -> None:
    agent = script(EDITING)
    gated = f"{{id: x, agent: AGENT, prompt: go, approve: {{tools: [edit], on_deny: {on_deny}}}}}"

    shown = desk.editor().prompt(desk.workflow(f"steps: [{gated}, {{run: touch after}}]", agent), "deny")

    assert (shown.meta["status"], shown.meta["exitCode"]) == (status, code)
    assert shown.reason == "end_turn"
    assert shown.status("x") == "failed"
    assert (tmp_path / "after").exists() is goes_on


def test_a_call_of_the_gate_that_nobody_answers_in_time_fails_the_step(desk: Desk, script: Script) -> None:
    agent = script(EDITING)
    editor = desk.editor()
    gate = "approve: {tools: [edit], on_deny: fail, timeout: 100ms}"

    request = editor.begin(desk.workflow(f"steps: [{{id: x, agent: AGENT, prompt: go, {gate}}}]", agent))
    shown = editor.finish(request, before=editor.until("session/request_permission", '"id"'))

    assert shown.meta["error"] == {"kind": "denied", "message": "its tool call `Edit app.py` was denied"}


def test_what_a_rule_decides_is_not_asked(desk: Desk, script: Script) -> None:
    agent = script(EDITING)
    editor = desk.editor()
    denied = 'steps: [{id: x, agent: AGENT, prompt: go, tools: {deny: ["edit(app.py)"]}}]'

    shown = editor.prompt(desk.workflow(denied, agent))

    assert json.loads(shown.messages[0])["optionId"] == "no"
    assert "denied: Edit app.py" in shown.output("x")


# Both hops


def _asks_forever(desk: Desk, agent: Scripted) -> tuple[Editor, Frame, list[Frame]]:
    """A prompt whose agent waits for a dialog that stands open."""
    editor = desk.editor()
    request = editor.begin(desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent))
    return editor, request, editor.until("session/request_permission", '"id"')


def _taken_back(dialog: Frame) -> Callable[[Frame], bool]:
    def matches(frame: Frame) -> bool:
        return frame.get("method") == "$/cancel_request" and frame["params"]["requestId"] == dialog["id"]

    return matches


def test_a_cancel_closes_the_dialog_and_answers_the_agent(desk: Desk, script: Script) -> None:
    agent = script(EDITING)
    editor, request, frames = _asks_forever(desk, agent)

    editor.cancel()
    frames += editor.client.read_until(_taken_back(frames[-1]))
    shown = editor.finish(request, before=[frame for frame in frames if "id" not in frame])

    assert shown.reason == "cancelled"
    assert agent.noted("outcome") == [{"outcome": "cancelled"}]
    assert {call["status"] for call in shown.calls.values()} == {"failed"}


@pytest.mark.parametrize(
    "leaving",
    [
        'send({"method": "$/cancel_request", "params": {"requestId": 1}})\n    answer_to(1)',
        "pass",
    ],
    ids=["withdrawn", "turn ended"],
)
def test_a_dialog_is_closed_when_its_agent_does_not_want_to_know_any_more(
    desk: Desk, script: Script, tmp_path: Path, leaving: str
) -> None:
    agent = script(
        f"""
import time
for prompt in prompts():
    send(permission(1, None, title="Edit", kind="edit", locations=[{{"path": "/app.py"}}]))
    while not os.path.exists("seen"):
        time.sleep(0.005)
    {leaving}
    send(say("never mind"), end(prompt))
"""
    )
    editor, request, frames = _asks_forever(desk, agent)

    (tmp_path / "seen").touch()
    frames += editor.client.read_until(_taken_back(frames[-1]))
    shown = editor.finish(request, before=[frame for frame in frames if "id" not in frame])

    assert shown.reason == "end_turn", shown.last_message
    assert shown.messages[0] == "never mind"
    assert shown.status("x") == "completed"
    answered = [each for each in desk.kept(shown.run) if each["event"] == "approval_answered"]
    assert [(each["approved"], each["by"]) for each in answered] == [(False, "nobody")]


# Forms and pages

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "title": "Your name"}, "age": {"type": "integer"}},
}
FORM = f"""
SCHEMA = {SCHEMA!r}
for prompt in prompts():
    send(update("tool_call", toolCallId="c1", title="Greet", kind="other", status="in_progress"))
    form = {{"mode": "form", "sessionId": "s1", "message": "Who?", "requestedSchema": SCHEMA}}
    send(request(1, "elicitation/create", **form, toolCallId="c1"))
    answer = answer_to(1)
    note("answer", answer)
    send(update("tool_call_update", toolCallId="c1", status="completed"), say("hello"), end(prompt))
"""


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"action": "accept", "content": {"name": "Ann"}}, {"action": "accept", "content": {"name": "Ann"}}),
        ({"action": "accept", "content": {"age": "old"}}, {"action": "decline"}),
        ({"action": "decline"}, {"action": "decline"}),
        ({"action": "cancel"}, {"action": "cancel"}),
    ],
    ids=["filled in", "does not fit", "declined", "closed"],
)
def test_a_form_of_the_agent_is_the_editors_and_its_answer_goes_back(
    desk: Desk, script: Script, given: Frame, taken: Frame
) -> None:
    agent = script(FORM)
    editor = desk.editor()
    editor.forms = [given]

    shown = editor.prompt(desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent))

    assert shown.reason == "end_turn", shown.last_message
    (asked,) = editor.asked
    (call,) = nested(shown)
    assert (asked["message"], asked["toolCallId"]) == ("Who?", call["toolCallId"])
    assert asked["requestedSchema"] == SCHEMA
    assert [each["result"] for each in agent.noted("answer")] == [taken]


def test_an_editor_that_shows_no_forms_offers_none_to_agents(
    place: Path, script: Script, tmp_path: Path
) -> None:
    agent = script('for prompt in prompts(): send(say("hello"), end(prompt))')
    with served(home=place, cwd=place) as client:
        desk = Desk(client, place, tmp_path)
        editor = desk.editor()
        shown = editor.prompt(desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent))
        leave(client)

    assert shown.reason == "end_turn", shown.last_message
    (hello,) = agent.received_of("initialize")
    assert "elicitation" not in hello["params"]["clientCapabilities"]


PAGE = """
for prompt in prompts():
    page = {"mode": "url", "sessionId": "s1", "message": "Log in", "url": "https://example.com/login"}
    send(request(1, "elicitation/create", **page, elicitationId="mine"))
    answer = answer_to(1)["result"]
    if answer["action"] == "accept":
        send({"method": "elicitation/complete", "params": {"elicitationId": "mine"}})
        send(permission(2, None, title="Wait", kind="edit"))
        answer_to(2)
    send(say(answer["action"]), end(prompt))
"""


def test_a_page_of_the_agent_is_opened_and_completed_in_the_editor(desk: Desk, script: Script) -> None:
    agent = script(PAGE)
    editor = desk.editor()
    editor.forms = [{"action": "accept"}]

    request = editor.begin(desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent))
    frames = editor.until("elicitation/create")
    (page,) = [frame["params"] for frame in frames if frame.get("method") == "elicitation/create"]
    editor.client.send({"id": frames[-1]["id"], "result": {"action": "accept"}})
    frames += editor.until("elicitation/complete")
    completed = frames[-1]["params"]
    shown = editor.finish(request, "deny", before=[frame for frame in frames if "id" not in frame])

    assert (page["url"], page["message"]) == ("https://example.com/login", "Log in")
    assert page["toolCallId"] == f"{shown.run}/x"
    assert completed["elicitationId"] == page["elicitationId"]
    assert shown.messages[0] == "accept"


def test_a_page_that_a_rule_is_against_is_not_shown(desk: Desk, script: Script) -> None:
    agent = script(PAGE)
    editor = desk.editor()
    denied = 'steps: [{id: x, agent: AGENT, prompt: go, tools: {deny: ["fetch(https://example.com/*)"]}}]'

    shown = editor.prompt(desk.workflow(denied, agent))

    assert editor.asked == []
    assert shown.messages[0] == "decline"
    assert "denied: Open https://example.com/login" in shown.output("x")


# Files

TOUCHING = """
for prompt in prompts():
    path = os.path.join(os.getcwd(), "app.py")
    send(request(1, "fs/read_text_file", sessionId="s1", path=path, line=2, limit=1))
    text = answer_to(1).get("result", {}).get("content")
    send(request(2, "fs/write_text_file", sessionId="s1", path=path, content="written"))
    is_written = "result" in answer_to(2)
    send(say(f"{text} {is_written}"), end(prompt))
"""


@pytest.mark.parametrize(
    ("keys", "answers", "said", "left"),
    [
        ("", [], "unsaved True", "written"),
        ("tools: {deny: [read, edit]}", [], "None False", "unsaved"),
        ("approve: {tools: [edit]}", ["allow"], "unsaved True", "written"),
        ("approve: {tools: [edit]}", ["deny"], "unsaved False", "unsaved"),
    ],
    ids=["free", "denied", "asked and allowed", "asked and refused"],
)
def test_files_are_the_editors_with_what_is_not_saved(
    desk: Desk, script: Script, tmp_path: Path, keys: str, answers: list[str], said: str, left: str
) -> None:
    agent = script(TOUCHING)
    file = tmp_path / "app.py"
    file.write_text("saved")
    editor = desk.editor()
    editor.buffers[str(file)] = "unsaved"
    text = f"steps: [{{id: x, agent: AGENT, prompt: go, files: write, {keys}}}]"

    shown = editor.prompt(desk.workflow(text, agent), *answers)

    assert shown.messages[0] == said
    assert (editor.buffers[str(file)], file.read_text()) == (left, "saved")
    changes = [item for asked in editor.asked for item in asked["toolCall"]["content"] if "newText" in item]
    assert [(change["oldText"], change["newText"]) for change in changes] == [("unsaved", "written")] * len(
        answers
    )


def test_files_that_are_not_in_the_editors_directories_are_those_on_the_disk(
    desk: Desk, script: Script, tmp_path_factory: pytest.TempPathFactory
) -> None:
    agent = script(TOUCHING)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "app.py").write_text("one\ntwo\n")
    editor = desk.editor()
    text = f"steps: [{{id: x, agent: AGENT, prompt: go, files: write, cwd: {elsewhere}}}]"

    shown = editor.prompt(desk.workflow(text, agent))

    assert shown.messages[0].split() == ["two", "True"]
    assert (elsewhere / "app.py").read_text() == "written"


# Beside a terminal


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_gives_the_same_trace_for_the_same_answers(
    desk: Desk, script: Script, place: Path, tmp_path: Path
) -> None:
    agent = script(
        """
        for prompt in prompts():
            asked = os.getpid()
            schema = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
            form = {"mode": "form", "sessionId": "s1", "message": "Who?", "requestedSchema": schema}
            send(request(asked, "elicitation/create", **form))
            name = answer_to(asked)["result"]["content"]["name"]
            send(permission(asked + 1, None, title="Edit", kind="edit", locations=[{"path": "/app.py"}]))
            chosen = answer_to(asked + 1)["result"]["outcome"]["optionId"]
            send(say(f"{name} {chosen}"), end(prompt))
        """
    )
    command = desk.workflow("steps: [{id: x, agent: AGENT, prompt: go}]", agent)
    editor = desk.editor()
    editor.forms = [{"action": "accept", "content": {"name": "Ann"}}]

    shown = editor.prompt(command, "deny")
    words = (sys.executable, "-m", "coupler", "run", command[1:], "--json")
    env = {**os.environ, "COUPLER_HOME": str(place)}
    with Typist(*words, cwd=tmp_path, env=env, piped_stdout=True) as person:
        person.sees("name")
        person.types("Ann\n")
        person.sees("May the agent do this? Edit")
        person.types("n\n")
        assert person.ends() == 0
        assert person.process.stdout is not None
        told = [json.loads(line) for line in person.process.stdout.read().splitlines()]

    kept = [_essence(each) for each in desk.kept(shown.run)]
    assert [_essence(each) for each in told] == kept
    assert {"answer_given", "approval_answered", "note", "tool_call_update"} <= {
        each["event"] for each in kept
    }


def _essence(happening: Frame) -> Frame:
    """What of a happening must be the same whoever looks on."""
    words = ("event", "question", "approved", "by", "text", "title", "kind", "status", "id", "call")
    return {word: happening[word] for word in words if word in happening}

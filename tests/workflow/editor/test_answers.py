"""Questions of runs in an editor: answered by the next prompt, by a form, by nobody, or in a terminal.

All tests share one `coupler serve`, or one whose client shows forms, with a session each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.sessions.steps import reopen
from agent.steps import leave, still_serves
from raw_client import RawClient
from workflow.acp_stub import AcpStub
from workflow.served_project import Editor, coupler, opened, served, write_workflow

WORKFLOWS = {
    "build": """
        steps: [{run: "true"}]
        outputs: {log: built}
    """,
    "gates": """
        steps:
          - id: sure
            approve: {question: "Deploy to production?", on_deny: fail}
          - id: deploy
            run: echo deployed
    """,
    "needs": """
        inputs:
          target: {required: true}
          count: {type: integer, required: true, min: 1, max: 9}
          loud: {type: boolean, default: false}
        steps: [{run: "true"}]
        outputs: {all: "{{ inputs.count }} {{ inputs.target }} {{ inputs.loud }}"}
    """,
    "asks": """
        steps:
          - {id: before, run: echo ran >> times}
          - {id: version, ask: "Which version?", type: integer, default: 1}
          - {id: color, ask: "Which color?", enum: [red, blue]}
        outputs: {got: "{{ steps.version.output }} {{ steps.color.text }}"}
    """,
    "files": """
        steps:
          - {id: one, ask: "Which one?", type: file}
          - {id: all, ask: "Which ones?", type: list}
        outputs: {one: "{{ steps.one.output }}", all: "{{ steps.all.output }}"}
    """,
    "both": """
        steps:
          - id: names
            parallel: [{id: first, ask: "First name?"}, {id: last, ask: "Last name?"}]
        outputs: {name: "{{ steps.first.text }} {{ steps.last.text }}"}
    """,
    "chat": """
        steps:
          - {id: talk, converse: opencode}
          - {id: after, run: echo ended}
        outputs: {last: "{{ steps.talk.text }}"}
    """,
}
CHANGES = """
steps: [{id: name, ask: "Who, before?"}]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the served processes, with their workflows, and an agent."""
    place = tmp_path_factory.mktemp("served")
    for name, text in WORKFLOWS.items():
        write_workflow(place / "workflows", name, text)
    (place / "bin").mkdir()
    AcpStub(place / "bin", "opencode").answers({"when": "", "says": "I hear you."})
    return place


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[RawClient]:
    env = {"PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    with served(home=place, cwd=place, env=env) as client:
        yield client
        leave(client)


@pytest.fixture
def editor(client: RawClient, tmp_path: Path) -> Editor:
    still_serves(client)
    client._held.clear()
    return opened(client, tmp_path)


# Questions that the next prompt answers


def test_a_question_ends_the_turn_and_the_next_prompt_is_the_answer(editor: Editor, tmp_path: Path) -> None:
    asked = editor.prompt("/asks")
    assert (asked.reason, asked.meta["status"]) == ("end_turn", "parked")
    assert asked.last_message.startswith("**version**: Which version?")
    assert "`/done`, or an empty one, means `1`" in asked.last_message
    assert (asked.status("version"), asked.output("version")) == ("completed", "waits for you")
    assert asked.call("version")["_meta"]["coupler"]["outcome"] == "parked"

    wrong = editor.prompt("two")
    assert wrong.reason == "end_turn"
    assert "That will not do: the answer has to be a whole number, not `two`" in wrong.last_message

    other = editor.prompt("/build")
    assert (other.reason, other.calls) == ("end_turn", {})
    assert "`/abort`" in other.last_message

    color = editor.prompt("2")
    assert color.last_message.startswith("**color**: Which color?\n\n- red\n- blue")
    done = editor.prompt("blue")

    assert done.last_message == "2 blue"
    assert done.meta["run"] == asked.meta["run"]
    assert done.plan == {
        "echo ran >> times": "completed",
        "Which version?": "completed",
        "Which color?": "completed",
    }
    assert (tmp_path / "times").read_text() == "ran\n"
    assert editor.prompt("/build").last_message == "built"


def test_questions_of_branches_come_one_at_a_time_and_name_their_step(editor: Editor) -> None:
    assert editor.prompt("/both").last_message.startswith("**names.first**: First name?")
    assert editor.prompt("Ada").last_message.startswith("**names.last**: Last name?")
    assert editor.prompt("Lovelace").last_message == "Ada Lovelace"


def test_a_dialog_that_is_closed_without_an_answer_is_shown_again_with_the_next_prompt(
    editor: Editor,
) -> None:
    request = editor.begin("/gates")
    frames = editor.until("session/request_permission")
    editor.client.send({"id": frames[-1]["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    closed = editor.finish(request, before=frames)
    assert (closed.reason, closed.meta["status"]) == ("end_turn", "parked")
    assert "**sure**: Deploy to production?" in closed.last_message

    again = editor.prompt("well", "allow")
    assert again.run == closed.run
    assert again.output("deploy") == "deployed\n"


@pytest.mark.parametrize("nothing", ["  ", "/done"])
def test_an_empty_prompt_means_the_default_answer(editor: Editor, nothing: str) -> None:
    editor.prompt("/asks")
    editor.prompt(nothing)
    assert editor.prompt("red").last_message == "1 red"


def test_a_run_that_waits_can_be_ended(editor: Editor, place: Path) -> None:
    asked = editor.prompt("/asks")
    ended = editor.prompt("/abort")

    assert ended.reason == "end_turn"
    assert asked.run in ended.last_message
    assert "cancelled" in coupler(place, "runs", "show", asked.run).stdout
    assert editor.prompt(" ").last_message.startswith("Type one of these")


@pytest.mark.parametrize("command", ["/abort", "/done"])
def test_what_is_for_a_run_that_waits_needs_one(editor: Editor, command: str) -> None:
    shown = editor.prompt(command)

    assert (shown.reason, shown.calls) == ("end_turn", {})
    assert shown.last_message.startswith("No run of this session waits for you")


def test_a_run_that_was_answered_in_a_terminal_does_not_wait_for_anything_more(
    editor: Editor, place: Path
) -> None:
    run = editor.prompt("/both").run
    assert coupler(place, "resume", run, "--answer", "first=Ada", "--answer", "last=L").returncode == 0

    late = editor.prompt("Ada")
    assert (late.reason, late.calls) == ("end_turn", {})
    assert late.last_message.startswith(f"The run `{run}` does not wait any more: it has ended well")
    assert editor.prompt("/build").reason == "end_turn"


def test_a_run_that_was_cancelled_in_a_terminal_lets_other_workflows_begin(
    editor: Editor, place: Path
) -> None:
    run = editor.prompt("/both").run
    assert coupler(place, "runs", "cancel", run).returncode == 0

    other = editor.prompt("/build")
    assert other.reason == "end_turn"
    assert other.messages[0].startswith(f"The run `{run}` does not wait any more: it was cancelled")


def test_only_the_commands_that_mean_something_are_offered(editor: Editor) -> None:
    waiting = editor.prompt("/asks")
    ended = editor.prompt("/abort")

    assert waiting.commands & {"abort", "done", "resume", "runs"} == {"abort", "done"}
    assert ended.commands & {"abort", "done", "resume", "runs"} == {"resume", "runs"}


def test_a_file_that_is_mentioned_answers_a_question_about_files(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    editor.prompt("/files")
    mentioned = {"type": "resource_link", "uri": (tmp_path / "app.py").as_uri(), "name": "app.py"}
    answered = editor.finish(editor.begin(mentioned))

    assert answered.last_message.startswith("**all**: Which ones?")
    done = editor.finish(editor.begin(mentioned, mentioned))
    assert done.meta["outputs"] == {"one": str(tmp_path / "app.py"), "all": ["app.py", "app.py"]}


def test_a_run_whose_workflow_has_changed_goes_on_with_it_only_if_that_is_wanted(
    editor: Editor, place: Path
) -> None:
    file = write_workflow(place / "workflows", "changes", CHANGES)
    waiting = editor.prompt("/changes")
    file.write_text(CHANGES.replace("before", "afterwards"))

    refused = editor.prompt("Ann")
    assert refused.reason == "end_turn"
    assert f"`/resume {waiting.run} --force`" in refused.last_message
    assert "still waits at **name**" in refused.last_message

    assert editor.prompt("/resume --force").run == waiting.run
    file.unlink()


def test_images_are_refused_in_words_and_lose_nothing(editor: Editor) -> None:
    block = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}

    for prompt in (["/asks", block], ["/build app", block], ["/build name=", block]):
        refused = editor.finish(editor.begin(*prompt))
        (check,) = refused.calls.values()
        assert (refused.reason, refused.meta["status"]) == ("refusal", "not_started"), prompt
        assert check["rawOutput"] == {"errors": ["the prompt has an image, which a workflow cannot take"]}
        assert "Save it as a file and mention that" in refused.last_message

    run = editor.prompt("/asks").run
    for prompt in ([block], ["2", block]):
        refused = editor.finish(editor.begin(*prompt))
        assert (refused.reason, refused.meta["status"], refused.meta["run"]) == ("refusal", "parked", run)
        assert f"The run `{run}` still waits at **version**" in refused.last_message
    assert editor.prompt("2").last_message.startswith("**color**")


def test_a_run_that_has_ended_well_is_not_resumed(editor: Editor) -> None:
    run = editor.prompt("/build").run
    refused = editor.prompt(f"/resume {run}")

    assert (refused.reason, refused.calls) == ("end_turn", {})
    assert refused.last_message.startswith(f"The run `{run}` has ended well.")


def test_a_conversation_goes_on_over_prompts_and_in_a_session_that_was_loaded_again(
    editor: Editor, tmp_path: Path
) -> None:
    begun = editor.prompt("/chat")
    assert begun.meta["status"] == "parked"
    assert "`/done`, or an empty one, ends the conversation" in begun.last_message
    first = editor.prompt("hello")
    # How it goes on is told once.
    assert first.messages == ["I hear you."]

    editor.client.call("session/close", {"sessionId": editor.session})
    editor.client._held.clear()
    reopen(editor.client, "session/load", editor.session, tmp_path)
    assert editor.prompt("are you there?").messages[0] == "I hear you."
    left = editor.prompt("")

    assert {first.run, left.run} == {begun.run}
    assert left.reason == "end_turn"
    assert left.output("after") == "ended\n"
    assert left.meta["outputs"] == {"last": "I hear you."}


# Forms


@pytest.fixture(scope="module")
def form_client(place: Path) -> Iterator[RawClient]:
    with served(home=place, cwd=place, elicitation={"form": {}}) as client:
        yield client
        leave(client)


@pytest.fixture
def form_editor(form_client: RawClient, tmp_path: Path) -> Editor:
    still_serves(form_client)
    form_client._held.clear()
    return opened(form_client, tmp_path)


def test_missing_and_wrong_inputs_are_asked_for_by_a_form(form_editor: Editor) -> None:
    form_editor.forms = [{"action": "accept", "content": {"count": 3, "target": "main"}}]
    shown = form_editor.prompt("/needs count=many loud=yes")

    (form,) = form_editor.asked
    fields = form["requestedSchema"]["properties"]
    assert {name: field["type"] for name, field in fields.items()} == {"count": "integer", "target": "string"}
    assert (fields["count"]["minimum"], fields["count"]["maximum"]) == (1, 9)
    assert shown.last_message == "3 main true"


def test_who_fills_in_no_form_is_told_the_usage(form_editor: Editor) -> None:
    form_editor.forms = [{"action": "decline"}]
    shown = form_editor.prompt("/needs")

    (check,) = shown.calls.values()
    assert (shown.reason, check["title"]) == ("refusal", "Check the inputs of /needs")
    assert "input `target` is missing" in shown.last_message


def test_typed_questions_are_forms_and_end_no_turn(form_editor: Editor) -> None:
    form_editor.forms = [
        {"action": "accept", "content": {"version": 4}},
        {"action": "accept", "content": {"color": "red"}},
    ]
    assert form_editor.prompt("/asks").last_message == "4 red"


def test_a_form_that_is_filled_in_wrongly_is_shown_again_in_the_same_turn(
    form_editor: Editor, tmp_path: Path
) -> None:
    (tmp_path / "app.py").touch()
    form_editor.forms = [
        {"action": "accept", "content": {"one": "nope.py"}},
        {"action": "accept", "content": {"one": "app.py"}},
        {"action": "accept", "content": {"all": "a, b"}},
    ]
    assert form_editor.prompt("/files").meta["outputs"]["all"] == ["a", "b"]

    again = form_editor.asked[1]["message"]
    assert again.startswith("That will not do: the answer has to be a path, not `nope.py`")
    assert again.endswith("Which one?")


def test_who_fills_in_a_form_wrongly_again_and_again_is_asked_in_the_chat(form_editor: Editor) -> None:
    form_editor.forms = [{"action": "accept", "content": {"one": "nope.py"}}] * 3
    parked = form_editor.prompt("/files")

    assert parked.meta["status"] == "parked"
    assert parked.last_message.startswith("That will not do: the answer has to be a path")


def test_a_form_that_is_declined_leaves_the_question_to_the_next_prompt(form_editor: Editor) -> None:
    form_editor.forms = [{"action": "decline"}, {"action": "decline"}]
    assert form_editor.prompt("/asks").meta["status"] == "parked"
    assert form_editor.prompt("5").last_message.startswith("**color**")
    assert form_editor.prompt("blue").last_message == "5 blue"

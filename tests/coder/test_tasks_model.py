"""When the model fails, is slow, or is not there: what the user hears, and that the session goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import forked
from coder.script import Asked, use
from coder.served_coder import KEY, Coder, Served, tree, write
from labs.langchain.model_server import TOO_LONG, UNAUTHORIZED, Reply, refuses, says
from raw_client import COUPLER, Frame
from workflow.served_project import write_workflow


@pytest.mark.parametrize(
    ("reply", "kind", "hint"),
    [
        (UNAUTHORIZED, "auth", "key"),
        (refuses(404, "no such model", "model_not_found"), "no_model", "name"),
        (refuses(400, "scripted does not support tools"), "refused", "a model that can use tools"),
    ],
)
def test_a_wrong_key_or_model_is_an_error_that_says_what_to_do_and_the_session_goes_on(
    coder: Coder, project: Path, reply: Reply, kind: str, hint: str
) -> None:
    editor = coder(project, [reply, "Now it works."])

    failed = editor.prompt("Hello")
    assert failed.error["data"]["kind"] == kind
    assert hint in failed.error["message"]
    assert KEY not in str(failed.answer)

    assert editor.prompt("Again").last_message == "Now it works."


def test_a_busy_model_is_asked_again_by_itself(coder: Coder, project: Path) -> None:
    busy = refuses(429, "Rate limit reached", "rate_limit_exceeded", retry_after=0.01)
    editor = coder(project, [busy, busy, "Here I am."])

    turn = editor.prompt("Hello")

    assert turn.last_message == "Here I am."
    assert turn.reason == "end_turn"


def test_a_conversation_that_the_model_finds_too_long_is_summarised_and_tried_again(
    coder: Coder, project: Path
) -> None:
    def summary(asked: Asked) -> str:
        assert "I like tea" in asked.text
        return "SUMMARY: the user likes tea."

    editor = coder(project, ["Noted.", TOO_LONG, summary, "You like tea."])
    editor.prompt("I like tea.")

    turn = editor.prompt("What do I like?")

    assert turn.last_message == "You like tea."
    assert "SUMMARY: the user likes tea." in coder.model.last.text
    assert "What do I like?" in coder.model.last.text


def test_without_a_model_a_prompt_says_how_to_set_one_up_and_workflows_work(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    greet = 'steps: [{id: greet, run: "echo Hello > greeting.txt"}]\noutputs: {said: Greeted.}\n'
    home = tmp_path / "home"
    write_workflow(home / "workflows", "greet", greet)
    served = Served(home, None)
    with served.client:
        editor = served.opened(project)

        told = editor.prompt("Mend the bug")
        ran = editor.prompt("/greet")

        assert told.error["code"] == -32000
        explanation = told.error["data"]["explanation"]
        assert "COUPLER_MODEL" in explanation
        assert "coupler.toml" in explanation
        assert "coupler login" in explanation
        assert ran.last_message == "Greeted."
        assert tree(project) == {"greeting.txt": "Hello\n"}
        assert editor.prompt("Mend the bug").error["code"] == -32000
        served.leave()


def test_a_cloned_repository_names_no_model_before_it_is_trusted(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    write(
        project,
        {"coupler.toml": f'[coder]\nmodel = "openai:scripted"\nbase_url = "{coder.model.server.url}"\n'},
    )
    served = Served(tmp_path / "home", None)
    with served.client:
        told = served.opened(project).prompt("Hello")
        assert "COUPLER_MODEL" in told.error["data"]["explanation"]
        assert coder.model.asked == []

        env = {**os.environ, "COUPLER_HOME": str(served.home)}
        forked.run([*COUPLER, "trust", "--yes"], cwd=project, env=env, check=True, capture_output=True)
        coder.model.plays("Hello yourself.")
        assert served.opened(project).prompt("Hello").last_message == "Hello yourself."
        served.leave()


def is_text(frame: Frame) -> bool:
    return "agent_message_chunk" in str(frame.get("params"))


def test_a_cancel_while_the_model_speaks_keeps_what_was_said(coder: Coder, project: Path) -> None:
    editor = coder(project, [says("so", " far", holds=True), "Going on."])
    request = editor.begin("Talk")
    before = editor.until(is_text)

    editor.cancel()
    turn = editor.finish(request, before=before)
    coder.model.server.release()

    assert (turn.reason, turn.text) == ("cancelled", "so")
    assert editor.prompt("Go on").last_message == "Going on."
    assert coder.model.last.prompts == ["Talk", "Go on"]


def test_a_cancel_while_the_user_is_asked_changes_nothing(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("write_file", path="a.py", content="x"), "Going on."])
    request = editor.begin("Write it")
    before = editor.until(lambda frame: frame.get("method") == "session/request_permission")

    editor.cancel()
    editor.client.send({"id": before[-1]["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    turn = editor.finish(request, before=before)

    assert (turn.reason, turn.use["status"], tree(project)) == ("cancelled", "failed", {})
    assert editor.prompt("Go on").last_message == "Going on."


def test_a_cancel_before_the_first_word_is_answered_at_once(coder: Coder, project: Path) -> None:
    editor = coder(project, [])
    late = says("late", " indeed", holds=True)
    coder.model.improvises(lambda asked: "Going on." if asked.prompts[-1] == "Go on" else late)
    request = editor.begin("Talk")
    editor.cancel()

    assert editor.finish(request).reason == "cancelled"
    assert editor.prompt("Go on").last_message == "Going on."


def test_a_model_that_cannot_be_used_here_can_no_longer_be_chosen(coder: Coder, project: Path) -> None:
    served = coder.served(config='[coder]\nmodels = ["openai:other", "nobody:knows"]\n')
    editor = served.opened(project)
    coder.model.plays("Hello.")

    turn = editor.prompt("Hello")

    [told] = turn.of("config_option_update")
    [option] = [each for each in told["configOptions"] if each["id"] == "model"]
    assert [each["value"] for each in option["options"]] == ["openai:scripted", "openai:other"]
    served.leave()

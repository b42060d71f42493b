"""Compaction in the served coder: by hand, over restarts, and for editors that know it or do not."""

from __future__ import annotations

from pathlib import Path

from coder.script import Asked, use
from coder.served_coder import Coder
from labs.langchain.model_server import refuses
from raw_client import texts

KNOWS_COMPACTION = {"session": {"compaction": {}}}
TODOS = [{"content": "Rename it", "status": "in_progress"}, {"content": "Test it", "status": "pending"}]


def noting(asked: Asked) -> str:
    assert not asked.tools, "a summary is asked for without tools"
    return "NOTES: the user likes short names."


def test_what_was_compacted_by_hand_stays_so_after_a_restart_and_the_user_still_sees_it_all(
    coder: Coder, project: Path
) -> None:
    served = coder.served(**KNOWS_COMPACTION)
    coder.model.plays(use("write_todos", todos=TODOS), "I have a plan.", noting)
    before = served.opened(project)
    planned = before.prompt("Rename everything")
    compacted = before.prompt("/compact mind the names")
    assert coder.model.last.prompts[0].count("mind the names") == 1
    served.leave()

    again = coder.served(home=served.home, **KNOWS_COMPACTION)
    editor, told = again.loaded(before.session, project)
    coder.model.plays("Shorter names.")
    editor.prompt("What do I like?")

    assert planned.of("plan")
    assert [update["status"] for update in compacted.of("compaction_update")][-1] == "completed"
    assert "NOTES" not in compacted.text
    assert [each for each in told if each["sessionUpdate"] == "plan"], "the plan is shown again"
    assert "I have a plan." in texts(told)
    notes, prompt = coder.model.last.prompts
    assert "NOTES: the user likes short names." in notes
    assert "- [in_progress] Rename it" in notes
    assert prompt == "What do I like?"
    assert coder.model.last.results == []
    again.leave()


def test_an_editor_that_does_not_know_compactions_is_told_in_words(coder: Coder, project: Path) -> None:
    editor = coder(project, ["Hello.", noting, "Short ones."])
    editor.prompt("Hello")

    turn = editor.prompt("/compact")
    after = editor.prompt("Which names?")

    assert "The earlier conversation was summarized:\n\nNOTES" in turn.text
    assert turn.reason == "end_turn"
    assert after.last_message == "Short ones."


def test_what_the_provider_calls_too_long_is_shortened_and_answered(coder: Coder, project: Path) -> None:
    too_long = "This model's maximum context length is 4096 tokens."
    editor = coder(project, ["Hello.", refuses(400, too_long), noting, "Short ones."])
    editor.prompt("Hello")

    turn = editor.prompt("Which names?")

    assert turn.last_message == "Short ones."
    assert [text.startswith("The earlier part") for text in coder.model.last.prompts] == [True, False]
    assert coder.model.last.prompts[-1] == "Which names?"

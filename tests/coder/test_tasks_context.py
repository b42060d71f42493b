"""Coding tasks that need to know something: instructions, skills, git, pictures, and a small window."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from coder.editor import FILES
from coder.script import Asked, use
from coder.served_coder import Coder, clerk, tree, write

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def test_the_projects_instructions_are_told_those_of_a_directory_when_it_is_touched(
    coder: Coder, project: Path
) -> None:
    files = {
        "AGENTS.md": "Indent by four blanks.\n",
        "web/AGENTS.md": "In web/ everything is TypeScript.\n",
        "web/app.ts": "let x = 1\n",
        "web/more.ts": "let y = 1\n",
    }
    write(project, files)
    editor = coder(
        project,
        [use("read_file", path="web/app.ts"), use("read_file", path="web/more.ts"), "It is TypeScript."],
    )

    editor.prompt("What is it?")

    first, *_, last = coder.model.asked
    assert "Indent by four blanks." in first.text
    assert "In web/ everything is TypeScript." not in first.text
    assert last.text.count("In web/ everything is TypeScript.") == 1
    assert tree(project) == files


def test_a_skill_is_named_in_the_prompt_and_read_when_it_is_used(coder: Coder, project: Path) -> None:
    skill = "---\nname: releasing\ndescription: How a release is made\n---\nTag it, then run steps.sh.\n"
    write(
        project,
        {
            ".coupler/skills/releasing/SKILL.md": skill,
            ".coupler/skills/releasing/steps.sh": "echo released\n",
        },
    )
    editor = coder(project, [use("use_skill", name="releasing"), "I know how."])

    turn = editor.prompt("Release it")

    assert "How a release is made" in coder.model.asked[0].text
    assert "Tag it, then run" not in coder.model.asked[0].text
    assert "Tag it, then run steps.sh." in coder.model.last.result
    assert "steps.sh" in coder.model.last.result
    assert turn.use["status"] == "completed"


def test_the_branch_and_what_has_changed_are_known_from_the_start(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    for words in (
        ["init", "-q", "-b", "mending"],
        ["add", "."],
        [*who, "commit", "-q", "-m", "Begin the work"],
    ):
        subprocess.run(["git", *words], cwd=project, check=True)
    write(project, {"a.py": "two\n"})
    editor = coder(project, ["You are on mending."])

    editor.prompt("Where am I?")

    told = coder.model.last.text
    assert "mending" in told
    assert "Begin the work" in told
    assert "a.py" in told
    assert str(project) in told


def test_a_picture_in_the_prompt_reaches_the_model(coder: Coder, project: Path) -> None:
    editor = coder(project, ["It is a dot."])
    picture = {"type": "image", "mimeType": "image/png", "data": DOT}

    turn = editor.finish(editor.begin("What is this?", picture))

    assert DOT in str(coder.model.last.messages[-1])
    assert turn.last_message == "It is a dot."


def test_an_image_that_is_read_reaches_the_model(coder: Coder, project: Path) -> None:
    write(project, {"dot.png": base64.b64decode(DOT)})
    editor = coder(project, [use("read_file", path="dot.png"), "It is a dot."])

    turn = editor.prompt("Look at dot.png")

    assert turn.use["status"] == "completed"
    assert DOT in str(coder.model.last.messages)
    assert "dot.png is this image" in coder.model.last.text


def test_a_model_that_takes_no_images_gets_words(coder: Coder, project: Path) -> None:
    write(project, {"dot.png": base64.b64decode(DOT)})
    served = coder.served(env={"COUPLER_MODEL": "openai:gpt-3.5-turbo"})
    coder.model.plays(use("read_file", path="dot.png"), "I see nothing.")

    served.opened(project).prompt("Look at dot.png")

    assert "[An image was left out: this model takes no images.]" in coder.model.last.text
    assert DOT not in str(coder.model.last.messages)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("aW1hZ2U=", "it is no PNG, JPEG, GIF or WebP"),
        ("no base64!", "its data is not base64"),
        (DOT[:64] * 110_000, "it has more than 5 MiB"),
    ],
)
def test_an_image_that_is_none_or_too_large_is_told_in_words_and_the_session_goes_on(
    coder: Coder, project: Path, data: str, why: str
) -> None:
    editor = coder(project, ["I cannot see it.", "Still here."])

    editor.finish(editor.begin("What is this?", {"type": "image", "mimeType": "image/png", "data": data}))
    turn = editor.prompt("And now?")

    assert f"[An image was left out: {why}.]" in coder.model.asked[0].prompts[-1]
    assert data not in str(coder.model.last.messages)
    assert turn.last_message == "Still here."


def test_an_image_of_a_tool_that_is_none_is_told_in_words(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("show"), "I cannot see it."], clerk())

    editor.prompt("Show it", "allow_once")

    assert "[An image was left out: it is no PNG, JPEG, GIF or WebP.]" in coder.model.last.text
    assert "aW1hZ2U=" not in str(coder.model.last.messages)


def test_a_file_that_the_user_mentions_comes_with_the_prompt(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    editor = coder(project, ["It says one."])
    uri = (project / "a.py").as_uri()
    mentioned = {"type": "resource", "resource": {"uri": uri, "mimeType": "text/x-python", "text": "one\n"}}

    editor.finish(editor.begin("What does it say? ", mentioned))

    prompt = coder.model.last.prompts[-1]
    assert "one\n" in prompt
    assert "a.py" in prompt


def test_an_attached_file_reaches_the_model_as_it_is_and_may_be_edited_unread(
    coder: Coder, project: Path
) -> None:
    text = 'if a < b && c > "d":\n```\n</resource>\n'
    write(project, {"a.py": text})
    edits = [{"old_text": "a < b", "new_text": "a > b"}]
    editor = coder(project, [use("edit_file", path="a.py", edits=edits), "Done."])
    attached = {"type": "resource", "resource": {"uri": (project / "a.py").as_uri(), "text": text}}

    turn = editor.finish(editor.begin("Turn it round", attached), "allow_once")

    assert f"\n````\n{text}````" in coder.model.last.prompts[-1]
    assert turn.use["status"] == "completed"
    assert tree(project) == {"a.py": text.replace("a < b", "a > b")}


def test_an_attached_file_with_what_the_editor_has_not_saved_may_be_edited(
    coder: Coder, project: Path
) -> None:
    write(project, {"a.py": "one\n"})
    edits = [{"old_text": "two", "new_text": "three"}]
    editor = coder(project, [use("edit_file", path="a.py", edits=edits), "Done."], **FILES)
    editor.buffers[project / "a.py"] = "two\n"
    attached = {"type": "resource", "resource": {"uri": (project / "a.py").as_uri(), "text": "two\n"}}

    turn = editor.finish(editor.begin("Write three", attached), "allow_once")

    assert turn.use["status"] == "completed"
    assert tree(project) == {"a.py": "three\n"}


@pytest.mark.parametrize("attached", ["two\n", "on", "one\n\n"])
def test_an_attached_text_that_the_file_does_not_have_now_is_not_enough_to_edit_it(
    coder: Coder, project: Path, attached: str
) -> None:
    write(project, {"a.py": "one\n"})
    edits = [{"old_text": "on", "new_text": "tw"}]
    editor = coder(project, [use("edit_file", path="a.py", edits=edits), "Then I read it."])
    uri = (project / "a.py").as_uri()

    editor.finish(editor.begin("Go", {"type": "resource", "resource": {"uri": uri, "text": attached}}))

    assert "read it with read_file before you edit it" in coder.model.last.result
    assert tree(project) == {"a.py": "one\n"}


def test_a_conversation_that_outgrows_the_window_is_summarised_and_goes_on(
    coder: Coder, project: Path
) -> None:
    write(project, {"long.txt": "".join(f"{number} of the long lines\n" for number in range(400))})
    served = coder.served(config="[coder]\ncontext_window = 12000\n")
    summaries: list[Asked] = []

    def answer(asked: Asked) -> object:
        if not asked.tools:
            summaries.append(asked)
            return "SUMMARY: long.txt was read several times; the user wants it counted."
        if "SUMMARY:" in asked.text:
            return "There are 400."
        return use("read_file", path="long.txt")

    coder.model.improvises(answer)
    editor = served.opened(project)
    turn = editor.prompt("Count the lines of long.txt, again and again")
    asked = [*coder.model.asked]
    coder.model.plays("You asked me to count.")
    editor.prompt("What did I ask?")

    assert summaries
    assert turn.reason == "end_turn"
    assert turn.last_message == "There are 400."
    assert all(len(each.text) < 12_000 * 5 for each in asked)
    assert "SUMMARY:" in coder.model.last.text
    assert "compact" in str(turn.updates).lower() or "summar" in str(turn.updates).lower()
    served.leave()

"""/undo takes back the last turn with its files, /redo gives it back; both survive a kill."""

from __future__ import annotations

from pathlib import Path

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from coder.editor import FILES
from coder.script import use
from coder.served_coder import KEY, Coder, tree, write
from coupler.coder.undo import FILES_KEY, MOST_KEPT, MOST_TURNS, forgotten
from raw_client import Frame

WORK = (
    use("read_file", path="a.py"),
    (
        use("edit_file", path="a.py", edits=[{"old_text": "one", "new_text": "two"}]),
        use("write_file", path="new/b.py", content="b\n"),
    ),
    use("edit_file", path="a.py", edits=[{"old_text": "two", "new_text": "three"}]),
    "Done.",
)
BEFORE = {"a.py": "one\n"}
AFTER = {"a.py": "three\n", "new/b.py": "b\n"}


def said_in(updates: list[Frame]) -> list[str]:
    """What a client shows of a session that was loaded: prompts and answers."""
    kinds = ("user_message_chunk", "agent_message_chunk")
    return [str(each["content"]["text"]) for each in updates if each["sessionUpdate"] in kinds]


def test_undo_takes_back_the_turn_and_its_files_and_redo_gives_them_back(coder: Coder, project: Path) -> None:
    write(project, BEFORE)
    editor = coder(project, [*WORK, "Nothing before.", "Still known."])
    editor.set_mode("agentic")
    editor.prompt("Change it")
    assert tree(project) == AFTER

    undone = editor.prompt("/undo")
    assert tree(project) == BEFORE
    assert "Undone: “Change it”" in undone.text
    assert "Restored: `a.py`." in undone.text
    assert "Deleted: `new/b.py`." in undone.text
    assert [each["title"] for each in undone.uses] == ["Restore a.py", "Restore new/b.py"]
    assert "is not undone" not in undone.text
    assert editor.prompt("/undo").text == "There is no turn to undo."

    redone = editor.prompt("/redo")
    assert tree(project) == AFTER
    assert "Redone: “Change it”" in redone.text
    assert editor.prompt("/redo").text == "There is no turn to redo."

    editor.prompt("/undo")
    editor.prompt("What was before?")
    assert coder.model.last.prompts == ["What was before?"]
    assert editor.prompt("/redo").text == "There is no turn to redo."
    assert tree(project) == BEFORE
    editor.prompt("And now?")
    assert coder.model.last.prompts == ["What was before?", "And now?"]


def test_a_turn_that_was_given_back_is_known_to_the_model(coder: Coder, project: Path) -> None:
    write(project, BEFORE)
    editor = coder(project, [*WORK, "Known."])
    editor.set_mode("agentic")
    editor.prompt("Change it")
    editor.prompt("/undo")
    redone = editor.prompt("/redo")

    editor.prompt("And now?")

    assert redone.messages[0].startswith("Redone")
    assert coder.model.last.prompts == ["Change it", "And now?"]
    assert "Done." in coder.model.last.text


def test_repeated_undo_goes_further_back(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "1\n"})
    steps = [
        (use("edit_file", path="a.py", edits=[{"old_text": str(n), "new_text": str(n + 1)}]), f"Now {n + 1}.")
        for n in range(1, 4)
    ]
    editor = coder(project, [use("read_file", path="a.py"), *[each for step in steps for each in step]])
    editor.set_mode("agentic")
    for number in range(1, 4):
        editor.prompt(f"Count {number}")

    seen = []
    for command in ("/undo", "/undo", "/redo", "/undo", "/undo"):
        editor.prompt(command)
        seen.append((project / "a.py").read_text())

    assert seen == ["3\n", "2\n", "3\n", "2\n", "1\n"]


def test_a_file_that_somebody_has_changed_since_is_left_and_named(coder: Coder, project: Path) -> None:
    write(project, BEFORE)
    editor = coder(project, [*WORK[:-1], use("run_command", command="true"), "Done."])
    editor.set_mode("agentic")
    editor.prompt("Change it")
    write(project, {"a.py": "mine\n"})

    undone = editor.prompt("/undo")

    assert tree(project) == {"a.py": "mine\n"}
    assert "Left as they are: `" in undone.text
    assert "a.py` (it has changed since)" in undone.text
    assert "What commands and other tools have changed is not undone." in undone.text


def test_a_file_with_unsaved_changes_in_the_editor_is_left(coder: Coder, project: Path) -> None:
    write(project, BEFORE)
    editor = coder(project, [*WORK], **FILES)
    editor.set_mode("agentic")
    editor.prompt("Change it")
    editor.buffers[project / "a.py"] = "typed by the user\n"

    undone = editor.prompt("/undo")

    assert tree(project) == {"a.py": "three\n"}
    assert "a.py` (it has changed since)" in undone.text
    assert editor.buffers == {project / "a.py": "typed by the user\n"}


def test_undo_survives_a_kill_and_what_was_undone_is_not_replayed(coder: Coder, project: Path) -> None:
    write(project, BEFORE)
    served = coder.served()
    editor = served.opened(project)
    coder.model.plays("Hello.", *WORK, "Known.")
    editor.set_mode("agentic")
    editor.prompt("Hi")
    editor.prompt("Change it")

    served.client.process.kill()
    served = coder.served(home=served.home)
    editor, updates = served.loaded(editor.session, project)
    assert said_in(updates) == ["Hi", "Hello.", "Change it", "Done."]
    editor.prompt("/undo")
    assert tree(project) == BEFORE

    served.client.process.kill()
    served = coder.served(home=served.home)
    editor, updates = served.loaded(editor.session, project)
    assert said_in(updates) == ["Hi", "Hello."]
    assert not [each for each in updates if each["sessionUpdate"] == "tool_call"]
    editor.prompt("/redo")
    assert tree(project) == AFTER

    served.client.process.kill()
    served = coder.served(home=served.home)
    editor, updates = served.loaded(editor.session, project)
    assert said_in(updates) == ["Hi", "Hello.", "Change it", "Done."]
    editor.prompt("And now?")
    assert coder.model.last.prompts == ["Hi", "Change it", "And now?"]
    served.leave()


def test_a_turn_that_a_kill_has_cut_off_can_be_taken_back(coder: Coder, project: Path) -> None:
    write(project, BEFORE)
    served = coder.served()
    editor = served.opened(project)
    editor.set_mode("agentic")
    coder.model.plays(*WORK[:3], use("run_command", command="sleep 60"))
    editor.begin("Change it")
    editor.until(lambda frame: "sleep 60" in str(frame.get("params")))
    assert tree(project) == AFTER
    served.client.process.kill()
    served = coder.served(home=served.home)
    editor, _ = served.loaded(editor.session, project)

    undone = editor.prompt("/undo")

    assert tree(project) == BEFORE
    assert "Undone: “Change it”" in undone.text
    served.leave()


def test_both_are_offered_as_commands(coder: Coder, project: Path) -> None:
    editor = coder(project, ["Hello."])
    frames = editor.until(lambda frame: "compact" in str(frame.get("params")))

    offered = {each["name"] for each in frames[-1]["params"]["update"]["availableCommands"]}

    assert {"undo", "redo", "compact"} <= offered
    editor.prompt("Hi")


def test_a_file_with_a_secret_is_not_kept_and_so_not_restored(coder: Coder, project: Path) -> None:
    write(project, {"a.py": f"one {KEY}\n"})
    editor = coder(project, [*WORK[:1], WORK[1], WORK[3]])
    editor.set_mode("agentic")
    editor.prompt("Change it")

    undone = editor.prompt("/undo")

    assert tree(project) == {"a.py": f"two {KEY}\n"}
    assert "a.py` (its text before is not kept)" in undone.text


def test_a_summary_of_what_was_undone_is_gone_with_it(coder: Coder, project: Path) -> None:
    editor = coder(project, ["Noted.", "SUMMARY: tea.", "What tea?", "Now I know."])
    editor.prompt("I like tea.")
    editor.prompt("/compact")

    editor.prompt("/undo")
    editor.prompt("What do I like?")
    assert "SUMMARY" not in coder.model.last.text
    assert coder.model.last.prompts == ["What do I like?"]

    editor.prompt("/undo")
    editor.prompt("And now?")
    assert coder.model.last.prompts == ["And now?"]


def test_what_a_sub_agent_has_written_is_restored_as_well(coder: Coder, project: Path) -> None:
    task = "Write b.py"
    editor = coder(
        project,
        [use("delegate", task=task), use("write_file", path="b.py", content="b\n"), "Written.", "Done."],
    )
    editor.set_mode("agentic")
    editor.prompt("Have it written")
    assert tree(project) == {"b.py": "b\n"}

    undone = editor.prompt("/undo")

    assert tree(project) == {}
    assert "What commands and other tools have changed is not undone." in undone.text


def test_only_the_last_turns_keep_what_was_in_their_files() -> None:
    def turn(number: int, size: int = 1) -> list[BaseMessage]:
        file = {"path": "a", "before": "x" * size, "is_kept": True, "after": ""}
        result = ToolMessage("done", tool_call_id="1", id=f"r{number}", response_metadata={FILES_KEY: [file]})
        return [HumanMessage("Go", id=f"p{number}"), AIMessage("", id=f"a{number}"), result]

    many = [message for number in range(MOST_TURNS + 2) for message in turn(number)]
    large = [message for number in range(3) for message in turn(number, MOST_KEPT // 2)]

    assert [message.id for message in forgotten(many)] == ["r1", "r0"]
    assert [message.id for message in forgotten(large)] == ["r0"]
    [bare] = forgotten(large)
    assert bare.response_metadata[FILES_KEY] == [{"path": "a", "before": None, "is_kept": False, "after": ""}]

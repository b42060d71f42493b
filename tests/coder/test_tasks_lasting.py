"""Conversations with the coder that last: over restarts, kills and forks, with all that was known."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
from pathlib import Path

from coder.editor import Editor
from coder.script import use
from coder.served_coder import Coder, Served, surroundings, tree, write
from coder.waiting import is_gone, pid_in, until
from labs.langchain.model_server import refuses, says
from raw_client import COUPLER, texts

EDIT = use("edit_file", path="a.py", edits=[{"old_text": "one", "new_text": "two"}])


def having_read(coder: Coder, project: Path) -> tuple[Served, Editor]:
    """A process of its own, with a session in which a file was read."""
    write(project, {"a.py": "one\n"})
    served = coder.served()
    coder.model.plays(use("read_file", path="a.py"), "It says one.")
    editor = served.opened(project)
    editor.prompt("Read a.py")
    return served, editor


def until_written_down(served: Served, text: str) -> None:
    """Wait for a step that has this text in it; LangGraph writes it while the next one begins."""

    def is_there() -> bool:
        found = saver.execute("SELECT count(*) FROM checkpoint_items WHERE instr(body, ?)", [text.encode()])
        return found.fetchone()[0] > 0

    [file] = served.home.rglob("coupler.db")
    with contextlib.closing(sqlite3.connect(file)) as saver:
        until(is_there)


def kept_after_reading(coder: Coder, project: Path, reads: int) -> tuple[int, int]:
    """Bytes of the last request, and of all files of the store, of a turn with so many reads."""
    served = coder.served(config="[coder]\ncontext_window = 10000000\n")
    parts = [use("read_file", path="big.py", offset=1 + 50 * at, limit=50) for at in range(reads)]
    coder.model.plays(*parts, "Done.")
    served.opened(project).prompt("Read it all")
    request = len(json.dumps(coder.model.last))
    served.leave()
    return request, sum(file.stat().st_size for file in served.home.glob("coupler.db*") if file.is_file())


def test_what_a_turn_leaves_on_disk_grows_with_what_happened_in_it(coder: Coder, project: Path) -> None:
    line = "x = compute_something(argument_one, argument_two)  # as explained above, number {}\n"
    write(project, {"big.py": "".join(line.format(at) for at in range(50 * 60))})

    short, long = (kept_after_reading(coder, project, reads) for reads in (20, 60))

    assert long[1] <= 3 * long[0]
    assert (long[1] - short[1]) / (long[0] - short[0]) < 2.7


def test_a_session_that_is_loaded_after_a_restart_goes_on_with_full_memory(
    coder: Coder, project: Path
) -> None:
    served, before = having_read(coder, project)
    served.leave()

    again = coder.served(home=served.home)
    editor, told = again.loaded(before.session, project)
    coder.model.plays(EDIT, "Now it says two.")
    turn = editor.prompt("Make it two", "allow_once")

    assert texts(told) == "It says one."
    assert [update["title"] for update in told if update["sessionUpdate"] == "tool_call"]
    assert coder.model.asked[0].prompts == ["Read a.py", "Make it two"]
    assert "one" in coder.model.asked[0].results[0]
    assert tree(project) == {"a.py": "two\n"}
    assert turn.reason == "end_turn"
    again.leave()


def test_a_file_that_has_changed_between_two_processes_is_not_edited_before_it_is_read_again(
    coder: Coder, project: Path
) -> None:
    served, before = having_read(coder, project)
    served.leave()
    write(project, {"a.py": "one\nand more\n"})

    again = coder.served(home=served.home)
    editor, _ = again.loaded(before.session, project)
    coder.model.plays(EDIT, "Somebody has changed it.")
    editor.prompt("Make it two")

    assert "has changed since you read it" in coder.model.last.result
    assert tree(project) == {"a.py": "one\nand more\n"}
    again.leave()


def test_after_a_kill_in_the_middle_of_a_tool_the_session_goes_on_with_what_was_known(
    coder: Coder, project: Path
) -> None:
    served, before = having_read(coder, project)
    coder.model.plays(
        ("I wait.", use("run_command", command="echo $$ > pid; echo begun $((2 * 3)); exec sleep 600"))
    )
    before.begin("Now run it")
    before.until(lambda frame: "begun 6" in str(frame), "allow_once")
    pid = pid_in(project / "pid")
    until_written_down(served, "echo begun")

    served.client.process.kill()
    served.client.wait()

    assert is_gone(pid)
    again = coder.served(home=served.home)
    editor, told = again.loaded(before.session, project)
    coder.model.plays("I had begun to run it.")
    turn = editor.prompt("What were you doing?")

    assert "I wait." in texts(told)
    statuses = [update["status"] for update in told if "status" in update]
    assert statuses[-1] == "failed"
    assert coder.model.last.prompts == ["Read a.py", "Now run it", "What were you doing?"]
    assert "one" in coder.model.last.results[0]
    assert "it is not known how much of it was done" in coder.model.last.result
    assert turn.last_message == "I had begun to run it."
    calls = [call["id"] for each in coder.model.last.messages for call in each.get("tool_calls") or ()]
    answered = [each["tool_call_id"] for each in coder.model.last.messages if each["role"] == "tool"]
    assert calls == answered
    again.leave()


def test_what_was_done_in_a_first_turn_that_a_kill_has_cut_off_is_known(coder: Coder, project: Path) -> None:
    served = coder.served()
    coder.model.plays(use("write_file", path="b.py", content="two\n"), says("Now ", "I go on", holds=True))
    before = served.opened(project)
    before.begin("Write it, and go on")
    before.until(lambda frame: "Now " in str(frame), "allow_once")
    until_written_down(served, "b.py was ")
    served.client.process.kill()
    served.client.wait()

    again = coder.served(home=served.home)
    editor, _ = again.loaded(before.session, project)
    coder.model.plays("It is written.")
    editor.prompt("What have you done?")

    assert coder.model.last.prompts == ["Write it, and go on", "What have you done?"]
    assert coder.model.last.result.startswith("b.py was ")
    again.leave()


def test_a_prompt_that_was_refused_is_not_taken_for_one_that_was_cut_off(coder: Coder, project: Path) -> None:
    served, editor = having_read(coder, project)
    coder.model.plays(refuses(400, "The prompt was filtered", "content_filter"), "It says one.")

    refused = editor.prompt("Say something foul")
    editor.prompt("What does it say?")

    assert refused.reason == "refusal"
    assert coder.model.last.prompts == ["Read a.py", "What does it say?"]
    served.leave()


def test_a_mode_and_a_plan_are_there_again_after_a_restart(coder: Coder, project: Path) -> None:
    served = coder.served()
    todos = [{"content": "Look", "status": "in_progress"}]
    coder.model.plays(use("write_todos", todos=todos), "I look.")
    before = served.opened(project)
    before.set_mode("accept-edits")
    before.prompt("Look")
    served.leave()

    again = coder.served(home=served.home)
    request = again.client.request(
        "session/load", {"sessionId": before.session, "cwd": str(project), "mcpServers": []}
    )
    again.client.send(request)
    *frames, answer = again.client.read_until(lambda frame: frame.get("id") == request["id"])

    assert answer["result"]["modes"]["currentModeId"] == "accept-edits"
    plans = [each["params"]["update"] for each in frames if "plan" in str(each.get("params", {}))]
    assert any(entry["content"] == "Look" for plan in plans for entry in plan.get("entries", ()))
    again.leave()


def test_a_fork_remembers_what_was_common_and_goes_its_own_way(coder: Coder, project: Path) -> None:
    served = coder.served("--drafts", "fork")
    coder.model.plays("Tea it is.", "Theirs.", "Ours.")
    editor = served.opened(project)
    editor.prompt("I like tea.")
    params = {"sessionId": editor.session, "cwd": str(project), "mcpServers": []}
    fork = served.client.call("session/fork", params)["result"]["sessionId"]

    other = type(editor)(served.client, fork, project)
    other.prompt("Only theirs")
    assert coder.model.last.prompts == ["I like tea.", "Only theirs"]
    editor.prompt("Only ours")
    assert coder.model.last.prompts == ["I like tea.", "Only ours"]
    served.leave()


def test_sessions_are_listed_with_what_was_asked_and_deleted_with_all_that_was_kept(
    coder: Coder, project: Path
) -> None:
    served = coder.served()
    coder.model.plays(use("run_command", command="seq 1 20000"), "Counted.")
    editor = served.opened(project)
    editor.prompt("Count to 20000", "allow_once")
    kept = [file for file in served.home.rglob("*") if file.is_file() and b"\n19999" in file.read_bytes()]
    listed = served.client.call("session/list", {"cwd": str(project)})["result"]["sessions"]
    assert [each["title"] for each in listed] == ["Count to 20000"]
    assert any("outputs" in file.parts for file in kept)

    assert "result" in served.client.call("session/delete", {"sessionId": editor.session})

    assert served.client.call("session/list", {"cwd": str(project)})["result"]["sessions"] == []
    assert not any(file.exists() for file in kept if "outputs" in file.parts)
    served.leave()


def test_what_the_command_deletes_is_gone_from_the_disk(coder: Coder, project: Path) -> None:
    served = coder.served()
    coder.model.plays(use("run_command", command="seq 1 20000"), "Counted.")
    editor = served.opened(project)
    editor.prompt("Count to 20000", "allow_once")
    served.leave()

    done = subprocess.run(
        [*COUPLER, "sessions", "delete", editor.session, "--yes"],
        env={**os.environ, **surroundings(served.home, None)},
        capture_output=True,
        check=True,
        timeout=60,
    )

    assert done.stdout == b"1 session deleted.\n"
    for text in (b"\n19999", b"Count to 20000", b"Counted."):
        assert not [file for file in served.home.rglob("*") if file.is_file() and text in file.read_bytes()]


def test_a_process_that_is_really_started_does_what_the_forked_ones_do(coder: Coder, project: Path) -> None:
    """The other tests fork a process that has everything imported; users have no such process."""
    served = coder.served(fresh=True)
    coder.model.plays(use("write_file", path="a.py", content="one\n"), "Done.")

    turn = served.opened(project).prompt("Write it", "allow_once")

    assert (tree(project), turn.last_message) == ({"a.py": "one\n"}, "Done.")
    served.leave()

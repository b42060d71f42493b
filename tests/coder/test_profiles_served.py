"""Profiles of the coder wherever they are used: served, chosen as a mode, in a workflow, in a terminal."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import forked
from coder.script import use
from coder.served_coder import Coder, surroundings, tree, write
from raw_client import COUPLER

PATIENCE = 60

REVIEWER = """
[coder]
profiles = ["reviewer"]

[agents.reviewer]
agent = "coder"
title = "Reviewer"
system = "You review and praise nothing."
model = "openai:reviewing"
mode = "read-only"
context = ["style.md"]
tools.deny = ["read(**/private/**)"]
"""


def files_of_profile(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "style.md").write_text("Lines end early.")


def test_a_served_profile_has_its_own_prompt_model_mode_context_and_rules(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    write(project, {"a.py": "one\n", "private/b.py": "two\n"})
    files_of_profile(tmp_path / "home")
    served = coder.served("--agent", "reviewer", home=tmp_path / "home", config=REVIEWER)
    coder.model.plays(
        use("read_file", path="private/b.py"), use("write_file", path="new.py", content="x"), "Fine."
    )

    turn = served.opened(project).prompt("Review it")

    first = coder.model.asked[0]
    assert served.hello["agentInfo"]["title"] == "Coupler reviewer"
    assert first["model"] == "reviewing"
    assert first.system.count("You review and praise nothing.") == 1
    assert "Lines end early." in first.system
    assert "write_file" not in first.tools
    assert [each["status"] for each in turn.uses] == ["failed", "failed"]
    assert "`read(**/private/**)`" in coder.model.asked[1].result
    assert tree(project) == {"a.py": "one\n", "private/b.py": "two\n"}
    served.leave()


def test_a_profile_that_is_chosen_as_a_mode_holds_from_the_next_prompt_on_and_remembers(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    files_of_profile(tmp_path / "home")
    served = coder.served(home=tmp_path / "home", config=REVIEWER)
    editor = served.opened(project)
    coder.model.plays("I am.", "Reviewed.", "Back.")

    editor.prompt("You are the coder")
    editor.set_mode("reviewer")
    editor.prompt("Now review")
    editor.set_mode("interactive")
    editor.prompt("And now?")

    before, chosen, after = coder.model.asked
    assert "You review and praise nothing." not in before.system + after.system
    assert "You review and praise nothing." in chosen.system
    assert [each["model"] for each in (before, chosen, after)] == ["scripted", "reviewing", "scripted"]
    assert "write_file" in before.tools & after.tools
    assert "write_file" not in chosen.tools
    assert after.prompts == ["You are the coder", "Now review", "And now?"]
    served.leave()


def test_a_step_of_a_workflow_uses_the_profile_once_and_its_own_model(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    files_of_profile(home)
    (home / "coupler.toml").write_text(REVIEWER)
    write(
        project,
        {
            "review.yaml": "steps:\n"
            "  - {id: look, agent: reviewer, prompt: /look at it, model: 'openai:step'}\n"
        },
    )
    coder.model.plays("All is well.")

    done = run(coder, home, project, "run", "review.yaml")

    assert done.returncode == 0, done.stderr
    [asked] = coder.model.asked
    assert asked["model"] == "step"
    assert asked.system.count("You review and praise nothing.") == 1
    assert asked.prompts == ["/look at it"]


def test_sessions_of_a_terminal_and_of_an_editor_are_one_list(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    served = coder.served(home=home)
    coder.model.plays("Noted.", "It is blue.", "Still blue.")
    editor = served.opened(project)
    editor.prompt("My favourite colour is blue")
    served.leave()

    said = run(coder, home, project, "chat", "coder", "--continue", "--plain", stdin="Which colour?\n")

    assert "It is blue." in said.stdout, said.stderr
    assert coder.model.asked[1].prompts == ["My favourite colour is blue", "Which colour?"]
    again = coder.served(home=home)
    known = again.client.call("session/list", {"cwd": str(project)})["result"]["sessions"]
    assert [each["sessionId"] for each in known] == [editor.session]
    loaded, updates = again.loaded(editor.session, project)
    assert "Which colour?" in str(updates)
    loaded.prompt("And now?")
    assert coder.model.asked[2].prompts[-2:] == ["Which colour?", "And now?"]
    again.leave()


def test_a_task_that_is_delegated_to_a_profile_is_done_with_its_model_and_prompt(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    files_of_profile(tmp_path / "home")
    served = coder.served(home=tmp_path / "home", config=REVIEWER)
    coder.model.plays(use("delegate", task="Look at it", agent="reviewer"), "It is fine.", "He says so.")

    turn = served.opened(project).prompt("Have it reviewed")

    assert [each["model"] for each in coder.model.asked] == ["scripted", "reviewing", "scripted"]
    assert "You review and praise nothing." in coder.model.asked[1].system
    assert turn.use["rawOutput"]["agent"] == "reviewer"
    served.leave()


def run(
    coder: Coder, home: Path, cwd: Path, *words: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """The real command, to its end."""
    process = forked.Popen(
        [*COUPLER, *words],
        cwd=cwd,
        env={**os.environ, **surroundings(home, coder.model.server.url)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(stdin, timeout=PATIENCE)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def test_a_profile_that_there_is_not_is_refused_with_the_nearest_that_there_is(
    project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "coupler.toml").write_text(REVIEWER)

    served = forked.run(
        [*COUPLER, "serve", "--agent", "reviever"],
        cwd=project,
        env={**os.environ, **surroundings(home, None)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )

    assert served.returncode == 2
    assert "there is no agent 'reviever', did you mean 'reviewer'?" in served.stderr

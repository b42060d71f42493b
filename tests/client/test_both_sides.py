"""Coupler's own agents with Coupler's own client, across a pipe: what one asks, the other serves."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from client.stage import run
from coupler import connect
from coupler.client.elicitation import FormRequest, UrlRequest

AGENT = """
    import asyncio
    from dataclasses import dataclass
    from typing import Literal

    from coupler import FileChangedError, OutsideRootsError, Turn, serve

    @dataclass
    class Order:
        size: Literal["small", "large"]
        count: int = 1

    async def files(turn):
        text = await turn.files.read("notes.txt")
        await turn.files.write("notes.txt", text.upper())
        await turn.files.write("deep/new.txt", "new")
        found = [await turn.files.read("notes.txt", line=2, limit=1)]
        for path in ("../outside.txt", "missing.txt"):
            try:
                await turn.files.read(path)
            except (OutsideRootsError, FileNotFoundError) as error:
                found.append(type(error).__name__)
        await turn.say("|".join(found))

    async def terminal(turn):
        line = "pwd; echo $WHO; echo oops >&2; exit 3"
        one = await turn.terminal.run("sh", "-c", line, env={"WHO": "ada"})
        two = await turn.terminal.run("sleep", "60", timeout=0.2)
        three = await turn.terminal.run("sh", "-c", "echo äöü", output_limit=5)
        found = one.exit_code, one.output, two.timed_out, two.signal, three.output, three.truncated
        await turn.say("|".join(map(str, found)))

    async def ask(turn):
        answer = await turn.ask("What do you want?", Order)
        await turn.say(f"{answer.action}|{answer.value}")

    async def ask_url(turn):
        answer = await turn.ask_url("Log in", "https://example.com/login")
        if answer.accepted:
            await turn.complete_url(answer.id)
        await turn.say(answer.action)

    async def agent(turn: Turn) -> None:
        await globals()[turn.text](turn)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(textwrap.dedent(AGENT))
    (tmp_path / "outside.txt").write_text("not yours")
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def said(project: Path, prompt: str, **offer: Any) -> tuple[str, list[str]]:
    """What the agent answered, and the methods that it called."""
    trace = project.parent / "trace.ndjson"
    command = [sys.executable, "-m", "coupler", "serve", str(project.parent / "agent.py"), "--no-store"]

    async def story() -> str:
        async with connect(command, cwd=project.parent, record=trace, **offer) as agent:
            return (await (await agent.new(cwd=project)).prompt(prompt)).text

    text = run(story())
    frames = [json.loads(line).get("frame", {}) for line in trace.read_text().splitlines()]
    ours = ("fs/", "terminal/", "elicitation/")
    methods = [frame["method"] for frame in frames if frame.get("method", "").startswith(ours)]
    return text, methods


@pytest.mark.parametrize(
    ("files", "called"),
    [
        ("none", set()),
        ("read", {"fs/read_text_file"}),
        ("write", {"fs/read_text_file", "fs/write_text_file"}),
    ],
)
def test_the_files_of_a_turn_are_the_same_whoever_touches_them(
    project: Path, files: str, called: set[str]
) -> None:
    (project / "notes.txt").write_text("one\ntwo\n")
    text, methods = said(project, "files", files=files)
    assert text == "TWO\n|OutsideRootsError|FileNotFoundError"
    assert set(methods) == called
    assert (project / "notes.txt").read_text() == "ONE\nTWO\n"
    assert (project / "deep" / "new.txt").read_text() == "new"


@pytest.mark.parametrize("terminals", [False, True])
def test_the_commands_of_a_turn_are_the_same_whoever_runs_them(project: Path, terminals: bool) -> None:
    text, methods = said(project, "terminal", terminals=terminals)
    assert text == f"3|{project}\nada\noops\n|True|SIGTERM|öü\n|True"
    assert methods.count("terminal/create") == methods.count("terminal/release") == (3 if terminals else 0)


def test_a_question_of_a_turn_is_answered_by_the_clients_function(project: Path) -> None:
    asked: list[FormRequest] = []

    def fill_in(form: FormRequest) -> dict[str, Any]:
        asked.append(form)
        return {"size": "large", "count": 3}

    text, methods = said(project, "ask", on_form=fill_in)
    assert text == "accept|Order(size='large', count=3)"
    assert methods == ["elicitation/create"]
    assert [(field.name, field.required) for field in asked[0].fields] == [("size", True), ("count", False)]


@pytest.mark.parametrize(("given", "action"), [(False, "decline"), (None, "cancel")])
def test_a_question_of_a_turn_can_be_declined(project: Path, given: Any, action: str) -> None:
    assert said(project, "ask", on_form=lambda form: given)[0] == f"{action}|None"


def test_a_page_of_a_turn_is_opened_and_completed(project: Path) -> None:
    pages: list[UrlRequest] = []

    def accept(page: UrlRequest) -> bool:
        pages.append(page)
        return True

    text, methods = said(project, "ask_url", on_url=accept)
    assert (text, methods) == ("accept", ["elicitation/create", "elicitation/complete"])
    assert pages[0].completed.is_set()

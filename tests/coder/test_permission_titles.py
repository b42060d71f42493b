"""A question is about the call as the user sees it: with the same title, by the path in the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from coder.script import Use, use
from coder.served_coder import Coder, write


@pytest.mark.parametrize(
    ("called", "title"),
    [
        (use("write_file", path="deep/new.txt", content="x"), "Write deep/new.txt"),
        (use("read_file", path=".env"), "Read .env"),
    ],
)
def test_a_question_has_the_title_of_its_call(coder: Coder, project: Path, called: Use, title: str) -> None:
    write(project, {".env": "A=1\n"})
    editor = coder(project, [called, "Refused."])

    turn = editor.prompt("Do it", "reject_once")

    [question] = editor.asked
    assert (question["toolCall"]["title"], turn.use["title"]) == (title, title)

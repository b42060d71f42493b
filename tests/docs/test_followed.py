"""Whoever follows a tutorial or a how-to page word for word, in an empty directory, gets what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.manual import DOCS, Reader, blocks_of, fits
from labs.langchain.model_server import ModelServer, Reply, calls, says

FOLLOWED = sorted(
    page for part in ("tutorials", "how-to") for page in (DOCS / part).glob("*.md") if page.stem != "index"
)
MODEL = "http://127.0.0.1:8080/v1"
"""Where the pages have a model of one's own."""

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]


class ScriptedModel:
    """A model that does next what the page says that it does."""

    def __init__(self) -> None:
        self._script: list[Reply] = []
        self.server = ModelServer([self._next])

    def will(self, note: str) -> None:
        """`tool a=b c=d | text`: a call, and then an answer."""
        call, _, text = note.partition(" | ")
        name, *arguments = call.split(" ")
        self._script = [calls(name, **dict(each.split("=", 1) for each in arguments)), says(text)]

    def _next(self, _request: dict[str, Any]) -> Reply:
        return self._script.pop(0) if self._script else says("The page does not say what I say.")


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    scripted = ScriptedModel()
    with scripted.server:
        yield scripted


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
def test_whoever_follows_the_page_gets_what_it_says(page: Path, tmp_path: Path, model: ScriptedModel) -> None:
    variables = {"OPENAI_BASE_URL": model.server.url, "OPENAI_API_KEY": "key-of-the-tests"}
    reader = Reader(tmp_path / "project", variables, {MODEL: model.server.url})

    for block in blocks_of(page):
        if "model" in block.notes:
            model.will(block.notes["model"])
        reader.follow(block)


def test_a_page_that_says_something_else_is_found_out(tmp_path: Path) -> None:
    page = DOCS / "tutorials" / "first-agent.md"
    (asking,) = [block for block in blocks_of(page) if '"hello"' in block.text]
    reader = Reader(tmp_path / "project")

    with pytest.raises(AssertionError, match="ended with"):
        reader.follow(asking)

    assert not fits("You said: hello", "You said: bye\n")
    assert fits("You said: …", "You said: bye\n")
    assert fits("first\n…\nlast", "first\n1\n2\nlast\n")
    assert not fits("first\n…\nlast", "first\n1\n2\n")

"""Each example says at its top what it needs and how it is run, and the manual has all of them."""

from __future__ import annotations

import re
from pathlib import Path

from examples.desk import EXAMPLES
from tables import table

PAGE = (EXAMPLES.parent / "docs" / "examples.md").read_text()
FILES = [
    *sorted(path for path in EXAMPLES.glob("*.py") if not path.name.startswith("demo")),
    EXAMPLES / "coder" / "coupler.toml",
]


def place(file: Path) -> str:
    return str(file.relative_to(EXAMPLES))


@table("file", FILES, ids=place)
def test_an_example_says_at_its_top_what_it_needs_and_how_it_is_run(file: Path) -> None:
    top = "\n".join(file.read_text().splitlines()[:16])

    assert re.search(r"\bneeds? |pip install ", top, re.IGNORECASE), top
    if file.suffix == ".toml":
        assert "coupler serve --agent " in top
    elif file.name == "mcp_notes.py":
        assert f"examples/{file.name}" in top
    else:
        assert f"coupler serve examples/{file.name}" in top or f"python examples/{file.name}" in top


def test_the_manual_has_every_example_and_no_other() -> None:
    named = set(re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE)) | {"mcp_notes.py"}

    assert named == {place(file) for file in FILES} | {"workflows/review.yaml"}
    assert "`mcp_notes.py`" in PAGE

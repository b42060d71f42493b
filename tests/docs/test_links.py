"""Links in the manual lead to headings that are there, also from the README and the files beside it."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from tables import table

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)")


def prose_of(page: Path) -> str:
    """The page without its code: what looks like a heading or a link there is none."""
    return FENCE.sub("", page.read_text())


def anchors_of(page: Path) -> set[str]:
    """The names of a page's headings, as the manual's builder makes them."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        plain = unicodedata.normalize("NFKD", shown).encode("ascii", "ignore").decode()
        name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        number = 0
        while (anchor := f"{name}_{number}" if number else name) in anchors:
            number += 1
        anchors.add(anchor)
    return anchors


@table("page", PAGES, ids=lambda page: page.stem)
def test_a_link_to_a_heading_finds_it(page: Path) -> None:
    lost = [
        f"{target}#{anchor}"
        for target, anchor in LINK.findall(prose_of(page))
        if anchor not in anchors_of(page.parent / target if target else page)
    ]
    assert lost == []


def test_there_are_such_links_and_they_are_told_from_code() -> None:
    assert sum(len(LINK.findall(prose_of(page))) for page in PAGES) > 50
    assert "exit-codes" in anchors_of(DOCS / "cli.md")
    assert "agentpy" not in anchors_of(DOCS / "langchain.md")

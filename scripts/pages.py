"""Pages of the manual, of which some parts are made from the code.

A part stands between two comments, `<!-- its name -->` and `<!-- end -->`; everything else in a page is
written by hand. The scripts `generate_…_docs.py` make parts; this writes them, or says which are out of date.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def update(pages: Mapping[str, Mapping[str, str]], arguments: Sequence[str]) -> int:
    """Write the parts of these pages of docs/; with `--check` say instead which pages differ, and be 1."""
    return keep({name: replaced_all(_text(name), parts) for name, parts in pages.items()}, arguments)


def keep(pages: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Write these pages of docs/ as they should be; with `--check` say instead which differ, and be 1."""
    changed = [name for name, text in pages.items() if _text(name) != text]
    if "--check" in arguments:
        for name in changed:
            print(f"docs/{name} is out of date: run make reference", file=sys.stderr)
            print(*_differences(_text(name), pages[name]), sep="\n", file=sys.stderr)
        return int(bool(changed))
    for name in changed:
        (DOCS / name).write_text(pages[name], encoding="utf-8")
    return 0


def _differences(found: str, expected: str) -> list[str]:
    """Some lines of the difference: enough to see where it comes from."""
    lines = unified_diff(found.splitlines(), expected.splitlines(), "found", "expected", lineterm="", n=0)
    return [*islice(lines, 20)]


def replaced_all(page: str, parts: Mapping[str, str]) -> str:
    """The page with these parts as they are now."""
    for name, text in parts.items():
        page = replaced(page, name, text)
    return page


def replaced(page: str, name: str, text: str) -> str:
    """The page with other text between the comments of that name."""
    region = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    if not region.search(page):
        raise ValueError(f"there is no <!-- {name} --> … <!-- end --> in the page")
    return region.sub(lambda match: f"{match[1]}\n{text}\n{match[2]}", page)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Code with a `|` in it is HTML, because Markdown would end the cell, or show an escape as it is."""
    text = re.sub(
        r"`([^`]*\|[^`]*)`",
        lambda code: f"<code>{html.escape(code[1], quote=False).replace('|', '&#124;')}</code>",
        text,
    )
    return text.replace("|", "&#124;")


def _text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")

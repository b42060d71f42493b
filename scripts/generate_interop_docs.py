"""Write the matrix of docs/interop.md, from interop/results.json, which `make interop` has written.

python scripts/generate_interop_docs.py [--check]
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import catalogue
from pages import ROOT, table, update

RESULTS = ROOT / "interop" / "results.json"
SIGNS = {"pass": "✓", "none": "–", "fault": "fault", "fail": "**open**"}
CLAUSES = {each.id: each.clause for each in catalogue("agent")}


def main(arguments: list[str]) -> int:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    native = {name for name in rows if name.endswith(":native")}
    examples = {name for name in rows if "-sdk" in name}
    parts = {
        "matrix": matrix([row for name, row in rows.items() if name not in native | examples]),
        "native": matrix([rows[name] for name in rows if name in native]),
        "examples": matrix([rows[name] for name in rows if name in examples]),
        "proofs": proofs(rows),
    }
    return update({"interop.md": parts}, arguments)


def matrix(rows: list[dict[str, Any]]) -> str:
    """The agents, and a sign for each cell that one of them has."""
    tried = [cell for row in rows for cell in row.get("cells", {}).items()]
    cells = dict.fromkeys(name for name, cell in tried if cell["verdict"] != "none")
    lines = []
    for row in rows:
        found = row.get("cells", {})
        signs = (SIGNS[found[cell]["verdict"]] if cell in found else "" for cell in cells)
        lines.append([f"[{row['title']}](#{anchor(row['title'])})", row.get("version", ""), *signs])
    return table(["", "version", *cells], lines)


def proofs(rows: dict[str, Any]) -> str:
    """What was seen, an agent at a time."""
    return "\n\n".join(f"### {row['title']}\n\n{proof(row)}" for row in rows.values())


def proof(row: dict[str, Any]) -> str:
    if "missing" in row:
        return f"It could not be driven: {plain(row['missing'])}"
    return table(["", "", "what was seen"], [*lines(row["cells"])])


def lines(cells: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    lacking: dict[str, list[str]] = {}
    for name, cell in cells.items():
        if cell["verdict"] == "none":
            lacking.setdefault(cell["seen"], []).append(name)
            continue
        why = f". {cell['why']}" if cell.get("why") else ""
        yield name, SIGNS[cell["verdict"]], f"{plain(cell['seen'])}{why}"
        for each, failure in cell.get("failed", {}).items():
            why = f". {failure['why']}" if failure["why"] else ""
            yield (
                f"{name} {each}",
                SIGNS["fault" if failure["why"] else "fail"],
                f"{plain(failure['seen'])}{why} The specification: “{CLAUSES[each]}”",
            )
    for reason, names in lacking.items():
        yield ", ".join(names), SIGNS["none"], plain(reason)


def plain(text: str) -> str:
    """Words of others, without what Markdown would take for its own, except code."""
    return re.sub(r"(`[^`]+`)|([\\`*_<>\[\]])", lambda found: found[1] or f"\\{found[2]}", text)


def anchor(title: str) -> str:
    """The address of a heading, as the manual makes it."""
    return re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

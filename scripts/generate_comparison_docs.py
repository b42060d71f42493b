"""Write the figures of docs/comparison.md, from bench/RESULTS.md, which `make bench` has written.

    python scripts/generate_comparison_docs.py [--check]

Every row that a peer was measured in is taken, also where the peer is better.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pages import ROOT, table, update

RESULTS = ROOT / "bench" / "RESULTS.md"
NOT_MEASURED = "–"
SDKS = ("Coupler", "Python SDK", "TypeScript SDK")
BRIDGES = ("Coupler", "deepagents-acp", "langchain-acp")


class Measured(NamedTuple):
    """A table of the results: the names of its columns, and its rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def part(self, *names: str) -> str:
        """Some of its columns, and of the rows those in which anybody but the first was measured."""
        places = [self.heads.index(name) for name in names]
        rows = [(row[0], *(row[place] for place in places)) for row in self.rows]
        return table(("", *names), (row for row in rows if {*row[2:]} != {NOT_MEASURED}))


def main(arguments: list[str]) -> int:
    text = RESULTS.read_text(encoding="utf-8")
    sdks, bridges, promises, *_ = tables(text)
    parts = {
        "versions": next(line for line in text.splitlines() if line.startswith("Python 3")),
        "against the SDKs": sdks.part(*SDKS, "against Python SDK", "against TypeScript SDK"),
        "against the bridges": bridges.part(*BRIDGES),
        "promises": missed(
            [*promised(sdks, "against Python SDK", "Coupler"), *promised(promises, "measured")]
        ),
    }
    return update({"comparison.md": parts}, arguments)


def tables(text: str) -> list[Measured]:
    """The tables of a page of Markdown, in their order."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if len(lines) > 2:
            heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
            found.append(Measured(heads, rows))
    return found


def promised(measured: Measured, *figures: str) -> Iterator[tuple[str, str, str, str]]:
    """What has a target: what it is, the target, the first of the figures that there is, and the verdict."""
    target, *places = (measured.heads.index(name) for name in ("target", *figures))
    for row in measured.rows:
        if row[target]:
            result = next((row[place] for place in places if row[place] != NOT_MEASURED), NOT_MEASURED)
            yield row[0], row[target], result, row[-1]


def missed(promises: Sequence[tuple[str, str, str, str]]) -> str:
    """How many targets there are, and which of them were missed."""
    wanting = [promise for promise in promises if promise[3] != "pass"]
    count = f"Of {len(promises)} targets that the benchmark has, {len(promises) - len(wanting)} were met"
    if not wanting:
        return f"{count}."
    lines = [f"- {name}: {target} was wanted, {result} was measured" for name, target, result, _ in wanting]
    return "\n".join([f"{count}. These were not:", "", *lines])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

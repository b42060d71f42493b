"""The matrix: kept in `results.json`, shown in the terminal, compared with what was committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agents import HERE, Agent, Fault
from cells import CELLS, Seen

PROOF_LENGTH = 300
"""The most characters of a proof."""
VARYING = re.compile(
    r"/tmp/coupler-check-\w+|\b(?:call|sess?)_\w+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b"
)
RESULTS = HERE / "results.json"
SIGNS = {"pass": "pass", "none": "–", "fault": "fault", "fail": "FAIL"}
RANKS = {"pass": 0, "none": 1, "fault": 1, "fail": 2}

Row = dict[str, Any]
"""An agent's `title`, `version`, and its `cells` by name, or the reason why it is `missing`; or a cell."""


def read() -> dict[str, Row]:
    """The matrix as it is in the repository."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def write(rows: Mapping[str, Row]) -> None:
    RESULTS.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def lasting(seen: Seen, root: Path) -> Seen:
    """What was seen, without what is different in every run: directories and ids."""

    def kept(text: str) -> str:
        placeless = text.replace(str(root), "…").replace(str(HERE.parent), "…")
        return VARYING.sub("…", " ".join(placeless.split()))[:PROOF_LENGTH]

    return seen._replace(
        proof=kept(seen.proof), failed={each: kept(said) for each, said in seen.failed.items()}
    )


def judged(seen: Seen, cell: str, agent: Agent) -> Row:
    """A cell as it is kept: what failed is the agent's fault if it has the signs of one that is recorded."""
    kept: Row = {"verdict": seen.verdict, "seen": seen.proof}
    if seen.verdict != "fail":
        return kept
    reasons = {each: reason(agent.check_faults.get(each), said) for each, said in seen.failed.items()}
    why = reason(agent.faults.get(cell), seen.proof)
    if all(reasons.values()) if reasons else why:
        kept["verdict"] = "fault"
    if why and not reasons:
        kept["why"] = why
    if reasons:
        kept["failed"] = {each: {"seen": said, "why": reasons[each]} for each, said in seen.failed.items()}
    return kept


def reason(fault: Fault | None, seen: str) -> str:
    """Why it is the agent's fault; nothing if it is not this one."""
    return fault.why if fault is not None and fault.explains(seen) else ""


def worse(before: Row, now: Row) -> Iterator[str]:
    """The cells of an agent that fail unexplained, or were better in the repository's matrix."""
    if "missing" in now and "missing" not in before:
        yield f"it could be driven, and cannot any more: {now['missing']}"
    for name, cell in now.get("cells", {}).items():
        known = before.get("cells", {}).get(name)
        if cell["verdict"] == "fail":
            yield f"{name}: {cell['seen']}"
        elif known is not None:
            more = cell.get("failed", {}).keys() - known.get("failed", {}).keys()
            if more or RANKS[cell["verdict"]] > RANKS[known["verdict"]]:
                yield f"{name}: {cell['seen']}; before: {known['seen']}"


def table(rows: Mapping[str, Row]) -> str:
    """The matrix for a terminal."""
    lines = [["", *CELLS]]
    for name, row in rows.items():
        cells = row.get("cells", {})
        lines.append([name, *(SIGNS[cells[cell]["verdict"]] if cell in cells else "" for cell in CELLS)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

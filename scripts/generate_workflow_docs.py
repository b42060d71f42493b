"""Write the tables of docs/workflow-language.md from the tables of keys in the code.

    python scripts/generate_workflow_docs.py [--check]

Each goes between two comments that name it. `--check` writes nothing and fails on a difference.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from coupler.workflow.language.keys import DEFAULTS, HOOKS, PROFILE, WORKFLOW
from coupler.workflow.language.keys_agents import BUDGET, SERVER, TOOLS
from coupler.workflow.language.keys_flow import AGENT_GATE, COMMON_KEYS, RETRY
from coupler.workflow.language.keys_inputs import INPUT
from coupler.workflow.language.keys_steps import ENDING, KINDS
from coupler.workflow.language.table import Key

PAGE = Path(__file__).parent.parent / "docs" / "workflow-language.md"
PARTS = (WORKFLOW, INPUT, RETRY, AGENT_GATE, BUDGET, SERVER, TOOLS, ENDING, HOOKS, PROFILE, DEFAULTS)


def main(arguments: list[str]) -> int:
    before = PAGE.read_text()
    after = written(before)
    if after == before:
        return 0
    if "--check" in arguments:
        print(f"{PAGE} is out of date: run python scripts/generate_workflow_docs.py", file=sys.stderr)
        return 1
    PAGE.write_text(after)
    return 0


def written(page: str) -> str:
    """The page with the tables as the code has them now."""
    tables = {"steps": COMMON_KEYS} | {table.name: table.keys for table in (*PARTS, *KINDS.values())}
    for name, keys in tables.items():
        page = replaced(page, f"keys of {name}", table_of(keys))
    return page


def table_of(keys: Sequence[Key]) -> str:
    rows = ["| key | value | default | what it does | example |", "|---|---|---|---|---|"]
    for key in keys:
        default = "**required**" if key.is_required else key.default
        cells = (f"`{key.name}`", key.shape.words, default, key.sentence, f"`{key.example}`")
        rows.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(rows)


def replaced(page: str, name: str, text: str) -> str:
    """The page with other text between the comments of that name."""
    region = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    if not region.search(page):
        raise ValueError(f"there is no <!-- {name} --> … <!-- end --> in the page")
    return region.sub(lambda match: f"{match[1]}\n{text}\n{match[2]}", page)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

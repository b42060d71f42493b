"""Write the assertions of `coupler check` into docs/check.md, from the code itself.

python scripts/generate_check_docs.py [--check]
"""

from __future__ import annotations

import sys

from coupler.conformance.assertion import catalogue
from coupler.conformance.rendering import section_address
from coupler.recording.traces import Side
from pages import table, update


def main(arguments: list[str]) -> int:
    parts = {"agent assertions": assertions("agent"), "client assertions": assertions("client")}
    return update({"check.md": parts}, arguments)


def assertions(side: Side) -> str:
    """A table of what is asserted about one side."""
    rows = []
    for assertion in catalogue(side):
        address = section_address(assertion.section)
        section = f"[{assertion.section}]({address})" if address else assertion.section
        clause = assertion.clause.replace("|", "\\|") or "(left open)"
        rows.append((assertion.id, assertion.level.value, assertion.sentence, clause, section))
    return table(("id", "level", "assertion", "the specification says", "section"), rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

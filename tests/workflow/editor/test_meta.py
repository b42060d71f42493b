"""`_meta.coupler` has the keys that clients can read about, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from coupler.workflow.editor.chat_messages import CallOrigin, answer_meta
from coupler.workflow.journal.run_events import Failure, RunFinished

PAGE = Path(__file__).parents[3] / "docs" / "workflows-in-editors.md"


def documented(after: str) -> set[str]:
    """The keys in the first table behind these words."""
    table = re.search(r"(?:^\|.*\n)+", PAGE.read_text().partition(after)[2], re.MULTILINE)
    assert table is not None
    return {key for row in table[0].splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_keys_of_tool_calls_are_documented() -> None:
    assert documented("tell where they belong:") == {*CallOrigin.__struct_fields__, "outcome"}


def test_the_keys_of_answers_are_documented() -> None:
    failed = RunFinished(
        status="failed", exit_code=3, error=Failure(kind="exit", message="no"), failed_step="build"
    )
    assert documented("tells how the run ended:") == answer_meta("build-1", "build", failed)["coupler"].keys()

"""The events of a run are those that its users can read about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from coupler.events.json_form import FORMS
from coupler.workflow.journal.run_events import AGENT_KINDS, RunHappening

PAGE = Path(__file__).parents[3] / "docs" / "events.md"


def described(part: str, keys_at: int) -> dict[str, set[str]]:
    """The events in a table of the page, with their keys."""
    table = PAGE.read_text().partition(f"<!-- {part} -->")[2].partition("<!-- end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")][1:]
    return {row[0].strip("` "): set(re.findall(r"`(\w+)`", row[keys_at])) for row in rows}


def test_the_page_about_events_names_every_event_of_a_run_with_the_keys_that_there_are() -> None:
    of_runs, of_agents = described("happenings", 2), described("json form", 1)

    assert of_runs == {
        kind.__struct_config__.tag: {*kind.__struct_fields__} - {"place"} for kind in get_args(RunHappening)
    }
    forms = {form.event: {key.name for key in form.keys} for form in FORMS if form.event in AGENT_KINDS}
    assert {name: of_agents[name] for name in forms} == forms

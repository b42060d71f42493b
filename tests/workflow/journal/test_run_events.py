"""The events of a run are those that its users can read about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from coupler.events.json_form import FORMS
from coupler.workflow.journal.run_events import AGENT_KINDS, RunHappening

PAGE = Path(__file__).parents[3] / "docs" / "running-workflows.md"


def test_the_page_about_runs_names_every_event_and_only_keys_that_there_are() -> None:
    table = PAGE.read_text().partition("<!-- events -->")[2].partition("<!-- end -->")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")][1:]
    keys_of = {kind.__struct_config__.tag: kind.__struct_fields__ for kind in get_args(RunHappening)}
    for form in FORMS:
        if form.event in AGENT_KINDS:
            keys_of[form.event] = (*(key.name for key in form.keys), "typed")

    told = [name for events, _, _ in rows for name in re.findall(r"`(\w+)`", events)]
    assert sorted(told) == sorted(keys_of)
    for events, _, keys in rows:
        fields = {field for name in re.findall(r"`(\w+)`", events) for field in keys_of[name]}
        assert set(re.findall(r"`(\w+)`", keys)) <= fields

"""What the pages about decisions say was decided is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coupler.cli import exit_codes
from docs.manual import DOCS
from raw_client import serve

DECISIONS = DOCS / "decisions"
AGENT = """
from coupler import Turn, serve

async def agent(turn: Turn) -> None:
    await turn.say("hello")

serve(agent)
"""


@pytest.mark.parametrize("version", [0, 1, 2, 65535])
def test_whatever_version_is_asked_for_the_answer_is_the_one_that_is_spoken(
    version: int, tmp_path: Path
) -> None:
    file = tmp_path / "agent.py"
    file.write_text(AGENT)

    with serve(file) as client:
        answer = client.call("initialize", {"protocolVersion": version, "clientCapabilities": {}})

    assert answer["result"]["protocolVersion"] == 1


def test_the_exit_codes_are_those_of_the_page() -> None:
    page = " ".join((DECISIONS / "exit-codes.md").read_text().split())
    named = (exit_codes.NO_LOGIN, exit_codes.BUDGET, exit_codes.DIED)
    usual = (exit_codes.WRONG_USAGE, exit_codes.TIMEOUT, exit_codes.INTERRUPTED, exit_codes.BROKEN_PIPE)

    assert "three things to do: {}, {} and {}".format(*named) in page
    assert (
        "{} for wrong usage, {} for a time that is up, {} for Ctrl-C, {} for a closed pipe".format(*usual)
        in page
    )
    assert f"a refusal is {exit_codes.REFUSED}, a limit of its own {exit_codes.LIMIT}" in page
    assert f"`--fail-on-denial` makes it {exit_codes.DENIED}" in page
    assert f"parked is {exit_codes.PARKED}" in page


def test_every_decision_is_in_the_list_and_says_what_it_costs() -> None:
    pages = {page.name for page in DECISIONS.glob("*.md")} - {"index.md"}
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (DECISIONS / "index.md").read_text()))

    assert listed == pages
    for name in pages:
        assert "\n## What it costs\n" in (DECISIONS / name).read_text()

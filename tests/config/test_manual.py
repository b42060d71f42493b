"""The manual says what the table of keys says, and its examples are right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from coupler.config.keys import ConfigSchema, Settings
from tables import table

SCHEMA = ConfigSchema(Settings)
ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "configuration.md").read_text()


@table("key", SCHEMA.keys, ids=lambda key: key.name)
def test_every_key_is_in_the_manual_with_all_that_is_known_about_it(key):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{key.name}` |")]
    assert key.sentence in row
    assert key.shape.words.partition(": write")[0] in row
    assert (key.variable or "") in row
    assert ("any project" in row) == (key.setter == "project")
    assert key.sentence.endswith(".")


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_an_example_of_the_manual_can_be_used(place, example):
    place.user_says(example)
    assert place.load().settings


def test_the_manual_names_every_key_that_needs_trust():
    needs = [f"`{key.name}`" for key in SCHEMA.keys if key.setter == "trusted project"]
    assert f"These keys need trust: {', '.join(needs)}." in PAGE


def test_the_error_in_the_manual_is_the_one_that_users_see(place):
    path = place.project_says("\n\npermisions = 1")
    with pytest.raises(Exception, match="unknown key") as caught:
        place.load()
    assert str(caught.value).replace(str(path), "/home/ann/app/coupler.toml") in PAGE


def test_a_schema_knows_its_sections_and_what_may_be_written_in_them():
    assert SCHEMA.words_below("") == [
        *("permissions", "agents", "mcp", "coder", "secrets", "sessions", "store")
    ]
    assert SCHEMA.words_below("sessions") == ["store", "synchronous"]
    assert SCHEMA.is_section("secrets")
    assert not SCHEMA.is_section("secrets.names")


def test_without_any_file_no_parser_is_loaded_for_nothing():
    program = (
        "import sys; sys.modules |= dict.fromkeys(['tomllib', 'difflib', 'sqlite3']); "
        "from coupler.config import load; load('/', environ={'HOME': '/nowhere', 'COUPLER_HOME': '/nowhere'})"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

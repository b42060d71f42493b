"""What docs/coder.md shows is right: its settings are taken, its skill is one."""

import re
from pathlib import Path

from coupler.coder.commands import COMMAND_NAMES
from coupler.coder.hooks import MOST_OBJECTIONS
from coupler.coder.memory import LONGEST_MEMORY, Memory
from coupler.coder.profiles import profile_of
from coupler.coder.skills import read_document
from coupler.config import load

PAGE = (Path(__file__).parents[2] / "docs" / "coder.md").read_text()


def examples(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_profile_is_taken_as_it_stands_there(tmp_path, coupler_home, monkeypatch):
    coupler_home.mkdir(exist_ok=True)
    (coupler_home / "coupler.toml").write_text("\n".join(examples("toml")))

    profile = profile_of("careful", load(str(tmp_path), environ={"COUPLER_HOME": str(coupler_home)}))

    assert {event: len(lines) for event, lines in profile.hooks.items()} == {
        "before_tool": 1,
        "after_tool": 2,
        "turn_end": 1,
    }


def test_the_skill_is_one():
    skill = next(each for each in examples("markdown") if each.startswith("---"))

    assert read_document(skill).fields["name"] == "release"


def test_the_memory_is_one():
    memory = next(each for each in examples("markdown") if each.startswith("# Memory"))

    assert len(Memory("", memory).entries) == 2
    assert f"{LONGEST_MEMORY:,} characters" in PAGE


def test_every_command_is_in_the_table():
    section = PAGE.partition("## Slash commands\n")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `/")]

    assert {name for cell in first_cells for name in re.findall(r"`/([\w-]+)", cell)} == COMMAND_NAMES


def test_the_number_of_objections_is_right():
    assert {3: "three times"}[MOST_OBJECTIONS] in PAGE

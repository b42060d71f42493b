"""What docs/coder.md shows is right: its settings are taken, its skill is one."""

import re
from pathlib import Path

from coupler.coder.hooks import MOST_OBJECTIONS
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
    (skill,) = examples("markdown")

    assert read_document(skill).fields["name"] == "release"


def test_the_number_of_objections_is_right():
    assert {3: "three times"}[MOST_OBJECTIONS] in PAGE

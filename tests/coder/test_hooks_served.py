"""Hooks of a profile in the served coder: from coupler.toml to the tool that does not run."""

from __future__ import annotations

import json
from pathlib import Path

from coder.script import use
from coder.served_coder import KEY, Coder, tree

CONFIG = """
[agents.careful]
agent = "coder"
system = "You are careful."

[agents.careful.hooks]
before_tool = "cat > {noted}; env > {environ}; echo 'writing is for others' >&2; exit 2"
"""


def test_a_hook_of_a_profile_keeps_a_tool_from_running_before_anybody_is_asked(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    noted, environ = tmp_path / "noted", tmp_path / "environ"
    served = coder.served("--agent", "careful", config=CONFIG.format(noted=noted, environ=environ))
    coder.model.plays(use("write_file", path="a.py", content="one\n"), "It was not allowed.")
    editor = served.opened(project)

    turn = editor.prompt("Write a.py")

    assert editor.asked == []
    assert turn.use["status"] == "failed"
    assert "writing is for others" in coder.model.last.result
    assert "You are careful." in coder.model.last.system
    assert tree(project) == {}
    told = json.loads(noted.read_text())
    assert (told["event"], told["tool"], told["input"]["path"]) == ("before_tool", "write_file", "a.py")
    assert KEY not in environ.read_text()
    served.leave()

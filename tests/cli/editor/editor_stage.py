"""A user with a home of their own and an agent, for the tests of `coupler editor`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
from raw_client import COUPLER, PATIENCE

SCRIPT = str(Path(sys.executable).with_name("coupler"))
AGENT = """
from coupler import Turn

async def agent(turn: Turn) -> None:
    await turn.say("hello")
"""
ZED = """\
// what I like
{
  "theme": "One Dark", // at night
  /* agents */
  "agent_servers": {
    "Other": { "type": "custom", "command": "x", "args": [], }, // mine
  },
  "vim_mode": true,
}
"""
ZED_AFTER = f"""\
// what I like
{{
  "theme": "One Dark", // at night
  /* agents */
  "agent_servers": {{
    "Other": {{ "type": "custom", "command": "x", "args": [], }}, // mine
    "App": {{
      "type": "custom",
      "command": "{SCRIPT}",
      "args": ["serve", "APP"]
    }},
  }},
  "vim_mode": true,
}}
"""


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [*COUPLER, "editor", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        timeout=PATIENCE,
    )


def written(*arguments: object) -> str:
    ended = run(*arguments, "--write")
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def entry(*arguments: object) -> tuple[str, dict[str, Any]]:
    """The one agent of what is printed, and the name that the editor gives it."""
    ended = run(*arguments)
    assert ended.returncode == 0, ended.stderr
    (agents,) = json.loads(ended.stdout).values()
    ((name, found),) = agents.items()
    return name, found

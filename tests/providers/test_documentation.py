"""The page about native agents: its programs run, and its tables say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coupler.providers import ENTRIES, provider
from coupler.providers.command_line import CommandLineAgent
from providers.stub import Stub
from raw_client import RawClient

PAGE = (Path(__file__).parents[2] / "docs" / "native-agents.md").read_text()
PROGRAMS = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", PROGRAMS)
def test_a_program_of_the_page_runs(code: str, stub: Callable[[str], Stub], project: Path) -> None:
    for name in ("claude", "codex", "gemini"):
        stub(name).streams(f"{name}-old")

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_provider_is_served_by_its_name(stub: Callable[[str], Stub], project: Path) -> None:
    (target,) = re.findall(r"\$ coupler serve (\S+)", PAGE)
    stub("claude").streams("claude-old")

    with RawClient(sys.executable, "-m", "coupler", "serve", target, cwd=project) as client:
        hello = client.initialize()["result"]
        _, answer = client.prompt(client.new_session(str(project)), "hello")

    assert hello["agentInfo"]["title"] == "Claude Code"
    assert answer["result"]["stopReason"] == "end_turn"


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    for entry in ENTRIES.values():
        kind = provider(entry.name)
        (row,) = re.findall(rf"^\| `{entry.name}` \| `{kind.__name__}` \| (.+) \|$", PAGE, re.M)
        program, install, acp = row.split(" | ")
        assert program.strip("`") == (entry.program or "none")
        assert acp.strip("`") == (entry.acp or "none")
        if issubclass(kind, CommandLineAgent):
            assert install in entry.install
            options = ", ".join(f"`{name}`" for name in kind.flags)
            assert f"| `{entry.name}` | {options} |" in PAGE

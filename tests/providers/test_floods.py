"""A served program that never ends: memory and store stay bounded, it is stopped, and a cancel ends it."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from client.stage import gone_within
from coupler.agent.turn import CANCEL_GRACE
from providers.stub import path_with
from raw_client import COUPLER
from slow_editor import Flooded, SlowEditor, flooded

FLOODING = Path(__file__).parent / "flooding.py"

MOST_MEMORY = 350_000_000
MOST_STORED = 300_000_000
"""Bytes that the agent may take and store, whatever its program says."""

LEEWAY = 3.0
"""Seconds beyond the grace, for a loaded machine."""

ENDED = {
    "claude:text": "characters = 16,777,216",
    "claude:thoughts": "characters = 16,777,216",
    "claude:calls": "items = 20,000",
    "claude:notices": "held_bytes = 33,554,432",
    "codex:items": "characters = 16,777,216",
}
"""Floods that are over a limit within seconds, and the limit."""

ENDLESS = (
    *("claude:letters", "claude:messages", "claude:open calls", "claude:long ids", "claude:whole calls"),
    *("claude:sub-agent", "claude:sub-agents", "claude:plans", "claude:one call again", "claude:unknown"),
    *("claude:a line", "claude:garbage", "claude:stderr", "codex:growing output", "codex:nameless items"),
)


def flood(name: str, place: Path, *, seconds: float) -> tuple[Flooded, int]:
    """Serve the program and prompt it; what came of it, and the bytes that were stored."""
    vendor = name.partition(":")[0]
    program = place / "bin" / vendor
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -ISB\n{FLOODING.read_text()}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    agent = place / "agent.py"
    agent.write_text(f"from coupler.providers import provider\nagent = provider({vendor!r})\n")
    env = {"PATH": path_with(program.parent), "FLOOD": name, "FLOOD_PID": str(place / "pid")}
    editor = SlowEditor(*COUPLER, "serve", str(agent), "--store", str(place / "store.db"), env=env)
    try:
        came = flooded(editor, editor.open_session(place), seconds)
        assert gone_within(5, int((place / "pid").read_text())), "the program goes on"
        return came, sum(file.stat().st_size for file in place.glob("store.db*"))
    finally:
        editor.leave()


@pytest.mark.parametrize("name", ["claude:text", "claude:calls"])
def test_a_program_is_stopped_when_its_turn_is_over_a_limit(name: str, tmp_path: Path) -> None:
    came, stored = flood(name, tmp_path, seconds=60)

    assert came.memory < MOST_MEMORY
    assert stored < MOST_STORED
    assert f"was stopped: this turn is over {ENDED[name]}." in came.answer["message"]


@pytest.mark.long
@pytest.mark.parametrize("name", (*ENDED, *ENDLESS))
def test_no_stream_of_a_program_fills_memory_or_store(name: str, tmp_path: Path) -> None:
    came, stored = flood(name, tmp_path, seconds=60 if name in ENDED else 3)

    assert came.memory < MOST_MEMORY
    assert stored < MOST_STORED
    assert came.cancel < CANCEL_GRACE + LEEWAY
    if name in ENDED:
        assert ENDED[name] in came.answer["message"]

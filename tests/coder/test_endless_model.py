"""A model's server whose answer has no end: memory is bounded, others are served, and the turn ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from client.stage import memory_until
from coupler.agent.turn import CANCEL_GRACE
from coupler.coder.model.response_limits import MOST_LINES, _OpenEvent
from coupler.langchain.errors import AnswerTooLongError
from labs.flooding_server import FLOODS, flooding_server
from raw_client import COUPLER
from slow_editor import SlowEditor

MOST_MEMORY = 700_000_000
"""Bytes that the coder may take, of which its packages are a fifth."""

MOST_SECONDS = 5.0
"""Seconds that another request may wait for its answer on a machine that is busy with other tests."""

BROKEN_OFF = {"text", "thoughts", "an argument", "a line", "an event", "a body", "an error"}
"""Floods that are over a limit within seconds."""


class Flooded(NamedTuple):
    """What came of a flood."""

    memory: int
    answer: Any
    slowest: float
    """Seconds for the slowest answer beside it."""
    cancel: float
    """Seconds from the cancel to the answer."""


def flood(kind: str, place: Path, *, seconds: float) -> Flooded:
    """Prompt the coder with such a model, list the sessions meanwhile, and cancel after a while."""
    with flooding_server() as address:
        env = {
            "COUPLER_MODEL": "openai:m",
            "COUPLER_BASE_URL": f"{address}/{kind.replace(' ', '-')}/v1",
            "COUPLER_API_KEY": "sk-0123456789abcdef",
            "COUPLER_HOME": str(place / "home"),
            "HOME": str(place),
        }
        editor = SlowEditor(*COUPLER, "serve", env=env)
        try:
            session = editor.open_session(place)
            editor.prompt(session)
            most, slowest, deadline = 0, 0.0, time.monotonic() + seconds
            for id in range(100, 10_000):
                if editor.has_answer(3) or time.monotonic() > deadline:
                    break
                most = max(most, memory_until(lambda: editor.has_answer(3), editor.process.pid, seconds=0.1))
                asked = time.monotonic()
                editor.send(id=id, method="session/list", params={})
                editor.answer(id)
                slowest = max(slowest, time.monotonic() - asked)
            cancelled = time.monotonic()
            editor.cancel(session)
            return Flooded(most, editor.answer(3), slowest, time.monotonic() - cancelled)
        finally:
            editor.leave()


@pytest.mark.parametrize("kind", ["text", "an event"])
def test_an_endless_answer_is_broken_off(kind: str, tmp_path: Path) -> None:
    flooded = flood(kind, tmp_path, seconds=60)

    assert flooded.answer["data"]["kind"] == "too_long"
    assert flooded.memory < MOST_MEMORY
    assert flooded.slowest < MOST_SECONDS


@pytest.mark.long
@pytest.mark.parametrize("kind", FLOODS)
def test_no_answer_of_a_server_fills_memory_or_holds_up_others(kind: str, tmp_path: Path) -> None:
    flooded = flood(kind, tmp_path, seconds=100 if kind in BROKEN_OFF else 12)

    assert flooded.memory < MOST_MEMORY
    assert flooded.slowest < MOST_SECONDS
    assert flooded.cancel < CANCEL_GRACE
    if kind in BROKEN_OFF:
        assert flooded.answer["data"]["kind"] == "too_long"


def test_lines_are_counted_for_each_event_wherever_the_stream_is_cut() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        stream = (b"data: x" + end + b"data: y" + end + end) * MOST_LINES
        for size in (1, 7, 1000, len(stream)):
            event = _OpenEvent()
            for at in range(0, len(stream), size):
                event.take(stream[at : at + size])
            with pytest.raises(AnswerTooLongError):
                event.take((b"x" + end) * (MOST_LINES + 1))

"""A model's server whose answer has no end: memory is bounded, others are served, and the turn ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from coupler.agent.turn import CANCEL_GRACE
from coupler.coder.model.chat_model import MOST_LINES, _OpenEvent
from coupler.langchain.errors import AnswerTooLongError
from labs.flooding_server import FLOODS, flooding_server
from raw_client import COUPLER
from slow_editor import Flooded, SlowEditor, flooded

MOST_MEMORY = 700_000_000
"""Bytes that the coder may take, of which its packages are a fifth."""

MOST_SECONDS = 5.0
"""Seconds that another request may wait for its answer on a machine that is busy with other tests."""

LEEWAY = 3.0
"""Seconds beyond the grace, for a loaded machine."""

BROKEN_OFF = {
    *(
        "text",
        "thoughts",
        "an argument",
        "a line",
        "an event",
        "comments",
        "a body",
        "an error",
        "a packed stream",
        "a packed body",
        "a packed tail",
    ),
}
"""Floods that are over a limit within seconds."""


def flood(kind: str, place: Path, *, seconds: float, provider: str = "openai") -> Flooded:
    """Prompt the coder with such a model."""
    with flooding_server() as address:
        env = {
            "COUPLER_MODEL": f"{provider}:m",
            "COUPLER_BASE_URL": f"{address}/{kind.replace(' ', '-')}/v1",
            "COUPLER_API_KEY": "sk-0123456789abcdef",
            "COUPLER_HOME": str(place / "home"),
            "HOME": str(place),
        }
        editor = SlowEditor(*COUPLER, "serve", env=env)
        try:
            return flooded(editor, editor.open_session(place), seconds)
        finally:
            editor.leave()


@pytest.mark.parametrize("kind", ["text", "an event", "comments", "a packed tail"])
def test_an_endless_answer_is_broken_off(kind: str, tmp_path: Path) -> None:
    came = flood(kind, tmp_path, seconds=60)

    assert came.answer["data"]["kind"] == "too_long"
    assert came.memory < MOST_MEMORY
    assert came.slowest < MOST_SECONDS


@pytest.mark.parametrize("provider", ["anthropic", "google_genai"])
def test_an_endless_line_of_other_providers_is_broken_off(provider: str, tmp_path: Path) -> None:
    came = flood("a line", tmp_path, seconds=60, provider=provider)

    assert came.answer["data"]["kind"] == "too_long"
    assert came.memory < MOST_MEMORY


@pytest.mark.long
@pytest.mark.parametrize("kind", FLOODS)
def test_no_answer_of_a_server_fills_memory_or_holds_up_others(kind: str, tmp_path: Path) -> None:
    came = flood(kind, tmp_path, seconds=100 if kind in BROKEN_OFF else 12)

    assert came.memory < MOST_MEMORY
    assert came.slowest < MOST_SECONDS
    assert came.cancel < CANCEL_GRACE + LEEWAY
    if kind in BROKEN_OFF:
        assert came.answer["data"]["kind"] == "too_long"


def test_lines_are_counted_for_each_event_wherever_the_stream_is_cut() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        stream = (b"data: x" + end + b"data: y" + end + end) * MOST_LINES
        for size in (1, 7, 1000, len(stream)):
            event = _OpenEvent()
            for at in range(0, len(stream), size):
                event.take(stream[at : at + size])
            with pytest.raises(AnswerTooLongError):
                event.take((b"x" + end) * (MOST_LINES + 1))

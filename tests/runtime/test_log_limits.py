"""What a peer can cause in a log: few lines of a kind, and none that is very long."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from coupler.runtime import logs
from coupler.wire import peer

SOURCE = Path(logs.__file__).parents[1]


def test_every_logger_of_coupler_is_limited() -> None:
    named = {
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r'getLogger\("(coupler[^"]*)"\)', file.read_text(encoding="utf-8"))
    }
    assert named == set(logs.LOGGERS)
    assert peer.log.filters  # as soon as there can be a peer


def test_lines_of_a_kind_are_written_a_few_times_and_then_ever_fewer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("coupler.wire")
    for number in range(100_000):
        log.warning("the line %d is bad", number)
    log.warning("something else")
    assert caplog.messages[:2] == ["the line 0 is bad", "the line 1 is bad"]
    assert len(caplog.messages) == 50 + 11 + 1  # 64, 128, … 65,536
    assert caplog.messages[-2] == "the line 65535 is bad (65536 like this by now, most are not logged)"
    assert caplog.messages[-1] == "something else"


def test_after_a_while_they_are_written_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("coupler.wire")
    for _ in range(1000):
        log.warning("bad")
    caplog.clear()
    monkeypatch.setattr(logs, "PERIOD", 0.0)
    log.warning("bad")
    assert caplog.messages == ["bad"]


def test_texts_that_are_no_templates_do_not_fill_the_memory() -> None:
    limit = logs.limit_logs()
    log = logging.getLogger("coupler.wire")
    for number in range(5000):
        log.warning(f"bad {number}")
    assert len(limit._counts) <= logs.MAX_KINDS + 1


def test_a_long_line_and_a_long_traceback_are_cut_in_the_middle(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("coupler.wire")
    try:
        raise ValueError("x" * 1_000_000 + "the end")
    except ValueError:
        log.exception("%s failed", "y" * 1_000_000)
    assert len(caplog.messages[0]) < 5000
    assert caplog.messages[0].endswith("failed")
    told = logging.Formatter().format(caplog.records[0])
    assert len(told) < 50_000
    assert told.endswith("the end")


def test_other_programs_loggers_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("somebody.else")
    for _ in range(1000):
        log.warning("bad")
    assert len(caplog.messages) == 1000

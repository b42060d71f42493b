"""Masking what handlers of logs write."""

import io
import logging
from collections.abc import Iterator

import pytest

from coupler.redaction.log_filter import mask_handler
from coupler.redaction.masker import Masker
from coupler.redaction.sources import Secret

TOKEN = "ghp_0123456789abcdef"
MASKER = Masker([Secret("T", TOKEN)])


class Log:
    """A logger of its own that writes into memory."""

    def __init__(self, stream: io.TextIOBase | None = None) -> None:
        self.written = stream or io.StringIO()
        self.handler = logging.StreamHandler(self.written)
        self.handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self.logger = logging.Logger("test")
        self.logger.addHandler(self.handler)

    @property
    def text(self) -> str:
        assert isinstance(self.written, io.StringIO)
        return self.written.getvalue()


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    mask_handler(log.handler, MASKER)
    yield log
    log.handler.close()


def test_messages_and_arguments_are_masked_in_the_handlers_own_format(log: Log) -> None:
    log.logger.warning("using %s", TOKEN)
    assert log.text == "WARNING using [secret:T]\n"


def test_tracebacks_are_masked(log: Log) -> None:
    try:
        raise ValueError(TOKEN)
    except ValueError:
        log.logger.exception("failed")
    assert "ValueError: [secret:T]" in log.text
    assert TOKEN not in log.text


def test_the_record_stays_as_it_is_for_other_handlers(log: Log) -> None:
    other = io.StringIO()
    log.logger.addHandler(logging.StreamHandler(other))
    log.logger.warning("using %s", TOKEN)
    assert other.getvalue() == f"using {TOKEN}\n"


def test_a_handler_without_a_formatter_is_masked_too() -> None:
    log = Log()
    log.handler.setFormatter(None)
    mask_handler(log.handler, MASKER)
    log.logger.warning("using %s", TOKEN)
    assert log.text == "using [secret:T]\n"


def test_a_later_masker_replaces_the_earlier_one(log: Log) -> None:
    formatter = log.handler.formatter
    mask_handler(log.handler, MASKER.with_secrets([Secret("OTHER", "other-secret")]))
    log.logger.warning("other-secret")
    assert log.text == "WARNING [secret:OTHER]\n"
    assert log.handler.formatter is formatter


def test_a_message_that_cannot_be_formatted_shows_where_it_is_and_no_arguments(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.logger.warning("%d", TOKEN)
    assert "cannot be formatted (logger test, test_logs line" in log.text
    assert TOKEN not in log.text + capsys.readouterr().err


def test_a_message_that_cannot_be_written_shows_no_arguments_either(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = Log(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    mask_handler(log.handler, MASKER)
    log.logger.warning("ü %s", TOKEN)
    said = capsys.readouterr().err
    assert "a log message cannot be written (logger test, test_logs line" in said
    assert "UnicodeEncodeError" in said
    assert TOKEN not in said


def test_a_lost_message_is_not_mentioned_where_logging_is_told_to_be_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log = Log(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    mask_handler(log.handler, MASKER)
    log.logger.warning("ü")
    assert capsys.readouterr().err == ""

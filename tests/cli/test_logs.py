"""Logs: to stderr from the first line on, or to a file, at the level that was asked for."""

import logging
import os
import stat
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from coupler.runtime.logs import LogSettingError, send_logs_to_stderr
from raw_client import RawClient, serve

TALKATIVE = """
import logging, warnings
library = logging.getLogger("some.library")
library.info("at import")
async def agent(turn):
    for level in ("debug", "info", "warning", "error", "critical"):
        getattr(library, level)(f"a line of {level}")
    warnings.warn("a careless use")
"""
LEVELS = ["debug", "info", "warning", "error", "critical"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "app.py"
    path.write_text(TALKATIVE)
    return path


def talk(client):
    client.initialize()
    client.prompt(client.new_session())
    client.close_stdin()
    assert client.wait() == 0
    return client.stderr.decode()


def levels_in(log):
    return [level for level in LEVELS if f"a line of {level}" in log]


def test_warnings_and_worse_are_logged_unless_asked_otherwise(path):
    with serve(path) as client:
        log = talk(client)
    assert levels_in(log) == ["warning", "error", "critical"]
    assert "UserWarning: a careless use" in log
    assert "at import" not in log


@pytest.mark.parametrize("level", [*LEVELS, "DEBUG", "Info"])
def test_the_level_is_an_option(path, level):
    with serve(path, "--log-level", level) as client:
        log = talk(client)
    assert levels_in(log) == LEVELS[LEVELS.index(level.lower()) :]
    assert ("at import" in log) == (level.lower() in ("debug", "info"))


def test_the_level_is_a_variable_and_the_option_wins(path):
    with serve(path, env={"COUPLER_LOG": "info"}) as client:
        assert levels_in(talk(client)) == LEVELS[1:]
    with serve(path, "--log-level=error", env={"COUPLER_LOG": "info"}) as client:
        assert levels_in(talk(client)) == LEVELS[3:]


def test_the_variable_counts_in_a_script_too(path):
    path.write_text(TALKATIVE + "\nfrom coupler import serve\nserve(agent)")
    with RawClient(sys.executable, str(path), env={"COUPLER_LOG": "info"}) as client:
        assert levels_in(talk(client)) == LEVELS[1:]


def test_a_bad_variable_is_wrong_usage(path):
    with serve(path, env={"COUPLER_LOG": "loud"}) as client:
        assert client.wait() == 2
        assert b"the log level 'loud' is unknown" in client.stderr


def test_a_log_file_takes_everything_that_would_be_on_stderr(path, tmp_path):
    file = tmp_path / "log"
    for _ in range(2):
        with serve(path, "--log-file", str(file), "--log-level", "info") as client:
            assert talk(client) == ""
    log = file.read_text()
    assert levels_in(log) == LEVELS[1:]
    assert log.count("a line of error") == 2, "a second start adds to the log"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
class TestPrivacy:
    @pytest.mark.parametrize("before", [None, 0o644, 0o666, 0o600])
    def test_only_the_owner_can_read_a_log_file(self, path, tmp_path, before):
        file = tmp_path / "log"
        if before is not None:
            file.write_text("earlier\n")
            file.chmod(before)
        mask = os.umask(0)
        try:
            with serve(path, "--log-file", str(file)) as client:
                talk(client)
        finally:
            os.umask(mask)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "a line of error" in file.read_text()
        assert file.read_text().startswith("earlier") == (before is not None)

    def test_what_is_no_file_stays_as_it_is(self, path):
        mode = Path("/dev/null").stat().st_mode
        with serve(path, "--log-file", "/dev/null") as client:
            assert talk(client) == ""
        assert Path("/dev/null").stat().st_mode == mode


def test_a_line_says_when_how_bad_and_from_where(path):
    with serve(path) as client:
        log = talk(client)
    line = next(line for line in log.splitlines() if "a line of error" in line)
    day, _, level, name, *_ = line.split()
    assert (day.count("-"), level, name) == (2, "ERROR", "some.library:")


@contextmanager
def own_root():
    """The root logger as a fresh program finds it; pytest adds handlers of its own when a test begins."""
    root, shown = logging.getLogger(), warnings.showwarning
    kept, level = [*root.handlers], root.level
    root.handlers.clear()
    try:
        yield root
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = kept
        root.setLevel(level)
        logging.captureWarnings(False)
        warnings.showwarning = shown


class TestSettings:
    def test_a_program_that_set_up_its_own_logs_keeps_them(self):
        with own_root() as root:
            mine = logging.NullHandler()
            root.addHandler(mine)

            send_logs_to_stderr()

            assert root.handlers == [mine]

    def test_what_the_command_line_says_wins_over_that(self, tmp_path):
        with own_root() as root:
            root.addHandler(logging.NullHandler())

            send_logs_to_stderr("info", str(tmp_path / "log"))

            assert len(root.handlers) == 2
            assert root.level == logging.INFO

    def test_a_bad_level_changes_nothing(self):
        with own_root() as root:
            with pytest.raises(LogSettingError, match="use one of debug, info, warning, error, critical"):
                send_logs_to_stderr("verbose")

            assert root.handlers == []


def test_a_process_without_stderr_can_still_serve(path):
    line = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
    program = f"exec {sys.executable} -m coupler serve {path} 2>&-"
    ended = subprocess.run(["sh", "-c", program], input=line, stdout=subprocess.PIPE, timeout=20)
    assert ended.returncode == 0
    assert ended.stdout.count(b"\n") == 1

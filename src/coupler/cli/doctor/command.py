"""`coupler doctor`: one page about this installation."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import click

from coupler.cli.exit_codes import DONE, FAILED, INTERRUPTED, TERMINATED
from coupler.cli.options import seconds
from coupler.cli.refusal import complain

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances

PROGRAM = "coupler doctor"
TIMEOUT = 20.0
GRACE = 0.5
"""Seconds that servers have to end when nobody waits for their answers any more."""

ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class _TerminatedError(Exception):
    """Somebody wants this program to end."""


@click.command(
    short_help="Examine this installation.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.option("--json", "as_json", is_flag=True, help="Write what was found as JSON.")
@click.option("--offline", "is_offline", is_flag=True, help="Ask no model, and start or reach no MCP server.")
@click.option(
    "--timeout",
    type=float,
    callback=seconds,
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long all of it may take.",
)
def doctor(as_json: bool, is_offline: bool, timeout: float) -> None:
    """Examine this installation, and say what to do about what is wrong.

    It looks at versions and packages, the settings that hold in this directory
    and where each comes from, trust, workflows, agents, the MCP servers that
    are set, the coder's model and its key, the store, and the directories that
    Coupler writes to. MCP servers are started and asked for their tools, and
    the model is asked for one word. Nothing is changed, and no secret is shown.

    A `problem` is something that does not work, a `note` is worth knowing.

    \b
    Examples:
      coupler doctor
      coupler doctor --offline --json

    Exit codes: 0 if there is no problem, 1 if there is one, 2 for wrong usage,
    130 when interrupted.
    """
    from coupler.cli.doctor.circumstances import Circumstances

    _keep_logs_away()
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, _terminate)
    try:
        is_healthy = _report(Circumstances(timeout, is_offline=is_offline), timeout, as_json=as_json)
    except KeyboardInterrupt:
        complain("interrupted", PROGRAM)
        _leave(INTERRUPTED)
    except _TerminatedError:
        _leave(TERMINATED)
    except OSError as error:
        complain(f"the output cannot be written: {(error.strerror or str(error)).lower()}", PROGRAM)
        _leave(FAILED)
    _leave(DONE if is_healthy else FAILED)


def _terminate(number: int, frame: object) -> NoReturn:
    raise _TerminatedError


def _report(circumstances: Circumstances, timeout: float, *, as_json: bool) -> bool:
    from coupler.cli.doctor.examination import examine
    from coupler.cli.doctor.page import Page, write_json

    if sys.stdout is None:
        raise OSError("there is no standard output")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    if as_json:
        sections = [*examine(circumstances, timeout)]
        write_json(sections, circumstances, sys.stdout)
    else:
        page, sections = Page(circumstances, sys.stdout), []
        for section in examine(circumstances, timeout):
            sections.append(section)
            page.write(section)
        page.end(sections)
    sys.stdout.flush()
    return all(section.is_healthy for section in sections)


def _keep_logs_away() -> None:
    """What is logged on the way would stand between the lines; whoever wants to see it says so."""
    import logging

    from coupler.runtime.logs import VARIABLE, LogSettingError, send_logs_to_stderr

    logging.captureWarnings(True)
    try:
        if os.environ.get(VARIABLE):
            send_logs_to_stderr()
            return
    except LogSettingError:
        pass  # told on the page
    logging.getLogger().addHandler(logging.NullHandler())


def _leave(code: int) -> NoReturn:
    """End now: a thread that hangs must not keep the process, and what was started must not outlive it."""
    for number in (signal.SIGINT, *ENDING_SIGNALS):
        signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _end_what_was_started()
    os._exit(code)


def _end_what_was_started() -> None:
    """Servers that were left in good order have ended by now."""
    from coupler.runtime.process import Descendants

    started = Descendants()
    if not started.alive():
        return
    started.terminate()
    end = time.monotonic() + GRACE
    while started.alive() and time.monotonic() < end:
        time.sleep(0.02)
    started.kill()

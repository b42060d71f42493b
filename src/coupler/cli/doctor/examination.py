"""The examination: every subject in a thread of its own, and never longer than was asked for.

What an examiner looks at may be broken in any way, or hang: a file on a network that is gone, a program that
never answers. Then what it has found so far is told, and that it was not done. Threads that are left behind
end with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from coupler.cli.doctor.circumstances import FAREWELL, Circumstances
from coupler.cli.doctor.section import Section


class Subject(NamedTuple):
    """Something to be looked at, by the function `examine` of the module with its name."""

    name: str
    title: str


SUBJECTS = (
    Subject("installation", "Installation"),
    Subject("surroundings", "This machine"),
    Subject("directories", "Directories"),
    Subject("store", "Store"),
    Subject("settings", "Settings"),
    Subject("project", "This project"),
    Subject("workflows", "Workflows"),
    Subject("agents", "Agents"),
    Subject("servers", "MCP servers"),
    Subject("model", "The coder's model"),
)
"""In the order of the page; what may take long comes last."""


def examine(circumstances: Circumstances, seconds: float) -> Iterator[Section]:
    """All sections in order, each as soon as it is there."""
    sections = [Section(name=subject.name, title=subject.title) for subject in SUBJECTS]
    threads = [
        threading.Thread(target=_examine, args=(section, circumstances), daemon=True) for section in sections
    ]
    for thread in threads:
        thread.start()
    yield from _awaited(sections, circumstances, seconds)
    # Servers are left in good order; who takes longer is ended by a guard when the process is gone.
    end = time.monotonic() + FAREWELL
    for section, thread in zip(sections, threads, strict=True):
        if section.seconds is not None:
            thread.join(max(0.0, end - time.monotonic()))


def _awaited(sections: list[Section], circumstances: Circumstances, seconds: float) -> Iterator[Section]:
    for section in sections:
        if not section.wait(circumstances.deadline - time.monotonic()):
            section.problem(
                "time",
                f"this was not looked at to its end within {seconds:g} seconds",
                "give it longer with --timeout; or something that it looks at does not answer at all",
            )
        yield section


def _examine(section: Section, circumstances: Circumstances) -> None:
    try:
        import_module(f"coupler.cli.doctor.{section.name}").examine(section, circumstances)
    except Exception as error:
        # Whatever is broken here must not keep the rest of the page from being written.
        section.problem(
            "doctor",
            f"this could not be looked at: {type(error).__name__}: {error}",
            "tell the makers of Coupler, with what COUPLER_LOG=debug shows",
        )
        _log(error)
    finally:
        section.close()


def _log(error: Exception) -> None:
    import logging

    logging.getLogger("coupler.doctor").debug("an examination failed", exc_info=error)

"""What `coupler check` was asked to do, for agents and clients alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from coupler.conformance.assertion import Assertion

PROGRAM = "coupler check"

DEFAULT_TIMEOUT = 10.0
"""Seconds that any answer may take."""


@dataclass(frozen=True)
class CheckOptions:
    """The options as they were given; `json`, `junit` and `html` are files, "-" for stdout."""

    only: tuple[str, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    env: Mapping[str, str] | None = None
    auth: str | None = None
    prompt: str | None = None
    slow_prompt: str | None = None
    traces: tuple[Path, ...] = ()
    save_traces: Path | None = None
    json: str | None = None
    junit: str | None = None
    html: str | None = None
    list: bool = False
    verbose: bool = False

    def refuse_unused(self, situation: str, *names: str) -> None:
        """End the program with a sentence if an option was given that has no effect in this situation."""
        for name in names:
            if getattr(self, name) not in (getattr(CheckOptions, name), {}):
                refuse(f"--{name.replace('_', '-')} has no use {situation}", PROGRAM)

    def chosen(self, side: Literal["agent", "client"]) -> Sequence[Assertion]:
        """The assertions to judge; an id that there is not ends the program with a sentence."""
        from coupler.conformance.assertion import UnknownAssertionError, chosen

        try:
            return chosen(side, self.only)
        except UnknownAssertionError as error:
            refuse(f"{error}; --list shows them all", PROGRAM)

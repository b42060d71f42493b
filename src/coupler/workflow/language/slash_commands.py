"""Names of workflows as slash commands of an editor: which ones cannot be typed there, and why."""

from __future__ import annotations

ABORT, DONE, RESUME, RUNS = RESERVED = ("abort", "done", "resume", "runs")
"""The commands for runs, which no workflow can have."""

SUFFIXES = (".yaml", ".yml")
"""What the files of workflows end with; a name that ends so is taken for the path of one."""


def no_command(name: str) -> str | None:
    """Why a workflow of this name is no command, and what to do about it; None if it is one."""
    if name in RESERVED:
        return f"editors have no command for it, because `/{name}` is about runs: give it another `name`"
    if name.endswith(SUFFIXES):
        return f"it cannot be called, because `{name}` means the path of a file: give it another `name`"
    return None

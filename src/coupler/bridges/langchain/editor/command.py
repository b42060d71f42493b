"""The tool that runs a command in the editor's terminal, to its end."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from coupler.bridges.langchain.editor.tool_use import running_prompt, tool_use
from coupler.runtime.files import find_inside

LONGEST_OUTPUT = 100_000
"""Characters of an output that a model gets at once."""

COMMAND_LIMIT = 120.0
LONGEST_COMMAND = 3600.0
"""Seconds that a command has, if nothing is said, and at most."""


async def run_command(
    command: Annotated[str, "A command line for the shell."],
    directory: Annotated[str, "Where to run it, absolute or relative to the working directory."] = ".",
    timeout: Annotated[float, "Seconds after which it is ended."] = COMMAND_LIMIT,  # noqa: ASYNC109 - a tool's
) -> str:
    """Run a command in the shell, to its end. The answer is the last of its output and its exit code.

    There is nobody to answer questions: give the options that make it ask none.
    """
    prompt = running_prompt()
    if not 0 < timeout <= LONGEST_COMMAND:
        raise ValueError(f"timeout is a number of seconds up to {LONGEST_COMMAND:g}")
    place = find_inside(directory, prompt.session.cwd, prompt.session.roots).shown
    async with tool_use("Run", "execute", command=command, cwd=place) as call:
        await call.ask()
        finished = await prompt.turn.terminal.run(
            *_shell(command), cwd=place, timeout=timeout, output_limit=LONGEST_OUTPUT
        )
        call.has_shown()
        beginning = "… (the beginning was left out)\n" if finished.truncated else ""
        return f"{beginning}{finished.output.rstrip()}\n({_ending(finished, timeout)})".lstrip()


def _shell(command: str) -> tuple[str, ...]:
    return ("cmd", "/c", command) if sys.platform == "win32" else ("sh", "-c", command)


def _ending(finished: Any, limit: float) -> str:
    if finished.timed_out:
        return f"it was ended after {limit:g} s"
    return f"signal {finished.signal}" if finished.signal else f"exit code {finished.exit_code}"

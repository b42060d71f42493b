"""The tools of `acp.editor_tools()`: files as the editor has them, commands in its terminals.

Where the client offers neither, the disk and process groups take their places. Each use is judged with its
exact path or command by the permission engine, shows what it does in the model's own tool call, and answers
with an error that the model can act on.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from langchain_core.tools import BaseTool

from coupler.langchain.editor_tools.reading import read_file, reading_title
from coupler.langchain.editor_tools.searching import (
    find_files,
    finding_title,
    list_directory,
    listing_title,
    search,
    searching_title,
)
from coupler.langchain.editor_tools.tool_use import running_prompt, session_tool, tool_use
from coupler.langchain.editor_tools.writing import edit_file, write_file
from coupler.langchain.presentation import title_with_path, title_with_text
from coupler.runtime.files import find_inside

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.terminal import Finished

LONGEST_OUTPUT = 100_000
"""Most characters of an output that a model gets at once."""

COMMAND_LIMIT = 120.0
LONGEST_COMMAND = 3600.0
"""Seconds that a command may take by default, and at most."""


def editor_tools(session: Session | None = None) -> list[BaseTool]:
    """Tools to read, write, edit, list, find and search files and to run commands.

    They work in the session whose prompt is being answered; given one, they work in no other.
    """
    return [
        *file_tools(session),
        session_tool(run_command, "execute", session, title=title_with_text("Run", "command")),
    ]


def file_tools(session: Session | None = None) -> list[BaseTool]:
    """Return the tools that work on files."""
    return [
        session_tool(read_file, "read", session, title=reading_title),
        session_tool(write_file, "edit", session, title=title_with_path("Write")),
        session_tool(edit_file, "edit", session, title=title_with_path("Edit")),
        session_tool(list_directory, "read", session, title=listing_title),
        session_tool(find_files, "search", session, title=finding_title),
        session_tool(search, "search", session, title=searching_title),
    ]


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
        if finished.failure is not None:
            call.block.fail(_ending(finished, timeout))
        beginning = "… (the beginning was left out)\n" if finished.truncated else ""
        return f"{beginning}{finished.output.rstrip()}\n({_ending(finished, timeout)})".lstrip()


def _shell(command: str) -> tuple[str, ...]:
    return ("cmd", "/c", command) if sys.platform == "win32" else ("sh", "-c", command)


def _ending(finished: Finished, limit: float) -> str:
    if finished.timed_out:
        return f"it was ended after {limit:g} s"
    return finished.failure or "exit code 0"

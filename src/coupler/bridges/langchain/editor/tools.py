"""Tools that work where the user works: files as the editor has them, commands in its terminals.

Where the client offers neither, the disk and process groups take their places. Each use is judged with its
exact path or command by the permission engine, shows what it does in the model's own tool call, and answers
with an error that the model can act on.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.tools import BaseTool

from coupler.bridges.langchain.current import Current
from coupler.bridges.langchain.editor.file_finder import Found, find
from coupler.bridges.langchain.editor.tool_use import (
    ToolUse,
    permitted_use,
    running_prompt,
    session_tool,
    tool_use,
)
from coupler.files.boundary import find_inside
from coupler.files.errors import FileChangedError

if TYPE_CHECKING:
    from coupler.agent.session import Session

MOST_LINES = 2000
"""Lines of a file that are read at once, unless fewer are asked for."""

LONGEST_TEXT = 100_000
"""Characters of a file or an output that a model gets at once."""

MOST_FOUND = 500
"""Files that are listed, or lines that are found."""

COMMAND_LIMIT = 120.0
LONGEST_COMMAND = 3600.0
"""Seconds that a command has, if nothing is said, and at most."""


def editor_tools(session: Session | None = None) -> list[BaseTool]:
    """Tools to read, write, edit, list and search files and to run commands.

    They work in the session whose prompt is being answered; given one, they work in no other.
    """

    return [
        session_tool(read_file, "read", session),
        session_tool(write_file, "edit", session),
        session_tool(edit_file, "edit", session),
        session_tool(list_files, "read", session),
        session_tool(search, "search", session),
        session_tool(run_command, "execute", session),
    ]


File = Annotated[str, "The file, absolute or relative to the working directory."]
Directory = Annotated[
    str, "Where to look: a directory or file, absolute or relative to the working directory."
]


async def read_file(
    path: File,
    offset: Annotated[int, "The first line to read, counted from 1."] = 1,
    limit: Annotated[int, f"How many lines to read; at most {MOST_LINES}."] = MOST_LINES,
) -> str:
    """Read a text file, with unsaved changes of the editor.

    Long files are read in parts: the end of the answer says at which line to go on.
    """
    if offset < 1 or limit < 1:
        raise ValueError("offset and limit are numbers from 1 on")
    limit = min(limit, MOST_LINES)
    async with permitted_use("Read", "read", path, offset if offset > 1 else None) as call:
        text = await call.prompt.turn.files.read(path)
        lines = text.splitlines(keepends=True)
        part = "".join(lines[offset - 1 : offset - 1 + limit])
        return _beginning(part, offset, len(lines), limit)


async def write_file(path: File, content: Annotated[str, "The whole new text of the file."]) -> str:
    """Create a file, or replace all of its text.

    An existing file has to be read with read_file first. To change a part of it, use edit_file.
    """
    async with tool_use("Write", "edit", path) as call:
        files = call.prompt.turn.files
        await call.block.diff(path, await _before(call, path), content)
        await call.ask()
        await files.write(path, content)
        call.has_shown()
        return f"{path} was written: {len(content.splitlines())} lines."


async def edit_file(
    path: File,
    old_text: Annotated[
        str, "The exact text to replace, with its indentation and enough lines to be unique."
    ],
    new_text: Annotated[str, "What to put in its place."],
    replace_all: Annotated[bool, "Replace every occurrence, not just a unique one."] = False,
) -> str:
    """Replace a piece of text in a file. The old text must occur exactly once, unless replace_all is true."""
    async with tool_use("Edit", "edit", path) as call:
        files = call.prompt.turn.files
        before = await files.read(path)
        after, count = _replaced(before, old_text, new_text, replace_all, path)
        await call.block.diff(path, before, after)
        await call.ask()
        await files.write(path, after)
        call.has_shown()
        return f"{path} was changed in {count} place{'s' if count > 1 else ''}."


async def list_files(
    directory: Directory = ".",
    glob: Annotated[
        str, "Which files: `*` stays in one directory, `**` does not, as in `src/**/*.py`."
    ] = "**",
) -> str:
    """List files by their names, without those of version control, caches and installed packages."""
    async with permitted_use("List", "read", directory) as call:
        found = await _find(call.prompt, directory, glob, None)
        return _listed([entry.path for entry in found.entries], found.is_cut) or "No file fits."


async def search(
    pattern: Annotated[str, "A regular expression of Python, matched against each line."],
    directory: Directory = ".",
    glob: Annotated[str, "Only in files with such names, as in `*.py` or `src/**/*.ts`."] = "**",
) -> str:
    """Search the lines of text files on the disk. Each answer line is `path:line: text`."""
    async with permitted_use("Search", "search", directory) as call:
        found = await _find(call.prompt, directory, glob, pattern)
        lines, left_out = [], set()
        readable: dict[str, bool] = {}
        for entry in found.entries:
            if entry.path not in readable:
                readable[entry.path] = await _may_read(call.prompt, entry.path)
            if readable[entry.path]:
                lines.append(f"{entry.path}:{entry.line}: {entry.text}")
            else:
                left_out.add(entry.path)
        answer = _listed(lines, found.is_cut) or "Nothing fits."
        if left_out:
            answer += (
                f"\n({len(left_out)} files were left out: reading them has to be permitted; use read_file)"
            )
        return answer


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
            *_shell(command), cwd=place, timeout=timeout, output_limit=LONGEST_TEXT
        )
        call.has_shown()
        beginning = "… (the beginning was left out)\n" if finished.truncated else ""
        return f"{beginning}{finished.output.rstrip()}\n({_ending(finished, timeout)})".lstrip()


def _beginning(part: str, offset: int, lines: int, limit: int) -> str:
    if len(part) > LONGEST_TEXT:
        part = part[:LONGEST_TEXT]
        shown = part.count("\n")
    else:
        shown = min(limit, max(lines - offset + 1, 0))
    if offset > max(lines, 1):
        raise ValueError(f"the file has only {lines} lines")
    if offset - 1 + shown >= lines:
        return part
    last = offset - 1 + shown
    return f"{part.rstrip()}\n… (lines {offset} to {last} of {lines}: go on at offset {last + 1})"


def _replaced(text: str, old: str, new: str, everywhere: bool, path: str) -> tuple[str, int]:
    if not old:
        raise ValueError("old_text is empty: to create a file, use write_file")
    if old == new:
        raise ValueError("old_text and new_text are the same: there is nothing to change")
    if old not in text and "\r\n" in text:
        old, new = (re.sub(r"\r?\n", "\r\n", piece) for piece in (old, new))
    count = text.count(old)
    if count == 0:
        raise ValueError(f"old_text is not in {path}: read the file, and copy the text exactly")
    if count > 1 and not everywhere:
        raise ValueError(f"old_text is in {path} {count} times: give more lines, or set replace_all")
    return text.replace(old, new), count


async def _before(call: ToolUse, path: str) -> str | None:
    """What is replaced, to be shown; what the model knows of the file is what it has read itself."""
    files = call.prompt.turn.files
    if not await files.exists(path):
        return None
    if not call.knows(path):
        raise FileChangedError(f"{path} exists: read it with read_file before you replace it")
    return (await files.read_bytes(path)).decode(errors="replace")


async def _find(prompt: Current, directory: str, glob: str, pattern: str | None) -> Found:
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"the pattern is no regular expression: {error}") from None
    session = prompt.session
    place = await asyncio.to_thread(_existing, directory, session)
    here = find_inside(".", session.cwd, session.roots).real
    found = await prompt.turn.own(find(place, glob, pattern, MOST_FOUND))
    return found.relative_to(here)


def _existing(directory: str, session: Session) -> str:
    place = find_inside(directory, session.cwd, session.roots)
    if not Path(place.real).exists():
        raise FileNotFoundError(f"there is no {directory}")
    return place.real


async def _may_read(prompt: Current, path: str) -> bool:
    from coupler.permission.action import Action

    session = prompt.session
    whole = str(Path(session.cwd, path))
    action = Action(kind="read", name="read_file", paths=(whole,), cwd=session.cwd, roots=session.roots)
    return (await session.project.permitting().judge(action)).decision == "allow"


def _listed(lines: list[str], is_cut: bool) -> str:
    text = "\n".join(lines)
    if len(text) > LONGEST_TEXT:
        text, is_cut = text[:LONGEST_TEXT].rpartition("\n")[0], True
    return f"{text}\n… (there is more: ask for less)" if is_cut else text


def _shell(command: str) -> tuple[str, ...]:
    return ("cmd", "/c", command) if sys.platform == "win32" else ("sh", "-c", command)


def _ending(finished: Any, limit: float) -> str:
    if finished.timed_out:
        return f"it was ended after {limit:g} s"
    return f"signal {finished.signal}" if finished.signal else f"exit code {finished.exit_code}"

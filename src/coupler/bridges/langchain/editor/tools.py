"""Tools that work where the user works: files as the editor has them, commands in its terminals.

Where the client offers neither, the disk and process groups take their places. Each use is judged with its
exact path or command by the permission engine, shows what it does in the model's own tool call, and answers
with an error that the model can act on.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from coupler.agent.call import Call
from coupler.agent.errors import EditorError, NotPermittedError
from coupler.bridges.langchain.current import Current, current
from coupler.bridges.langchain.editor.file_finder import Found, find
from coupler.bridges.langchain.tool_calls.joined_call import JoinedCall
from coupler.files.boundary import find_inside
from coupler.files.errors import FileChangedError, UnsuitableFileError
from coupler.process import SpawnError
from coupler.schema.v1 import ToolKind

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

ERRORS = (
    OSError,
    ValueError,
    FileChangedError,
    UnsuitableFileError,
    NotPermittedError,
    SpawnError,
    EditorError,
)
"""What a model can do something about."""


def editor_tools(session: Session | None = None) -> list[BaseTool]:
    """Tools to read, write, edit, list and search files and to run commands.

    They work in the session whose prompt is being answered; given one, they work in no other.
    """

    def made(function: Callable[..., Awaitable[str]], kind: ToolKind) -> BaseTool:
        return StructuredTool.from_function(
            coroutine=_careful(function, session),
            name=function.__name__,
            description=inspect.getdoc(function) or "",
            handle_tool_error=True,
            metadata={"coupler": {"kind": kind, "asks": True}},
        )

    return [
        made(read_file, "read"),
        made(write_file, "edit"),
        made(edit_file, "edit"),
        made(list_files, "read"),
        made(search, "search"),
        made(run_command, "execute"),
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
    async with _permitted_call("Read", "read", path, offset if offset > 1 else None) as call:
        text = await call.prompt.turn.files.read(path)
        lines = text.splitlines(keepends=True)
        part = "".join(lines[offset - 1 : offset - 1 + limit])
        return _beginning(part, offset, len(lines), limit)


async def write_file(path: File, content: Annotated[str, "The whole new text of the file."]) -> str:
    """Create a file, or replace all of its text.

    An existing file has to be read with read_file first. To change a part of it, use edit_file.
    """
    async with _call("Write", "edit", path) as call:
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
    async with _call("Edit", "edit", path) as call:
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
    async with _permitted_call("List", "read", directory) as call:
        found = await _find(call.prompt, directory, glob, None)
        return _listed([entry.path for entry in found.entries], found.is_cut) or "No file fits."


async def search(
    pattern: Annotated[str, "A regular expression of Python, matched against each line."],
    directory: Directory = ".",
    glob: Annotated[str, "Only in files with such names, as in `*.py` or `src/**/*.ts`."] = "**",
) -> str:
    """Search the lines of text files on the disk. Each answer line is `path:line: text`."""
    async with _permitted_call("Search", "search", directory) as call:
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
    prompt = _prompt()
    if not 0 < timeout <= LONGEST_COMMAND:
        raise ValueError(f"timeout is a number of seconds up to {LONGEST_COMMAND:g}")
    place = find_inside(directory, prompt.session.cwd, prompt.session.roots).shown
    async with _call("Run", "execute", command=command, cwd=place) as call:
        await call.ask()
        finished = await prompt.turn.terminal.run(
            *_shell(command), cwd=place, timeout=timeout, output_limit=LONGEST_TEXT
        )
        call.has_shown()
        beginning = "… (the beginning was left out)\n" if finished.truncated else ""
        return f"{beginning}{finished.output.rstrip()}\n({_ending(finished, timeout)})".lstrip()


class _ToolCall:
    """One use of one of the tools."""

    def __init__(self, prompt: Current, block: Call, call_id: str | None) -> None:
        self.prompt = prompt
        self.block = block
        self._call_id = call_id

    async def ask(self) -> None:
        """Go on only if that is permitted."""
        if not await self.block.permitted():
            raise NotPermittedError(f"it was not done: {self.block.refusal}")

    def has_shown(self) -> None:
        """The result is to be seen already."""
        if self._call_id is not None:
            self.prompt.calls.shown.add(self._call_id)

    def knows(self, path: str) -> bool:
        """Whether the session has seen the file."""
        session = self.prompt.session
        return find_inside(path, session.cwd, session.roots).real in session.known_files


@asynccontextmanager
async def _call(
    verb: str,
    kind: ToolKind,
    path: str | None = None,
    line: int | None = None,
    *,
    command: str | None = None,
    cwd: str | None = None,
) -> AsyncIterator[_ToolCall]:
    prompt = _prompt()
    if path is not None:
        # Outside is outside, before anybody is asked.
        path = find_inside(path, prompt.session.cwd, prompt.session.roots).shown
    title = f"{verb} {command if command is not None else path}"
    call_id = prompt.call_id
    block: Call
    if call_id is not None and prompt.calls.is_open(call_id):
        block = JoinedCall(
            prompt, call_id, title, kind=kind, path=path, line=line, command=command, cwd=cwd,
            name=prompt.calls.name(call_id),
        )  # fmt: skip
    else:
        call_id = None
        block = prompt.turn.tool(title, kind=kind, path=path, line=line, command=command, cwd=cwd)
    async with block:
        yield _ToolCall(prompt, block, call_id)


@asynccontextmanager
async def _permitted_call(
    verb: str, kind: ToolKind, path: str, line: int | None = None
) -> AsyncIterator[_ToolCall]:
    async with _call(verb, kind, path, line) as call:
        await call.ask()
        yield call


def _prompt() -> Current:
    prompt = current()
    if prompt is None:
        raise ToolException("this tool works in an editor's session: serve the agent to use it")
    return prompt


def _careful(
    function: Callable[..., Awaitable[str]], session: Session | None
) -> Callable[..., Awaitable[str]]:
    """What a model can do something about is told to it; anything else is a fault of ours."""

    @wraps(function)
    async def called(*arguments: Any, **keywords: Any) -> str:
        if session is not None and _prompt().session is not session:
            raise ToolException("this tool belongs to another session")
        try:
            return await function(*arguments, **keywords)
        except ERRORS as error:
            raise ToolException(_told(error)) from error

    return called


def _told(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and not isinstance(error, NotPermittedError):
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


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


async def _before(call: _ToolCall, path: str) -> str | None:
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

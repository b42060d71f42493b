"""What every tool that works in an editor's session has in common: its call, its permission, its errors.

A tool is an async function whose docstring and annotations the model reads. Inside of it, `tool_use` is the
model's own tool call: it is judged with its exact path or command, and shows what the tool does. What a model
can do something about comes back to it as the tool's error; anything else is a fault of ours.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from coupler.agent.call import Call
from coupler.agent.errors import EditorError, NotPermittedError
from coupler.bridges.langchain.current import Current, current
from coupler.bridges.langchain.tool_calls.joined_call import JoinedCall
from coupler.files.boundary import find_inside
from coupler.files.errors import FileChangedError, UnsuitableFileError
from coupler.process import SpawnError
from coupler.schema.v1 import ToolKind

if TYPE_CHECKING:
    from coupler.agent.session import Session

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


def session_tool(
    function: Callable[..., Awaitable[str]], kind: ToolKind, session: Session | None = None
) -> BaseTool:
    """The function as a tool of this kind; given a session, it works in no other."""
    return StructuredTool.from_function(
        coroutine=_careful(function, session),
        name=function.__name__,
        description=inspect.getdoc(function) or "",
        handle_tool_error=True,
        metadata={"coupler": {"kind": kind, "asks": True}},
    )


class ToolUse:
    """One use of a tool."""

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
async def tool_use(
    verb: str,
    kind: ToolKind,
    path: str | None = None,
    line: int | None = None,
    *,
    command: str | None = None,
    cwd: str | None = None,
) -> AsyncIterator[ToolUse]:
    """The call that the running tool was called by, with what the tool wants to do in it."""
    prompt = running_prompt()
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
        yield ToolUse(prompt, block, call_id)


@asynccontextmanager
async def permitted_use(
    verb: str, kind: ToolKind, path: str, line: int | None = None
) -> AsyncIterator[ToolUse]:
    """The same, for tools that know at once what they want: inside of it, that is permitted."""
    async with tool_use(verb, kind, path, line) as use:
        await use.ask()
        yield use


def running_prompt() -> Current:
    """The prompt that is being answered; a tool has nothing to work with outside of one."""
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
        if session is not None and running_prompt().session is not session:
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

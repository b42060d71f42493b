"""The parts that all tools in an editor's session share: their call, permission and errors.

A tool is an async function whose docstring and annotations the model reads. It returns text for the
model, or such text and a value for programs, which clients get as the call's raw output. Inside of it,
`tool_use` is the model's own tool call: it is judged with its exact path or command, and shows what the tool
does. What a model can do something about comes back to it as the tool's error; anything else is a fault of
ours.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from msgspec import UNSET
from pydantic import Field, PrivateAttr

from coupler.agent.errors import EditorError, NotPermittedError
from coupler.agent.tool_call import Call
from coupler.fields.json_types import without_nulls
from coupler.langchain.current import Current, HeldUpError, current
from coupler.langchain.presentation import TitleArguments, TitleMaker
from coupler.langchain.tool_arguments import absolute, relative
from coupler.langchain.tool_calls import JoinedCall
from coupler.runtime.environment import SpawnError
from coupler.runtime.extras import require_methods
from coupler.runtime.files import (
    FileChangedError,
    OutsideRootsError,
    SessionPath,
    UnsuitableFileError,
    find_inside,
)
from coupler.schema.v1 import ToolCallLocation, ToolKind

if TYPE_CHECKING:
    from coupler.agent.session import Session

ERRORS_FOR_MODEL = (
    OSError,
    ValueError,
    FileChangedError,
    UnsuitableFileError,
    NotPermittedError,
    SpawnError,
    EditorError,
)
"""Errors that a model is told, because it can react to them."""

FILE_READING_KINDS = frozenset({"read", "search"})
"""Kinds of tools that may also use the session's additional readable places."""

ToolContent: TypeAlias = str | list[dict[str, Any]]
ToolAnswer: TypeAlias = str | tuple[ToolContent, Any]
"""Result of a tool: text or blocks for the model, and optionally a JSON value for programs."""


# Without it a tool would run without the arguments that it does not know.
require_methods(StructuredTool, "_parse_input", package="langchain-core", extra="langchain")


class SessionTool(StructuredTool):
    """A LangChain tool that works in a session."""

    title_of: Callable[[TitleArguments], str | None] | None = Field(default=None, exclude=True)
    """Makes a title for a call from the arguments that are known so far."""

    _schema: dict[str, Any] | None = PrivateAttr(default=None)

    def _parse_input(self, tool_input: str | dict[str, Any], tool_call_id: str | None) -> Any:
        # What is left out unseen is not what the model means, and not what its user was shown.
        given = tool_input.items() if isinstance(tool_input, dict) else ()
        known = [*getattr(self.args_schema, "model_fields", ())]
        if unknown := [name for name, value in given if name not in known and value is not None]:
            raise ToolException(
                f"{self.name} was not run: it has no argument {', '.join(unknown)}; it has {', '.join(known)}"
            )
        if self._schema is None:
            self._schema = self.get_input_jsonschema()
        return super()._parse_input(without_nulls(tool_input, self._schema), tool_call_id)

    def _run(self, *arguments: Any, config: RunnableConfig, **keywords: Any) -> Any:
        """Run the tool from a plain function, whose thread waits for it."""
        try:
            return running_prompt().wait_for(self._arun(*arguments, config=config, **keywords))
        except HeldUpError as error:
            raise ToolException(f"{self.name} was not run: {error}") from None


def session_tool(
    function: Callable[..., Coroutine[Any, Any, ToolAnswer]],
    kind: ToolKind,
    session: Session | None = None,
    *,
    title: TitleMaker | None = None,
) -> BaseTool:
    """The function as a tool of this kind; given a session, it works in no other.

    `title` says what a call is called in the editor; without it, it is the tool's name and an argument.
    """
    return SessionTool.from_function(
        coroutine=_with_model_errors(function, session),
        name=function.__name__,
        description=inspect.getdoc(function) or "",
        handle_tool_error=True,
        response_format="content_and_artifact",
        title_of=title,
        metadata={"coupler": {"kind": kind, "asks": True}},
    )


class ToolUse:
    """One use of a tool, in the model's own tool call."""

    def __init__(
        self, prompt: Current, block: Call, call_id: str | None, outside: SessionPath | None = None
    ) -> None:
        self.prompt = prompt
        self.block = block
        self.outside = outside
        """The file that it reads and that was judged, if that is outside of the session's directories."""
        self._call_id = call_id

    async def ask(self) -> None:
        """Ask for permission; raises NotPermittedError if it is refused."""
        if not await self.block.permitted():
            raise NotPermittedError(f"it was not done: {self.block.refusal}")

    def asks_again(self) -> None:
        """Have the next action of the same call judged anew, because the permitted one is done."""
        if self._call_id is not None:
            self.prompt.calls.permitted.discard(self._call_id)

    def has_shown(self) -> None:
        """Note that the call shows its result already."""
        if self._call_id is not None:
            self.prompt.calls.shown.add(self._call_id)

    @property
    def was_answered(self) -> bool:
        """True if a person has allowed this very use."""
        return isinstance(self.block, JoinedCall) and self.block.was_answered

    def found(self, path: str) -> SessionPath:
        """Return the file or directory that is read, which may have been asked about."""
        return self.outside if self.outside is not None else readable_path(path, self.prompt.session)

    def knows(self, path: str) -> bool:
        """True if the session has seen the file."""
        return path_in_roots(path, self.prompt.session).real in self.prompt.session.known_files

    def works_in(self, *places: tuple[str, int | None]) -> None:
        """Show the files, and the lines in them, that the tool works on: editors can follow."""
        if self._call_id is not None:
            cwd = self.prompt.session.cwd
            shown = [
                ToolCallLocation(absolute(path, cwd), UNSET if line is None else line)
                for path, line in places
            ]
            self.prompt.calls.locate(self._call_id, shown)


@asynccontextmanager
async def tool_use(
    verb: str,
    kind: ToolKind,
    path: str | None = None,
    line: int | None = None,
    *,
    command: str | None = None,
    cwd: str | None = None,
    about: str | None = None,
    name: str | None = None,
    url: str | None = None,
    leaves_out_denied: bool = False,
) -> AsyncIterator[ToolUse]:
    """Open the call that the running tool was called by, with what the tool wants to do in it.

    `about` is what the title names if that is no path and no command; `name` is what rules know the use by,
    if that is not the tool's own. `leaves_out_denied` is for searches that skip what may not be read.
    """
    prompt = running_prompt()
    places: tuple[str, ...] = ()
    session = prompt.session
    outside: SessionPath | None = None
    written = path
    if path is not None and kind in FILE_READING_KINDS:
        places = tuple(session.readable_places)
        place, is_outside = _place_to_read(path, session)
        path, outside = place.shown, place if is_outside else None
    elif path is not None:
        # Outside is outside, before anybody is asked.
        path = path_in_roots(path, session).shown
    shown = None if path is None else relative(path, session.cwd)
    named = next((each for each in (about, command, url, shown) if each is not None), "")
    title = f"{verb} {named}".rstrip()
    call_id = prompt.call_id
    block: Call
    if call_id is not None and prompt.calls.is_open(call_id):
        block = JoinedCall(
            prompt, call_id, title, kind=kind, path=path, line=line, command=command, cwd=cwd,
            name=name or prompt.calls.name(call_id), url=url, roots=places,
            leaves_out_denied=leaves_out_denied,
            # Rules may name a link on the way to it.
            more_paths=() if outside is None or written is None else (written,),
        )  # fmt: skip
    else:
        call_id = None
        block = prompt.turn.tool(
            title, kind=kind, path=path, line=line, command=command, cwd=cwd, name=name, url=url
        )
    async with block:
        yield ToolUse(prompt, block, call_id, outside)


@asynccontextmanager
async def permitted_use(
    verb: str, kind: ToolKind, path: str, line: int | None = None
) -> AsyncIterator[ToolUse]:
    """Open a `tool_use` and ask for permission at once."""
    async with tool_use(verb, kind, path, line) as use:
        await use.ask()
        yield use


def path_in_roots(path: str, session: Session) -> SessionPath:
    """Return the file or directory that a path means in the session's directories; raises if outside."""
    return find_inside(path, session.cwd, session.roots)


def readable_path(path: str, session: Session) -> SessionPath:
    """Return what `path_in_roots` does, or a path in a place that may be read besides."""
    return find_inside(path, session.cwd, (*session.roots, *session.readable_places))


def _place_to_read(path: str, session: Session) -> tuple[SessionPath, bool]:
    """Return what a path means, and whether it is elsewhere; raises if it is not certain which file that is.

    What is elsewhere is named by where it really leads. It needs a rule or an answer, as the engine decides,
    and is opened from the root on, past no link.
    """
    try:
        return readable_path(path, session), False
    except OutsideRootsError:
        try:
            return find_inside(path, session.cwd, (os.sep,)), True
        except OutsideRootsError:
            pass
        raise


def running_prompt() -> Current:
    """Return the prompt that is being answered; raises ToolException outside of one."""
    prompt = current()
    if prompt is None:
        raise ToolException("this tool works in an editor's session: serve the agent to use it")
    return prompt


def _with_model_errors(
    function: Callable[..., Coroutine[Any, Any, ToolAnswer]], session: Session | None
) -> Callable[..., Awaitable[tuple[ToolContent, Any]]]:
    """Wrap a tool's function: errors that a model can do something about are told to it."""

    @wraps(function)
    async def called(*arguments: Any, **keywords: Any) -> tuple[ToolContent, Any]:
        if session is not None and running_prompt().session is not session:
            raise ToolException("this tool belongs to another session")
        try:
            answer = await running_prompt().on_loop(function(*arguments, **keywords))
        except ERRORS_FOR_MODEL as error:
            raise ToolException(_told(error)) from error
        return (answer, None) if isinstance(answer, str) else answer

    return called


def _told(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and not isinstance(error, NotPermittedError):
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__

"""Finds the files on disk that a tool with a file system of its own means by a path.

The tools of deepagents work on a backend: to one, `/notes.md` is a file of the disk, to another one below its
root, to a third an entry of the graph's state, which is on no disk. The search tools of LangChain have a root
as well. What is judged, and what is shown as a location or a diff, is the file on disk; so a path is
translated here, in the way in which the tool itself will do it.

A backend whose class is not known here may do anything with a path. Such a path cannot be judged, and none
is shown for it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool

from coupler.langchain.tool_arguments import UNJUDGEABLE, ToolArguments

DEEPAGENTS = "deepagents.middleware.filesystem"
FILE_SEARCH = "langchain.agents.middleware.file_search"
"""The modules of the functions behind the tools."""

PATH_ARGUMENTS = {
    **dict.fromkeys(("ls", "glob", "grep"), "path"),
    **dict.fromkeys(("read_file", "write_file", "edit_file", "delete"), "file_path"),
}
"""The arguments with paths, by the tools of deepagents."""

WHOLE_ROOT = frozenset({"glob", "grep"})
"""Tools of deepagents that search everything if they are given no path."""

ON_DISK = frozenset(
    {"deepagents.backends.filesystem.FilesystemBackend", "deepagents.backends.local_shell.LocalShellBackend"}
)
COMPOSITE = "deepagents.backends.composite.CompositeBackend"
NOT_ON_DISK = frozenset(
    {
        "deepagents.backends.state.StateBackend",
        "deepagents.backends.store.StoreBackend",
        "deepagents.backends.context_hub.ContextHubBackend",
        "deepagents.backends.langsmith.LangSmithSandbox",
    }
)
"""Classes of backends. One that inherits from them may do something else, and is not known."""


_RUNNING_CODE = (BaseTool.run.__code__, BaseTool.arun.__code__)


class BackendFiles:
    """The files behind one tool: its backend, and the tool's name in deepagents."""

    def __init__(self, backend: object, tool: str) -> None:
        self._backend = backend
        self._tool = tool

    def judged(self, args: ToolArguments) -> tuple[str, ...]:
        """The paths on disk that a call would touch; UNJUDGEABLE for one that cannot be known."""
        if self._tool == "execute":
            return ()
        if self._tool not in PATH_ARGUMENTS:
            return (UNJUDGEABLE,)
        path = args.get(PATH_ARGUMENTS[self._tool])
        if path is None and self._tool not in WHOLE_ROOT:
            return ()
        return tuple(dict.fromkeys(self._places(path)))

    def shown(self, args: ToolArguments) -> tuple[str, ...]:
        """The paths on disk that the arguments name, as far as they are known."""
        is_named = args.get(PATH_ARGUMENTS.get(self._tool, "")) is not None
        places = self.judged(args) if is_named else ()
        return tuple(os.path.normpath(place) for place in places if "\0" not in place)

    def are_on_no_disk(self, args: ToolArguments) -> bool:
        """True if a call works on files, and none of them is on disk."""
        return self._tool in PATH_ARGUMENTS and not self.judged(args)

    def directory(self, cwd: str) -> str | None:
        """The directory in which the tool runs a command; None if that is not known."""
        backend: Any = self._backend
        while _class_of(backend) == COMPOSITE:
            backend = backend.default
        if _class_of(backend) in ON_DISK:
            return str(backend.cwd)
        return cwd if _class_of(backend) in NOT_ON_DISK else None

    def _places(self, path: object) -> Iterator[str]:
        if path is None:
            return _places_of(self._backend, self._tool, None)
        try:
            return _places_of(self._backend, self._tool, _validated(path))
        except ValueError:
            return iter((UNJUDGEABLE,))  # the tool refuses it, too


class SearchedFiles(BackendFiles):
    """The files behind a search tool of LangChain, which are all below one root."""

    def __init__(self, root: object) -> None:
        super().__init__(None, "grep")
        self._root = str(root)

    def _places(self, path: object) -> Iterator[str]:
        text = "/" if path is None else path
        is_refused = not isinstance(text, str) or ".." in text or "~" in text
        yield UNJUDGEABLE if is_refused else _below(self._root, str(text))


def backend_files(tool: BaseTool | None) -> BackendFiles | None:
    """Return the files behind a tool; None for a tool that takes paths as the disk has them."""
    function = _function_of(tool)
    module = getattr(function, "__module__", None)
    if function is None or module not in (DEEPAGENTS, FILE_SEARCH):
        return None
    owner = _owner_of(function)
    if module == FILE_SEARCH and hasattr(owner, "root_path"):
        return SearchedFiles(owner.root_path)
    # The tool may have been given another name.
    name = function.__name__.removeprefix("async_").removeprefix("sync_")
    return BackendFiles(getattr(owner, "backend", None), name)


def starting_tool() -> BaseTool | None:
    """Return the tool whose start LangChain reports to the caller.

    A callback is told a tool's name and its arguments, and not the tool; two agents may have tools of one
    name that work on different files. But the tool calls the callbacks itself.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code not in _RUNNING_CODE:
        frame = frame.f_back
    tool = frame.f_locals.get("self") if frame is not None else None
    return tool if isinstance(tool, BaseTool) else None


def _function_of(tool: BaseTool | None) -> Callable[..., Any] | None:
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    return inspect.unwrap(function) if inspect.isfunction(function) else None


def _owner_of(function: Callable[..., Any]) -> Any:
    """Return the middleware that has made a tool's function inside of one of its methods."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return next((cell.cell_contents for name, cell in cells if name == "self"), None)


def _places_of(backend: Any, tool: str, path: str | None) -> Iterator[str]:
    """Yield what a backend would touch on disk; without a path it searches everything that it has."""
    kind = _class_of(backend)
    if kind == COMPOSITE:
        yield from _routed(backend, tool, path)
    elif kind in ON_DISK:
        yield _on_disk(backend, tool, path)
    elif kind not in NOT_ON_DISK:
        yield UNJUDGEABLE


def _routed(backend: Any, tool: str, path: str | None) -> Iterator[str]:
    """Yield what a backend touches that passes paths on to others, by their beginnings."""
    for prefix, inner in backend.sorted_routes:
        bare = prefix.rstrip("/")
        if path is not None and (path == bare or path.startswith(f"{bare}/")):
            yield from _places_of(inner, tool, f"/{path[len(bare) + 1 :]}")
            return
    yield from _places_of(backend.default, tool, path)
    if path in (None, "/") and tool in WHOLE_ROOT:
        for _, inner in backend.sorted_routes:
            yield from _places_of(inner, tool, "/")


def _on_disk(backend: Any, tool: str, path: str | None) -> str:
    root = str(backend.cwd)
    if path is None or (tool == "glob" and path == "/"):
        return root
    if not backend.virtual_mode:
        return path
    return UNJUDGEABLE if ".." in path else _below(root, path)


def _below(root: str, path: str) -> str:
    return str(Path(root, path.lstrip("/")))


def _validated(path: object) -> str:
    """Return the path as the tools of deepagents give it to a backend; raises ValueError if they refuse."""
    from deepagents.backends.utils import validate_path

    if not isinstance(path, str):
        raise ValueError("a path is text")
    return validate_path(path)


def _class_of(backend: object) -> str:
    return f"{type(backend).__module__}.{type(backend).__qualname__}"

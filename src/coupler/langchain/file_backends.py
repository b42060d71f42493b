"""Finds the files on disk that a tool with a file system of its own means by a path.

The tools of deepagents work on a backend: to one, `/notes.md` is a file of the disk, to another one below its
root, to a third an entry of the graph's state, which is on no disk. Some middleware of LangChain has a root,
or the state, as well. What is judged, and what is shown as a location or a diff, is the file on disk; so a
path is translated here, in the way in which the tool itself will do it.

A backend whose class is not known here may do anything with a path. Such a path cannot be judged, and none
is shown for it.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool

from coupler.langchain.tool_arguments import UNJUDGEABLE, ToolArguments

DEEPAGENTS = "deepagents.middleware.filesystem"
ROOTED = frozenset(
    {
        "langchain.agents.middleware.file_search",
        "langchain_anthropic.middleware.anthropic_tools",
        "langchain_anthropic.middleware.file_search",
    }
)
"""Modules of the functions behind tools; in the rooted ones, what has no root works on the graph's state."""

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

_RUNNING_CODE = tuple(getattr(method, "__code__", None) for method in (BaseTool.run, BaseTool.arun))


def backend_files(tool: BaseTool | None) -> BackendFiles | None:
    """Return the files behind a tool; None for a tool that takes paths as the disk has them."""
    function = _function_of(tool)
    module = getattr(function, "__module__", None)
    if function is None or (module != DEEPAGENTS and module not in ROOTED):
        return None
    owner = _owner_of(function)
    if module != DEEPAGENTS:
        root = getattr(owner, "root_path", None)
        return RootedFiles(None if root is None else str(root))
    # The tool may have been given another name.
    name = function.__name__.removeprefix("async_").removeprefix("sync_")
    return DeepFiles(getattr(owner, "backend", None), name)


class BackendFiles(ABC):
    """The files that a tool works on."""

    @abstractmethod
    def judged(self, args: ToolArguments) -> tuple[str, ...]:
        """The paths on disk that a call would touch; UNJUDGEABLE for one that cannot be known."""

    @abstractmethod
    def are_named_in(self, args: ToolArguments) -> bool:
        """True if the arguments name a path."""

    @abstractmethod
    def are_off_disk(self, args: ToolArguments) -> bool:
        """True if a call works on files, and none of them is on disk."""

    def shown(self, args: ToolArguments) -> tuple[str, ...]:
        """The paths on disk that the arguments name, as far as they are known."""
        places = self.judged(args) if self.are_named_in(args) else ()
        return tuple(os.path.normpath(place) for place in places if "\0" not in place)

    def directory(self, cwd: str) -> str | None:
        """The directory in which the tool runs a command; None if that is not known."""
        return cwd


@dataclass(frozen=True)
class DeepFiles(BackendFiles):
    """The files behind a tool of deepagents, which has a backend."""

    backend: Any
    tool: str
    """The tool's name in deepagents."""

    def judged(self, args: ToolArguments) -> tuple[str, ...]:
        if self.tool == "execute":
            return ()
        if self.tool not in PATH_ARGUMENTS:
            return (UNJUDGEABLE,)
        path = args.get(PATH_ARGUMENTS[self.tool])
        places: Iterable[str]
        if path is None:
            places = _places(self.backend, self.tool, None) if self.tool in WHOLE_ROOT else ()
        else:
            try:
                places = _places(self.backend, self.tool, _validated(path))
            except (ValueError, ImportError):
                places = (UNJUDGEABLE,)  # the tool refuses it, too, or is of a version that is not known
        return tuple(dict.fromkeys(places))

    def are_named_in(self, args: ToolArguments) -> bool:
        return args.get(PATH_ARGUMENTS.get(self.tool, "")) is not None

    def are_off_disk(self, args: ToolArguments) -> bool:
        return self.tool in PATH_ARGUMENTS and not self.judged(args)

    def directory(self, cwd: str) -> str | None:
        backend = self.backend
        while _class_of(backend) == COMPOSITE:
            backend = backend.default
        if _class_of(backend) in ON_DISK:
            return str(backend.cwd)
        return cwd if _class_of(backend) in NOT_ON_DISK else None


@dataclass(frozen=True)
class RootedFiles(BackendFiles):
    """The files behind a tool of LangChain's middleware: below a root, or in the graph's state."""

    root: str | None
    """The root; None for the state."""

    def judged(self, args: ToolArguments) -> tuple[str, ...]:
        if self.root is None:
            return ()
        named = [args[name] for name in ("path", "new_path") if args.get(name) is not None]
        return tuple(dict.fromkeys(self._place(path) for path in named or ["/"]))

    def are_named_in(self, args: ToolArguments) -> bool:
        return args.get("path") is not None

    def are_off_disk(self, args: ToolArguments) -> bool:
        return self.root is None

    def _place(self, path: object) -> str:
        is_refused = self.root is None or not isinstance(path, str) or ".." in path or "~" in path
        return UNJUDGEABLE if is_refused else _below(str(self.root), str(path))


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


def _places(backend: Any, tool: str, path: str | None) -> Iterator[str]:
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
            yield from _places(inner, tool, f"/{path[len(bare) + 1 :]}")
            return
    yield from _places(backend.default, tool, path)
    if path in (None, "/") and tool in WHOLE_ROOT:
        for _, inner in backend.sorted_routes:
            yield from _places(inner, tool, "/")


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

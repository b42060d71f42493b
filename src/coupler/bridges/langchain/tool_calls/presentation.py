"""How a tool call looks in an editor: its kind, title, places and content.

The one place that decides that. What the author wants (`acp.tools(…)`) goes first; the rest is found in the
tool and its arguments, which may be incomplete while the model still writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coupler.bridges.langchain.tool_calls.arguments import (
    Arguments,
    absolute,
    changes_in,
    key_argument,
    locations_in,
)
from coupler.bridges.langchain.tool_calls.kinds import about_tool, kind_of
from coupler.bridges.langchain.tool_calls.overrides import LONGEST_TITLE, Overrides
from coupler.bridges.langchain.tool_calls.own_title import own_title
from coupler.fields import readable
from coupler.schema.v1 import ToolCallContent, ToolCallLocation, ToolKind

if TYPE_CHECKING:
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool

    from coupler.bridges.langchain.stream.filters import Filters


class Presentation:
    """The look of the tool calls of one prompt."""

    def __init__(self, cwd: str, roots: Sequence[str] = (), filters: Filters | None = None) -> None:
        """`filters` take out of calls what nobody may see, if there is anything of the kind."""
        self._filters = filters
        self._cwd = cwd
        self._roots = tuple(roots) or (cwd,)
        self._overrides: list[Overrides] = []

    def prefer(self, overrides: Overrides) -> None:
        """Take these wishes into account, after those that were there before. Twice is once."""
        if overrides not in self._overrides:
            self._overrides.append(overrides)

    def kind(self, name: str, tool: BaseTool | None, args: Arguments) -> ToolKind:
        """The kind of the call."""
        for overrides in self._overrides:
            if (kind := overrides.kind(name, args)) is not None:
                return kind
        return kind_of(name, tool)

    def title(self, name: str, tool: BaseTool | None, args: Arguments, partial: bool = False) -> str:
        """The call in one line: what the tool is called, and the argument that matters most.

        With `partial` the model still writes the last of the arguments.
        """
        known = _without_last(args) if partial else args
        for overrides in self._overrides:
            if (title := overrides.title(name, known)) is not None:
                return title
        if (title := own_title(tool, known, self._cwd)) is not None:
            return title
        about = about_tool(tool)
        own = about.get("title") or readable(str(about.get("tool") or name)) or name
        called = f"{about['server']}: {own}" if about.get("server") else str(own)
        key = key_argument(known, self._cwd)
        title = f"{called}: {key}" if key is not None else called
        return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"

    def locations(
        self, name: str, args: Arguments, partial: bool = False, found: tuple[ToolCallLocation, ...] = ()
    ) -> tuple[ToolCallLocation, ...]:
        """The files that the call works on, absolute; `found` are those that the tool itself has told."""
        known = _without_last(args) if partial else args
        for overrides in self._overrides:
            if (places := overrides.locations(name, known)) is not None:
                return tuple(
                    ToolCallLocation(absolute(path, self._cwd), UNSET if line is None else line)
                    for path, line in places
                )
        return found or locations_in(known, self.kind(name, None, known), self._cwd)

    def arguments(self, args: Arguments) -> Arguments:
        """What may be shown of a call's arguments."""
        return self._filters.arguments(args) if self._filters is not None else args

    def output(self, id: str, piece: str) -> str:
        """What may be shown now of what a call puts out while it runs."""
        return str(self._filters.output(id, piece)) if self._filters is not None else piece

    def preview(self, name: str, args: Arguments) -> list[ToolCallContent]:
        """What the call is going to change, as its arguments describe it; asked before it runs."""
        if self.kind(name, None, args) != "edit":
            return []
        return [*changes_in(args, self._cwd, self._roots)]

    def content(self, name: str, args: Arguments, message: ToolMessage) -> list[ToolCallContent] | None:
        """What the author wants to be shown of the result; None if nothing special."""
        for overrides in self._overrides:
            if (content := overrides.content(name, args, message)) is not None:
                return content
        return None

    def starts(self, name: str) -> bool:
        """Whether calls are shown from their beginning on, and not only once they are over."""
        return all(overrides.starts(name) for overrides in self._overrides)

    def results(self, name: str) -> bool:
        """Whether it is shown what calls returned, and not only that they did."""
        return all(overrides.results(name) for overrides in self._overrides)


def _without_last(args: Arguments) -> Mapping[str, Any]:
    return dict(list(args.items())[:-1])

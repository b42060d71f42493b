"""What the author of an agent wants to be shown of its tools in another way, tool by tool.

Each is a function, or a mapping from patterns of tool names to what is wanted of these tools. It is checked
where it is written; what a function returns is checked each time, and whatever is wrong with it costs a line
in the log and never the turn.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from coupler.agent.errors import describe
from coupler.bridges.langchain.tool_calls.arguments import Arguments
from coupler.bridges.langchain.tool_calls.kinds import KINDS
from coupler.schema.v1 import (
    Content,
    ContentBlock,
    Diff,
    Terminal,
    TextContent,
    ToolCallContent,
    ToolCallLocation,
    ToolKind,
)

if TYPE_CHECKING:
    from langchain_core.messages import ToolMessage

log = logging.getLogger("coupler.bridges")

T = TypeVar("T")

LONGEST_TITLE = 200
"""Characters of a title."""

KindOverride: TypeAlias = Mapping[str, ToolKind] | Callable[[str, Arguments], ToolKind | None]
TitleOverride: TypeAlias = (
    Mapping[str, str | Callable[[Arguments], str | None]] | Callable[[str, Arguments], str | None]
)
Shown: TypeAlias = (
    str | ContentBlock | ToolCallContent | Sequence[str | ContentBlock | ToolCallContent] | None
)
ContentOverride: TypeAlias = (
    Mapping[str, Callable[[Arguments, "ToolMessage"], Shown]]
    | Callable[[str, Arguments, "ToolMessage"], Shown]
)
Places: TypeAlias = Iterable[str | tuple[str, int] | ToolCallLocation] | str | None
LocationsOverride: TypeAlias = (
    Mapping[str, str | Sequence[str] | Callable[[Arguments], Places]] | Callable[[str, Arguments], Places]
)
Which: TypeAlias = bool | str | Iterable[str]
"""All tools or none, or those with a name that fits a pattern."""


class Overrides:
    """What one `acp.tools(…)` says. Each question is answered with None where it says nothing."""

    def __init__(
        self,
        *,
        kind: KindOverride | None = None,
        title: TitleOverride | None = None,
        content: ContentOverride | None = None,
        locations: LocationsOverride | None = None,
        starts: Which = True,
        results: Which = True,
    ) -> None:
        self._kind = _Wish(kind, "kind", (str,))
        self._title = _Wish(title, "title", (str, Callable))
        self._content = _Wish(content, "content", (Callable,))
        self._locations = _Wish(locations, "locations", (str, Sequence, Callable))
        self._starts = _which(starts, "starts")
        self._results = _which(results, "results")
        if isinstance(kind, Mapping):
            for wanted in kind.values():
                checked_kind(wanted, "kind")

    def kind(self, name: str, args: Arguments) -> ToolKind | None:
        """The kind that is wanted."""
        return self._kind.of(name, lambda wish: wish if isinstance(wish, str) else wish(name, args), _as_kind)

    def title(self, name: str, args: Arguments) -> str | None:
        """The title that is wanted; None also as long as an argument that it names has not come."""

        def told(wish: Any) -> Any:
            if not isinstance(wish, str):
                return wish(name, args) if self._title.is_function else wish(args)
            try:
                return wish.format_map(args)
            except (KeyError, IndexError):
                return None

        return self._title.of(name, told, _as_title)

    def content(self, name: str, args: Arguments, message: ToolMessage) -> list[ToolCallContent] | None:
        """What is to be shown of the result."""

        def told(wish: Any) -> Any:
            return wish(name, args, message) if self._content.is_function else wish(args, message)

        return self._content.of(name, told, _as_content)

    def locations(self, name: str, args: Arguments) -> list[tuple[str, int | None]] | None:
        """The places that are wanted, as they are written."""

        def told(wish: Any) -> Any:
            if callable(wish):
                return wish(name, args) if self._locations.is_function else wish(args)
            names = [wish] if isinstance(wish, str) else wish
            return [args[each] for each in names if isinstance(args.get(each), str)]

        return self._locations.of(name, told, _as_places)

    def starts(self, name: str) -> bool:
        """Whether a call is shown from its beginning on."""
        return self._starts(name)

    def results(self, name: str) -> bool:
        """Whether it is shown what a call returned."""
        return self._results(name)


class _Wish:
    """One of the overrides: a function for all tools, or something by pattern."""

    def __init__(self, wanted: Any, what: str, kinds: tuple[Any, ...]) -> None:
        self.is_function = callable(wanted)
        self._what = what
        self._function = wanted if self.is_function else None
        self._by_pattern: Mapping[str, Any] = {}
        self._complained: set[str] = set()
        if wanted is None or self.is_function:
            return
        if not isinstance(wanted, Mapping):
            raise TypeError(
                f"`{what}` is a function, or a mapping from patterns of tool names, not {wanted!r:.100}"
            )
        for pattern, each in wanted.items():
            if not isinstance(pattern, str) or not any(isinstance(each, kind) for kind in kinds):
                raise TypeError(f"`{what}` has nothing that it can use at {pattern!r:.100}: {each!r:.100}")
        self._by_pattern = {**wanted}

    def of(self, name: str, told: Callable[[Any], Any], checked: Callable[[Any], T | None]) -> T | None:
        """What is wanted for this tool, checked; None if that is nothing, or wrong."""
        wish = self._function
        if wish is None:
            fitting = (pattern for pattern in self._by_pattern if fnmatchcase(name, pattern))
            wish = self._by_pattern.get(next(fitting, ""))
        if wish is None:
            return None
        try:
            value = told(wish)
            return None if value is None else checked(value)
        except Exception as error:
            # Once a tool: what is shown of a call is asked for with every piece of its arguments.
            if name not in self._complained:
                self._complained.add(name)
                why = describe(error)
                log.warning("`%s` of acp.tools(…) could not be used for %s: %s", self._what, name, why)
            return None


def checked_kind(kind: object, what: str) -> ToolKind:
    """The kind if ACP knows it."""
    if kind in KINDS:
        return cast(ToolKind, kind)
    nearest = difflib.get_close_matches(str(kind), KINDS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"it is one of {', '.join(KINDS)}"
    raise ValueError(f"`{what}` knows no kind {kind!r:.100}: {hint}")


def fits_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether a tool's name fits one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _which(which: Which, what: str) -> Callable[[str], bool]:
    if isinstance(which, bool):
        return lambda name: which
    patterns = (which,) if isinstance(which, str) else tuple(which)
    if any(not isinstance(pattern, str) for pattern in patterns):
        raise TypeError(f"`{what}` is True, False, or patterns of tool names, not {which!r:.100}")
    return lambda name: fits_any(name, patterns)


def _as_kind(value: Any) -> ToolKind:
    return checked_kind(value, "kind")


def _as_title(value: Any) -> str | None:
    if not isinstance(value, str):
        raise TypeError(f"a title is text, not {type(value).__name__}")
    line = " ".join(value.split())
    return (line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…") or None


def _as_content(value: Any) -> list[ToolCallContent]:
    items = value if isinstance(value, list | tuple) else [value]
    return [_as_item(item) for item in items]


def _as_item(item: Any) -> ToolCallContent:
    if isinstance(item, Content | Diff | Terminal):
        return item
    return Content(TextContent(item)) if isinstance(item, str) else Content(_block(item))


def _block(item: Any) -> ContentBlock:
    from coupler.agent.content import block

    return block(item, "what a tool call shows")


def _as_places(value: Any) -> list[tuple[str, int | None]]:
    return [_as_place(each) for each in ([value] if isinstance(value, str) else value)]


def _as_place(place: Any) -> tuple[str, int | None]:
    match place:
        case str():
            return place, None
        case ToolCallLocation(path, line):
            return path, line if isinstance(line, int) else None
        case (str() as path, int() as line) if line >= 0:
            return path, line
    raise TypeError(f"a location is a path, or a path and a line, not {place!r:.100}")

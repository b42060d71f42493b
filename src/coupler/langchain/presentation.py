"""Presents tool calls to the client: their kind, title, locations and content.

The one place that decides that. What the author wants (`acp.tools(…)`) goes first; the rest is found in the
tool and its arguments, which may be incomplete while the model still writes them.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, get_args

from msgspec import UNSET

from coupler.agent.errors import describe
from coupler.fields import readable
from coupler.langchain.file_backends import backend_files
from coupler.langchain.tool_arguments import (
    ToolArguments,
    absolute,
    absolute_paths_in,
    diffs_in,
    key_argument,
    locations_in,
    relative,
    short_text,
    takes_command,
)
from coupler.permission.action import snake_case
from coupler.runtime.formatting import did_you_mean, shortened
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
    from langchain_core.tools import BaseTool

    from coupler.langchain.messages import StreamFilters

log = logging.getLogger("coupler.langchain")

T = TypeVar("T")

LONGEST_TITLE = 200
"""Characters of a title."""

KINDS: tuple[str, ...] = get_args(ToolKind)

NO_ARGUMENTS: ToolArguments = MappingProxyType({})

HARMLESS_KINDS: frozenset[str] = frozenset({"read", "search", "fetch", "think"})
"""Kinds that change nothing."""

CHANGING_KINDS: frozenset[str] = frozenset({"edit", "delete", "move", "execute"})
"""Kinds that change something."""

KIND_PATTERNS: tuple[tuple[ToolKind, tuple[str, ...]], ...] = (
    ("fetch", ("fetch*", "download*", "get*url*")),
    ("delete", ("delete*", "remove*")),
    ("move", ("move*", "rename*")),
    ("edit", ("write*", "create*", "update*", "edit*")),
    ("execute", ("run*", "exec*", "execute*", "command*")),
)
"""Kinds with patterns of tool names; the first that matches counts."""

KIND_VERBS: Mapping[str, ToolKind] = {
    **dict.fromkeys(("think", "reason", "analyze"), "think"),
    **dict.fromkeys(("search", "find", "grep", "glob"), "search"),
    **dict.fromkeys(("read", "get", "list"), "read"),
}
"""Kinds of tools whose names begin with these whole words; any other name means `other`."""

KIND_VERBS_WITH_OBJECT: Mapping[str, ToolKind] = {
    "lookup": "search",
    **dict.fromkeys(("show", "view", "describe", "count"), "read"),
}
"""The same for words that are verbs only if another word follows."""

CHANGING_VERBS: Mapping[str, ToolKind] = {
    **dict.fromkeys(
        ("delete", "remove", "drop", "erase", "purge", "clear", "destroy", "wipe", "truncate", "unlink"),
        "delete",
    ),
    **dict.fromkeys(("move", "rename"), "move"),
    **dict.fromkeys(
        ("write", "create", "update", "edit", "modify", "set", "put", "insert", "append", "add", "replace"),
        "edit",
    ),
    **dict.fromkeys(
        ("save", "store", "copy", "overwrite", "upsert", "patch", "reset", "revert", "fix"), "edit"
    ),
    **dict.fromkeys(("exec", "execute", "eval", "invoke", "install", "uninstall", "kill"), "execute"),
    **dict.fromkeys(
        ("send", "reply", "publish", "submit", "upload", "push", "merge", "deploy", "pay"), "other"
    ),
    **dict.fromkeys(("buy", "approve", "reject", "cancel", "assign", "lock", "unlock", "enable"), "other"),
    **dict.fromkeys(("disable", "start", "stop", "restart", "apply", "click", "navigate"), "other"),
}
"""Verbs that change something wherever they stand in a name, and the kind of such a tool."""

CHANGING_AFTER_AND: Mapping[str, ToolKind] = {
    "run": "execute",
    **dict.fromkeys(("post", "commit", "comment", "order", "book", "mail", "email", "message"), "other"),
    **dict.fromkeys(("call", "close", "mark", "move", "archive", "release", "request", "schedule"), "other"),
}
"""Words that change something after `and`, and are nouns elsewhere: `read_and_post`, but `get_post`."""

_JOINING_WORDS = frozenset({"and", "then", "or"})

KNOWN_TOOL_KINDS: Mapping[str, ToolKind] = {
    "write_todos": "think",
    "ls": "read",
    "sql_db_list_tables": "read",
    "sql_db_schema": "read",
    "extract_text": "read",
    "extract_hyperlinks": "read",
    "current_webpage": "read",
    "file_search": "search",
    "requests_get": "fetch",
    "web_search": "fetch",
    "file_delete": "delete",
    "copy_file": "edit",
    **dict.fromkeys(("shell", "bash", "terminal"), "execute"),
    **dict.fromkeys(("python_repl", "Python_REPL", "python_repl_ast"), "execute"),
}
"""Kinds of tools of LangChain and deepagents whose names suggest another kind."""

KindOverride: TypeAlias = Mapping[str, ToolKind] | Callable[[str, ToolArguments], ToolKind | None]
TitleOverride: TypeAlias = (
    Mapping[str, str | Callable[[ToolArguments], str | None]] | Callable[[str, ToolArguments], str | None]
)
ContentLike: TypeAlias = (
    str | ContentBlock | ToolCallContent | Sequence[str | ContentBlock | ToolCallContent] | None
)
ContentOverride: TypeAlias = (
    Mapping[str, Callable[[ToolArguments, "ToolMessage"], ContentLike]]
    | Callable[[str, ToolArguments, "ToolMessage"], ContentLike]
)
LocationsLike: TypeAlias = Iterable[str | tuple[str, int] | ToolCallLocation] | str | None
LocationsOverride: TypeAlias = (
    Mapping[str, str | Sequence[str] | Callable[[ToolArguments], LocationsLike]]
    | Callable[[str, ToolArguments], LocationsLike]
)
ToolSelection: TypeAlias = bool | str | Iterable[str]
"""All tools or none, or those with a name that fits a pattern."""

TitleMaker: TypeAlias = Callable[["TitleArguments"], str | None]
"""Makes a title of what is known of a call's arguments; None as long as that is too little."""


class Presentation:
    """Presents the tool calls of one prompt."""

    def __init__(self, cwd: str, roots: Sequence[str] = (), filters: StreamFilters | None = None) -> None:
        """`filters` take out of calls what nobody may see, if there is anything of the kind."""
        self._filters = filters
        self._cwd = cwd
        self._roots = tuple(roots) or (cwd,)
        self._overrides: list[Overrides] = []

    def prefer(self, overrides: Overrides) -> None:
        """Add overrides, which count after the earlier ones; adding them twice has no effect."""
        if overrides not in self._overrides:
            self._overrides.append(overrides)

    def kind(self, name: str, tool: BaseTool | None, args: ToolArguments) -> ToolKind:
        """The kind of the call."""
        for overrides in self._overrides:
            if (kind := overrides.kind(name, args)) is not None:
                return kind
        return kind_of(name, tool, args)

    def title(self, name: str, tool: BaseTool | None, args: ToolArguments, partial: bool = False) -> str:
        """The call in one line: what the tool is called, and the argument that matters most.

        With `partial` the model still writes the last of the arguments.
        """
        known = _without_last(args) if partial else args
        for overrides in self._overrides:
            if (title := overrides.title(name, known)) is not None:
                return title
        if (title := own_title(tool, known, self._cwd)) is not None:
            return title
        about = tool_metadata(tool)
        own = about.get("title") or readable(str(about.get("tool") or name)) or name
        called = f"{about['server']}: {own}" if about.get("server") else str(own)
        key = key_argument(known, self._cwd, backend_files(tool))
        title = f"{called}: {key}" if key is not None else called
        return shortened(title, LONGEST_TITLE)

    def locations(
        self,
        name: str,
        args: ToolArguments,
        partial: bool = False,
        found: tuple[ToolCallLocation, ...] = (),
        tool: BaseTool | None = None,
    ) -> tuple[ToolCallLocation, ...]:
        """The files that the call works on, absolute; `found` are those that the tool itself has told."""
        known = _without_last(args) if partial else args
        for overrides in self._overrides:
            if (places := overrides.locations(name, known)) is not None:
                return tuple(
                    ToolCallLocation(absolute(path, self._cwd), UNSET if line is None else line)
                    for path, line in places
                )
        return found or locations_in(known, self._paths(name, tool, known))

    def arguments(self, args: ToolArguments) -> ToolArguments:
        """Return what may be shown of a call's arguments."""
        return self._filters.arguments(args) if self._filters is not None else args

    def output(self, id: str, piece: str) -> str:
        """Return what may be shown now of what a call puts out while it runs."""
        return str(self._filters.output(id, piece)) if self._filters is not None else piece

    def preview(self, name: str, args: ToolArguments, tool: BaseTool | None = None) -> list[ToolCallContent]:
        """Return what the call is going to change, as its arguments describe it; asked before it runs."""
        if self.kind(name, tool, args) != "edit":
            return []
        return [*diffs_in(args, self._paths(name, tool, args), self._roots)]

    def _paths(self, name: str, tool: BaseTool | None, args: ToolArguments) -> tuple[str, ...]:
        return absolute_paths_in(args, self.kind(name, tool, args), self._cwd, backend_files(tool))

    def content(self, name: str, args: ToolArguments, message: ToolMessage) -> list[ToolCallContent] | None:
        """Return what the author wants to be shown of the result; None if nothing special."""
        for overrides in self._overrides:
            if (content := overrides.content(name, args, message)) is not None:
                return content
        return None

    def starts(self, name: str) -> bool:
        """True if calls are shown from their beginning on, and not only once they are over."""
        return all(overrides.starts(name) for overrides in self._overrides)

    def results(self, name: str) -> bool:
        """True if it is shown what calls returned, and not only that they did."""
        return all(overrides.results(name) for overrides in self._overrides)


def _without_last(args: ToolArguments) -> Mapping[str, Any]:
    return dict(list(args.items())[:-1])


class Overrides:
    """The presentation that one `acp.tools(…)` wants; methods return None where it says nothing.

    Each override is a function, or a mapping from patterns of tool names to what is wanted of these tools. It
    is checked where it is written; what a function returns is checked each time, and whatever is wrong with
    it costs a line in the log and never the turn.
    """

    def __init__(
        self,
        *,
        kind: KindOverride | None = None,
        title: TitleOverride | None = None,
        content: ContentOverride | None = None,
        locations: LocationsOverride | None = None,
        starts: ToolSelection = True,
        results: ToolSelection = True,
    ) -> None:
        self._kind = _Override(kind, "kind", (str,))
        self._title = _Override(title, "title", (str, Callable))
        self._content = _Override(content, "content", (Callable,))
        self._locations = _Override(locations, "locations", (str, Sequence, Callable))
        self._starts = _which(starts, "starts")
        self._results = _which(results, "results")
        if isinstance(kind, Mapping):
            for wanted in kind.values():
                checked_kind(wanted, "kind")

    def kind(self, name: str, args: ToolArguments) -> ToolKind | None:
        """The kind that is wanted."""
        return self._kind.of(name, lambda wish: wish if isinstance(wish, str) else wish(name, args), _as_kind)

    def title(self, name: str, args: ToolArguments) -> str | None:
        """The title that is wanted; None also as long as an argument that it names has not come."""

        def told(wish: Any) -> Any:
            if not isinstance(wish, str):
                return wish(name, args) if self._title.is_function else wish(args)
            try:
                return wish.format_map(args)
            except (KeyError, IndexError):
                return None

        return self._title.of(name, told, _as_title)

    def content(self, name: str, args: ToolArguments, message: ToolMessage) -> list[ToolCallContent] | None:
        """Return what is to be shown of the result."""

        def told(wish: Any) -> Any:
            return wish(name, args, message) if self._content.is_function else wish(args, message)

        return self._content.of(name, told, _as_content)

    def locations(self, name: str, args: ToolArguments) -> list[tuple[str, int | None]] | None:
        """The places that are wanted, as they are written."""

        def told(wish: Any) -> Any:
            if callable(wish):
                return wish(name, args) if self._locations.is_function else wish(args)
            names = [wish] if isinstance(wish, str) else wish
            return [args[each] for each in names if isinstance(args.get(each), str)]

        return self._locations.of(name, told, _as_places)

    def starts(self, name: str) -> bool:
        """True if a call is shown from its beginning on."""
        return self._starts(name)

    def results(self, name: str) -> bool:
        """True if it is shown what a call returned."""
        return self._results(name)


class _Override:
    """One override: a function for all tools, or something by pattern."""

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
        """Return what is wanted for this tool, checked; None if that is nothing, or wrong."""
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
    hint = did_you_mean(str(kind), KINDS, f"it is one of {', '.join(KINDS)}")
    raise ValueError(f"`{what}` knows no kind {kind!r:.100}: {hint}")


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """True if a tool's name fits one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _which(which: ToolSelection, what: str) -> Callable[[str], bool]:
    if isinstance(which, bool):
        return lambda name: which
    patterns = (which,) if isinstance(which, str) else tuple(which)
    if any(not isinstance(pattern, str) for pattern in patterns):
        raise TypeError(f"`{what}` is True, False, or patterns of tool names, not {which!r:.100}")
    return lambda name: matches_any(name, patterns)


def _as_kind(value: Any) -> ToolKind:
    return checked_kind(value, "kind")


def _as_title(value: Any) -> str | None:
    if not isinstance(value, str):
        raise TypeError(f"a title is text, not {type(value).__name__}")
    line = " ".join(value.split())
    return shortened(line, LONGEST_TITLE) or None


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


def kind_of(name: str, tool: BaseTool | None, args: ToolArguments = NO_ARGUMENTS) -> ToolKind:
    """Return the kind of a tool of which its author has said nothing here.

    It is found in the tool's metadata, else in its MCP server's claims, else by its name and arguments. The
    kind decides how an editor shows a call, which modes offer the tool or ask about it, and how its arguments
    are judged. A server's claim earns its tool nothing but the look of it: the permission engine asks about
    it all the same.
    """
    about = tool_metadata(tool)
    if (explicit := about.get("kind")) in KINDS:
        return cast(ToolKind, explicit)
    by_name = kind_by_name(str(about.get("tool") or name))
    annotations = about.get("annotations")
    if isinstance(annotations, Mapping):
        return _claimed(annotations, by_name)
    return "execute" if by_name in HARMLESS_KINDS and takes_command(argument_names(tool), args) else by_name


def argument_names(tool: BaseTool | None) -> Iterable[str]:
    """The names of the arguments that a tool takes, as far as it says so."""
    schema: Any = tool.args_schema if tool is not None else None
    fields = (
        schema.get("properties") if isinstance(schema, Mapping) else getattr(schema, "model_fields", None)
    )
    return fields if isinstance(fields, Mapping) else ()


def tool_metadata(tool: BaseTool | None) -> Mapping[str, Any]:
    """Return what Coupler's own tools say of themselves, and what MCP servers said of theirs."""
    about = (tool.metadata or {}).get("coupler") if tool is not None else None
    return about if isinstance(about, Mapping) else {}


@lru_cache(maxsize=1024)
def kind_by_name(name: str) -> ToolKind:
    """The kind that the name stands for.

    A guess that a tool changes nothing lets it run unasked. So it is made of whole words only, and not of a
    name that has a changing verb anywhere: `get_and_delete` deletes.
    """
    known = KNOWN_TOOL_KINDS.get(name)
    if known is not None:
        return known
    lowered, words = name.lower(), re.findall(r"[a-z0-9]+", snake_case(name))
    matching = (
        kind for kind, patterns in KIND_PATTERNS if any(fnmatchcase(lowered, pattern) for pattern in patterns)
    )
    kind = next(matching, None) or _kind_by_verb(words)
    return _changing_kind(words) or kind if kind in HARMLESS_KINDS else kind


def _kind_by_verb(words: Sequence[str]) -> ToolKind:
    first = words[0] if words else ""
    with_object = KIND_VERBS_WITH_OBJECT.get(first) if len(words) > 1 else None
    return KIND_VERBS.get(first) or with_object or "other"


def _changing_kind(words: Sequence[str]) -> ToolKind | None:
    """Return the kind of the first word that changes something; None if there is none."""
    for before, word in itertools.pairwise(("", *words)):
        kind = CHANGING_VERBS.get(word)
        if kind is None and before in _JOINING_WORDS:
            kind = CHANGING_AFTER_AND.get(word)
        if kind is not None:
            return kind
    return None


def _claimed(annotations: Mapping[str, Any], by_name: ToolKind) -> ToolKind:
    """Return the kind that a server claims; the name only decides between kinds that fit the claim."""
    if annotations.get("read_only") is True:
        return by_name if by_name in HARMLESS_KINDS else "read"
    if annotations.get("destructive") is True:
        return by_name if by_name in CHANGING_KINDS else "edit"
    return by_name


def own_title(tool: BaseTool | None, args: ToolArguments, cwd: str) -> str | None:
    """Return the title that the tool itself gives this call, if it does."""
    made: TitleMaker | None = getattr(tool, "title_of", None)
    title = made(TitleArguments(args, cwd)) if made is not None else None
    return None if title is None else shortened(title, LONGEST_TITLE)


class TitleArguments:
    """The arguments of a call for its title, as far as the model has written them.

    A tool's author knows best which of its arguments matter; but arguments are a model's words, may be of any
    type, and are incomplete while the model still writes them.
    """

    def __init__(self, args: ToolArguments, cwd: str) -> None:
        self._args = args
        self._cwd = cwd

    def text(self, name: str) -> str | None:
        """An argument as one short line."""
        return short_text(self._args.get(name))

    def path(self, name: str) -> str | None:
        """An argument that is a path, without the part that all paths of the session begin with."""
        shown = self.text(name)
        return relative(shown, self._cwd) if shown is not None else None

    def number(self, name: str) -> int | None:
        """An argument that is a whole number."""
        value = self._args.get(name)
        return value if type(value) is int else None


def title_with_text(verb: str, argument: str) -> TitleMaker:
    """Titles of a verb and an argument, as "Run make test"."""

    def title(told: TitleArguments) -> str | None:
        text = told.text(argument)
        return None if text is None else f"{verb} {text}"

    return title


def title_with_path(verb: str) -> TitleMaker:
    """Titles of a verb and the argument `path`, as "Write app.py"."""

    def title(told: TitleArguments) -> str | None:
        path = told.path("path")
        return None if path is None else f"{verb} {path}"

    return title

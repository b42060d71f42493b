"""Reads what an agent asks for: the tool, its MCP server, and the paths, commands and URLs that it names.

What an agent says is not trusted. So everything that looks like a path, a command or an address is judged,
wherever it stands in the input, and what cannot be read makes the call one that no rule allows. A title
counts against a call. It counts for one only if it names, in the exact form of a vendor, a tool of a server
that the session was given, and nothing else names another.
"""

from __future__ import annotations

import itertools
import os.path
import re
import shlex
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.events import ToolCall
from coupler.mcp.tool_names import OWN_SERVER, GivenTools, ToolName, name_in_id, names_in, written_name
from coupler.permission.action import (
    READING_KINDS,
    URL_NAMES,
    Action,
    given_variables,
    is_command_name,
    is_path_name,
    is_url,
    snake_case,
)
from coupler.schema.v1 import (
    CreateTerminalRequest,
    Diff,
    ReadTextFileRequest,
    ToolCallLocation,
    WriteTextFileRequest,
)

if TYPE_CHECKING:
    from coupler.client.policy import PermissionRequest
    from coupler.events import ToolCall


PLAIN_PATH_NAMES = frozenset({"path", "paths", "file", "files", "filename", "file_path", "directory", "dir"})
"""Names of arguments that hold a path and nothing else: another value there cannot be judged."""
DIRECTORY_KEYS = frozenset({"cwd", "workdir", "working_directory"})

DEEPEST = 6
"""Levels of the input that are read; anything below makes the call unreadable."""
MOST_VALUES = 1_000
"""Values of the input that are read."""

MOST_CLAIMED = 20
"""Most texts of an input that are looked at as its possible command."""
LONGEST_CLAIMED = 4_000
"""Most characters of such a text."""

PROGRAM_NAMES = frozenset({"program", "executable"})

UNREADABLE = "\0"
"""Placeholder for a path that cannot be judged."""

_NAME_KEYS = frozenset({"toolName", "tool_name"})
"""Keys of `_meta` that name the tool, by itself or within a vendor's object."""
_ACTING_KINDS = frozenset({"execute", "edit", "delete", "move", "fetch"})
"""Kinds that say more of a call than a name of the form `server_tool` does: it may be any tool."""
_QUESTION = re.compile(r'Allow .+ to run tool "(?P<tool>[^"]+)"\?', re.DOTALL)


def action_of(request: PermissionRequest) -> Action:
    """Return the action that rules judge a tool call by."""
    call = request.tool_call
    name = _name_of(request)
    given = input_of(call)
    parameters = _parameters_of_own(name, request.given)
    server = None if name is None or name.server is None else _server_in_rules(name.server, request.given)
    own = _arguments_in(given) if parameters is not None else None
    said = _Said(request.cwd)
    said.read(given, own, parameters or ())
    shown = {*_texts_below([value for key, value in (own or {}).items() if key in (parameters or ())])}
    for location in call.locations:
        if location.path not in shown:
            said.add_path(location.path)
    changes = [item for item in call.content if isinstance(item, Diff)]
    for change in changes:
        said.add_path(change.path)
    if call.kind == "execute" and parameters is None:
        said.read_bare(given)
    touches = said.paths or said.urls or said.env or said.commands
    # Who shows a change does not only read.
    kind = "edit" if changes and call.kind in READING_KINDS else call.kind
    return Action(
        # What kind of a tool a function of the user's is, the agent can only guess.
        kind=kind if parameters is None or touches else "other",
        name=name.tool if name is not None else None,
        server=server,
        aliases=_all_names(request),
        is_handed_over=parameters is not None,
        paths=tuple(dict.fromkeys(said.paths)),
        command=said.commands[0] if said.commands else None,
        more_commands=tuple(said.commands[1:]),
        claimed_commands=_claimed_commands(call, given) if parameters is None and not said.commands else (),
        urls=tuple(dict.fromkeys(said.urls)),
        env=tuple(said.env),
        cwd=said.directory,
        roots=request.roots,
    )


def input_of(call: ToolCall) -> Any:
    """Return the input of a call; some agents send it as a text of JSON."""
    given = call.raw_input
    if not isinstance(given, str) or not given.lstrip().startswith(("{", "[")):
        return given
    try:
        return msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return given


def _parameters_of_own(name: ToolName | None, given: GivenTools) -> frozenset[str] | None:
    """Return the parameters of the user's own function that is called; None if it is another tool."""
    if name is None or name.server is None or name.server != given.own_server:
        return None
    return given.functions.get(name.tool)


def _server_in_rules(server: str, given: GivenTools) -> str:
    """Return the name by which rules judge a server; the one that has the user's functions has another there.

    Who merely says that name, or one that looks like it, means none that a rule for ours allows.
    """
    if server == given.own_server:
        return given.own_name
    is_like_ours = written_name(server) == OWN_SERVER and given.own_server is not None
    if server in given.servers or not (is_like_ours or written_name(server) != server):
        return server
    return f"unknown {server}"


def _name_of(request: PermissionRequest) -> ToolName | None:
    """Return the tool that is called, as far as it is certain."""
    call, servers = request.tool_call, request.given.servers
    if identifiers := _identifiers(call):
        return _agreed(identifiers, servers, call.kind)
    for each in (call, request.announced):
        if each is not None and (name := _by_title(each, servers) or _by_input(each, servers)) is not None:
            return name
    return None


def _identifiers(call: ToolCall) -> list[str]:
    """Return the names that an agent's code gives the tool, in a field, in `_meta` or in the id."""
    found = [call.name, *_names_in_meta(call.meta)]
    return [name for name in found if name] or [name for name in [name_in_id(call.id)] if name]


def _names_in_meta(meta: dict[str, Any] | None) -> Iterator[str]:
    for part in (meta or {}, *(value for value in (meta or {}).values() if isinstance(value, dict))):
        yield from (value for key, value in part.items() if key in _NAME_KEYS and isinstance(value, str))


def _agreed(identifiers: Iterable[str], servers: tuple[str, ...], kind: str) -> ToolName | None:
    """Return the one tool that all of these name; None if they disagree, or can be read in several ways."""
    found: set[ToolName] = set()
    for text in identifiers:
        names = names_in(text, servers)
        # `mcp_a_b_c` of a server that the session was not given: nobody knows where its name ends.
        is_riddle = len(names) > 1 and not any(name.server in servers for name in names)
        is_vague = kind in _ACTING_KINDS and not any(name.is_marked for name in names)
        is_plain = not names or is_riddle or is_vague
        found |= {ToolName(None, text)} if is_plain else {ToolName(name.server, name.tool) for name in names}
    return found.pop() if len(found) == 1 else None


def _by_title(call: ToolCall, servers: tuple[str, ...]) -> ToolName | None:
    """Return the tool of one of the session's servers that a title names in the form of a vendor.

    A title that repeats the input is the model's, and a command may look like `server/tool`.
    """
    names = [name for name in names_in(call.title, servers) if name.server in servers]
    given = input_of(call)
    if len(names) != 1 or call.title in _texts_below(given):
        return None
    [name] = names
    is_sure = isinstance(given, dict) or (name.is_marked and call.kind not in _ACTING_KINDS)
    return ToolName(name.server, name.tool) if is_sure else None


def _by_input(call: ToolCall, servers: tuple[str, ...]) -> ToolName | None:
    """Return the tool of one of the session's servers, for an input that is nothing but a call of it."""
    name = _named_in_input(input_of(call))
    return name if name is not None and name.server in servers and name.tool else None


def _named_in_input(given: Any) -> ToolName | None:
    """Return the tool that an input names; its name is empty if it says only the server.

    Codex shows a call as its server, tool and arguments, and asks with an elicitation of that server.
    """
    match given:
        case {"server": str(server), "tool": str(tool), **rest} if {*rest} <= {"arguments"}:
            return ToolName(server, tool)
        case {"server_name": str(server), "request": dict(asked), **rest} if {*rest} <= {"id", "turn_id"}:
            asking = _QUESTION.fullmatch(str(asked.get("message", "")).strip())
            return ToolName(server, asking["tool"] if asking is not None else "")
    return None


def _arguments_in(given: Any) -> dict[str, Any] | None:
    """Return the tool's arguments in an input: it, or the part of it that has them."""
    match given:
        case {"arguments": dict(arguments), **rest} if {*rest} <= {"server", "tool"}:
            return arguments
        case {"request": {"_meta": {"tool_params": dict(arguments)}}}:
            return arguments
        case dict():
            return given
    return None


def _all_names(request: PermissionRequest) -> tuple[tuple[str | None, str], ...]:
    """Return everything that a call may be called, read generously: this can only count against it."""
    found: list[tuple[str | None, str]] = []
    for call in filter(None, (request.tool_call, request.announced)):
        for text in (call.title, *_identifiers(call), *filter(None, [name_in_id(call.id)])):
            found.append((None, text))
            found += [
                (name.server, name.tool) for name in names_in(text, request.given.servers, is_folded=True)
            ]
        if (named := _named_in_input(input_of(call))) is not None:
            found.append((named.server, named.tool))
    return tuple(dict.fromkeys((_alias_in_rules(server, request.given), name) for server, name in found))


def _alias_in_rules(server: str | None, given: GivenTools) -> str | None:
    return given.own_name if server is not None and server == given.own_server else server


def _claimed_commands(call: ToolCall, given: Any) -> tuple[str, ...]:
    """Return the texts of a call that runs something without saying what: one of them may be its command."""
    if call.kind != "execute":
        return ()
    texts = (call.title.strip().strip("`$ "), *itertools.islice(_texts_below(given), MOST_CLAIMED))
    return tuple(dict.fromkeys(text for text in texts if text and len(text) <= LONGEST_CLAIMED))


def _texts_below(value: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


class _Said:
    """Collects the paths, commands and URLs of a tool call's input."""

    def __init__(self, cwd: str) -> None:
        self.paths: list[str] = []
        self.urls: list[str] = []
        self.env: list[str | tuple[str, str]] = []
        self.directory = cwd
        self._cwd = cwd
        self.commands: list[str | tuple[str, ...]] = []
        self._has_directory = False

    def add_path(self, path: str) -> None:
        """Add a path, and what a shell would make of it."""
        self.paths.append(os.path.join(self._cwd, path))
        if path.startswith("~"):
            self.paths.append(os.path.expanduser(path))

    def read(self, raw: Any, own: dict[str, Any] | None = None, parameters: Collection[str] = ()) -> None:
        """Read a whole input, but for these parameters of a function of the user's with these arguments."""
        for number, (part, depth) in enumerate(_parts(raw, own, parameters)):
            if number > MOST_VALUES or depth > DEEPEST:
                self.paths.append(UNREADABLE)
                return
            for key, value in part.items():
                self._take(snake_case(key), value, part)

    def _take(self, key: str, value: Any, part: dict[str, Any]) -> None:
        if value is None:
            return
        if key in DIRECTORY_KEYS:
            self._take_directory(os.path.join(self._cwd, next(iter(self._texts(value)), UNREADABLE)))
        elif is_path_name(key) and (key in PLAIN_PATH_NAMES or not isinstance(value, bool | int | float)):
            for path in self._texts(value):
                self.add_path(path)
        elif key in URL_NAMES:
            self.urls += [text for text in self._texts(value) if is_url(key, text)]
        elif is_command_name(key) or key in PROGRAM_NAMES:
            self._take_command(key, value, part.get("args", part.get("arguments")))
        elif key in {"env", "environment"}:
            self.env += given_variables(value.items()) if isinstance(value, dict) else [UNREADABLE]

    def read_bare(self, given: Any) -> None:
        """Take an input that is nothing but a command: a text, or its words."""
        if isinstance(given, str) and given:
            self.commands.append(given)
        elif isinstance(given, list) and given and all(isinstance(word, str) for word in given):
            self._take_words(given)

    def _take_directory(self, directory: str) -> None:
        # An agent that names two directories runs it in one of them.
        is_other = self._has_directory and directory != self.directory
        self.directory = UNREADABLE if is_other else directory
        self._has_directory = True

    def _take_command(self, key: str, value: Any, arguments: Any) -> None:
        words = self._texts(value)
        more = [] if arguments is None else self._texts(arguments)
        if isinstance(value, str) and not more:
            self.commands.append(value)
        elif isinstance(value, str):
            self.commands.append(f"{value} {shlex.join(more)}")
        elif key.endswith("s") and not more:
            self.commands += words  # several lines
        elif words:
            self._take_words([*words, *more])

    def _take_words(self, words: list[str]) -> None:
        # One word with blanks in it is a line that somebody has put into a list.
        is_line = len(words) == 1 and len(words[0].split()) > 1
        self.commands.append(words[0] if is_line else tuple(words))

    def _texts(self, value: Any) -> list[str]:
        """Return one text or a list of them; anything else is noted as unreadable, and allows nothing."""
        values = value if isinstance(value, list) else [value]
        texts = [each for each in values if isinstance(each, str)]
        # Objects are looked through by themselves.
        if any(not isinstance(each, str | dict) for each in values):
            self.paths.append(UNREADABLE)
        return texts


def _parts(
    raw: Any, own: dict[str, Any] | None, parameters: Collection[str]
) -> Iterator[tuple[dict[str, Any], int]]:
    """Walk through all objects in a value, from the outside in, with their depth."""
    waiting: deque[tuple[Any, int]] = deque([(raw, 0)])
    while waiting:
        value, depth = waiting.popleft()
        if value is own and own is not None:
            value = {key: each for key, each in own.items() if key not in parameters}
        if isinstance(value, dict):
            yield value, depth
            waiting += [(each, depth + 1) for each in value.values() if isinstance(each, dict | list)]
        elif isinstance(value, list):
            yield {}, depth  # a list counts as well
            waiting += [(each, depth + 1) for each in value if isinstance(each, dict | list)]


def unasked_call(params: Any) -> ToolCall | None:
    """Return what a file or terminal request does, as a tool call; None if rules say nothing of it."""
    match params:
        case ReadTextFileRequest(path=path):
            return ToolCall(id="", title=f"Read {path}", kind="read", locations=(ToolCallLocation(path),))
        case WriteTextFileRequest(path=path):
            return ToolCall(id="", title=f"Write {path}", kind="edit", locations=(ToolCallLocation(path),))
        case CreateTerminalRequest(command=command, args=arguments, cwd=cwd, env=variables):
            words = [command, *(arguments or ())]
            # Without arguments it may be a line for a shell, and is judged as one.
            given: dict[str, Any] = {"command": words if len(words) > 1 else command}
            if cwd:
                given["cwd"] = cwd
            if variables:
                given["env"] = {variable.name: variable.value for variable in variables}
            return ToolCall(id="", title=" ".join(words), kind="execute", raw_input=given)
    return None

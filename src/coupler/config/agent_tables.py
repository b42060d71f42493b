"""Agents and MCP servers as `coupler.toml` defines them: `[agents.NAME]` and `[mcp.NAME]`.

A value that is wrong is never repeated: it may be a token.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from msgspec import Struct, structs

from coupler.config.files import Origin
from coupler.config.shapes import (
    ADDRESS,
    AGENT_NAMES,
    ANY_TEXT,
    LINE,
    PROGRAM,
    TEXTS_BY_NAME,
    CommandLine,
    CommandLines,
    Fault,
    File,
    Scalar,
    SettingNotes,
    line_problem,
    one_of,
)
from coupler.fields.nodes import MappingNode, Node
from coupler.fields.shapes import WRONG, ListOf, MappingOf, Names, Notes, Number, Text
from coupler.fields.tables import Key, Needs, OneOf, Table, shape_of, table

if TYPE_CHECKING:
    from coupler.schema.v1 import McpServer

T = TypeVar("T")

HookEvent = Literal["session_start", "before_tool", "after_tool", "turn_end"]
"""Events that the commands of `hooks` run at."""

EFFORTS = ("off", "on", "minimal", "low", "medium", "high", "xhigh", "max")
"""The effort with which models think: none, their own, or one of the levels that providers have."""

MOST_MODEL_CALLS = 100_000
"""Largest limit on the model calls of one prompt."""

EFFORT = one_of(*EFFORTS)
TEMPERATURE = Number(0, 2)
MAX_OUTPUT_TOKENS = Number(16, 10_000_000, is_whole=True, unit="tokens")
MODEL_CALLS = Number(1, MOST_MODEL_CALLS, is_whole=True, unit="model calls")

_BASE = re.compile(AGENT_NAMES.pattern[1:-1] + "(:acp|:native)?")
_FILES = ListOf(File(), "a list of files")
_RULES = ListOf(LINE, "a list of texts")
_TOOLS = Table(
    "tools",
    "`tools`",
    [Key("", name=name, path=(name,), shape=_RULES) for name in ("allow", "deny")],
    words="a table with `allow` and `deny`",
)
_HOOKS = Table(
    "hooks",
    "`hooks`",
    [Key("", name=event, path=(event,), shape=CommandLines()) for event in get_args(HookEvent)],
    words="a table with a command line for each event",
)


def _base_problem(text: str) -> str | None:
    if line_problem(text) or _BASE.fullmatch(text):
        return line_problem(text)
    return "must be the name of another agent; a command line goes into `command`"


def _text_problem(text: str) -> str | None:
    return None if text.strip() and "\0" not in text else "must be a text that is not empty"


class _ServerNames(ListOf, frozen=True):
    """A list of names of MCP servers, each once."""

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if isinstance(node, MappingNode):
            return notes.unfit(node, key, f"must be {self.words}: the servers are tables [mcp.NAME]")
        names = super().read(node, key, notes)
        return WRONG if names is WRONG else (*dict.fromkeys(names),)


@table("agent", "an agent", OneOf(("command", "agent"), is_needed=False), words="a table")
class AgentTable(Struct, frozen=True):
    """The settings of one agent; what is None is as the catalogue has it."""

    name: str
    origin: Origin
    command: Annotated[
        tuple[str, ...] | None,
        Key("Starts the agent. A path starts where the file is, as all paths in it do.", shape=CommandLine()),
    ] = None
    agent: Annotated[
        str | None,
        Key(
            "The agent that it is based on, in place of a `command`: one of the catalogue, or another table.",
            shape=Text("a name", check=_base_problem),
        ),
    ] = None
    title: Annotated[str | None, Key("What people are shown.", shape=LINE)] = None
    env: Annotated[Mapping[str, str], Key("Added to its environment.", shape=TEXTS_BY_NAME)] = {}
    files: Annotated[
        Literal["none", "read", "write"] | None,
        Key("What it is offered of [files](clients.md#files) if nobody says so with `files=` or `--files`."),
    ] = None
    system: Annotated[
        str | None,
        Key(
            "Instructions, which it is given before the first prompt.",
            shape=Text("a text that is not empty", check=_text_problem),
        ),
    ] = None
    model: Annotated[str | None, Key("The model that its new sessions are set to.", shape=LINE)] = None
    base_url: Annotated[
        str | None, Key("Of an agent based on `coder`: the server that has the model.", shape=ADDRESS)
    ] = None
    max_model_calls: Annotated[
        int | None,
        Key(
            "Of an agent based on `coder`: how often one prompt asks the model at most.",
            shape=MODEL_CALLS,
        ),
    ] = None
    effort: Annotated[
        str | None, Key("Of an agent based on `coder`: how much the model thinks.", shape=EFFORT)
    ] = None
    temperature: Annotated[
        float | None,
        Key("Of an agent based on `coder`: the temperature of the model.", shape=TEMPERATURE),
    ] = None
    max_output_tokens: Annotated[
        int | None,
        Key(
            "Of an agent based on `coder`: how long an answer of the model may be.",
            shape=MAX_OUTPUT_TOKENS,
        ),
    ] = None
    mode: Annotated[str | None, Key("The mode that its new sessions are set to.", shape=LINE)] = None
    options: Annotated[
        Mapping[str, str | int | float | bool],
        Key(
            "Options of its new sessions by their ids; of native agents those of their command lines.",
            shape=MappingOf(Scalar(), "a table of options", Names("", "a text")),
        ),
    ] = {}
    allow: Annotated[
        tuple[str, ...],
        Key("[Permission rules](permissions.md) for its tool calls.", name="tools", shape=_TOOLS),
    ] = ()
    """Permission rules for its tool calls, as are those in `deny`."""
    deny: tuple[str, ...] = ()
    context: Annotated[tuple[str, ...], Key("Their texts go before the first prompt.", shape=_FILES)] = ()
    """Files whose text goes before a prompt, as absolute paths."""
    skills: Annotated[tuple[str, ...], Key("Their texts are added to the instructions.", shape=_FILES)] = ()
    """Files with instructions, as absolute paths."""
    mcp: Annotated[
        tuple[str, ...] | None,
        Key(
            "Of an agent based on `coder`: the servers of [`[mcp]`](configuration.md#mcp-servers) that "
            "it uses; without it all of them.",
            shape=_ServerNames(LINE, "a list of names"),
        ),
    ] = None
    """Names of servers of `[mcp]`; None if nothing is said about them, so that all of them are meant."""
    hooks: Annotated[
        Mapping[HookEvent, tuple[str, ...]],
        Key(
            "Of an agent based on `coder`: for `session_start`, `before_tool`, `after_tool` or "
            "`turn_end` a command line, or a list of them.",
            shape=_HOOKS,
        ),
    ] = {}
    """Command lines that run when something happens, in their order."""

    @classmethod
    def from_keys(cls, fields: dict[str, Any]) -> "AgentTable":
        """Make it, with the rules of its `tools`."""
        rules = fields.pop("allow", {})
        return cls(**fields, **rules)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the keys that do not go together with the others, and why."""
        if self.agent is not None and self.agent.partition(":")[0] == self.name:
            yield "agent", "it must be another agent than itself"


AGENTS = MappingOf(
    shape_of(AgentTable), "a table for each agent: write [agents.NAME]", AGENT_NAMES, is_tuple=True
)


def whole_table(name: str, tables: Mapping[str, AgentTable]) -> AgentTable | None:
    """Merge the table of an agent with those that it is based on; None if it has none itself.

    Of texts the nearest counts. Lists are concatenated, those of the base first; tables are merged, and of
    entries with one name the nearest counts.
    """
    chain = [*_chain(name, tables)]
    if not chain:
        return None
    below_first = chain[::-1]
    return structs.replace(
        chain[0],
        title=_first(table.title for table in chain),
        system=_first(table.system for table in chain),
        model=_first(table.model for table in chain),
        base_url=_first(table.base_url for table in chain),
        max_model_calls=_first(table.max_model_calls for table in chain),
        effort=_first(table.effort for table in chain),
        temperature=_first(table.temperature for table in chain),
        max_output_tokens=_first(table.max_output_tokens for table in chain),
        mode=_first(table.mode for table in chain),
        mcp=_first(table.mcp for table in chain),
        allow=_added_up(table.allow for table in below_first),
        deny=_added_up(table.deny for table in below_first),
        context=_added_up(table.context for table in below_first),
        skills=_added_up(table.skills for table in below_first),
        options={option: value for table in below_first for option, value in table.options.items()},
        hooks={event: lines for table in below_first for event, lines in table.hooks.items()},
        env={variable: value for table in below_first for variable, value in table.env.items()},
    )


def _chain(name: str, tables: Mapping[str, AgentTable]) -> Iterator[AgentTable]:
    """Yield the table of this name, the one that it is based on, and so on; a cycle ends."""
    seen: set[str] = set()
    while name in tables and name not in seen:
        seen.add(name)
        yield tables[name]
        name = (tables[name].agent or "").partition(":")[0]


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _added_up(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for some in lists for each in some))


def _address_problem(text: str) -> str | None:
    if problem := line_problem(text):
        return problem
    return None if text.startswith(("https://", "http://")) else "must begin with https:// or http://"


def _header_problem(text: str) -> str | None:
    # A variable may have several lines, as keys in PEM do; a header may not.
    return "must be one line without control characters" if re.search("[\x00-\x1f\x7f]", text) else None


@table(
    "mcp_server",
    "an MCP server",
    OneOf(("command", "url")),
    *(Needs(name, "command") for name in ("args", "env")),
    *(Needs(name, "url") for name in ("headers", "type")),
    words="a table",
)
class ServerTable(Struct, frozen=True):
    """An MCP server: a program that is started, or an address."""

    name: str
    command: Annotated[str | None, Key("The program: a name on the `PATH`, or a path.", shape=PROGRAM)] = None
    args: Annotated[tuple[str, ...], Key("Its arguments.", shape=ListOf(ANY_TEXT, "a list of texts"))] = ()
    env: Annotated[
        Mapping[str, str],
        Key(
            "Its variables. It gets these and a few that every program needs (`PATH`, `HOME`, `LANG` …), no "
            "others.",
            shape=TEXTS_BY_NAME,
        ),
    ] = {}
    url: Annotated[
        str | None,
        Key(
            "In place of a command: the address of a server, `https://…` or `http://…`.",
            shape=Text(check=_address_problem),
        ),
    ] = None
    headers: Annotated[
        Mapping[str, str],
        Key(
            "What is sent to it with every request.",
            shape=MappingOf(Text(check=_header_problem), TEXTS_BY_NAME.words, TEXTS_BY_NAME.names),
        ),
    ] = {}
    type: Annotated[
        Literal["http", "sse"],
        Key(
            'How it is spoken to; `"http"` (streamable HTTP) unless said otherwise.',
            shape=one_of("http", "sse"),
        ),
    ] = "http"

    @classmethod
    def from_keys(cls, fields: dict[str, Any]) -> "McpServer":
        """Make the server as the protocol describes it."""
        # Imported on use: a configuration without servers needs no types of the protocol.
        from coupler.schema import v1

        said = cls(**fields)
        if said.command is not None:
            variables = [v1.EnvVariable(*pair) for pair in said.env.items()]
            return v1.McpServerStdio(said.name, said.command, said.args, variables)
        assert said.url is not None
        kind = v1.McpServerSse if said.type == "sse" else v1.McpServerHttp
        return kind(said.name, said.url, [v1.HttpHeader(*pair) for pair in said.headers.items()])


SERVERS = MappingOf(
    shape_of(ServerTable),
    "a table for each server: write [mcp.NAME]",
    Names("^[A-Za-z0-9_.-]{1,64}$", AGENT_NAMES.words),
    is_tuple=True,
)
"""Servers by names that a rule such as `mcp:github(create_issue)` can have."""


def servers_in(
    tables: Mapping[str, object], origin: Origin, home: str | None
) -> "tuple[McpServer, ...] | Fault":
    """Read servers that are given as in `[mcp]`; returns what is wrong first, if something is."""
    notes = SettingNotes(lambda path: origin, home)
    servers: tuple[McpServer, ...] = SERVERS.read(notes.node(tables, ()), "mcp", notes)
    return notes.faults[0] if notes.faults else servers

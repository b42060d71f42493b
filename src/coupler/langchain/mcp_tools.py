"""Connects a session's MCP servers in the background, and offers their tools to graphs.

A server has some seconds before a model call goes on without it, and the user is told; its tools are there
from the call on at which it is ready. One that fails is told to the user once, and costs only its own tools.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import weakref
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import ReferenceType, WeakKeyDictionary

import msgspec
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from coupler.agent.content import resource_text
from coupler.agent.mcp_servers import CALL_LIMIT, McpCallHandler
from coupler.agent.session import configuration_of
from coupler.agent.tool_call import Call
from coupler.config.agent_tables import servers_in
from coupler.config.files import Origin
from coupler.config.shapes import Fault
from coupler.fields.json_types import without_nulls
from coupler.langchain.current import Current, HeldUpError, current, send_warning
from coupler.langchain.tool_calls import JoinedCall
from coupler.mcp.servers import ServerEnvironment, SessionServers, merge_servers
from coupler.mcp.tools import McpError, Tool, ToolResult, printable, server_label
from coupler.runtime.extras import MissingExtraError, require_methods
from coupler.schema.v1 import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    McpServer,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.langchain")

NamePrefix = Literal["collision", "always", "never"]
"""Condition for calling a tool `server_tool` rather than `tool`."""

START_TIMEOUT = 10.0
"""Seconds from a server's start on that model calls wait for it, unless another time is given."""

REFRESH_TIMEOUT = 2.0
"""Seconds that a turn waits to hear whether a server, whose tools are known, has others by now."""

LONGEST_NAME = 64
"""Characters of a tool's name that all providers take."""

LONGEST_TEXT = 400_000
"""Characters of one block of text that a model gets to read."""

NO_TYPE = "application/octet-stream"

HOW_TO_USE = (
    "write `from coupler import acp` and create_agent(…, middleware=[acp.tools()]); a graph of another kind "
    "gets their tools by `await acp.mcp_tools(session)` in a factory"
)

ONLY_ASYNC = "this tool waits for a server: call the agent with `ainvoke` or `astream`"

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")

_HERE = Origin("command line")

_TRANSPORTS = {
    "stdio": None,
    "http": "http",
    "streamable_http": "http",
    "streamable-http": "http",
    "sse": "sse",
}
"""Transports of langchain-mcp-adapters, with the names that `coupler.toml` has for them."""


def begin_connecting(session: Session) -> None:
    """Connect to the session's servers, in the background; those that are known already stay connected."""
    if session.servers.names:
        _tools_of(session).begin()


async def mcp_tools(
    session: Session,
    prefix: NamePrefix = "collision",
    *,
    taken: Collection[str] = (),
    wait: float = START_TIMEOUT,
) -> list[BaseTool]:
    """Return the tools that the session's servers have now. `taken` are names that they must not have.

    A server that starts is waited for until `wait` seconds after its start.
    """
    if not session.servers.names:
        return []
    prompt = current()
    if prompt is None or prompt.session is not session:
        return await _found(session, checked_prefix(prefix), taken, wait, None)
    return await prompt.on_loop(_found(session, checked_prefix(prefix), taken, wait, prompt.turn))


async def _found(
    session: Session, prefix: NamePrefix, taken: Collection[str], wait: float, turn: Turn | None
) -> list[BaseTool]:
    listing = _tools_of(session)
    listing.is_wanted = True
    await listing.until_ready(turn, wait)
    if turn is not None:
        await listing.tell_late(turn)
        await listing.tell_failures(turn)
    return listing.tools(prefix, taken)


def load_mcp_tools(
    servers: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    prefix: NamePrefix = "collision",
    cwd: str | os.PathLike[str] = ".",
    configured: bool = True,
) -> LoadedTools:
    """The tools of these MCP servers, and of those that `coupler.toml` has for the directory.

    Each is a mapping as in `coupler.toml`: `command`, `args` and `env`, or `url`, `headers` and `type`.
    One that is named here counts in place of one of the same name that is configured; `configured=False`
    leaves those out. A server that fails is logged, and costs only its own tools.

    With `async with` the servers end with the block; with `await` they end with the event loop.
    """
    directory = str(Path(cwd).absolute())
    given = _read(servers or {})
    settings = configuration_of(directory, os.environ).mcp if configured else ()
    entries = merge_servers(settings, given)
    return LoadedTools(
        SessionServers(entries, ServerEnvironment(directory, os.environ)), checked_prefix(prefix)
    )


class LoadedTools:
    """The tools of MCP servers for a program that is not served; awaited, or entered and left."""

    def __init__(self, servers: SessionServers, prefix: NamePrefix) -> None:
        self._servers = servers
        self._prefix = prefix

    def __await__(self) -> Generator[Any, None, list[BaseTool]]:
        return self._load().__await__()

    async def __aenter__(self) -> list[BaseTool]:
        try:
            return await self._load()
        except BaseException:
            await self._servers.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._servers.close()

    async def _load(self) -> list[BaseTool]:
        named = ToolNames(self._prefix).of(await self._servers.tools())
        return [McpTool(name, tool, self._servers) for name, tool in named.items()]


def _read(servers: Mapping[str, Mapping[str, Any]]) -> tuple[McpServer, ...]:
    tables = {name: _table(name, server) for name, server in servers.items()}
    read = servers_in(tables, _HERE, str(Path.home()))
    if isinstance(read, Fault):
        place = ".".join(f"`{part}`" if isinstance(part, str) else str(part) for part in read.path)
        raise ValueError(f"the MCP server {place}{read.message}")
    return read


def _table(name: str, server: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(server, Mapping):
        raise TypeError(f"the MCP server {name!r} is a mapping with `command` or `url`, not {server!r}")
    table = dict(server)
    transport = table.pop("transport", None)
    if transport is not None:
        if transport not in _TRANSPORTS:
            raise ValueError(f"the MCP server {name!r}: `transport` is one of {', '.join(_TRANSPORTS)}")
        if _TRANSPORTS[transport] is not None:
            table.setdefault("type", _TRANSPORTS[transport])
    if "args" in table:
        table["args"] = [*table["args"]] if isinstance(table["args"], tuple) else table["args"]
    return table


def warn_if_unused(turn: Turn) -> None:
    """Warn once, after a turn, if the agent does not use the session's servers."""
    session = turn.session
    listing = _session_tools.get(session)
    if listing is None or listing.is_wanted:
        return
    listing.is_wanted = True
    servers = ", ".join(server_label(name) for name in session.servers.names)
    log.warning("this agent does not use %s: %s", servers, HOW_TO_USE)
    send_warning(turn, f"This agent does not use {servers}", f"To let it, {HOW_TO_USE}.")


class SessionTools:
    """The tools of one session's servers, as far as they are known. One task a server asks for them."""

    def __init__(self, session: Session) -> None:
        # Weak: a listing is found by its session, and must not keep it.
        self._session = weakref.ref(session)
        self._servers = session.servers
        self._entries: dict[str, McpServer] = {}
        self._tools: dict[str, list[Tool]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._asked_at: dict[str, float] = {}
        self._failures: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._names: dict[NamePrefix, ToolNames] = {}
        self._made: dict[str, tuple[Tool, McpTool]] = {}
        self._turn: Turn | None = None
        self.is_wanted = False
        """True if anybody has asked for the tools."""
        self._is_late: set[str] = set()
        """Servers that are not waited for any more, until they have tools."""
        self._told_late: set[str] = set()

    def begin(self) -> None:
        """Ask each server that is new or has changed for its tools."""
        entries = dict(self._servers.entries)
        for name in [*self._entries]:
            if entries.get(name) != self._entries[name]:
                self._forget(name)
        for name, entry in entries.items():
            if name not in self._entries:
                self._entries[name] = entry
                self._ask(name)

    async def until_ready(self, turn: Turn | None, wait: float) -> None:
        """Wait for servers that started less than `wait` seconds ago; a new turn asks all of them again."""
        self.begin()
        known = {name for name in self._entries if name in self._tools}
        if turn is not None and turn is not self._turn:
            if self._turn is not None:
                for name in self._entries:
                    self._ask(name)
            self._turn = turn
        await self._wait([name for name in self._asking if name in known], min(REFRESH_TIMEOUT, wait))
        awaited = [name for name in self._asking if name not in known | self._is_late]
        await self._wait(awaited, wait)
        self._is_late.update(name for name in awaited if name in self._asking)

    async def tell_late(self, turn: Turn) -> None:
        """Tell the user of servers that are not waited for any more, each once."""
        late = [name for name in self._asking if name in self._is_late - self._told_late - {*self._failures}]
        if not late:
            return
        self._told_late.update(late)
        names = ", ".join(server_label(name) for name in late)
        their = "their tools are added when they are" if len(late) > 1 else "its tools are added when it is"
        await turn.notice(f"Waiting for {names}", f"The work continues; {their} ready.")

    async def tell_failures(self, turn: Turn) -> None:
        """Tell the user of servers that have failed, each once for each reason."""
        for name, reason in [*self._failures.items()]:
            if self._told.get(name) != reason:
                self._told[name] = reason
                await turn.notice(
                    f"The tools of {server_label(name)} are missing", reason, severity="warning"
                )

    def tools(self, prefix: NamePrefix, taken: Collection[str]) -> list[BaseTool]:
        """The tools that are known by now, in the order of the servers."""
        found = [tool for name in self._entries for tool in self._tools.get(name, ())]
        names = self._names.setdefault(prefix, ToolNames(prefix))
        return [self._tool(name, tool) for name, tool in names.of(found, taken).items()]

    def _tool(self, name: str, tool: Tool) -> McpTool:
        known, made = self._made.get(name, (None, None))
        if made is None or known != tool:
            made = McpTool(name, tool, self._servers, self._session)
            self._made[name] = tool, made
        return made

    def _ask(self, name: str) -> None:
        if name in self._asking:
            return
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._list(name), name=f"tools of {name}")
        self._asking[name] = task
        self._asked_at[name] = loop.time()
        task.add_done_callback(lambda done: self._end_asking(name, done))

    def _end_asking(self, name: str, done: asyncio.Task[None]) -> None:
        if self._asking.get(name) is done:
            del self._asking[name]

    async def _list(self, name: str) -> None:
        try:
            self._tools[name] = await self._servers.tools_of(name)
            self._failures.pop(name, None)
            self._is_late.discard(name)
            self._told_late.discard(name)
        except (McpError, MissingExtraError) as error:
            log.warning("%s", error)
            self._tools.pop(name, None)
            self._failures[name] = str(error)
            self._is_late.add(name)

    async def _wait(self, names: list[str], seconds: float) -> None:
        """Wait for those of the servers that were asked less than so many seconds ago."""
        ends = {self._asking[name]: self._asked_at[name] + seconds for name in names if name in self._asking}
        left = max(ends.values(), default=0.0) - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.wait([*ends], timeout=left)

    def _forget(self, name: str) -> None:
        self._entries.pop(name)
        self._tools.pop(name, None)
        self._failures.pop(name, None)
        self._is_late.discard(name)
        self._told_late.discard(name)
        if name in self._asking:
            self._asking.pop(name).cancel()


_session_tools: WeakKeyDictionary[Session, SessionTools] = WeakKeyDictionary()


def _tools_of(session: Session) -> SessionTools:
    listing = _session_tools.get(session)
    if listing is None:
        listing = _session_tools[session] = SessionTools(session)
    return listing


require_methods(BaseTool, "_to_args_and_kwargs", package="langchain-core", extra="langchain")


class McpTool(BaseTool):
    """One tool of an MCP server, as a LangChain tool. It is never called from other sessions than its own.

    In a served graph each use is decided about by the permission engine, whatever the server says of its
    tool: a server is not the user's own code. What it shows is shown by the model's own tool call, block by
    block; what goes wrong is an error that the model reads, and never the end of the turn. Its connection
    stays open.
    """

    _tool: Tool = PrivateAttr()
    _servers: SessionServers = PrivateAttr()
    _session: ReferenceType[Session] | None = PrivateAttr(default=None)

    def __init__(
        self, name: str, tool: Tool, servers: SessionServers, session: ReferenceType[Session] | None = None
    ) -> None:
        super().__init__(
            name=name,
            description=tool.description or f"The tool {tool.name} of the MCP server {tool.server}.",
            args_schema=_with_properties(tool.input_schema),
            metadata={"coupler": _described(tool)},
        )
        self._tool = tool
        self._servers = servers
        self._session = session

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pass the arguments as one dictionary: as keywords, their names could clash with LangChain's own."""
        if isinstance(tool_input, str):
            raise ToolException(f"{self.name} takes its arguments by name, not one text")
        return (dict(without_nulls(tool_input, self._tool.input_schema)), tool_call_id), {}

    def _run(self, arguments: dict[str, Any], call_id: str | None) -> Any:
        """Run the tool for agents that a plain function of a served graph runs: its thread can wait."""
        prompt = current()
        if prompt is None or self._session is None:
            raise NotImplementedError(ONLY_ASYNC)
        try:
            return prompt.wait_for(self._arun(arguments, call_id))
        except HeldUpError as error:
            return self._answer(f"{self.name} was not used: {error}", call_id, is_error=True)

    async def _arun(self, arguments: dict[str, Any], call_id: str | None) -> Any:
        prompt, call = current(), self._called(arguments, call_id)
        try:
            result = await (call if prompt is None or self._session is None else prompt.on_loop(call))
        except (McpError, _NotUsedError) as error:
            return self._answer(str(error), call_id, is_error=True)
        structured = {"structured_content": result.structured} if result.structured is not None else None
        return self._answer(message_content(result), call_id, is_error=result.is_error, artifact=structured)

    def _answer(
        self,
        content: str | list[dict[str, Any]],
        call_id: str | None,
        *,
        is_error: bool,
        artifact: Any = None,
    ) -> Any:
        if call_id is None:
            if is_error:
                raise ToolException(content)
            return content
        return ToolMessage(
            content=content,  # type: ignore[arg-type]  # a list is invariant
            tool_call_id=call_id,
            name=self.name,
            status="error" if is_error else "success",
            artifact=artifact,
        )

    async def _called(self, arguments: dict[str, Any], call_id: str | None) -> ToolResult:
        tool, prompt = self._tool, current()
        if self._session is None:
            return await self._servers.call(tool.server, tool.name, arguments, CALL_LIMIT)
        if prompt is None or prompt.session is not self._session():
            raise _NotUsedError(f"{self.name} belongs to another session, and was not used")
        key = prompt.call_id
        if call_id is None and key is not None:
            is_own = key in prompt.calls and prompt.calls.name(key) == self.name
            key = key if is_own else None  # otherwise it is the call around this one
        async with self._block(prompt, arguments, key) as call:
            if not await call.permitted():
                raise _NotUsedError(f"{self.name} was not used: {call.refusal}")
            handler = McpCallHandler(prompt.turn, tool.server, call.output)
            result = await prompt.turn.own(
                self._servers.call(tool.server, tool.name, arguments, CALL_LIMIT, call.id, handler)
            )
            for block in result.content:
                await call.output(block)
            if key is not None and result.content:
                prompt.calls.shown.add(key)
            return result

    def _block(self, prompt: Current, arguments: dict[str, Any], key: str | None) -> Call:
        """Return the model's own call; a new one if the graph's code uses the tool without a model."""
        tool = self._tool
        title = f"{printable(tool.server)}: {printable(tool.name)}"
        if key is not None and prompt.calls.is_open(key):
            return JoinedCall(prompt, key, title, kind="other", name=tool.name, server=tool.server)
        return Call(
            prompt.turn,
            title,
            kind="other",
            name=tool.name,
            path=None,
            line=None,
            input=arguments,
            id=None,
            server=tool.server,
        )


class _NotUsedError(Exception):
    """Raised if the tool was not used, for a reason that the model may know."""


def _with_properties(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with `properties`, which providers require even if there are none."""
    return {"type": "object", "properties": {}, **schema}


def _described(tool: Tool) -> dict[str, Any]:
    claims = tool.annotations
    return {
        "server": tool.server,
        "tool": tool.name,
        "title": tool.title,
        "annotations": {
            "read_only": claims.read_only,
            "destructive": claims.destructive,
            "idempotent": claims.idempotent,
            "open_world": claims.open_world,
        },
    }


class ToolNames:
    """Gives one session's tools their names before a model: unlike each other, and as providers allow it.

    A name that was given stays for as long as the session does: the model has it in its history.
    """

    def __init__(self, prefix: NamePrefix) -> None:
        self._prefix = prefix
        self._given: dict[tuple[str, str], str] = {}

    def of(self, tools: Iterable[Tool], taken: Collection[str] = ()) -> dict[str, Tool]:
        """The tools by their names. `taken` are others' names, which win over those of servers.

        Without a prefix, one of several tools with the same name is left out: the later one.
        """
        tools = [*tools]
        own = Counter(_fit(tool.name) for tool in tools)
        named: dict[str, Tool] = {}
        for tool in tools:
            name = self._given.get((tool.server, tool.name))
            if name is None or name in taken:
                name = self._new(tool, own, {*taken, *named, *self._given.values()})
            if name not in named and name not in taken:
                self._given[tool.server, tool.name] = name
                named[name] = tool
        return named

    def _new(self, tool: Tool, own: Counter[str], taken: Collection[str]) -> str:
        plain = _fit(tool.name)
        if self._prefix == "never":
            return plain
        if self._prefix == "collision" and own[plain] == 1 and plain not in taken:
            return plain
        name = _fit(f"{tool.server}_{tool.name}")
        return name if name not in taken else _shortened(f"{name}_", f"{tool.server}\0{tool.name}")


def _fit(name: str) -> str:
    fit = _UNFIT.sub("_", name) or "_"
    return fit if len(fit) <= LONGEST_NAME else _shortened(fit, name)


def _shortened(beginning: str, whole: str) -> str:
    """Cut a name, with a digest that distinguishes it from others that begin alike."""
    mark = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{beginning[: LONGEST_NAME - len(mark)]}{mark}"


def checked_prefix(prefix: str) -> NamePrefix:
    """Return the word if it is one that `prefix` takes."""
    if prefix not in get_args(NamePrefix):
        raise ValueError(f"prefix is one of {', '.join(map(repr, get_args(NamePrefix)))}, not {prefix!r}")
    return prefix  # type: ignore[return-value]  # it was looked at


def message_content(result: ToolResult) -> str | list[dict[str, Any]]:
    """Return an MCP result as the content of a tool message: a text if there is nothing else in it.

    LangChain's tool messages take text, images and files; anything else would turn the whole result into
    text. So sound is a file by its type, and what is only pointed to is named in words.
    """
    blocks = [block for block in map(_block, result.content) if block is not None]
    if not blocks and result.structured is not None:
        return _cut(msgspec.json.encode(result.structured).decode())
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _block(block: ContentBlock) -> dict[str, Any] | None:
    match block:
        case TextContent(text=text):
            return _text(text)
        case ImageContent(data=data, mime_type=mime_type):
            return {"type": "image", "base64": data, "mime_type": mime_type}
        case AudioContent(data=data, mime_type=mime_type):
            return {"type": "file", "base64": data, "mime_type": mime_type}
        case EmbeddedResource(resource=TextResourceContents(text=text, uri=uri)):
            return {"type": "text", "text": resource_text(uri, _cut(text))}
        case EmbeddedResource(resource=BlobResourceContents(blob=blob, mime_type=mime_type)):
            return {"type": "file", "base64": blob, "mime_type": mime_type or NO_TYPE}
        case ResourceLink(name=name, uri=uri, description=description):
            return _text(f"{name}: {uri}" + (f" ({description})" if description else ""))
    return None


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": _cut(text)}


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n… ({len(text) - LONGEST_TEXT} more characters were left out)"

"""One tool of an MCP server, as a LangChain tool.

In a served graph each use is decided about by the permission engine, whatever the server says of its tool: a
server is not the user's own code. What it shows is shown by the model's own tool call, block by block; what
goes wrong is an error that the model reads, and never the end of the turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ReferenceType

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from coupler.agent.mcp_servers import CALL_LIMIT, CallAttendant
from coupler.agent.tool_call import Call
from coupler.bridges.langchain.current import Current, HeldUpError, current
from coupler.bridges.langchain.mcp.result import message_content
from coupler.bridges.langchain.tool_calls.joined_call import JoinedCall
from coupler.mcp.servers import Servers
from coupler.mcp.tools import McpError, Tool, ToolResult, shown

if TYPE_CHECKING:
    from coupler.agent.session import Session

ONLY_ASYNC = "this tool waits for a server: call the agent with `ainvoke` or `astream`"


class McpTool(BaseTool):
    """Calls through a connection that stays open; it is never called from other sessions than its own."""

    _tool: Tool = PrivateAttr()
    _servers: Servers = PrivateAttr()
    _session: ReferenceType[Session] | None = PrivateAttr(default=None)

    def __init__(
        self, name: str, tool: Tool, servers: Servers, session: ReferenceType[Session] | None = None
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
        """Arguments may be called like anything; as keywords they would meet LangChain's own."""
        if isinstance(tool_input, str):
            raise ToolException(f"{self.name} takes its arguments by name, not one text")
        return (dict(tool_input), tool_call_id), {}

    def _run(self, arguments: dict[str, Any], call_id: str | None) -> Any:
        """For agents that a plain function of a served graph runs: its thread can wait for this."""
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
        key = prompt.call_id if call_id is not None else None
        async with self._block(prompt, arguments, key) as call:
            if not await call.permitted():
                raise _NotUsedError(f"{self.name} was not used: {call.refusal}")
            attendant = CallAttendant(prompt.turn, tool.server, call.output)
            result = await prompt.turn.own(
                self._servers.call(tool.server, tool.name, arguments, CALL_LIMIT, call.id, attendant)
            )
            for block in result.content:
                await call.output(block)
            if key is not None and result.content:
                prompt.calls.shown.add(key)
            return result

    def _block(self, prompt: Current, arguments: dict[str, Any], key: str | None) -> Call:
        """The model's own call; code of the graph that uses the tool without a model gets one of its own."""
        tool = self._tool
        title = f"{shown(tool.server)}: {shown(tool.name)}"
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
    """The tool was not used, for a reason that the model may know."""


def _with_properties(schema: dict[str, Any]) -> dict[str, Any]:
    """Models' providers want the properties to be named, also if there are none."""
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

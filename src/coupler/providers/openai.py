"""Models behind an OpenAI-compatible server: chat completions, streamed, with tools in a bounded loop.

The conversation is the session's state. Tools are Python functions and those of the session's MCP servers;
each use is a tool call that the permission engine decides about.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from coupler.agent.agent import Agent
from coupler.agent.content import json_value
from coupler.agent.errors import describe
from coupler.mcp.functions import Function, functions_of, result_of
from coupler.providers.conversation import Conversation
from coupler.providers.errors import ProviderError
from coupler.providers.http_stream import Answer, post
from coupler.providers.loose import Loose, parsed_text
from coupler.providers.openai_stream import OpenAIStream, Wanted
from coupler.providers.registry import ENTRIES
from coupler.providers.said import Tokens
from coupler.providers.showing import Showing
from coupler.schema.v1 import StopReason

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.mcp.tools import Tool

BASE_URL = "https://api.openai.com/v1"
MOST_ROUNDS = 25
"""Answers of the model in one turn, unless another limit is given."""

RETRIES = 2
LONGEST_WAIT = 30.0
"""Seconds that a server may ask us to wait before the next try."""

PARAMETERS = (
    "frequency_penalty",
    "max_completion_tokens",
    "max_tokens",
    "presence_penalty",
    "reasoning_effort",
    "seed",
    "stop",
    "temperature",
    "tool_choice",
    "top_p",
)
"""The options of a request that can be set."""

ERRORS = {
    401: "It refuses the key: set OPENAI_API_KEY, or give `api_key`.",
    403: "The key may not use this.",
    404: "It does not know the address or the model: look at `base_url` and `model`.",
    429: "It has had too many requests, or the account has nothing left.",
}


class Server(NamedTuple):
    """Where a turn's requests go."""

    url: str
    headers: dict[str, str]
    model: str


class OpenAI(Agent):
    """A model behind an address. An instance may be shared: what a session says is kept in its own state."""

    name = "openai"
    title = ENTRIES["openai"].title
    accepts = ("image", "resource")

    def __init__(
        self,
        *,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        system_prompt: str | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        allowed_tools: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        max_rounds: int = MOST_ROUNDS,
    ) -> None:
        """What is not given is read from OPENAI_MODEL, OPENAI_BASE_URL and OPENAI_API_KEY.

        `tools` are Python functions; those named in `allowed_tools` are called without asking. `options` are
        parameters of the request, such as `temperature`. `output_schema` is the JSON Schema of the answer.
        """
        self._model = model
        self._base_url = base_url
        self._api_key = api_key
        self._system_prompt = system_prompt
        self._functions = functions_of(tools)
        self._allowed_tools = frozenset(allowed_tools)
        self._options = _parameters(options or {})
        self._output_schema = dict(output_schema) if output_schema is not None else None
        self._headers = dict(headers or {})
        self._max_rounds = max_rounds

    async def prompt(self, turn: Turn) -> StopReason | None:
        """Let the model answer, and use tools, until it wants no more."""
        server = self._server(turn)
        conversation = Conversation.of(turn.session.state)
        conversation.ask(turn)
        try:
            return await self._converse(turn, server, conversation)
        finally:
            # Also of a turn that was cancelled: what was said was said.
            conversation.settle()
            turn.session.state = conversation.as_state()

    async def _converse(self, turn: Turn, server: Server, conversation: Conversation) -> StopReason | None:
        tools = Tools(turn, self._functions, self._allowed_tools)
        showing = Showing(turn, cost_before=conversation.cost)
        spent: Tokens | None = None
        for _ in range(self._max_rounds):
            offered = await tools.offered()
            message = OpenAIStream()
            try:
                await turn.own(self._hear(server, conversation, offered, message, showing))
            except BaseException:
                conversation.answer(message.text, [])  # half a tool call is none
                raise
            conversation.answer(message.text, message.wanted)
            spent = message.outcome.tokens.plus(spent) if message.outcome.tokens is not None else spent
            if spent is not None:
                await showing.show_tokens(spent)
            if message.outcome.cost is not None:
                await showing.show_cost(message.outcome.cost + conversation.cost_of_turn)
                conversation.cost_of_turn += message.outcome.cost
            wanted = conversation.open_calls
            if not wanted:
                return _verdict(message)
            turn.begin_new_message()
            for call in wanted:
                conversation.return_result(call.id, await tools.use(call))
        return "max_turn_requests"

    async def _hear(
        self,
        server: Server,
        conversation: Conversation,
        offered: list[dict[str, Any]],
        message: OpenAIStream,
        showing: Showing,
    ) -> None:
        body = msgspec.json.encode(self._request(server, conversation, offered))
        for tries_left in reversed(range(RETRIES + 1)):
            async with post(server.url, server.headers, body) as answer:
                if answer.status == 200:
                    async for payload in _payloads(answer):
                        for said in message.read(payload):
                            await showing.show(said)
                    break
                wait = await _refused(answer, can_wait=tries_left > 0)
            await asyncio.sleep(wait)
        if message.outcome.error is not None:
            raise ProviderError(f"The server failed: {message.outcome.error}")

    def _request(
        self, server: Server, conversation: Conversation, offered: list[dict[str, Any]]
    ) -> dict[str, Any]:
        system = [{"role": "system", "content": self._system_prompt}] if self._system_prompt else []
        request: dict[str, Any] = {
            "model": server.model,
            "messages": [*system, *conversation.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._options,
        }
        if offered:
            request["tools"] = offered
        if self._output_schema is not None:
            form = {"name": "answer", "strict": True, "schema": self._output_schema}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        return request

    def _server(self, turn: Turn) -> Server:
        env = turn.session.env
        key = self._api_key or env.get("OPENAI_API_KEY")
        base = (self._base_url or env.get("OPENAI_BASE_URL") or BASE_URL).rstrip("/")
        model = self._model or env.get("OPENAI_MODEL")
        if not model:
            raise ProviderError("No model is named: set OPENAI_MODEL, or give `model`.")
        if not key and base == BASE_URL:
            raise ProviderError(f"There is no key for OpenAI. {ENTRIES['openai'].install}")
        if self._api_key:
            turn.session.add_secret("api_key", self._api_key)
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        return Server(f"{base}/chat/completions", {**authorization, **self._headers}, model)


class Tools:
    """What the model of one turn may use."""

    def __init__(self, turn: Turn, functions: Mapping[str, Function], allowed: frozenset[str]) -> None:
        self._turn = turn
        self._functions = functions
        self._allowed = allowed
        self._of_servers: dict[str, Tool] = {}

    async def offered(self) -> list[dict[str, Any]]:
        """The tools as a request names them."""
        found = [_offer(each.name, each.description, each.schema) for each in self._functions.values()]
        if self._turn.session.mcp.servers:
            tools = await self._turn.mcp.tools()
            self._of_servers = {_tool_name(tool): tool for tool in tools}
            found += [
                _offer(name, tool.description, tool.input_schema)
                for name, tool in self._of_servers.items()
                if name not in self._functions
            ]
        return found

    async def use(self, wanted: Wanted) -> str:
        """Use a tool and return what the model is told; whatever goes wrong is told, too."""
        arguments = parsed_text(wanted.arguments or "{}")
        try:
            if wanted.name in self._functions:
                return await self._use_function(self._functions[wanted.name], wanted.id, arguments)
            if wanted.name in self._of_servers:
                return await self._use_server(self._of_servers[wanted.name], arguments)
            async with self._turn.tool(wanted.name or "tool", id=self._fresh(wanted.id), input=arguments):
                raise LookupError(f"there is no tool {wanted.name!r}")
        except Exception as error:
            return f"Error: {describe(error)}"

    async def _use_function(self, function: Function, id: str, arguments: Any) -> str:
        async with self._turn.tool(
            function.name, name=function.name, id=self._fresh(id), input=arguments
        ) as call:
            if function.name not in self._allowed and not await call.permitted():
                return f"Error: it was not allowed: {call.refusal}"
            result = result_of(await self._turn.own(function.call(function.arguments(arguments))))
            text: str = json_value(result.text)  # of what is too long for a model, the beginning
            await call.output(text)
            await call.result(text if result.structured is None else result.structured)
            if result.is_error:
                call.fail("the tool reports an error")
            return f"Error: {text}" if result.is_error else text

    def _fresh(self, id: str) -> str | None:
        """The model's id for a call, unless an earlier one had it: some servers count from nothing."""
        return None if self._turn.session.outlet.ledger.knows(id) else id

    async def _use_server(self, tool: Tool, arguments: Any) -> str:
        result = await self._turn.mcp.call(tool.server, tool.name, arguments)
        return f"Error: {result.text}" if result.is_error else result.text


def _offer(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _tool_name(tool: Tool) -> str:
    name = f"{tool.server}__{tool.name}"
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "_-") else "_" for sign in name)[:64]


async def _payloads(answer: Answer) -> AsyncIterator[bytes]:
    """What the server sends, of a stream of events or as one object."""
    if "text/event-stream" not in answer.headers.get("content-type", ""):
        yield await answer.body()
        return
    async for line in answer.lines():
        if line.startswith(b"data:"):
            payload = line[5:].strip()
            if payload == b"[DONE]":
                return
            yield payload


async def _refused(answer: Answer, *, can_wait: bool) -> float:
    """Seconds to wait before another try, or the error."""
    body = Loose(parsed_text((await answer.body())[:65536].decode("utf-8", "replace")))
    stated = answer.headers.get("retry-after", "")
    later = float(stated) if stated.isascii() and stated.replace(".", "", 1).isdigit() else None
    if can_wait and (answer.status == 429 or answer.status >= 500):
        wait = 0.5 if later is None else later
        if wait <= LONGEST_WAIT:
            return wait
    reason = body.object("error").text("message") or body.text("error", "message", "detail")
    hint = ERRORS.get(answer.status, "")
    said = f" It says: {reason}" if reason else ""
    when = f" It wants to be asked again in {later:g} s." if later is not None else ""
    raise ProviderError(f"The server answered with status {answer.status}. {hint}{said}{when}".strip())


def _verdict(message: OpenAIStream) -> StopReason | None:
    if message.outcome.stop_reason is None and not message.text.strip():
        raise ProviderError("The model answered nothing.")
    return cast("StopReason | None", message.outcome.stop_reason)


def _parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in PARAMETERS:
            raise ValueError(f"a request has no option {name!r}, only {', '.join(PARAMETERS)}")
    return dict(options)

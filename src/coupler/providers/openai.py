"""Drives a model behind an OpenAI-compatible server: streamed chat completions, with tools in a bounded loop.

The conversation is the session's state. Tools are Python functions and those of the session's MCP servers;
each use is a tool call that the permission engine decides about. `post` is a minimal HTTP/1.1 client with
limits.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from coupler.agent.agent import Agent
from coupler.agent.content import json_value
from coupler.agent.errors import describe
from coupler.events import Text, Thought
from coupler.events.fold import TextPieces
from coupler.fields.json_types import without_nulls
from coupler.mcp.functions import ToolFunction, tool_functions, tool_result
from coupler.providers.catalogue import ENTRIES
from coupler.providers.command_line import TurnPresenter
from coupler.providers.streams import (
    LineHandler,
    LooseObject,
    ProviderError,
    StreamEvent,
    StreamParser,
    TokenCounts,
    parse_text,
)
from coupler.schema.v1 import ImageContent, StopReason
from coupler.wire.frames import FrameBuffer

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.mcp.tools import Tool


BASE_URL = "https://api.openai.com/v1"
MOST_ROUNDS = 25
"""Answers of the model in one turn, unless another limit is given."""

RETRIES = 2
LONGEST_WAIT = 30.0
"""Seconds that a server may ask us to wait before the next try."""

MOST_CALLS = 128
"""Tool calls in one message, at most."""

LONGEST_ARGUMENTS = 10 * 1024 * 1024
"""Characters of one call's arguments, at most."""

CONNECT_LIMIT = 30.0
"""Seconds in which a server must take the connection."""

SILENCE_LIMIT = 300.0
"""Seconds without a byte after which a server is given up."""

HEAD_LIMIT = 64 * 1024
"""Bytes of one line of the response's head, or of a chunk's size, at most."""

HEADERS_LIMIT = 200
"""Lines of the response's head, at most."""

BODY_LIMIT = 64 * 1024 * 1024
"""Bytes of a response's body, at most."""

READ_BYTES = 64 * 1024

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
"""The parameters of a request that can be set as options."""

STATUS_HINTS = {
    401: "It refuses the key: set OPENAI_API_KEY, or give `api_key`.",
    403: "The key may not use this.",
    404: "It does not know the address or the model: look at `base_url` and `model`.",
    429: "It has had too many requests, or the account has nothing left.",
}

FINISH_REASONS = {"length": "max_tokens", "content_filter": "refusal"}

ROLES = frozenset({"user", "assistant", "tool"})
CANCELLED_RESULT = "Error: cancelled before it was used"

T = TypeVar("T")


class ModelServer(NamedTuple):
    """The address, headers and model of a turn's requests."""

    url: str
    headers: dict[str, str]
    model: str


class OpenAI(Agent):
    """A model of an OpenAI-compatible server. An instance may be shared: conversations are session state."""

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
        """Configure the agent; what is left out comes from OPENAI_MODEL, OPENAI_BASE_URL and OPENAI_API_KEY.

        `tools` are Python functions; those named in `allowed_tools` are called without asking. `options` are
        parameters of the request, such as `temperature`. `output_schema` is the JSON Schema of the answer.
        """
        self._model = model
        self._base_url = base_url
        self._api_key = api_key
        self._system_prompt = system_prompt
        self._functions = tool_functions(tools)
        self._allowed_tools = frozenset(allowed_tools)
        self._options = _parameters(options or {})
        self._output_schema = dict(output_schema) if output_schema is not None else None
        self._headers = dict(headers or {})
        self._max_rounds = max_rounds

    async def prompt(self, turn: Turn) -> StopReason | None:
        """Let the model answer and use tools, until it calls no more."""
        server = self._server(turn)
        conversation = ChatHistory.of(turn.session.state)
        conversation.ask(turn)
        try:
            return await self._converse(turn, server, conversation)
        finally:
            # Also of a turn that was cancelled: what was said was said.
            conversation.settle()
            turn.session.state = conversation.as_state()

    async def _converse(
        self, turn: Turn, server: ModelServer, conversation: ChatHistory
    ) -> StopReason | None:
        tools = ModelTools(turn, self._functions, self._allowed_tools)
        presenter = TurnPresenter(turn, server.model, cost_before=conversation.cost)
        spent: TokenCounts | None = None
        for _ in range(self._max_rounds):
            offered = await tools.offered()
            message = OpenAIStream()
            try:
                await turn.own(self._hear(server, conversation, offered, message, presenter))
            except BaseException:
                conversation.answer(message.text, [])  # half a tool call is none
                raise
            conversation.answer(message.text, message.wanted)
            spent = message.outcome.tokens.plus(spent) if message.outcome.tokens is not None else spent
            if spent is not None:
                await presenter.show_tokens(spent)
            if message.outcome.cost is not None:
                await presenter.show_cost(message.outcome.cost + conversation.cost_of_turn)
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
        server: ModelServer,
        conversation: ChatHistory,
        offered: list[dict[str, Any]],
        message: OpenAIStream,
        presenter: TurnPresenter,
    ) -> None:
        body = msgspec.json.encode(self._request(server, conversation, offered))
        for tries_left in reversed(range(RETRIES + 1)):
            async with post(server.url, server.headers, body) as answer:
                if answer.status == 200:
                    async for payload in _payloads(answer):
                        for said in message.read(payload):
                            await presenter.show(said, len(payload))
                    break
                wait = await _refused(answer, can_wait=tries_left > 0)
            await asyncio.sleep(wait)
        if message.outcome.error is not None:
            raise ProviderError(f"The server failed: {message.outcome.error}")

    def _request(
        self, server: ModelServer, conversation: ChatHistory, offered: list[dict[str, Any]]
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

    def _server(self, turn: Turn) -> ModelServer:
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
        return ModelServer(f"{base}/chat/completions", {**authorization, **self._headers}, model)


async def _payloads(answer: HttpResponse) -> AsyncIterator[bytes]:
    """Yield the JSON payloads of the response, of an event stream or of one object."""
    if "text/event-stream" not in answer.headers.get("content-type", ""):
        yield await answer.body()
        return
    async for line in answer.lines():
        if line.startswith(b"data:"):
            payload = line[5:].strip()
            if payload == b"[DONE]":
                return
            yield payload


async def _refused(answer: HttpResponse, *, can_wait: bool) -> float:
    """Return the seconds to wait before a retry, or raise the error."""
    body = LooseObject(parse_text((await answer.body())[:65536].decode("utf-8", "replace")))
    stated = answer.headers.get("retry-after", "")
    later = float(stated) if stated.isascii() and stated.replace(".", "", 1).isdigit() else None
    if can_wait and (answer.status == 429 or answer.status >= 500):
        wait = 0.5 if later is None else later
        if wait <= LONGEST_WAIT:
            return wait
    reason = body.object("error").text("message") or body.text("error", "message", "detail")
    hint = STATUS_HINTS.get(answer.status, "")
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


class ModelTools:
    """The tools that the model may use in one turn."""

    def __init__(self, turn: Turn, functions: Mapping[str, ToolFunction], allowed: frozenset[str]) -> None:
        self._turn = turn
        self._functions = functions
        self._allowed = allowed
        self._of_servers: dict[str, Tool] = {}

    async def offered(self) -> list[dict[str, Any]]:
        """Return the tools as a request lists them."""
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

    async def use(self, wanted: RequestedCall) -> str:
        """Run a tool and return the result for the model, which is also told of every failure."""
        arguments = parse_text(wanted.arguments or "{}")
        try:
            if wanted.name in self._functions:
                return await self._use_function(self._functions[wanted.name], wanted.id, arguments)
            if wanted.name in self._of_servers:
                return await self._use_server(self._of_servers[wanted.name], arguments)
            async with self._turn.tool(wanted.name or "tool", id=self._fresh(wanted.id), input=arguments):
                raise LookupError(f"there is no tool {wanted.name!r}")
        except Exception as error:
            return f"Error: {describe(error)}"

    async def _use_function(self, function: ToolFunction, id: str, arguments: Any) -> str:
        async with self._turn.tool(
            function.name, name=function.name, id=self._fresh(id), input=arguments
        ) as call:
            if function.name not in self._allowed and not await call.permitted():
                return f"Error: it was not allowed: {call.refusal}"
            result = tool_result(await self._turn.own(function.call(function.arguments(arguments))))
            text: str = json_value(result.text)  # of what is too long for a model, the beginning
            await call.output(text)
            await call.result(text if result.structured is None else result.structured)
            if result.is_error:
                call.fail("the tool reports an error")
            return f"Error: {text}" if result.is_error else text

    def _fresh(self, id: str) -> str | None:
        """Return the model's id for a call, None if it is taken: some servers count from 0 in every turn."""
        return None if self._turn.session.outlet.ledger.knows(id) else id

    async def _use_server(self, tool: Tool, arguments: Any) -> str:
        result = await self._turn.mcp.call(
            tool.server, tool.name, without_nulls(arguments, tool.input_schema)
        )
        return f"Error: {result.text}" if result.is_error else result.text


def _offer(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _tool_name(tool: Tool) -> str:
    name = f"{tool.server}__{tool.name}"
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "_-") else "_" for sign in name)[:64]


class ChatHistory:
    """The messages of a session, oldest first, as they are sent with every request."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.cost = 0.0
        """Cost of all turns before this one, in US dollars."""
        self.cost_of_turn = 0.0
        self.open_calls: list[RequestedCall] = []

    @classmethod
    def of(cls, state: object) -> ChatHistory:
        """Read the stored conversation; what cannot be read is left out."""
        kept, conversation = LooseObject(state), cls()
        messages = [message.members for message in kept.objects("messages") if message.text("role") in ROLES]
        conversation.messages = messages
        conversation.cost = kept.amount("cost") or 0.0
        return conversation

    def as_state(self) -> dict[str, Any]:
        """Return the conversation as a session's state."""
        return {"messages": self.messages, "cost": self.cost + self.cost_of_turn}

    def ask(self, turn: Turn) -> None:
        """Add the user's prompt, with its images."""
        images = [
            {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}
            for block in turn.blocks
            if isinstance(block, ImageContent)
        ]
        if not turn.text.strip() and not images:
            raise ProviderError("The prompt is empty: a model needs a text or an image.")
        text = [{"type": "text", "text": turn.text}] if turn.text.strip() else []
        self.messages.append({"role": "user", "content": [*text, *images] if images else turn.text})

    def answer(self, text: str, wanted: list[RequestedCall]) -> None:
        """Add the model's answer and the tool calls that it asks for."""
        self.open_calls = list(wanted)
        if not text and not wanted:
            return
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if wanted:
            message["tool_calls"] = [call.as_message() for call in wanted]
        self.messages.append(message)

    def return_result(self, id: str, text: str) -> None:
        """Add the result of a tool."""
        self.open_calls = [call for call in self.open_calls if call.id != id]
        self.messages.append({"role": "tool", "tool_call_id": id, "content": text})

    def settle(self) -> None:
        """Answer calls that were never made, and drop a prompt without an answer: servers refuse both."""
        for call in [*self.open_calls]:
            self.return_result(call.id, CANCELLED_RESULT)
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages.pop()


class RequestedCall(NamedTuple):
    """A tool call that the model asks for."""

    id: str
    name: str
    arguments: str

    def as_message(self) -> dict[str, Any]:
        """Return the call as the conversation keeps it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class _GrowingCall:
    """A tool call whose arguments come in pieces."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self.arguments = TextPieces()


class OpenAIStream(StreamParser):
    """Parses one message, in chunks or whole, in today's format and in the one with `function_call`."""

    def __init__(self) -> None:
        super().__init__()
        self._said = TextPieces()
        self._wanted: dict[int, _GrowingCall] = {}

    @property
    def text(self) -> str:
        """All that the message says."""
        return self._said.joined()

    @property
    def wanted(self) -> list[RequestedCall]:
        """The tool calls of the message, in order."""
        return [
            RequestedCall(call.id or self.new_id("call"), call.name, call.arguments.joined())
            for _, call in sorted(self._wanted.items(), key=itemgetter(0))
        ]

    @staticmethod
    def kind_of(line: LooseObject) -> str:
        # Many servers send an error where a piece should be, and some leave the name of pieces out.
        if line.object("error") or line.text("error"):
            return "error"
        return line.text("object") or "chat.completion.chunk"

    def piece(self, line: LooseObject) -> Iterator[StreamEvent]:
        if usage := line.object("usage"):
            self.outcome.tokens = _tokens(usage)
            self.outcome.cost = usage.amount("cost")
        for choice in line.objects("choices")[:1]:
            message = choice.object("delta", "message")
            if thought := message.text("reasoning_content", "reasoning"):
                yield Thought(thought, "thought")
            if text := message.text("content", "refusal"):
                self._said.append(text)
                yield Text(text, "message")
            self._gather_calls(message)
            if message.text("refusal"):
                self.outcome.stop_reason = "refusal"
            if reason := FINISH_REASONS.get(choice.text("finish_reason")):
                self.outcome.stop_reason = reason

    def failed(self, line: LooseObject) -> Iterator[StreamEvent]:
        error = line.object("error")
        self.outcome.error = (
            error.text("message", "code", "type") or line.text("error") or "it gave no reason"
        )
        yield from ()

    def _gather_calls(self, message: LooseObject) -> None:
        old = message.object("function_call")
        calls = message.objects("tool_calls") or (
            [LooseObject({"index": 0, "function": old.members})] if old else []
        )
        for position, call in enumerate(calls):
            index = call.count("index")
            number = position if index is None else index
            if number not in self._wanted and len(self._wanted) >= MOST_CALLS:
                continue
            kept = self._wanted.setdefault(number, _GrowingCall())
            function = call.object("function")
            kept.id = kept.id or call.text("id")
            kept.name = kept.name or function.text("name")
            if len(kept.arguments) < LONGEST_ARGUMENTS:
                kept.arguments.append(function.text("arguments"))

    KINDS: ClassVar[Mapping[str, LineHandler]] = {
        "chat.completion.chunk": piece,
        "chat.completion": piece,
        "error": failed,
    }


def _tokens(usage: LooseObject) -> TokenCounts:
    read = usage.object("prompt_tokens_details").count("cached_tokens")
    thought = usage.object("completion_tokens_details").count("reasoning_tokens")
    whole_input, whole_output = usage.count("prompt_tokens") or 0, usage.count("completion_tokens") or 0
    return TokenCounts(
        max(whole_input - (read or 0), 0),
        max(whole_output - (thought or 0), 0),
        read,
        thought=thought,
        total=usage.count("total_tokens"),
    )


@asynccontextmanager
async def post(url: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[HttpResponse]:
    """Send a POST request and yield the response; leaving drops the connection.

    Supports only what a model's server needs: no redirects, no proxies, no connection reuse.
    """
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ProviderError(f"The server's address is not one of http or https: {url!r}.")
    reader, writer = await _connected(address.scheme == "https", address.hostname, address.port)
    try:
        path = address.path + (f"?{address.query}" if address.query else "")
        writer.write(_head(path or "/", address.netloc.rpartition("@")[2], headers, len(body)) + body)
        await _in_time(writer.drain())
        yield await _answer(reader)
    except ConnectionError as error:
        raise ProviderError(
            f"The connection to the server broke: {str(error) or type(error).__name__}."
        ) from None
    finally:
        writer.close()
        with suppress(OSError, asyncio.CancelledError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()


class HttpResponse:
    """A response whose status and headers were read."""

    def __init__(self, status: int, headers: Mapping[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the body as they come; those over 10 MiB are left out."""
        buffer = FrameBuffer()
        async for part in self._parts():
            for line in buffer.feed(part):
                if isinstance(line, bytes):
                    yield line
        for line in buffer.end():
            if isinstance(line, bytes):
                yield line

    async def body(self) -> bytes:
        """Read the whole body."""
        return b"".join([part async for part in self._parts()])

    async def _parts(self) -> AsyncIterator[bytes]:
        left = BODY_LIMIT
        source = (
            self._chunks()
            if "chunked" in self.headers.get("transfer-encoding", "").lower()
            else self._plain()
        )
        async for part in source:
            left -= len(part)
            if left < 0:
                raise ProviderError(
                    f"The server's answer is longer than {BODY_LIMIT} bytes and was given up."
                )
            yield part

    async def _plain(self) -> AsyncIterator[bytes]:
        stated = self.headers.get("content-length", "")
        left = int(stated) if stated.isdecimal() and len(stated) < 16 else None
        while left is None or left > 0:
            part = await _in_time(self._reader.read(READ_BYTES if left is None else min(READ_BYTES, left)))
            if not part:
                return
            left = None if left is None else left - len(part)
            yield part

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            size_line = await _line(self._reader)
            try:
                left = int(size_line.partition(b";")[0], 16)
            except ValueError:
                raise ProviderError("The server's answer is broken: a chunk has no size.") from None
            if left <= 0:
                return
            while left > 0:
                part = await _in_time(self._reader.read(min(READ_BYTES, left)))
                if not part:
                    raise ProviderError("The server ended its answer in the middle.")
                left -= len(part)
                yield part
            await _line(self._reader)


async def _connected(
    is_secure: bool, host: str, port: int | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context() if is_secure else None
    number = port or (443 if is_secure else 80)
    try:
        async with asyncio.timeout(CONNECT_LIMIT):
            return await asyncio.open_connection(host, number, ssl=context, limit=HEAD_LIMIT)
    except TimeoutError:
        raise ProviderError(f"The server {host}:{number} did not take a connection in time.") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ProviderError(
            f"The server {host}:{number} cannot be reached: {reason}. Is it running?"
        ) from None


def _head(path: str, host: str, headers: Mapping[str, str], length: int) -> bytes:
    lines = {
        "Host": host,
        "Content-Type": "application/json",
        "Content-Length": str(length),
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Connection": "close",
        **headers,
    }
    for name, value in lines.items():
        if any(sign in f"{name}{value}" for sign in "\r\n\0"):
            raise ProviderError(f"The header {name!r} holds a line break.")
    told = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{told}\r\n".encode("latin-1", "replace")


async def _answer(reader: asyncio.StreamReader) -> HttpResponse:
    status_line = (await _line(reader)).split(b" ", 2)
    if len(status_line) < 2 or not status_line[0].startswith(b"HTTP/") or not status_line[1].isdigit():
        raise ProviderError("The server's answer is not one of HTTP.")
    headers: dict[str, str] = {}
    for _ in range(HEADERS_LIMIT):
        line = await _line(reader)
        if not line:
            return HttpResponse(int(status_line[1]), headers, reader)
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ProviderError("The server's answer has too many headers.")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return (await _in_time(reader.readuntil(b"\n"))).rstrip(b"\r\n")
    except asyncio.IncompleteReadError:
        raise ProviderError("The server ended its answer in the middle.") from None
    except asyncio.LimitOverrunError:
        raise ProviderError("The server's answer has a line that is too long.") from None


async def _in_time(work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(SILENCE_LIMIT):
            return await work
    except TimeoutError:
        raise ProviderError(f"The server was silent for {SILENCE_LIMIT:g} s and was given up.") from None

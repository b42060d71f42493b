"""A model that says what its prompt tells it to, on loopback and without a key: it makes real agents run the
same way every time. It speaks OpenAI's chat completions and responses, Anthropic's messages and Gemini's
content generation.

The last line with a word that it knows counts. `slow` gets words until nobody reads them, `write` a call of
the first tool that can write or run something, `call NAME {…}` a call of the tool of this name, or whose name
ends so; where there is none, the arguments. `recall` gets all that was said before, `good morning` and any
other prompt a short answer. What a tool has answered is repeated. Every request takes `INPUT_TOKENS` and
`OUTPUT_TOKENS`.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple
from uuid import uuid4

Json = dict[str, Any]

MODEL = "scripted"
SLOW_SECONDS = 60.0
INPUT_TOKENS = 10
OUTPUT_TOKENS = 5
TOTAL_TOKENS = INPUT_TOKENS + OUTPUT_TOKENS

# What each tool is called with, by the first of these names that the agent offers.
CALLS: dict[str, Json] = {
    "bash": {"command": "echo written > note.txt", "description": "Writes a note"},
    "write": {"filePath": "note.txt", "content": "written\n"},
    "write_file": {"file_path": "note.txt", "content": "written\n"},
    "execute": {"command": "echo written > note.txt"},
}

SIGNATURE = b64encode(b"signed by the scripted model").decode()
"""What Gemini signs the model's calls with."""

REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
"""What agents put into a user's message themselves."""
ORDER = re.compile(r"\bcall (\w+) (\{.*\})")
KNOWN = re.compile(rf"{ORDER.pattern}|slow|write|recall|good morning", re.IGNORECASE)


class Call(NamedTuple):
    """A tool call that the model makes."""

    name: str
    arguments: Json


class Search(NamedTuple):
    """A search that the model's provider runs itself, and the pages that it finds."""

    query: str
    pages: tuple[tuple[str, str], ...] = ()
    """Titles and addresses."""
    error: str | None = None
    """Anthropic's code of the reason why it fails."""


class Pause(NamedTuple):
    """The end of an answer of Anthropic's that goes on when it is sent back."""


Piece = str | Call | Search | Pause
"""A part of what a model says."""

ENCRYPTED = "EqgfCioIARgBIiQ3YTAwMjY1Mi"
"""The text of a page, as only Anthropic's server reads it."""


class Question(NamedTuple):
    """What the model was sent, in whatever dialect."""

    prompts: list[str]
    """What the user said, the last at the end."""
    tools: list[str]
    answered: str | None
    """What a tool said, if that is what came last."""

    @property
    def prompt(self) -> str:
        """The line of the last prompt that says what to do."""
        lines = self._lines()
        return next((line for line in reversed(lines) if KNOWN.search(line)), lines[-1])

    @property
    def before(self) -> str:
        """All that was said before that line."""
        return " / ".join([*self.prompts[:-1], *self._lines()]).rpartition(self.prompt)[0]

    def _lines(self) -> list[str]:
        return self.prompts[-1].splitlines() if self.prompts else [""]


class Server(ThreadingHTTPServer):
    """The model's server; its address is in `server_address`."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Completions)
        self.is_slow = threading.Event()
        """Set when a slow answer begins; whoever waits for the next one clears it."""


def serve(port: int = 0) -> Server:
    """A server in a thread of its own."""
    server = Server(port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def answer(question: Question) -> Iterator[Piece]:
    """What the model says, word by word, and what it calls."""
    tool = next((name for name in question.tools if name in CALLS), None)
    order = ORDER.search(question.prompt)
    named = [name for name in question.tools if order and name.endswith(order[1])]
    ordered = min(named, key=len, default=None)
    if question.answered is not None:
        yield from words(f"The tool has answered: {question.answered}")
    elif order and ordered:
        yield Call(ordered, json.JSONDecoder().raw_decode(order[2])[0])
    elif order and question.tools:
        yield from words(order[2])
    elif is_slow(question):
        yield from slow_words()
    elif "recall" in question.prompt.lower() and question.tools:
        yield from words(f"Before that you said: {question.before}")
    elif "write" in question.prompt.lower() and tool is not None:
        yield "I write it. "
        yield Call(tool, CALLS[tool])
    else:
        yield from words("Hello from the scripted model.")


def is_slow(question: Question) -> bool:
    return "slow" in question.prompt.lower() and bool(question.tools) and question.answered is None


def words(text: str) -> Iterator[str]:
    for word in text.split(" "):
        yield f"{word} "


def slow_words() -> Iterator[str]:
    for number in range(int(SLOW_SECONDS / 0.05)):
        yield f"word {number} "
        time.sleep(0.05)


class Completions(BaseHTTPRequestHandler):
    """POST to the address of a dialect, whole or streamed; GET …/models."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._send_json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        dialect = dialect_of(self.path)
        question = dialect.question(request)
        if is_slow(question):
            self.server.is_slow.set()
        try:
            if request.get("stream") or "stream" in self.path:
                self._stream(dialect.stream(answer(question)))
            else:
                self._send_json(dialect.whole(answer(question)))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the agent was cancelled

    def _stream(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for sent in events:
            self.wfile.write(sent)
            self.wfile.flush()

    def _send_json(self, value: Json) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the agent's own log is enough."""


class OpenAi:
    """Chat completions."""

    USAGE: ClassVar[Json] = {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": TOTAL_TOKENS,
    }

    @classmethod
    def whole(cls, pieces: Iterable[Piece]) -> Json:
        deltas = [*cls.deltas(pieces)]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        message: Json = {"role": "assistant", "content": "".join(each.get("content", "") for each in deltas)}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return {**cls.completion(choices=[choice], usage=cls.USAGE), "object": "chat.completion"}

    @classmethod
    def stream(cls, pieces: Iterable[Piece]) -> Iterator[bytes]:
        reason = "stop"
        for delta in cls.deltas(pieces):
            reason = "tool_calls" if "tool_calls" in delta else reason
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            yield event(cls.completion(choices=[choice]))
        last = {"index": 0, "delta": {}, "finish_reason": reason}
        yield event(cls.completion(choices=[last]))
        yield event(cls.completion(choices=[], usage=cls.USAGE))
        yield b"data: [DONE]\n\n"

    @staticmethod
    def question(request: Json) -> Question:
        messages = request.get("messages") or []
        prompts = said_by_user(messages)
        tools = [tool.get("function", {}).get("name", "") for tool in request.get("tools") or []]
        answered = text_of(messages[-1]) if messages and messages[-1].get("role") == "tool" else None
        return Question(prompts, tools, answered)

    @staticmethod
    def deltas(pieces: Iterable[Piece]) -> Iterator[Json]:
        calls = 0
        for piece in pieces:
            if isinstance(piece, str):
                yield {"role": "assistant", "content": piece}
                continue
            assert isinstance(piece, Call), "chat completions have no searches"
            function = {"name": piece.name, "arguments": json.dumps(piece.arguments)}
            id = f"call_{uuid4().hex[:8]}"
            yield {"tool_calls": [{"index": calls, "id": id, "type": "function", "function": function}]}
            calls += 1

    @staticmethod
    def completion(**members: Any) -> Json:
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": MODEL,
            **members,
        }


class Gemini:
    """Content generation, and the count of tokens."""

    @classmethod
    def whole(cls, pieces: Iterable[Piece]) -> Json:
        said = "".join(piece for piece in pieces if isinstance(piece, str))
        return {"totalTokens": INPUT_TOKENS, **cls.candidate([{"text": said}], "STOP")}

    @classmethod
    def stream(cls, pieces: Iterable[Piece]) -> Iterator[bytes]:
        for piece in pieces:
            yield event(cls.candidate([cls.part(piece)]))
        yield event(cls.candidate([{"text": ""}], "STOP"))

    @staticmethod
    def question(request: Json) -> Question:
        contents = request.get("contents") or [{}]
        told = [content.get("parts") or [] for content in contents if content.get("role") == "user"]
        texts = [[part["text"] for part in parts if "text" in part] for parts in told]
        prompts = ["\n".join(text) for text in texts if text]
        tools = [
            declared.get("name", "")
            for tool in request.get("tools") or []
            for declared in tool.get("functionDeclarations") or []
        ]
        last = contents[-1].get("parts") or []
        results = [part["functionResponse"] for part in last if "functionResponse" in part]
        return Question(prompts, tools, json.dumps(results[0].get("response")) if results else None)

    @staticmethod
    def part(piece: Piece) -> Json:
        if isinstance(piece, str):
            return {"text": piece}
        assert isinstance(piece, Call), "Gemini's searches are not played"
        call = {"name": piece.name, "args": piece.arguments}
        return {"functionCall": call, "thoughtSignature": SIGNATURE}

    @staticmethod
    def candidate(parts: list[Json], reason: str | None = None) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = reason
        usage = {
            "promptTokenCount": INPUT_TOKENS,
            "candidatesTokenCount": OUTPUT_TOKENS,
            "totalTokenCount": TOTAL_TOKENS,
        }
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL}


class Anthropic:
    """Messages, and the count of their tokens."""

    @classmethod
    def whole(cls, pieces: Iterable[Piece]) -> Json:
        blocks = [block for piece in pieces for block in cls.blocks(piece)]
        calls = [block for block in blocks if block["type"] == "tool_use"]
        said = {"type": "text", "text": "".join(block.get("text", "") for block in blocks)}
        content = [said, *calls] if said["text"] else calls
        reason = "tool_use" if calls else "end_turn"
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        return {**cls.message(), "content": content, "stop_reason": reason, "usage": usage} | usage

    @classmethod
    def stream(cls, pieces: Iterable[Piece]) -> Iterator[bytes]:
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": 1}
        yield cls.event("message_start", message={**cls.message(), "usage": usage})
        reason, index, in_text = "end_turn", -1, False
        cited: tuple[tuple[str, str], ...] = ()
        for piece in pieces:
            if in_text and not isinstance(piece, str):
                yield cls.event("content_block_stop", index=index)
            if isinstance(piece, str):
                if not in_text:
                    index += 1
                    begun = {"type": "text", "text": "", **({"citations": []} if cited else {})}
                    yield cls.event("content_block_start", index=index, content_block=begun)
                for title, url in cited:
                    delta = {"type": "citations_delta", "citation": cls.citation(title, url)}
                    yield cls.event("content_block_delta", index=index, delta=delta)
                cited = ()
                delta = {"type": "text_delta", "text": piece}
                yield cls.event("content_block_delta", index=index, delta=delta)
            elif isinstance(piece, Call):
                reason = "tool_use"
            elif isinstance(piece, Pause):
                reason = "pause_turn"
            else:
                cited = piece.pages[:1]
            in_text = isinstance(piece, str)
            for block in () if in_text else cls.blocks(piece):
                index += 1
                yield from cls.whole_block(index, block)
        if in_text:
            yield cls.event("content_block_stop", index=index)
        usage = {"output_tokens": OUTPUT_TOKENS}
        yield cls.event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
        yield cls.event("message_stop")

    @staticmethod
    def question(request: Json) -> Question:
        messages = request.get("messages") or []
        prompts = said_by_user(messages)
        tools = [tool.get("name", "") for tool in request.get("tools") or []]
        last = messages[-1].get("content") if messages else None
        results = [part for part in last or () if isinstance(part, dict) and part["type"] == "tool_result"]
        return Question(prompts, tools, text_of(results[0]) if results else None)

    @staticmethod
    def citation(title: str, url: str) -> Json:
        """What a text after a search says of a page that it stands on."""
        about = {
            "type": "web_search_result_location",
            "encrypted_index": ENCRYPTED,
            "cited_text": "It is 3.0",
        }
        return {**about, "title": title, "url": url}

    @classmethod
    def whole_block(cls, index: int, block: Json) -> Iterator[bytes]:
        """The events of a block that is no text; what a tool is called with comes in pieces."""
        begun = {**block, "input": {}} if "input" in block else block
        yield cls.event("content_block_start", index=index, content_block=begun)
        if "input" in block:
            written = json.dumps(block["input"])
            for piece in ("", written[: len(written) // 2], written[len(written) // 2 :]):
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield cls.event("content_block_delta", index=index, delta=delta)
        yield cls.event("content_block_stop", index=index)

    @staticmethod
    def blocks(piece: Piece) -> list[Json]:
        id = uuid4().hex[:8]
        match piece:
            case str():
                return [{"type": "text", "text": piece}]
            case Call():
                return [
                    {"type": "tool_use", "id": f"toolu_{id}", "name": piece.name, "input": piece.arguments}
                ]
            case Search():
                used = {"id": f"srvtoolu_{id}", "name": "web_search", "input": {"query": piece.query}}
                about = {"type": "web_search_result", "encrypted_content": ENCRYPTED, "page_age": None}
                found: Any = [{**about, "title": title, "url": url} for title, url in piece.pages]
                if piece.error is not None:
                    found = {"type": "web_search_tool_result_error", "error_code": piece.error}
                result = {"tool_use_id": used["id"], "content": found}
                return [{"type": "server_tool_use", **used}, {"type": "web_search_tool_result", **result}]
        return []

    @staticmethod
    def message() -> Json:
        id = f"msg_{uuid4().hex[:8]}"
        about = {"model": MODEL, "stop_reason": None, "stop_sequence": None}
        return {"id": id, "type": "message", "role": "assistant", "content": [], **about}

    @staticmethod
    def event(type: str, **members: Any) -> bytes:
        return f"event: {type}\n".encode() + event({"type": type, **members})


class Responses:
    """OpenAI's responses."""

    @classmethod
    def whole(cls, pieces: Iterable[Piece]) -> Json:
        id = uuid4().hex[:8]
        return cls.response(cls.items([*pieces], id), id)

    @classmethod
    def stream(cls, pieces: Iterable[Piece]) -> Iterator[bytes]:
        id = uuid4().hex[:8]
        yield cls.event("response.created", response={"id": f"resp_{id}"})
        items: list[Json] = []
        text = ""
        for piece in pieces:
            if isinstance(piece, str):
                place = {"output_index": len(items)}
                if not text:
                    yield cls.event("response.output_item.added", item=cls.said("", id), **place)
                text += piece
                place |= {"content_index": 0, "item_id": f"msg_{id}"}
                yield cls.event("response.output_text.delta", delta=piece, **place)
                continue
            if text:
                items.append(cls.said(text, id))
                yield cls.event("response.output_item.done", item=items[-1], output_index=len(items) - 1)
                text = ""
            items += cls.items([piece], id)
            yield from cls.whole_item(items[-1], len(items) - 1)
        if text:
            items.append(cls.said(text, id))
            yield cls.event("response.output_item.done", item=items[-1], output_index=len(items) - 1)
        yield cls.event("response.completed", response=cls.response(items, id))

    @classmethod
    def whole_item(cls, item: Json, index: int) -> Iterator[bytes]:
        """The events of an item that is no text."""
        if item["type"] == "function_call":
            place = {"output_index": index}
            yield cls.event("response.output_item.added", item={**item, "arguments": ""}, **place)
            place["item_id"] = item["id"]
            yield cls.event("response.function_call_arguments.delta", delta=item["arguments"], **place)
        yield cls.event("response.output_item.done", item=item, output_index=index)

    @classmethod
    def items(cls, pieces: list[Piece], id: str) -> list[Json]:
        text = "".join(piece for piece in pieces if isinstance(piece, str))
        calls = [cls.called(piece) for piece in pieces if isinstance(piece, Call)]
        searched = [cls.searched(piece) for piece in pieces if isinstance(piece, Search)]
        return [*searched, *([cls.said(text, id)] if text else []), *calls]

    @staticmethod
    def said(text: str, id: str) -> Json:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "id": f"msg_{id}", "role": "assistant", "content": content}

    @staticmethod
    def called(call: Call) -> Json:
        namespace, _, name = call.name.rpartition("/")
        within = {"namespace": namespace} if namespace else {}
        id = uuid4().hex[:8]
        ids = {"id": f"fc_{id}", "call_id": f"call_{id}"}
        arguments = json.dumps(call.arguments)
        return {"type": "function_call", **ids, "name": name, "arguments": arguments, **within}

    @staticmethod
    def searched(search: Search) -> Json:
        sources = [{"type": "url", "url": url} for _, url in search.pages]
        action = {"type": "search", "query": search.query, "sources": sources}
        return {"type": "web_search_call", "id": f"ws_{uuid4().hex}", "status": "completed", "action": action}

    @staticmethod
    def response(items: list[Json], id: str) -> Json:
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": TOTAL_TOKENS,
        }
        about = {"id": f"resp_{id}", "object": "response", "status": "completed", "model": MODEL}
        return {**about, "output": items, "usage": usage}

    @staticmethod
    def question(request: Json) -> Question:
        items = request.get("input") or []
        prompts = said_by_user(items)
        tools = []
        for tool in request.get("tools") or []:
            # The tools of a namespace have it before their names here, and beside them in a call.
            inner = tool.get("tools")
            tools += [f"{tool['name']}/{each['name']}" for each in inner] if inner else [tool.get("name", "")]
        last = items[-1] if items else {}
        output = last.get("output") if last.get("type") == "function_call_output" else None
        return Question(prompts, tools, None if output is None else text_of({"content": output}))

    @staticmethod
    def event(type: str, **members: Any) -> bytes:
        return f"event: {type}\n".encode() + event({"type": type, **members})


def dialect_of(path: str) -> type[OpenAi | Responses | Anthropic | Gemini]:
    """The dialect that an address belongs to."""
    path = path.partition("?")[0]
    if "Content" in path or "countTokens" in path:
        return Gemini
    if "/messages" in path:
        return Anthropic
    return Responses if path.endswith("/responses") else OpenAi


def event(value: Json) -> bytes:
    """An event of a stream."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def text_of(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def said_by_user(messages: list[Json]) -> list[str]:
    """The user's own words in each of these messages that has some."""
    texts = (REMINDER.sub("", text_of(each)).strip() for each in messages if each.get("role") == "user")
    return [text for text in texts if text]


if __name__ == "__main__":
    running = serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(f"http://127.0.0.1:{running.server_address[1]}/v1", flush=True)
    threading.Event().wait()

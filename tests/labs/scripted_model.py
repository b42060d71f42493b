"""A model that says what its prompt tells it to, on loopback and without a key: it makes real agents run the
same way every time. It speaks OpenAI's chat completions and Gemini's content generation.

A prompt with the word `slow` gets words until nobody reads them, one with `write` a call of the first tool
that can write or run something, one with `call NAME {…}` a call of the tool whose name ends so, and any other
a short answer. What a tool has answered is repeated.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from uuid import uuid4

Json = dict[str, Any]

MODEL = "scripted"
SLOW_SECONDS = 60.0

# What each tool is called with, by the first of these names that the agent offers.
CALLS: dict[str, Json] = {
    "bash": {"command": "echo written > note.txt", "description": "Writes a note"},
    "write": {"filePath": "note.txt", "content": "written\n"},
    "write_file": {"file_path": "note.txt", "content": "written\n"},
    "execute": {"command": "echo written > note.txt"},
}

ORDER = re.compile(r"\bcall (\w+) (\{.*\})")


class Call(NamedTuple):
    """A tool call that the model makes."""

    name: str
    arguments: Json


class Question(NamedTuple):
    """What the model was sent, in whatever dialect."""

    prompt: str
    tools: list[str]
    answered: str | None
    """What a tool said, if that is what came last."""


def serve(port: int = 0) -> ThreadingHTTPServer:
    """A server in a thread of its own; its address is in `server_address`."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Completions)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def answer(question: Question) -> Iterator[str | Call]:
    """What the model says, word by word, and what it calls."""
    tool = next((name for name in question.tools if name in CALLS), None)
    order = ORDER.search(question.prompt)
    ordered = order and next((name for name in question.tools if name.endswith(order[1])), None)
    if question.answered is not None:
        yield from words(f"The tool has answered: {question.answered}")
    elif order and ordered:
        yield Call(ordered, json.loads(order[2]))
    elif "slow" in question.prompt.lower() and tool is not None:
        yield from slow_words()
    elif "write" in question.prompt.lower() and tool is not None:
        yield "I write it. "
        yield Call(tool, CALLS[tool])
    else:
        yield from words("Hello from the scripted model.")


def words(text: str) -> Iterator[str]:
    for word in text.split(" "):
        yield f"{word} "


def slow_words() -> Iterator[str]:
    for number in range(int(SLOW_SECONDS / 0.05)):
        yield f"word {number} "
        time.sleep(0.05)


class Completions(BaseHTTPRequestHandler):
    """POST …/chat/completions and …:generateContent, whole or streamed; GET …/models."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send_json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        dialect = Gemini if "Content" in self.path or "countTokens" in self.path else OpenAi
        if not (request.get("stream") or "stream" in self.path):
            self._send_json(dialect.whole(request))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for event in dialect.stream(request):
                self.wfile.write(b"data: " + event + b"\n\n")
                self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            return  # the agent was cancelled
        finally:
            self.close_connection = True

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

    @classmethod
    def whole(cls, request: Json) -> Json:
        said = "".join(piece for piece in answer(cls.question(request)) if isinstance(piece, str))
        message = {"role": "assistant", "content": said}
        return cls.completion(choices=[{"index": 0, "message": message, "finish_reason": "stop"}])

    @classmethod
    def stream(cls, request: Json) -> Iterator[bytes]:
        reason = "stop"
        for piece in answer(cls.question(request)):
            reason = "tool_calls" if isinstance(piece, Call) else reason
            choice = {"index": 0, "delta": cls.delta(piece), "finish_reason": None}
            yield json.dumps(cls.completion(choices=[choice])).encode()
        last = {"index": 0, "delta": {}, "finish_reason": reason}
        yield json.dumps(cls.completion(choices=[last])).encode()
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        yield json.dumps(cls.completion(choices=[], usage=usage)).encode()
        yield b"[DONE]"

    @staticmethod
    def question(request: Json) -> Question:
        messages = request.get("messages") or []
        prompt = next((text_of(each) for each in reversed(messages) if each.get("role") == "user"), "")
        tools = [tool.get("function", {}).get("name", "") for tool in request.get("tools") or []]
        answered = text_of(messages[-1]) if messages and messages[-1].get("role") == "tool" else None
        return Question(prompt, tools, answered)

    @staticmethod
    def delta(piece: str | Call) -> Json:
        if isinstance(piece, str):
            return {"role": "assistant", "content": piece}
        function = {"name": piece.name, "arguments": json.dumps(piece.arguments)}
        id = f"call_{uuid4().hex[:8]}"
        return {"tool_calls": [{"index": 0, "id": id, "type": "function", "function": function}]}

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
    def whole(cls, request: Json) -> Json:
        said = "".join(piece for piece in answer(cls.question(request)) if isinstance(piece, str))
        return {"totalTokens": 10, **cls.candidate([{"text": said}], "STOP")}

    @classmethod
    def stream(cls, request: Json) -> Iterator[bytes]:
        for piece in answer(cls.question(request)):
            yield json.dumps(cls.candidate([cls.part(piece)])).encode()
        yield json.dumps(cls.candidate([{"text": ""}], "STOP")).encode()

    @staticmethod
    def question(request: Json) -> Question:
        contents = request.get("contents") or [{}]
        told = [content.get("parts") or [] for content in contents if content.get("role") == "user"]
        texts = [[part["text"] for part in parts if "text" in part] for parts in told]
        prompt = next((" ".join(text) for text in reversed(texts) if text), "")
        tools = [
            declared.get("name", "")
            for tool in request.get("tools") or []
            for declared in tool.get("functionDeclarations") or []
        ]
        last = contents[-1].get("parts") or []
        results = [part["functionResponse"] for part in last if "functionResponse" in part]
        return Question(prompt, tools, json.dumps(results[0].get("response")) if results else None)

    @staticmethod
    def part(piece: str | Call) -> Json:
        if isinstance(piece, str):
            return {"text": piece}
        return {"functionCall": {"name": piece.name, "args": piece.arguments}}

    @staticmethod
    def candidate(parts: list[Json], reason: str | None = None) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = reason
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL}


def text_of(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


if __name__ == "__main__":
    running = serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(f"http://127.0.0.1:{running.server_address[1]}/v1", flush=True)
    threading.Event().wait()

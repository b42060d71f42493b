"""A model that says what its prompt tells it to: OpenAI's chat completions on loopback, without a key.

It makes real agents run the same way every time. A prompt with the word `slow` gets words until nobody reads
them, one with `write` a call of the first tool that can write or run something, and any other a short answer.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
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


def serve(port: int = 0) -> ThreadingHTTPServer:
    """A server in a thread of its own; its address is in `server_address`."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Completions)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Completions(BaseHTTPRequestHandler):
    """POST /v1/chat/completions and GET /v1/models."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send_json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if not request.get("stream"):
            words = "".join(delta.get("content") or "" for delta in deltas(request))
            message = {"role": "assistant", "content": words}
            self._send_json(completion(choices=[{"index": 0, "message": message, "finish_reason": "stop"}]))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self._stream(request)
        except (BrokenPipeError, ConnectionResetError):
            return  # the agent was cancelled
        finally:
            self.close_connection = True

    def _stream(self, request: Json) -> None:
        reason = "stop"
        for delta in deltas(request):
            reason = "tool_calls" if "tool_calls" in delta else reason
            self._send_event(completion(choices=[{"index": 0, "delta": delta, "finish_reason": None}]))
        self._send_event(completion(choices=[{"index": 0, "delta": {}, "finish_reason": reason}]))
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        self._send_event(completion(choices=[], usage=usage))
        self.wfile.write(b"data: [DONE]\n\n")

    def _send_event(self, value: Json) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
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


def deltas(request: Json) -> Iterator[Json]:
    """What the model says, piece by piece."""
    messages = request.get("messages") or []
    prompt = next((text_of(each) for each in reversed(messages) if each.get("role") == "user"), "")
    tool = next((name for name in tool_names(request) if name in CALLS), None)
    if messages and messages[-1].get("role") == "tool":
        yield from words("The tool has answered.")
    elif "slow" in prompt.lower() and tool is not None:
        yield from slow_words()
    elif "write" in prompt.lower() and tool is not None:
        call = {"name": tool, "arguments": json.dumps(CALLS[tool])}
        yield {"role": "assistant", "content": "I write it. "}
        id = f"call_{uuid4().hex[:8]}"
        yield {"tool_calls": [{"index": 0, "id": id, "type": "function", "function": call}]}
    else:
        yield from words("Hello from the scripted model.")


def words(text: str) -> Iterator[Json]:
    for word in text.split(" "):
        yield {"role": "assistant", "content": f"{word} "}


def slow_words() -> Iterator[Json]:
    for number in range(int(SLOW_SECONDS / 0.05)):
        yield {"role": "assistant", "content": f"word {number} "}
        time.sleep(0.05)


def tool_names(request: Json) -> list[str]:
    return [tool.get("function", {}).get("name", "") for tool in request.get("tools") or []]


def text_of(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def completion(**members: Any) -> Json:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": MODEL, **members}


if __name__ == "__main__":
    running = serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(f"http://127.0.0.1:{running.server_address[1]}/v1", flush=True)
    threading.Event().wait()

"""Measures long turns of the coder: what they leave on disk, what a step costs, and the prompt after them.

The model is scripted: it reads a part of a file in each step, and answers when it has read enough. It is a
part of this program, so that it can look at the processor time of the coder at each request.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NamedTuple

from agent_process import AgentProcess, PeerError
from figures import LONG_TURN_BYTES, LONG_TURN_GROWTH, LONG_TURN_NEXT, LONG_TURN_STEP
from measures import Effort, Values
from peers import COUPLER, Peer, environment

LINE = "x = compute_something(argument_number_one, argument_number_two)  # explained in a comment, {:06}\n"
"""A line of 100 characters: 100 of them are 10 KB."""

FILE_LINES = 5_000

AROUND = 5
"""Steps on either side over which the cost of one step is averaged."""


class LongTurn(NamedTuple):
    """The cost of one turn of so many steps."""

    request: int
    """Bytes of the last request to the model."""
    kept: int
    """Bytes of all files of the store, while the process runs."""
    kept_at_end: int
    """The same when it is over."""
    seconds: list[float]
    """Processor time of each step."""
    next_prompt: float
    """Seconds from the next prompt to the model's request."""


def measure_long_turns(peer: Peer, home: Path, effort: Effort) -> Values:
    """Turns of 10, 100 and more steps, each in a store of its own."""
    if peer.name != COUPLER:
        return
    for steps, lines in effort.long_turns:
        turn = taken(peer.agent[0], steps, lines)
        yield LONG_TURN_BYTES[steps], turn.kept / turn.request
        yield LONG_TURN_NEXT[steps], turn.next_prompt
        yield LONG_TURN_STEP[steps], cost(turn, steps)
        if steps > 10:
            yield LONG_TURN_GROWTH[steps], cost(turn, steps) / cost(turn, 10)


def cost(turn: LongTurn, step: int) -> float:
    """Seconds of processor time of a step, the middle one of those around it."""
    around = sorted(turn.seconds[max(step - AROUND, 0) : step + AROUND])
    return around[len(around) // 2]


def taken(program: str, steps: int, lines: int) -> LongTurn:
    with TemporaryDirectory() as home, TemporaryDirectory() as project:
        Path(project, "big.py").write_text("".join(LINE.format(each) for each in range(FILE_LINES)))
        Path(home, "coupler.toml").write_text("[coder]\ncontext_window = 100000000\n")
        with ReadingModel(steps, lines) as model:
            variables = {
                "COUPLER_MODEL": "openai:scripted",
                "COUPLER_BASE_URL": model.url,
                "COUPLER_API_KEY": "sk-of-the-benchmark",
                "HOME": home,
            }
            with AgentProcess([program, "serve"], environment(Path(home)) | variables) as agent:
                agent.initialize()
                answer = agent.call("session/new", {"cwd": project, "mcpServers": []})
                session = answer.result["sessionId"]
                model.process = agent.process.pid
                prompt(agent, session, "Read it all")
                request, seconds = model.size, model.costs()
                model.begin(0)
                began = time.perf_counter()
                prompt(agent, session, "And now?")
                next_prompt = model.times[0] - began
                kept = size_of(home)
                agent.finish()
            return LongTurn(request, kept, size_of(home), seconds, next_prompt)


def prompt(agent: AgentProcess, session: str, text: str) -> None:
    answer = agent.call("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})
    if answer.result["stopReason"] != "end_turn":
        raise PeerError(f"the turn ended with {answer.result}")


def size_of(home: str) -> int:
    return sum(path.stat().st_size for path in Path(home).glob("coupler.db*") if path.is_file())


def spent(process: int) -> float:
    """Seconds of processor time of all threads so far, more finely than the clock ticks."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


class ReadingModel:
    """An OpenAI-compatible server whose model reads a file part by part, then says that it is done."""

    def __init__(self, steps: int, lines: int) -> None:
        self.process: int | None = None
        self.size = 0
        self.times: list[float] = []
        self._lines = lines
        self._cpu: list[float] = []
        self.begin(steps)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def begin(self, steps: int) -> None:
        """Read so many parts in the next turn."""
        self._steps, self._done = steps, 0
        self.times, self._cpu = [], []

    def costs(self) -> list[float]:
        """Processor time between each two requests."""
        return [after - before for before, after in zip(self._cpu, self._cpu[1:], strict=False)]

    def __enter__(self) -> "ReadingModel":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _delta(self) -> dict[str, Any]:
        if self._done == self._steps:
            return {"content": "Done."}
        self._done += 1
        first = (self._done - 1) * self._lines % FILE_LINES + 1
        arguments = {"path": "big.py", "offset": first, "limit": self._lines}
        call = {"name": "read_file", "arguments": json.dumps(arguments)}
        return {
            "tool_calls": [{"index": 0, "id": f"call_{self._done}", "type": "function", "function": call}]
        }

    def _answer(self, size: int) -> bytes:
        self.times.append(time.perf_counter())
        self.size = size
        if self.process is not None:
            self._cpu.append(spent(self.process))
        delta = self._delta()
        finish = "tool_calls" if "tool_calls" in delta else "stop"
        chunks = [{"delta": {"role": "assistant", **delta}}, {"delta": {}, "finish_reason": finish}]
        frames = [{"choices": [{"index": 0, **each}], "object": "chat.completion.chunk"} for each in chunks]
        frames.append(
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
        )
        identity = {"id": "c", "created": 1, "model": "scripted"}
        lines = [f"data: {json.dumps(identity | frame)}\n\n" for frame in frames]
        return "".join([*lines, "data: [DONE]\n\n"]).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                rest = size
                while rest:
                    rest -= len(self.rfile.read(min(rest, 1 << 16)))
                body = model._answer(size)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

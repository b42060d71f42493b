"""Sources that never stop sending: models, programs, commands, MCP servers, hooks, git, pages and terminals.

Each is driven twice through the real command: served over pipes, where another session is prompted meanwhile
and the turn is then cancelled, and by `coupler exec` or `coupler run`, which one Ctrl-C has to end. A source
either is stopped by a limit, whose words are told, or goes on until then. Nothing that was started is left.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil

from coupler.agent.turn import CANCEL_GRACE
from exchange import COUPLER, HERE, PATIENCE, Attacker, BrokenError, Moment, memory_of, processes_of
from floods import ENDLESS
from labs import scripted_model
from labs.flooding_server import FLOODS, STREAM, TEXT, argument
from outcome import Effort, Outcome

FLOODING = Path(__file__).parents[1] / "tests" / "providers" / "flooding.py"
MCP_SERVER = HERE / "agents" / "endless_mcp.py"

MOST_MEGABYTES = 250.0
"""Of one process and all that it has started, less what they have before the source begins."""
NEW_PROCESS_MEGABYTES = 250.0
"""Megabytes of a command and the coder that it starts, before a source begins."""
ANSWER_MS = 1000.0
"""The longest time that an answer beside a source may take, less that of other programs."""
ANSWER_MS_IN_TESTS = 4000.0
LEEWAY = 1.0
"""Seconds beyond the grace in which a cancel, or one Ctrl-C, has ended what runs."""
LEEWAY_IN_TESTS = 4.0
SECONDS = 8.0
SHORT_SECONDS = 0.5
SELF_SECONDS = 90.0
"""Seconds in which a source that is over a limit has been stopped."""
BETWEEN_PROBES = 0.1
BETWEEN_SAMPLES = 0.02
"""Seconds between two looks at the memory."""
GONE_SECONDS = 3.0
"""Seconds in which all that was started is gone, once the command has ended."""

GREETING = "Hello from the scripted model."


@dataclass(frozen=True)
class Source:
    """One source: what is served, the prompt that makes it begin, and the words by which it is stopped."""

    name: str
    of: str
    kind: str
    prompt: str
    ends: str | None = None
    """Words of the answer or of what is said, if it ends by itself; None if it goes on until a cancel."""


def _model(dialect: str, kind: str, ends: str | None) -> Source:
    return Source(f"{dialect}'s stream: {kind}", "model", dialect, f"endless {kind}", ends)


def _tool(name: str, of: str, kind: str, tool: str, ends: str | None = None, **arguments: Any) -> Source:
    return Source(name, of, kind, f"call {tool} {json.dumps(arguments)}", ends)


TOO_LONG = "too_long"
SOURCES = (
    _model("openai", "text", TOO_LONG),
    _model("openai", "thoughts", TOO_LONG),
    _model("openai", "an argument", TOO_LONG),
    _model("openai", "a line", TOO_LONG),
    _model("openai", "letters", None),
    _model("openai", "comments", TOO_LONG),
    _model("openai", "a packed stream", TOO_LONG),
    _model("openai", "a packed tail", TOO_LONG),
    _model("anthropic", "pieces", TOO_LONG),
    _model("anthropic", "a line", TOO_LONG),
    _model("google_genai", "pieces", TOO_LONG),
    _model("google_genai", "a line", TOO_LONG),
    Source("claude: text", "program", "claude:text", "go", "characters = 16,777,216"),
    Source("claude: a line", "program", "claude:a line", "go"),
    Source("claude: stderr", "program", "claude:stderr", "go"),
    Source("codex: growing output", "program", "codex:growing output", "go"),
    Source("codex: items", "program", "codex:items", "go", "characters = 16,777,216"),
    Source("gemini: text", "program", "gemini:text", "go", "characters = 16,777,216"),
    Source("gemini: letters", "program", "gemini:letters", "go"),
    Source("gemini: unknown lines", "program", "gemini:unknown", "go"),
    _tool("a command: lines", "coder", "", "run_command", command="touch {begun}; yes"),
    _tool("a command: a line", "coder", "", "run_command", command="touch {begun}; yes | tr -d '\\n'"),
    _tool("a command: stderr", "coder", "", "run_command", command="touch {begun}; yes >&2"),
    _tool(
        "a command in the background", "coder", "", "run_command", "in the background",
        command="touch {begun}; yes", background=True,
    ),
    Source("a step of a workflow: lines", "workflow", "yes", "go"),
    Source("a step of a workflow: a line", "workflow", "yes | tr -d '\\n'", "go"),
    Source("a step of a workflow: stderr", "workflow", "yes >&2", "go"),
    _tool("an MCP server: notifications", "mcp", "notifications", "endless", "endless is done"),
    _tool("an MCP server: progress", "mcp", "progress", "endless"),
    _tool("an MCP server: requests", "mcp", "requests", "endless"),
    _tool("an MCP server: a result", "mcp", "a result", "endless"),
    _tool("an MCP server: a line", "mcp", "a line", "endless"),
    _tool("an MCP server: stderr", "mcp", "stderr", "endless"),
    _tool("an MCP server: a large result", "mcp", "large results", "endless", ""),
    _tool("an MCP server: pages of tools", "mcp", "pages", "endless", "that is too many"),
    _tool("an MCP server: long pages of tools", "mcp", "long pages", "endless", "that is too many"),
    _tool("an MCP server: a line in place of hello", "mcp", "hello", "endless", ""),
    _tool("a hook: lines", "hook", "yes", "list_directory", path="."),
    _tool("a hook: stderr", "hook", "yes >&2", "list_directory", path="."),
    Source("git: lines", "git", "yes", "hello", GREETING),
    Source("git: a line", "git", "yes | tr -d '\\n'", "hello", GREETING),
    _tool("a page: text", "page", "text", "fetch", "it is too large", url="{url}/page/text"),
    _tool("a page: gzip", "page", "gzip", "fetch", "it is too large", url="{url}/page/gzip"),
    _tool("a page: deflate", "page", "deflate", "fetch", "it is too large", url="{url}/page/deflate"),
    _tool("a page: gzip with a tail", "page", "tail", "fetch", "", url="{url}/page/tail"),
    _tool("a page: brotli", "page", "br", "fetch", "not asked for", url="{url}/page/br"),
    _tool("a page: zstd", "page", "zstd", "fetch", "not asked for", url="{url}/page/zstd"),
    _tool("an editor's terminal", "terminal", "", "run_command", command="yes"),
    _tool(
        "an editor's terminal: a command in time", "terminal", "", "run_command", "", command="yes", timeout=1
    ),
    Source("a terminal of the agent", "agent", "terminals", "terminals"),
)  # fmt: skip

IN_TESTS = ("a step of a workflow: lines", "a command: lines")
"""The sources of a short attack; the first of them also by a command."""


def attack_by_endless_sources(effort: Effort, outcome: Outcome) -> None:
    """Drive each source once."""
    chosen = [source for source in SOURCES if not effort.is_short or source.name in IN_TESTS]
    with endless_server() as server:
        for number, source in enumerate(chosen[: effort.most]):
            outcome.tries += 1
            place = effort.directory(f"endless-{number}")
            drives = (_serve,) if effort.is_short and source.name != IN_TESTS[0] else (_serve, _interrupt)
            for drive in drives:
                try:
                    drive(_stand(source, place / drive.__name__, server), effort, outcome)
                except BrokenError as broken:
                    how = "served" if drive is _serve else "by command"
                    outcome.fail(
                        f"{source.name}, {how}: {broken}",
                        f"python attack --only endless --seed {effort.seed}",
                    )


@dataclass
class Stand:
    """A source, with all that it needs, and the commands that use it."""

    source: Source
    place: Path
    prompt: str
    served: list[str]
    command: list[str]
    env: dict[str, str]
    answer: str = GREETING
    """The answer to another prompt."""
    servers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def begun(self) -> Path:
        """The file that is made when the source begins."""
        return self.place / "begun"

    @property
    def project(self) -> Path:
        return self.place / "project"


def _stand(source: Source, place: Path, server: EndlessServer) -> Stand:
    project, home, begun = place / "project", place / "home", place / "begun"
    for each in (project, home, place / "bin"):
        each.mkdir(parents=True)
    server.begun = begun
    prompt = source.prompt.replace("{begun}", str(begun)).replace("{url}", server.url)
    env = {"COUPLER_HOME": str(home), "HOME": str(place), "COUPLER_LOG": "error"}
    if source.of == "program":
        return _program(source, place, prompt, env)
    if source.of == "workflow":
        return _workflow(source, place, prompt, env)
    if source.of == "agent":
        begun.touch()
        words = [*COUPLER, "exec", "--terminals", "--permissions", "allow-all", shlex.join(ENDLESS), prompt]
        return Stand(source, place, prompt, [], words, env)
    settings = f'[permissions]\nallow = ["*", "fetch({server.url}/*)"]\n[coder]\nmcp_wait_seconds = 10\n'
    served = [*COUPLER, "serve"]
    command = [*COUPLER, "exec", "coder", "--permissions", "allow-all"]
    servers = []
    dialect = source.kind if source.of == "model" else "openai"
    env |= {
        "COUPLER_MODEL": f"{dialect}:scripted",
        "COUPLER_BASE_URL": f"{server.url}/v1" if dialect == "openai" else server.url,
        "COUPLER_API_KEY": "sk-0",
    }
    match source.of:
        case "mcp":
            words = [str(MCP_SERVER), source.kind, str(begun)]
            servers = [{"name": "endless", "command": sys.executable, "args": words, "env": []}]
            command += ["--mcp", f"endless={shlex.join([sys.executable, *words])}"]
            if source.kind == "hello":
                settings = settings.replace("= 10", "= 1")
        case "hook":
            hook = json.dumps(f"touch {begun}; {source.kind}")
            settings += f'[agents.hooked]\nagent = "coder"\n[agents.hooked.hooks]\nbefore_tool = {hook}\n'
            served += ["--agent", "hooked"]
            command[4] = shlex.join(served)
        case "git":
            _make_program(place / "bin" / "git", f"#!/bin/sh\ntouch {begun}\n{source.kind}\n")
            env["PATH"] = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
        case "terminal":
            begun.touch()
    (home / "coupler.toml").write_text(settings)
    return Stand(source, place, prompt, served, [*command, prompt], env, servers=servers)


def _program(source: Source, place: Path, prompt: str, env: dict[str, str]) -> Stand:
    vendor = source.kind.partition(":")[0]
    _make_program(place / "bin" / vendor, f"#!{sys.executable} -ISB\n{FLOODING.read_text()}")
    agent = place / "agent.py"
    agent.write_text(f"from coupler.providers import provider\nagent = provider({vendor!r})\n")
    env |= {
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "FLOOD": source.kind,
        "FLOOD_PID": str(place / "begun"),
    }
    served = [*COUPLER, "serve", str(agent)]
    return Stand(source, place, prompt, served, [*COUPLER, "exec", str(agent), prompt], env, "sentinel")


def _workflow(source: Source, place: Path, prompt: str, env: dict[str, str]) -> Stand:
    flow = place / "endless.yaml"
    script = json.dumps(f"touch {place}/begun; {source.kind}")
    flow.write_text(
        "name: endless\n"
        'inputs: {words: {rest: true, default: ""}}\n'
        "steps:\n"
        "  - id: run\n"
        "    if: not ('sentinel' in inputs.words)\n"
        f"    run: {script}\n"
        "  - {id: said, set: {said: inputs.words}}\n"
        'outputs: {said: "{{ vars.said }}"}\n'
    )
    served = [*COUPLER, "serve", str(flow)]
    return Stand(source, place, prompt, served, [*COUPLER, "run", str(flow), prompt], env, "sentinel")


def _make_program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def _serve(stand: Stand, effort: Effort, outcome: Outcome) -> None:
    """Serve the source, prompt another session beside it, and cancel it."""
    if not stand.served:
        return
    source = stand.source
    client = TerminalEditor if source.of == "terminal" else Attacker
    with client.started(stand.served, stand.env, stand.project, effort.chance(source.name)) as attacker:
        attacker.answers_wrongly = False
        attacker.open(lambda _: stand.answer)
        attacker.prompt("sentinel before", lambda _: stand.answer)
        flooded = attacker.new_session(*stand.servers)
        stand.begun.unlink(missing_ok=True)
        if source.of == "terminal":
            stand.begun.touch()
        with MemoryWatch(attacker.pid) as memory:
            _flood(stand, attacker, flooded, effort, outcome)
        _note_memory(memory.grown, outcome)
        started = processes_of(attacker.pid)[1:]
        attacker.leave()
    _check_gone(started)


def _flood(stand: Stand, attacker: Attacker, flooded: str, effort: Effort, outcome: Outcome) -> None:
    source, seconds = stand.source, SHORT_SECONDS if effort.is_short else SECONDS
    limit = ANSWER_MS_IN_TESTS if effort.is_short else ANSWER_MS
    id = attacker.begin_prompt(flooded, stand.prompt)

    def is_answered() -> bool:
        return attacker.answer_to(id) is not None

    if not attacker.read_until(stand.begun.exists, PATIENCE):
        raise BrokenError(f"it has not begun: {attacker.answer_to(id)} {attacker.said_in(flooded)[-500:]!r}")
    deadline = time.monotonic() + (SELF_SECONDS if source.ends is not None else seconds)
    slowest = 0.0
    while not is_answered() and time.monotonic() < deadline:
        began = Moment(attacker.processes)
        attacker.prompt("sentinel beside", lambda _: stand.answer)
        delay = began.delay
        slowest = max(slowest, delay.own)
        outcome.worst("slowest answer", delay.passed * 1000, "ms")
        outcome.worst("without the time of other programs", delay.own * 1000, "ms")
        attacker.read_until(is_answered, BETWEEN_PROBES)
    if slowest * 1000 > limit:
        outcome.fail(f"{source.name}: an answer took {slowest * 1000:.0f} ms of our own, not {limit:.0f}")
    if source.ends is None:
        _cancel(attacker, flooded, id, effort, outcome)
    elif not is_answered():
        raise BrokenError(f"no limit has ended it within {SELF_SECONDS:.0f} s")
    told = f"{attacker.answer_to(id)} {attacker.said_in(flooded)}"
    if source.ends is not None and source.ends not in told:
        raise BrokenError(f"it was not ended by {source.ends!r}: {told[-1000:]}")
    again = attacker.begin_prompt(flooded, "sentinel after")
    if not attacker.read_until(lambda: attacker.answer_to(again) is not None, PATIENCE):
        raise BrokenError("the next prompt of its session was not answered")
    if stand.answer not in attacker.said_in(flooded):
        raise BrokenError(f"the next prompt was answered by {attacker.said_in(flooded)[-300:]!r}")


def _cancel(attacker: Attacker, flooded: str, id: str, effort: Effort, outcome: Outcome) -> None:
    if attacker.answer_to(id) is not None:
        raise BrokenError(
            f"it has ended by itself: {attacker.answer_to(id)} {attacker.said_in(flooded)[-500:]!r}"
        )
    cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": flooded}}
    began = time.monotonic()
    attacker.write(json.dumps(cancel).encode() + b"\n")
    in_time = attacker.read_until(lambda: attacker.answer_to(id) is not None, PATIENCE)
    _note_end("slowest cancel", time.monotonic() - began, effort, outcome)
    if not in_time or attacker.answer_to(id).get("result", {}).get("stopReason") != "cancelled":
        raise BrokenError(f"the cancel was answered by {attacker.answer_to(id)}")


def _interrupt(stand: Stand, effort: Effort, outcome: Outcome) -> None:
    """Drive the source by a command, and end that with one Ctrl-C."""
    if stand.source.of == "terminal":
        return  # `exec` runs the coder's commands as the coder does
    errors = stand.place / "stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            stand.command,
            cwd=stand.project,
            env=os.environ | stand.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    started: set[int] = set()
    try:
        with MemoryWatch(process.pid, is_new=True) as memory:
            deadline = time.monotonic() + PATIENCE
            while not stand.begun.exists():
                if process.poll() == 0 and stand.source.ends is not None:
                    break  # it did not wait for a server that is slow to begin
                if process.poll() is not None or time.monotonic() > deadline:
                    raise BrokenError(f"it has not begun: {errors.read_text(errors='replace')[-1000:]}")
                time.sleep(0.02)
            seconds = SHORT_SECONDS if effort.is_short else SECONDS
            deadline = time.monotonic() + seconds
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            if process.poll() is None:
                started = set(processes_of(process.pid)[1:])
                began = time.monotonic()
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    raise BrokenError(f"Ctrl-C has not ended it within {PATIENCE:.0f} s") from None
                _note_end("slowest Ctrl-C", time.monotonic() - began, effort, outcome)
    finally:
        process.kill()
        process.wait()
    _note_memory(memory.grown, outcome)
    _check_gone(tuple(started))
    if b"Traceback" in errors.read_bytes():
        raise BrokenError(f"it logged {errors.read_text(errors='replace')[-2000:]}")


def _note_end(name: str, seconds: float, effort: Effort, outcome: Outcome) -> None:
    most = CANCEL_GRACE + (LEEWAY_IN_TESTS if effort.is_short else LEEWAY)
    outcome.worst(name, seconds * 1000, "ms")
    if seconds > most:
        raise BrokenError(f"{name}: {seconds:.1f} s, not {most:.1f}")


def _note_memory(grown: int, outcome: Outcome) -> None:
    outcome.worst("most memory added", grown / 2**20, "MB")
    if grown / 2**20 > MOST_MEGABYTES:
        raise BrokenError(f"{grown / 2**20:.0f} MB were added, not {MOST_MEGABYTES:.0f}")


def _check_gone(pids: tuple[int, ...]) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while left := [pid for pid in pids if _runs(pid)]:
        if time.monotonic() > deadline:
            raise BrokenError(f"{len(left)} processes that it had started were left")
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class MemoryWatch:
    """Samples the memory of a process and all that it starts, all the time."""

    def __init__(self, pid: int, *, is_new: bool = False) -> None:
        self._pid = pid
        self._before = int(NEW_PROCESS_MEGABYTES * 2**20) if is_new else memory_of(pid)
        self._most = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def grown(self) -> int:
        """The most bytes that were held, less those at the beginning."""
        return max(0, self._most - self._before)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(BETWEEN_SAMPLES):
            try:
                self._most = max(self._most, memory_of(self._pid))
            except psutil.NoSuchProcess:
                return


class TerminalEditor(Attacker):
    """An editor with terminals, whose output has no end."""

    capabilities: ClassVar[dict[str, Any]] = {**Attacker.capabilities, "terminal": True}
    OUTPUT = "y\n" * 4_500_000
    """The output of a terminal, whatever limit it was made with."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._outputs: dict[str, str] = {}
        self._waiting: dict[str, Any] = {}

    def _answers_to(self, frame: dict[str, Any]) -> list[bytes]:
        params = frame["params"]
        terminal = params.get("terminalId", "")
        match frame["method"]:
            case "terminal/create":
                terminal = f"t{len(self._outputs)}"
                self._outputs[terminal] = self.OUTPUT
                if params["command"] == "printf":  # a look at whether arguments arrive as they are
                    words = [params["command"], *params["args"]]
                    self._outputs[terminal] = subprocess.run(words, capture_output=True, text=True).stdout
                return [_answer(frame["id"], {"terminalId": terminal})]
            case "terminal/output":
                return [_answer(frame["id"], {"output": self._outputs[terminal], "truncated": False})]
            case "terminal/wait_for_exit" if self._outputs[terminal] == self.OUTPUT:
                self._waiting[terminal] = frame["id"]
                return []
            case "terminal/wait_for_exit":
                return [_answer(frame["id"], {"exitCode": 0})]
            case "terminal/kill" if terminal in self._waiting:
                ended = _answer(self._waiting.pop(terminal), {"signal": "SIGKILL"})
                return [ended, _answer(frame["id"], {})]
            case "terminal/kill" | "terminal/release":
                return [_answer(frame["id"], {})]
        return super()._answers_to(frame)


def _answer(id: Any, result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


class EndlessServer(scripted_model.Server):
    """A model that is endless if its prompt says so, and pages that are."""

    begun: Path

    def __init__(self) -> None:
        super().__init__(0)
        self.RequestHandlerClass = _Endless

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def endless_server() -> Iterator[EndlessServer]:
    """The server, in a thread of its own."""
    server = EndlessServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _packed(wbits: int) -> Iterator[bytes]:
    packer = zlib.compressobj(9, wbits=wbits)
    while True:
        yield packer.compress(b"x" * 2**20)


HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n"
TAIL = b"x" * 65_536
MODEL_FLOODS: dict[str, Callable[[], tuple[bytes, Iterator[bytes]]]] = {
    "an argument": lambda: (STREAM + b"\r\n", argument()),
}
PAGES: dict[str, Callable[[], tuple[bytes, Iterator[bytes]]]] = {
    "text": lambda: (HTTP + b"\r\n", itertools.repeat(TAIL)),
    "gzip": lambda: (HTTP + b"Content-Encoding: gzip\r\n\r\n", _packed(31)),
    "deflate": lambda: (HTTP + b"Content-Encoding: deflate\r\n\r\n", _packed(15)),
    "tail": lambda: (HTTP + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x"), itertools.repeat(TAIL)),
    "br": lambda: (HTTP + b"Content-Encoding: br\r\n\r\n", itertools.repeat(TAIL)),
    "zstd": lambda: (HTTP + b"Content-Encoding: zstd\r\n\r\n", itertools.repeat(TAIL)),
}


class _Endless(scripted_model.Completions):
    server: EndlessServer

    def do_GET(self) -> None:  # noqa: N802 - the name of http.server
        if self.path.startswith("/page/"):
            self._flood(*PAGES[self.path.rpartition("/")[2]]())
        else:
            super().do_GET()

    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        dialect = scripted_model.dialect_of(self.path)
        question = dialect.question(json.loads(body))
        kind = re.search(r"endless ([\w ]+)$", question.prompts[-1].strip()) if question.prompts else None
        self.close_connection = True
        if kind is None:
            self.rfile = io.BytesIO(body)
            super().do_POST()
        elif kind[1] == "pieces":
            self.server.begun.touch()
            with contextlib.suppress(OSError):  # the client has heard enough
                self._stream(dialect.stream(itertools.repeat(TEXT)))
        elif kind[1] in MODEL_FLOODS:
            self._flood(*MODEL_FLOODS[kind[1]]())
        else:
            self._flood(*FLOODS[kind[1]])

    def _flood(self, head: bytes, pieces: Iterator[bytes]) -> None:
        self.close_connection = True
        self.server.begun.touch()
        with contextlib.suppress(OSError):  # the client has heard enough
            self.wfile.write(head)
            for piece in pieces:
                self.wfile.write(piece)

"""Frames against real processes: agents that Coupler serves, and Coupler as the client of a hostile agent.

After each batch a prompt in a session that no wrong frame is about has to be answered as ever, and every
request whose envelope was right exactly once. A batch that fails is tried again in a new process, and made
smaller as long as it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import selectors
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import psutil

from coupler import connect
from frames import Frames
from labs import scripted_model
from outcome import Effort, Outcome

HERE = Path(__file__).resolve().parent
COUPLER = [sys.executable, "-m", "coupler"]
ATTACKED = str(HERE / "agents" / "attacked.py")
HOSTILE = HERE / "agents" / "hostile.py"

PATIENCE = 30.0
"""Seconds after which something that was asked counts as unanswered."""
BATCH = 1000
VICTIMS = 6
"""Sessions that wrong frames are about."""
NEW_VICTIMS_EVERY = 10
"""Batches after which they are replaced: wrong frames close and delete them."""
REDUCTIONS = 60
"""Tries to make a batch smaller."""
SHOWN_BYTES = 600
LONGEST_SAID = 100_000
"""Characters of what a session says that are kept: the last ones."""

_DECODE = msgspec.json.decode

WORKFLOW = """
name: attacked
inputs: {words: {rest: true, default: ""}}
steps:
  - {id: said, set: {said: inputs.words}}
outputs: {said: "{{ vars.said }}"}
"""


class BrokenError(Exception):
    """A promise was broken: something died, hung, went unanswered or was answered wrongly."""


@dataclass(frozen=True)
class Shape:
    """Something that frames are sent to; `share` is its part of all frames."""

    name: str
    share: float
    round: int
    """Frames that one process gets."""


SHAPES = (
    Shape("an agent", 0.40, 100_000),
    Shape("an agent with a store", 0.165, 50_000),
    Shape("the relay", 0.06, 50_000),
    Shape("the coder", 0.005, 10_000),
    Shape("a workflow", 0.03, 20_000),
    Shape("connect", 0.30, 100_000),
    Shape("the relay of a hostile agent", 0.03, 20_000),
    Shape("exec", 0.01, 4_000),
)


def attack_frames(effort: Effort, outcome: Outcome) -> None:
    """Send frames to each shape in turn, by its share."""
    sent = dict.fromkeys(SHAPES, 0)
    number = 0
    server = scripted_model.serve()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        while left := effort.left(outcome):
            shape = min(SHAPES, key=lambda each: sent[each] / each.share)
            count = min(shape.round, max(BATCH, int(effort.most * shape.share)), left)
            done = _Round(effort, outcome, shape, f"{number}", url).run(count)
            sent[shape] += max(done, 1)
            number += 1
    finally:
        server.shutdown()
        server.server_close()
    outcome.figures["frames a second"] = (outcome.tries / max(0.001, time.monotonic() - effort.began), "")


class _Round:
    """One process, and the frames that it gets."""

    def __init__(self, effort: Effort, outcome: Outcome, shape: Shape, number: str, url: str) -> None:
        self._effort = effort
        self._outcome = outcome
        self._shape = shape
        self._name = f"frames/{number}"
        self._place = effort.directory(f"frames-{number}")
        self._url = url
        self._chance = effort.chance(self._name)

    def run(self, count: int) -> int:
        """Send so many frames; how many were sent."""
        before = self._outcome.tries
        try:
            match self._shape.name:
                case "connect":
                    asyncio.run(self._drive(count))
                case "exec":
                    self._exec(count)
                case "the relay of a hostile agent":
                    self._relay_hostile(count)
                case _:
                    self._agent(count)
        except BrokenError as broken:
            self._outcome.fail(f"{self._shape.name}: {broken} (seed {self._effort.seed}, {self._name})")
        return self._outcome.tries - before

    def _agent(self, count: int) -> None:
        command, env, expected = self._served()
        with Attacker.started(command, env, self._place, self._chance) as attacker:
            attacker.open(expected)
            attacker.prompt("sentinel first", expected)  # the coder loads for seconds before it answers
            sent = 0
            while sent < count and not self._effort.is_over:
                if sent % (BATCH * NEW_VICTIMS_EVERY) == 0:
                    attacker.open_victims()
                size = min(BATCH, count - sent)
                lines = attacker.batch(size)
                began = Moment(attacker.processes)
                try:
                    attacker.send_and_check(lines)
                except BrokenError as broken:
                    raise BrokenError(f"{broken}\n{self._smallest(lines, attacker)}") from None
                self._note_batch(began.delay)
                self._outcome.tries += size
                sent += size
            self._outcome.worst("most memory", attacker.memory / 2**20, "MB")
            attacker.leave()

    def _served(self) -> tuple[list[str], dict[str, str], Callable[[str], str]]:
        """The command, its variables, and what it answers to the words of a prompt."""
        env = {"COUPLER_HOME": str(self._place / "home"), "HOME": str(self._place), "COUPLER_LOG": "critical"}
        agent = [*COUPLER, "serve", ATTACKED]
        match self._shape.name:
            case "an agent with a store":
                return agent, env, _itself
            case "the relay":
                return [*COUPLER, "serve", "--", *agent, "--no-store"], env, _itself
            case "the coder":
                model = {
                    "COUPLER_MODEL": "openai:scripted",
                    "COUPLER_BASE_URL": self._url,
                    "COUPLER_API_KEY": "sk-0",
                }
                return [*COUPLER, "serve"], env | model, lambda _: "Hello from the scripted model."
            case "a workflow":
                flow = self._place / "attacked.yaml"
                flow.write_text(WORKFLOW)
                return [*COUPLER, "serve", str(flow)], env, _itself
        return [*agent, "--no-store"], env, _itself

    def _smallest(self, lines: list[bytes], attacker: Attacker) -> str:
        """The smallest part of a failed batch that fails by itself."""
        failing = lines
        command, env, expected = self._served()
        tries = iter(range(REDUCTIONS))

        def fails(part: list[bytes]) -> bool:
            place = self._effort.directory(f"{self._place.name}-smaller-{next(tries)}")
            with Attacker.started(
                command, env | {"COUPLER_HOME": str(place)}, place, random.Random(0)
            ) as again:
                again.open(expected)
                try:
                    again.repeat(part, attacker)
                except BrokenError:
                    return True
            return False

        try:
            if not fails(failing):
                return self._kept(lines, "in a new process the batch alone does not fail; it is in")
            pieces = 2
            while len(failing) > 1 and pieces <= len(failing):
                step = -(-len(failing) // pieces)
                parts = [failing[at : at + step] for at in range(0, len(failing), step)]
                for part in parts:
                    if fails(part):
                        failing, pieces = part, 2
                        break
                else:
                    pieces *= 2
        except StopIteration:
            pass
        return self._kept(
            failing, f"{len(failing)} frames fail by themselves:\n{_shown(failing)}\nThey are in"
        )

    def _kept(self, lines: list[bytes], words: str) -> str:
        file = self._effort.place / f"{self._place.name}.frames"
        file.write_bytes(b"\n".join(lines))
        return f"{words} {file}"

    @property
    def _hostile(self) -> list[str]:
        return [sys.executable, str(HOSTILE), f"{self._effort.seed}/{self._name}", str(BATCH)]

    async def _drive(self, count: int) -> None:
        """Prompt a hostile agent with `connect`."""
        env = {"COUPLER_HOME": str(self._place / "home")}
        async with connect(self._hostile, cwd=self._place, env=env) as agent:
            session = await agent.new()
            for number in range(1, max(1, count // BATCH) + 1):
                if self._effort.is_over:
                    break
                began = Moment(processes_of(os.getpid()))
                try:
                    async with asyncio.timeout(2 * PATIENCE):
                        reply = await session.prompt(f"prompt {number}")
                except Exception as error:
                    raise BrokenError(f"prompt {number}: {type(error).__name__}: {error}") from error
                self._check_reply(number, reply.text)
                self._note_batch(began.delay)

    def _note_batch(self, delay: Delay) -> None:
        self._outcome.worst("slowest batch", delay.passed * 1000, "ms")
        self._outcome.worst("without the time of other programs", delay.own * 1000, "ms")

    def _check_reply(self, number: int, text: str) -> None:
        if not text.endswith(f"done {number}"):
            raise BrokenError(f"prompt {number} was answered by {text[-300:]!r}")
        self._outcome.tries += BATCH

    def _exec(self, count: int) -> None:
        env = {**os.environ, "COUPLER_HOME": str(self._place / "home")}
        for number in range(max(1, count // BATCH)):
            command = [*self._hostile[:2], f"{self._hostile[2]}/{number}", str(BATCH)]
            words = [*COUPLER, "exec", "--format", self._chance.choice(("text", "quiet", "json", "ndjson"))]
            done = subprocess.run(
                [*words, shlex.join(command), "go"],
                cwd=self._place,
                env=env,
                capture_output=True,
                timeout=2 * PATIENCE,
            )
            if done.returncode != 0 or b"done 1" not in done.stdout or b"Traceback" in done.stderr:
                raise BrokenError(
                    f"exit code {done.returncode}: {done.stdout[-300:]!r} {done.stderr[-1000:]!r}"
                )
            self._outcome.tries += BATCH

    def _relay_hostile(self, count: int) -> None:
        command = [*COUPLER, "serve", "--", *self._hostile]
        env = {"COUPLER_HOME": str(self._place / "home"), "COUPLER_LOG": "critical"}
        with Attacker.started(command, env, self._place, self._chance) as attacker:
            attacker.open(_itself)
            for number in range(1, max(1, count // BATCH) + 1):
                began = Moment(attacker.processes)
                attacker.prompt(f"prompt {number}", _done)
                self._note_batch(began.delay)
                self._outcome.tries += BATCH
            attacker.leave()


def _itself(words: str) -> str:
    return words


def _done(words: str) -> str:
    """The answer that the hostile agent ends a turn with."""
    return words.replace("prompt", "done")


class Delay(NamedTuple):
    """Seconds that the slowest answer took, and those of the slowest without the time of other programs."""

    passed: float
    own: float


class Moment:
    """A moment from which a delay is measured."""

    def __init__(self, processes: tuple[int, ...]) -> None:
        self._processes = processes
        self._began = time.monotonic()
        self._waited = self._without_processor()

    @property
    def delay(self) -> Delay:
        """The time since then; its own part is without that in which other programs had the processors."""
        passed = time.monotonic() - self._began
        return Delay(passed, max(0.0, passed - (self._without_processor() - self._waited)))

    def _without_processor(self) -> float:
        """Seconds in which threads of the processes could have run, and had no processor.

        Linux counts that; elsewhere all time is ours.
        """
        waited = 0
        for pid in self._processes:
            for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):
                    waited += int(thread.read_text().split()[1])
        return waited / 1e9


def processes_of(pid: int) -> tuple[int, ...]:
    """A process and all that it has started."""
    return (pid, *(each.pid for each in psutil.Process(pid).children(recursive=True)))


def memory_of(pid: int) -> int:
    """Bytes that a process and all that it has started hold."""
    held = 0
    for each in processes_of(pid):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            held += psutil.Process(each).memory_info().rss
    return held


class Attacker:
    """The client of a process: writes bytes in pieces, and checks every line that comes back."""

    capabilities: ClassVar[dict[str, Any]] = {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "elicitation": {"form": {}},
    }

    def __init__(
        self, process: subprocess.Popen[bytes], chance: random.Random, cwd: Path, errors: Path
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._input, self._output = process.stdin.fileno(), process.stdout.fileno()
        self._chance = chance
        self._cwd = str(cwd)
        self._errors = errors
        self._frames = Frames("agent", chance, self._cwd)
        self.answers_wrongly = True
        """True if a request of the agent gets a wrong answer before the right one."""
        self._unread = self._unwritten = b""
        self._pending: dict[str, str] = {}
        self._answers: dict[str, Any] = {}
        self._said: dict[str, str] = {}
        self._session = ""
        self._count = 0
        self._expected: Callable[[str], str] = _itself
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)

    @classmethod
    @contextmanager
    def started(
        cls, command: list[str], env: dict[str, str], place: Path, chance: random.Random
    ) -> Iterator[Attacker]:
        errors = place / "stderr"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | env,
                cwd=place,
            )
        try:
            yield cls(process, chance, place, errors)
        finally:
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def session(self) -> str:
        """The session that no wrong frame is about."""
        return self._session

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._write(data)

    def open(self, expected: Callable[[str], str]) -> None:
        """Say hello, and open the session that no wrong frame is about."""
        self._expected = expected
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": self.capabilities})
        self._session = self.new_session()

    def new_session(self, *servers: dict[str, Any]) -> str:
        answer = self.call("session/new", {"cwd": self._cwd, "mcpServers": servers})
        return str(answer["result"]["sessionId"])

    def open_victims(self) -> None:
        self._frames.sessions = [self.new_session() for _ in range(VICTIMS)]

    def batch(self, size: int) -> list[bytes]:
        return self._frames.batch(size)

    def send_and_check(self, lines: list[bytes]) -> None:
        """Send a batch; every request that was right in its envelope is answered once, and so is a prompt."""
        self._pending.update(self._frames.expected)
        self._frames.expected.clear()
        self._write(self._frames.joined(lines) + b"\n")
        self.prompt(f"sentinel {self._count}", self._expected)
        self._wait(lambda: not self._pending, lambda: f"no answer to {[*self._pending.items()][:3]}")

    def repeat(self, lines: list[bytes], failed: Attacker) -> None:
        """Send lines that were made for another process, about its sessions as if they were ours."""
        victims = failed._frames.sessions
        ours = [self.new_session() for _ in victims]
        for line in lines:
            for theirs, own in zip(victims, ours, strict=True):
                line = line.replace(theirs.encode(), own.encode())
            with contextlib.suppress(ValueError, RecursionError):
                frame = _DECODE(line)
                if isinstance(frame, dict) and str(frame.get("id")).startswith("tracked-"):
                    self._pending[frame["id"]] = str(frame.get("method"))
            self._write(line + b"\n")
        self.prompt("sentinel again", self._expected)
        self._wait(lambda: not self._pending, lambda: f"no answer to {[*self._pending.items()][:3]}")

    def prompt(self, words: str, expected: Callable[[str], str]) -> None:
        """Prompt the session that nobody else uses, and check the answer."""
        self._said[self._session] = ""
        params = {"sessionId": self._session, "prompt": [{"type": "text", "text": words}]}
        answer = self.call("session/prompt", params)
        said = self._said[self._session]
        if answer.get("result", {}).get("stopReason") != "end_turn" or expected(words) not in said:
            raise BrokenError(f"{words!r} was answered by {said[-300:]!r} and {str(answer)[:300]}")

    def call(self, method: str, params: Any) -> Any:
        id = self.send(method, params)
        self._answers[id] = None
        self._wait(lambda: self._answers[id] is not None, lambda: f"no answer to {method}")
        return self._answers.pop(id)

    def send(self, method: str, params: Any) -> str:
        """Send a request whose answer nobody waits for; returns its id."""
        self._count += 1
        id = f"attacker-{self._count}"
        self._write(
            msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + b"\n"
        )
        return id

    def begin_prompt(self, session: str, words: str) -> str:
        """Prompt a session; returns the id by which `answer_to` has the answer."""
        self._said[session] = ""
        blocks = [{"type": "text", "text": words}]
        id = self.send("session/prompt", {"sessionId": session, "prompt": blocks})
        self._answers[id] = None
        return id

    def answer_to(self, id: str) -> Any:
        """The answer to a prompt; None as long as there is none."""
        return self._answers[id]

    def said_in(self, session: str) -> str:
        """The last that a session has said since it was prompted."""
        return self._said[session]

    def read_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Read until the condition holds; False if it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self._read_some(wait=True)
        return True

    def probe(
        self, lines: Iterator[bytes], seconds: float, pause: float, *, reads: bool
    ) -> tuple[Delay, int]:
        """Write these lines, prompt the session beside them now and then; the slowest answer and most memory.

        Where nothing is read there are no answers to wait for until the end.
        """
        began = time.monotonic()
        slowest, memory, asked_at, id = Delay(0.0, 0.0), self.memory, 0.0, ""
        involved = self.processes
        asked = Moment(involved)
        unsent = b""
        while (now := time.monotonic()) < began + seconds or id:
            if id and self._answers.get(id) is not None:
                passed, own = asked.delay
                slowest, id = Delay(max(slowest.passed, passed), max(slowest.own, own)), ""
            if id and now - asked_at > PATIENCE:
                raise BrokenError(f"a prompt beside the flood was not answered within {PATIENCE:.0f} s")
            if reads and not id and now > asked_at + pause and now < began + seconds:
                asked_at, asked = now, Moment(involved)
                memory = max(memory, self.memory)
                self._count += 1
                id = f"attacker-{self._count}"
                self._answers[id] = None
                params = {"sessionId": self._session, "prompt": [{"type": "text", "text": f"sentinel {id}"}]}
                unsent += (
                    msgspec.json.encode(
                        {"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params}
                    )
                    + b"\n"
                )
            if not unsent and now < began + seconds:
                unsent = next(lines, b"")
            unsent = self._write_some(unsent)
            if reads:
                self._read_some(wait=not unsent)
            elif time.monotonic() - asked_at > pause:
                asked_at, memory = now, max(memory, self.memory)
        return slowest, memory

    def _write_some(self, data: bytes) -> bytes:
        """Write what fits; the rest."""
        try:
            return data[os.write(self._input, data) :] if data else b""
        except BlockingIOError:
            time.sleep(0.001)
            return data
        except BrokenPipeError:
            raise BrokenError(f"the process is gone: {self._errors.read_bytes()[-2000:]!r}") from None

    def _read_some(self, *, wait: bool) -> None:
        data, self._unwritten = self._unwritten, b""
        if data:
            self._write(data)
        if self._selector.select(0.01 if wait else 0):
            self._read()

    def leave(self) -> None:
        """Close the input; the process ends by itself, and has logged no fault of its own."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            if time.monotonic() > deadline:
                raise BrokenError("the process did not end after its input had")
            self._selector.select(0.05)
            with contextlib.suppress(BrokenError, BlockingIOError):
                self._read()
        errors = self._errors.read_bytes()
        if self._process.returncode != 0 or b"Traceback" in errors:
            raise BrokenError(f"exit code {self._process.returncode}: {errors[-2000:]!r}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def memory(self) -> int:
        """Bytes that the process and all it has started hold."""
        return memory_of(self._process.pid)

    @property
    def processes(self) -> tuple[int, ...]:
        """The attacker, the process and all it has started."""
        return (os.getpid(), *processes_of(self._process.pid))

    def _write(self, data: bytes) -> None:
        """Write in pieces that end anywhere, and read meanwhile."""
        view = memoryview(data)
        while view:
            piece = view[: self._chance.choice((1, 9, 300, 4096, 65536, 65536))]
            try:
                view = view[os.write(self._input, piece) :]
            except BlockingIOError:
                self._read_or_wait(writing=True)
            except BrokenPipeError:
                raise BrokenError(f"the process is gone: {self._errors.read_bytes()[-2000:]!r}") from None

    def _wait(self, condition: Callable[[], bool], complaint: Callable[[], str]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self._unwritten:
                data, self._unwritten = self._unwritten, b""
                self._write(data)
            if time.monotonic() > deadline:
                raise BrokenError(
                    f"{complaint()} within {PATIENCE:.0f} s; {self._errors.read_bytes()[-500:]!r}"
                )
            self._read_or_wait()

    def _read_or_wait(self, writing: bool = False) -> None:
        if writing:
            self._selector.register(self._input, selectors.EVENT_WRITE)
        ready = self._selector.select(1)
        if writing:
            self._selector.unregister(self._input)
        if any(key.fd == self._output for key, _ in ready):
            self._read()

    def _read(self) -> None:
        data = os.read(self._output, 1 << 20)
        if not data:
            raise BrokenError(f"the process closed its output: {self._errors.read_bytes()[-2000:]!r}")
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            try:
                frame = _decoded(line)
            except (ValueError, RecursionError):
                raise BrokenError(f"no JSON was written: {line[:300]!r}") from None
            self._received(frame)

    def _answers_to(self, frame: dict[str, Any]) -> list[bytes]:
        """The lines by which a request is answered."""
        return self._frames.answers_to(frame["id"]) if self.answers_wrongly else [_refusal(frame["id"])]

    def _received(self, frame: Any) -> None:
        if not isinstance(frame, dict) or frame.get("jsonrpc") != "2.0":
            raise BrokenError(f"no message was written: {str(frame)[:300]}")
        if "method" in frame:
            if "id" in frame:
                self._unwritten += b"\n".join([*self._answers_to(frame), b""])
            elif frame["method"] == "session/update" and frame["params"]["sessionId"] in self._said:
                update = frame["params"]["update"]
                if update["sessionUpdate"] in ("agent_message_chunk", "tool_call", "tool_call_update"):
                    said = self._said[frame["params"]["sessionId"]] + _text_in(update.get("content"))
                    self._said[frame["params"]["sessionId"]] = said[-LONGEST_SAID:]
            return
        if ("result" in frame) == ("error" in frame):
            raise BrokenError(f"an answer has a result or an error: {str(frame)[:300]}")
        id = str(frame.get("id"))
        if id in self._answers:
            self._answers[id] = frame
        elif id.startswith("tracked-") and self._pending.pop(id, None) is None:
            raise BrokenError(f"answered twice, or never asked: {str(frame)[:300]}")


def _decoded(line: bytes) -> Any:
    """Decodes a line of JSON.

    An id is answered as it was written: it may be a number that is too long for `_DECODE`, or have half of a
    surrogate pair, which JSON's grammar allows and `_DECODE` does not.
    """
    try:
        return _DECODE(line)
    except ValueError:
        return json.loads(line, parse_int=str, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _refusal(id: Any) -> bytes:
    error = {"code": -32000, "message": "not today"}
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode()


def _text_in(content: Any) -> str:
    match content:
        case {"text": str(text)}:
            return text
        case {"content": inner}:
            return _text_in(inner)
        case [*parts]:
            return "".join(map(_text_in, parts))
    return ""


def _shown(lines: list[bytes]) -> str:
    return "\n".join(repr(line[:SHOWN_BYTES]) for line in lines[:5])

"""Floods: more than anybody can read, from the client's side and from an agent's.

While a flood goes on another session of the same process is prompted, again and again. It must be answered in
time, and the memory of the processes must stay below a bound. Of the time are subtracted the moments in which
other programs of the machine had the processor that ours were ready to use.
"""

from __future__ import annotations

import itertools
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from exchange import ATTACKED, COUPLER, HERE, Attacker, BrokenError
from outcome import Effort, Outcome

ENDLESS = [sys.executable, str(HERE / "agents" / "endless.py")]

ANSWER_MS = 100.0
"""The longest time that an answer beside a flood may take."""
ANSWER_MS_IN_TESTS = 1000.0
"""The same on a machine that is busy with other tests."""
SAME_PIPE_MS = 1000.0
"""The same where the answer comes out of an agent behind the requests that fill its pipe: each is judged."""
MOST_MEGABYTES = 250.0
"""Of one process and all that it has started, less what they have before the flood."""
SECONDS = 15.0
SHORT_SECONDS = 1.0
BETWEEN_PROBES = 0.1
"""Seconds between prompts of the other session."""

AGENT = [*COUPLER, "serve", ATTACKED]
RELAY = [*COUPLER, "serve", "--", *ENDLESS]


@dataclass(frozen=True)
class Flood:
    """One flood: the target, the lines that are written to it repeatedly, and prompts that begin floods."""

    name: str
    command: list[str]
    written: Callable[[str, int], dict[str, object]] | None = None
    prompts: tuple[str, ...] = ()
    reads: bool = True
    answer_ms: float = ANSWER_MS


def _request(session: str, number: int) -> dict[str, object]:
    return {"id": f"flood-{number}", "method": "session/list", "params": {}}


def _unknown(session: str, number: int) -> dict[str, object]:
    return {"id": f"flood-{number}", "method": f"no/such_method_{number}", "params": {"x": "y" * 500}}


def _notification(session: str, number: int) -> dict[str, object]:
    return {"method": "session/cancel", "params": {"sessionId": f"nobody-{number}"}}


def _prompt(session: str, number: int) -> dict[str, object]:
    blocks = [{"type": "text", "text": "x" * 2000}]
    return {
        "id": f"flood-{number}",
        "method": "session/prompt",
        "params": {"sessionId": session, "prompt": blocks},
    }


FLOODS = (
    Flood("requests", AGENT, _request),
    Flood("requests whose answers nobody reads", AGENT, _request, reads=False),
    Flood("unknown methods", AGENT, _unknown),
    Flood("notifications", AGENT, _notification),
    Flood("prompts", AGENT, _prompt),
    Flood("20 chatty turns", AGENT, prompts=("chunks 1000000 10240",) * 20),
    Flood("chatty turns that nobody reads", AGENT, prompts=("chunks 1000000 10240",) * 20, reads=False),
    Flood("logs", AGENT, prompts=("log 100000000",)),
    Flood("stderr", AGENT, prompts=("stderr 100000000",)),
    Flood("the relay: an endless agent", RELAY, prompts=("chunks",)),
    Flood("the relay: an endless agent that nobody reads", RELAY, prompts=("chunks",), reads=False),
    Flood("the relay: letters", RELAY, prompts=("letters",)),
    Flood("the relay: tool calls", RELAY, prompts=("calls",)),
    Flood("the relay: requests of the agent", RELAY, prompts=("requests",), answer_ms=SAME_PIPE_MS),
    Flood("the relay: stderr of the agent", RELAY, prompts=("stderr",)),
)

EXEC_FORMATS = ("text", "quiet", "json", "ndjson")


def attack_by_floods(effort: Effort, outcome: Outcome) -> None:
    """Make each flood once, and drive an endless agent by `coupler exec` in each format."""
    seconds = SHORT_SECONDS if effort.is_short else SECONDS
    chosen: list[Flood | str] = [*FLOODS, *EXEC_FORMATS]
    if effort.most < len(chosen):
        chosen = effort.chance("floods").sample(chosen, effort.most)
    for number, flood in enumerate(chosen):
        outcome.tries += 1
        if isinstance(flood, str):
            _exec(flood, effort.directory(f"floods-exec-{flood}"), seconds, effort, outcome)
            continue
        place = effort.directory(f"floods-{number}")
        try:
            _make(flood, place, seconds, effort, outcome)
        except BrokenError as broken:
            outcome.fail(f"{flood.name}: {broken}", _reproduction(effort))


def _reproduction(effort: Effort) -> str:
    return f"python attack --only floods --seed {effort.seed}"


def _make(flood: Flood, place: Path, seconds: float, effort: Effort, outcome: Outcome) -> None:
    limit = ANSWER_MS_IN_TESTS if effort.is_short else flood.answer_ms
    env = {"COUPLER_HOME": str(place / "home"), "COUPLER_LOG": "warning"}
    with Attacker.started(flood.command, env, place, effort.chance("floods")) as attacker:
        attacker.answers_wrongly = False
        attacker.open(lambda words: words)
        flooded = [attacker.new_session() for _ in range(max(1, len(flood.prompts)))]
        attacker.prompt("sentinel before", lambda words: words)
        before = attacker.memory
        for session, prompt in zip(flooded, flood.prompts, strict=False):
            blocks = [{"type": "text", "text": prompt}]
            attacker.send("session/prompt", {"sessionId": session, "prompt": blocks})
        lines = _lines(flood, flooded[0])
        slowest, memory = attacker.probe(lines, seconds, BETWEEN_PROBES, reads=flood.reads)
        grown = (memory - before) / 2**20
        outcome.worst("most memory added", grown, "MB")
        if flood.reads:
            outcome.worst("slowest answer", slowest.passed * 1000, "ms")
            outcome.worst("without the time of other programs", slowest.own * 1000, "ms")
        if flood.reads and slowest.own * 1000 > limit:
            outcome.fail(
                f"{flood.name}: an answer took {slowest.own * 1000:.0f} ms of our own, not {limit:.0f}",
                _reproduction(effort),
            )
        if grown > MOST_MEGABYTES:
            outcome.fail(f"{flood.name}: {grown:.0f} MB were added in {seconds:.0f} s", _reproduction(effort))


def _lines(flood: Flood, session: str) -> Iterator[bytes]:
    """Pieces of some KB, without an end; none if the flood comes from elsewhere."""
    if flood.written is None:
        return
    numbers = itertools.count()
    while True:
        frames = [flood.written(session, next(numbers)) for _ in range(50)]
        yield b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)


def _exec(form: str, place: Path, seconds: float, effort: Effort, outcome: Outcome) -> None:
    """The memory of `coupler exec` while its agent never ends."""
    words = [*COUPLER, "exec", "--format", form, shlex.join(ENDLESS), "chunks"]
    with (place / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            words, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
        )
    most = 0
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            most = max(most, psutil.Process(process.pid).memory_info().rss)
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    outcome.worst("most memory added", most / 2**20, "MB")
    if most / 2**20 > MOST_MEGABYTES:
        text = f"exec --format {form}: {most / 2**20:.0f} MB in {seconds:.0f} s of an endless agent"
        outcome.fail(text, shlex.join(words))

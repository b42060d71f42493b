"""The LangChain bridge beside the other two ways to put a LangChain agent into an editor.

    make bench BENCH_ARGS="--only bridge"     # measures this alone, prints its tables
    python bench/bridge.py --check            # the same, and exits 1 when a target is missed

deepagents-acp and acpkit's langchain-acp are installed into an environment of their own, below `build/`, when
it is not there yet. The same agent with the same model, which needs no network, is driven over pipes; all are
measured in turns, so that a disturbance of the machine hits all alike, and the best of the rounds counts. In
the same turns it is measured what LangChain alone takes for chunks that go nowhere. The model tells chunks
that it has made before; with new ones, whose making costs the same everywhere, it is a figure of its own.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from agent_process import AgentProcess, PeerError
from figures import microseconds, milliseconds, tenths
from peers import environment

HERE = Path(__file__).resolve().parent
AGENTS = HERE / "bridge"
PEERS = HERE.parent / "build" / "bridge-peers"
INSTALLED = ["deepagents-acp==0.0.13", "langchain-acp==1.10.0"]

COUPLER, DEEPAGENTS, ACPKIT, ENGINE = "Coupler", "deepagents-acp", "langchain-acp", "Coupler, no LangChain"
CALLBACK, MESSAGES = "LangChain, an empty callback", "LangChain, `messages` dropped"

CHUNKS = {COUPLER: 10_000, DEEPAGENTS: 10_000, ACPKIT: 500}
"""Chunks of a turn. The last one rewrites the session for every chunk: more of them would take hours."""

WAYS = ("", "fresh ")
"""What comes before the number of chunks in prompts, and in the names of their figures; see `model.py`."""

FLOOR_CHUNKS = 10_000
SESSIONS = 100

TURNS = 3
"""Turns of a round of which the best counts: a short one is over before a disturbance of the machine is."""

IMPORTING = 2.0
"""Seconds after the start in which LangChain is imported; sessions are asked for all the while."""
CALLS = 1000


@dataclass(frozen=True)
class Target:
    """A promise: what is measured, how it is shown, and the limit it keeps."""

    what: str
    limit: str
    is_kept: bool
    shown: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it works")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    text, is_kept = compare_bridges(options.rounds, quick=options.quick)
    print(text)
    return 1 if options.check and not is_kept else 0


def compare_bridges(rounds: int, *, quick: bool = False) -> tuple[str, bool]:
    """The tables, and whether all targets are kept."""
    install_peers()
    with tempfile.TemporaryDirectory() as home:
        values = measure(rounds, Path(home), 10 if quick else 1)
    targets = judge(values)
    measured = f"best of {rounds} rounds; load of the machine {psutil.getloadavg()[0]:.1f}"
    return f"{measured}\n\n{render(values, targets)}", all(target.is_kept for target in targets)


def install_peers() -> None:
    """Make the environment of the other packages, once."""
    ready = PEERS / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
        pip = [str(PEERS / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *INSTALLED], check=True)
        ready.touch()


def commands() -> dict[str, list[str]]:
    theirs, ours = str(PEERS / "bin" / "python"), str(Path(sys.executable).with_name("coupler"))
    return {
        COUPLER: [ours, "serve", str(AGENTS / "coupler_agent.py")],
        DEEPAGENTS: [theirs, str(AGENTS / "deepagents_agent.py")],
        ACPKIT: [theirs, str(AGENTS / "acpkit_agent.py")],
        ENGINE: [ours, "serve", str(HERE / "agents" / "coupler_agent.py")],
    }


class Values:
    """Every value of every round."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, what: str, name: str, value: float) -> None:
        self._all[what, name].append(value)

    def has(self, what: str, name: str) -> bool:
        return (what, name) in self._all

    def best(self, what: str, name: str) -> float:
        return max(self._all[what, name]) if what.endswith("rate") else min(self._all[what, name])


def measure(rounds: int, home: Path, share: int) -> Values:
    """Each in every round, of so big a share of the work."""
    values = Values()
    for command in commands().values():
        with AgentProcess(command, environment(home)) as agent:
            agent.initialize()
            agent.call("session/prompt", prompt(agent.new_session(), 10))
    for _ in range(rounds):
        for name, command in commands().items():
            measure_agent(name, command, values, home, share)
        measure_floor(values, home, share)
    figures = output_of("middleware_cost.py", CALLS // share, rounds)
    values.add("middleware unserved", COUPLER, figures["unserved"])
    values.add("middleware served", COUPLER, figures["served"])
    return values


def measure_agent(name: str, command: list[str], values: Values, home: Path, share: int) -> None:
    with AgentProcess(command, environment(home)) as agent:
        values.add("start", name, agent.initialize())
        first = timed_session(agent)
        values.add("first session", name, first)
        if name == COUPLER:
            values.add("importing", name, max(first, slowest_session(agent, IMPORTING)))
        if name == ENGINE:
            return
        throughput(agent, CHUNKS[name] // share)  # the model makes its chunks
        took = [timed_session(agent) for _ in range(SESSIONS // share)]
        values.add("session p95", name, statistics.quantiles(took, n=20)[-1])
        for way in WAYS * TURNS:
            rate, cost = throughput(agent, CHUNKS[name] // share, way)
            values.add(f"{way}rate", name, rate)
            values.add(f"{way}cost", name, cost)


def measure_floor(values: Values, home: Path, share: int) -> None:
    figures = output_of("floor.py", FLOOR_CHUNKS // share)
    for name, mode in ((CALLBACK, "callback"), (MESSAGES, "messages")):
        for way in WAYS:
            values.add(f"{way}rate", name, figures[f"{way}{mode}"]["rate"])
            values.add(f"{way}cost", name, figures[f"{way}{mode}"]["cost"])


def slowest_session(agent: AgentProcess, seconds: float) -> float:
    """The longest that a session takes of those that are asked for meanwhile."""
    slowest, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        slowest = max(slowest, timed_session(agent))
        time.sleep(0.02)
    return slowest


def timed_session(agent: AgentProcess) -> float:
    began = time.perf_counter()
    agent.new_session()
    return time.perf_counter() - began


def throughput(agent: AgentProcess, chunks: int, way: str = "") -> tuple[float, float]:
    """Updates a second, and the processor's seconds for one: the latter hardly depend on what else runs."""
    session = agent.new_session()
    process = psutil.Process(agent.process.pid)
    before = process.cpu_times()
    answer = agent.call("session/prompt", prompt(session, chunks, way))
    after = process.cpu_times()
    if answer.chunks_before < chunks:
        raise PeerError(f"{answer.chunks_before} chunks came before the answer, not {chunks}")
    used = after.user + after.system - before.user - before.system
    return chunks / answer.seconds, used / chunks


def prompt(session: str, chunks: int, way: str = "") -> dict[str, object]:
    return {"sessionId": session, "prompt": [{"type": "text", "text": f"{way}{chunks}"}]}


def output_of(program: str, *arguments: int) -> Any:
    """What a program prints as JSON, in an environment of its own."""
    command = [sys.executable, str(AGENTS / program), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            command, env=environment(Path(home)), capture_output=True, text=True, timeout=1200
        )
    if done.returncode != 0:
        raise PeerError(f"{program} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def judge(values: Values) -> list[Target]:
    targets = []
    for other in (DEEPAGENTS, ACPKIT):
        ratio = values.best("rate", COUPLER) / values.best("rate", other)
        targets.append(Target(f"updates a second, against {other}", "≥ 5×", ratio >= 5, f"{ratio:.1f}×"))
    slower = values.best("start", COUPLER) / values.best("start", ENGINE)
    words = "`initialize`, against an agent without LangChain"
    targets.append(Target(words, "≤ 1.25×", slower <= 1.25, f"{slower:.2f}×"))
    limits: list[tuple[str, str, float, Callable[[float], str]]] = [
        ("session p95", "`session/new`, p95", 0.020, tenths),
        ("importing", "`session/new` while imports run, the slowest", 0.150, milliseconds),
        ("middleware unserved", "middleware, a call, not served", 0.00001, microseconds),
        ("middleware served", "middleware, a call, served", 0.001, microseconds),
    ]
    for key, words, limit, show in limits:
        value = values.best(key, COUPLER)
        targets.append(Target(words, f"≤ {show(limit)}", value <= limit, show(value)))
    return targets


def render(values: Values, targets: list[Target]) -> str:
    names = (COUPLER, DEEPAGENTS, ACPKIT, ENGINE, CALLBACK, MESSAGES)
    rows: list[tuple[str, str, Callable[[float], str]]] = [
        ("start to `initialize`, not the first", "start", milliseconds),
        ("`session/new`, the first", "first session", milliseconds),
        ("`session/new` while imports run, the slowest", "importing", milliseconds),
        ("`session/new`, p95", "session p95", tenths),
        ("updates a second", "rate", lambda rate: f"{rate:,.0f}"),
        ("processor time of an update", "cost", lambda cost: f"{1e6 * cost:.0f} µs"),
        ("updates a second, of new chunks", "fresh rate", lambda rate: f"{rate:,.0f}"),
        ("processor time of an update, of new chunks", "fresh cost", lambda cost: f"{1e6 * cost:.0f} µs"),
    ]
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for words, key, show in rows:
        cells = [show(values.best(key, name)) if values.has(key, name) else "–" for name in names]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    most = values.best("cost", DEEPAGENTS) / values.best("cost", CALLBACK)
    lines += ["", f"A bridge that costs nothing would take 1/{most:.1f} of deepagents-acp's processor time."]
    lines += ["", "| promise | target | measured | |", "|---|---|---|---|"]
    lines += [
        f"| {target.what} | {target.limit} | {target.shown} | {'pass' if target.is_kept else 'FAIL'} |"
        for target in targets
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

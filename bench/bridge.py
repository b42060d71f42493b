"""The LangChain bridge beside the other two ways to put a LangChain agent into an editor.

    python bench/bridge.py                    # measures everything, prints a table
    python bench/bridge.py --check            # and exits 1 when a target is missed

deepagents-acp and acpkit's langchain-acp are installed into an environment of their own, below `build/`, when
it is not there yet. The same agent with the same model, which needs no network, is driven over pipes; all are
measured in turns, so that a disturbance of the machine hits all alike, and the best of the rounds counts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent_process import AgentProcess, PeerError
from figures import microseconds, milliseconds, tenths
from peers import environment

HERE = Path(__file__).resolve().parent
AGENTS = HERE / "bridge"
PEERS = HERE.parent / "build" / "bridge-peers"
INSTALLED = ["deepagents-acp==0.0.13", "langchain-acp==1.10.0"]

COUPLER, DEEPAGENTS, ACPKIT, ENGINE = "Coupler", "deepagents-acp", "langchain-acp", "Coupler, no LangChain"

CHUNKS = {COUPLER: 20_000, DEEPAGENTS: 10_000, ACPKIT: 500}
"""Chunks of a turn. The last one rewrites the session for every chunk: more of them would take hours."""

SESSIONS = 100


@dataclass(frozen=True)
class Target:
    """A promise: what is measured, how it is shown, and the limit it keeps."""

    what: str
    limit: str
    value: float | None
    is_kept: bool
    shown: str


def main() -> int:
    options = parse_arguments()
    install_peers()
    with tempfile.TemporaryDirectory() as home:
        values = measure(options.rounds, Path(home), options.quick)
    targets = judge(values)
    print(f"best of {options.rounds} rounds; load of the machine {psutil.getloadavg()[0]:.1f}\n")
    print(render(values, targets))
    return 1 if options.check and not all(target.is_kept for target in targets) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it works")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args()


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


Values = dict[tuple[str, str], list[float]]


def measure(rounds: int, home: Path, quick: bool) -> Values:
    values: Values = defaultdict(list)
    share = 10 if quick else 1
    for command in commands().values():
        with AgentProcess(command, environment(home)) as agent:
            agent.initialize()
            agent.call("session/prompt", prompt(agent.new_session(), 10))
    for _ in range(rounds):
        for name, command in commands().items():
            with AgentProcess(command, environment(home)) as agent:
                values["start", name].append(agent.initialize())
                began = time.perf_counter()
                session = agent.new_session()
                values["first session", name].append(time.perf_counter() - began)
                if name == ENGINE:
                    continue
                took = [timed_session(agent) for _ in range(SESSIONS // share)]
                values["session p95", name].append(statistics.quantiles(took, n=20)[-1])
                rate, cost = throughput(agent, session, CHUNKS[name] // share)
                values["rate", name].append(rate)
                values["cost", name].append(cost)
    figures = middleware(1000 // share, rounds)
    values["middleware unserved", COUPLER].append(figures["unserved"])
    values["middleware served", COUPLER].append(figures["served"])
    return values


def timed_session(agent: AgentProcess) -> float:
    began = time.perf_counter()
    agent.new_session()
    return time.perf_counter() - began


def throughput(agent: AgentProcess, session: str, chunks: int) -> tuple[float, float]:
    """Updates a second, and the processor's seconds for one: the latter hardly depend on what else runs."""
    agent.call("session/prompt", prompt(session, 100))
    session = agent.new_session()
    process = psutil.Process(agent.process.pid)
    before = process.cpu_times()
    answer = agent.call("session/prompt", prompt(session, chunks))
    after = process.cpu_times()
    if answer.chunks_before < chunks:
        raise PeerError(f"{answer.chunks_before} chunks came before the answer, not {chunks}")
    used = after.user + after.system - before.user - before.system
    return chunks / answer.seconds, used / chunks


def prompt(session: str, chunks: int) -> dict[str, object]:
    return {"sessionId": session, "prompt": [{"type": "text", "text": str(chunks)}]}


def middleware(calls: int, rounds: int) -> dict[str, float]:
    command = [sys.executable, str(AGENTS / "middleware_cost.py"), str(calls), str(rounds)]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            command, env=environment(Path(home)), capture_output=True, text=True, timeout=1200
        )
    if done.returncode != 0:
        raise PeerError(f"the middleware was not measured: {done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def judge(values: Values) -> list[Target]:
    def best(what: str, name: str) -> float:
        return max(values[what, name]) if what == "rate" else min(values[what, name])

    targets = []
    for other in (DEEPAGENTS, ACPKIT):
        ratio = best("rate", COUPLER) / best("rate", other)
        targets.append(Target(f"updates, against {other}", "≥ 5×", ratio, ratio >= 5, f"{ratio:.1f}×"))
    slower = best("start", COUPLER) / best("start", ENGINE)
    targets.append(
        Target(
            "`initialize`, against an agent without LangChain",
            "≤ 1.25×",
            slower,
            slower <= 1.25,
            f"{slower:.2f}×",
        )
    )
    limits = [
        ("session p95", "`session/new`, p95", 0.020),
        ("first session", "`session/new` while imports run, the first", 0.150),
        ("middleware unserved", "middleware, a call, not served", 0.00001),
        ("middleware served", "middleware, a call, served", 0.001),
    ]
    for key, words, limit in limits:
        value = best(key, COUPLER)
        show = microseconds if limit <= 0.001 else tenths
        targets.append(Target(words, f"≤ {show(limit)}", value, value <= limit, show(value)))
    return targets


def render(values: Values, targets: list[Target]) -> str:
    names = (COUPLER, DEEPAGENTS, ACPKIT)
    rows = [
        ("start to `initialize`, not the first", "start", milliseconds, min),
        ("`session/new`, the first", "first session", milliseconds, min),
        ("`session/new`, p95", "session p95", tenths, min),
        ("updates a second", "rate", lambda rate: f"{rate:,.0f}", max),
        ("processor time of an update", "cost", lambda cost: f"{1e6 * cost:.0f} µs", min),
    ]
    lines = [f"| | {' | '.join(names)} |", "|---|---|---|---|"]
    for words, key, show, best in rows:
        cells = [show(best(values[key, name])) if values[key, name] else "–" for name in names]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    lines += ["", "| promise | target | measured | |", "|---|---|---|---|"]
    lines += [
        f"| {target.what} | {target.limit} | {target.shown} | {'pass' if target.is_kept else 'FAIL'} |"
        for target in targets
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

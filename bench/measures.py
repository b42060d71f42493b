"""How one peer is measured once. Each measure yields figures with their values."""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_process import AgentProcess, PeerError
from figures import (
    CLIENT_TURN,
    FIRST_START,
    ITERATED,
    LATER_START,
    MEMORY,
    NEW_SESSION,
    PATIENCE_SECONDS,
    RECEIVED,
    RECEIVING_COST,
    ROUND_TRIP,
    ROUND_TRIP_ACROSS_CORES,
    SENDING_COST,
    SENT,
    Figure,
)
from load import slowest_new_session
from peers import BARE, COUPLER, FIREHOSE, NO_STORE, Peer, environment

Values = Iterator[tuple[Figure, float]]


@dataclass(frozen=True)
class Effort:
    """How much is done for one value."""

    starts: int = 3
    chunks: int = 50_000
    trips: int = 300
    rows: int = 5
    requests: int = 10
    steps: int = 1_000
    deltas: int = 200
    decisions: int = 300
    # How many reads, and how many lines each has.
    long_turns: tuple[tuple[int, int], ...] = ((10, 100), (100, 100), (1_000, 10))
    # The SDKs would take minutes over a million updates, and nothing is asked of them there.
    longest_turn: int = 1_000_000
    longest_turn_of_others: int = 100_000


QUICK = Effort(
    starts=1,
    chunks=10_000,
    trips=100,
    rows=2,
    requests=3,
    steps=100,
    deltas=40,
    decisions=50,
    long_turns=((10, 100), (100, 10)),
    longest_turn=100_000,
    longest_turn_of_others=10_000,
)


def warm_up(peer: Peer, home: Path) -> None:
    """One whole life of the agent: byte code is written, and Coupler remembers the target."""
    with AgentProcess(peer.agent, environment(home)) as agent:
        agent.initialize()
        agent.prompt(agent.new_session(), 10)
        agent.finish()


def measure_first_start(peer: Peer, home: Path, effort: Effort) -> Values:
    for _ in range(effort.starts):
        with tempfile.TemporaryDirectory() as fresh_home:
            yield FIRST_START, start(peer, Path(fresh_home))


def measure_later_start(peer: Peer, home: Path, effort: Effort) -> Values:
    for _ in range(effort.starts):
        yield LATER_START, start(peer, home)


def start(peer: Peer, home: Path) -> float:
    with AgentProcess(peer.agent, environment(home)) as agent:
        return agent.initialize()


def measure_sending(peer: Peer, home: Path, effort: Effort) -> Values:
    with AgentProcess(peer.agent, environment(home)) as agent:
        agent.initialize()
        session = agent.new_session()
        agent.prompt(session, 1_000)
        yield SENT, effort.chunks / agent.prompt(session, effort.chunks).seconds


def measure_round_trip(peer: Peer, home: Path, effort: Effort) -> Values:
    """With both ends on one core: what it takes to wake another is the machine's, and not steady."""
    with on_one_core():
        yield from ((ROUND_TRIP, median) for median in round_trips(peer, home, effort))


def measure_round_trip_across_cores(peer: Peer, home: Path, effort: Effort) -> Values:
    yield from ((ROUND_TRIP_ACROSS_CORES, median) for median in round_trips(peer, home, effort))


def round_trips(peer: Peer, home: Path, effort: Effort) -> Iterator[float]:
    """The median of each of several rows of prompts: a machine that pauses spoils a row, not the measure."""
    # The peers keep no sessions; what that costs is measured apart (lasting.py).
    command = [*peer.agent, NO_STORE] if peer.name == COUPLER else peer.agent
    with AgentProcess(command, environment(home)) as agent:
        agent.initialize()
        session = agent.new_session()
        agent.prompt(session, 1_000)
        for _ in range(effort.rows):
            yield statistics.median(agent.prompt(session, 1).seconds for _ in range(effort.trips))


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this process and what it starts meanwhile on one core, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def measure_sending_cost(peer: Peer, home: Path, effort: Effort) -> Values:
    with AgentProcess(peer.agent, environment(home)) as agent:
        agent.initialize()
        session = agent.new_session()
        agent.prompt(session, 1_000)
        for chunks, figure in SENDING_COST.items():
            if chunks <= longest_turn(peer, effort):
                yield figure, agent.prompt(session, chunks).seconds / chunks


def measure_memory(peer: Peer, home: Path, effort: Effort) -> Values:
    with AgentProcess(peer.agent, environment(home)) as agent:
        agent.initialize()
        time.sleep(0.5)  # an agent may answer before it has loaded everything; that counts too
        yield MEMORY, agent.resident_bytes()


def measure_new_session_under_load(peer: Peer, home: Path, effort: Effort) -> Values:
    if peer.name == BARE:
        return  # it does one thing after the other and would never answer
    with AgentProcess(peer.agent, environment(home)) as agent:
        yield NEW_SESSION, slowest_new_session(agent, effort.requests, PATIENCE_SECONDS)


def measure_receiving(peer: Peer, home: Path, effort: Effort) -> Values:
    if peer.client is None:
        return
    rates = run_client(peer.client, effort.chunks, home)
    yield RECEIVED, rates["awaited"]
    # The SDKs' clients have one way only: a callback that sees each update.
    yield ITERATED, rates.get("iterated", rates["awaited"])


def measure_client_turn(peer: Peer, home: Path, effort: Effort) -> Values:
    """What a client adds to a turn: the same bare program, on one core with it, answers all alike."""
    if peer.client is None:
        return
    with on_one_core():
        for _ in range(effort.rows):
            yield CLIENT_TURN, run_client(peer.client, 1_000, home)["turn"]


def measure_receiving_cost(peer: Peer, home: Path, effort: Effort) -> Values:
    if peer.client is None:
        return
    for chunks, figure in RECEIVING_COST.items():
        if chunks <= longest_turn(peer, effort):
            yield figure, 1 / run_client(peer.client, chunks, home)["awaited"]


def run_client(client: list[str], chunks: int, home: Path) -> dict[str, float]:
    """Let a client drive the bare program; return its updates per second, by way of receiving, and the
    seconds of a turn."""
    command = [*client, str(chunks), *FIREHOSE]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise PeerError(f"the client failed: {done.stderr.strip()[-2000:]}")
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def longest_turn(peer: Peer, effort: Effort) -> int:
    return effort.longest_turn if peer.name in (COUPLER, BARE) else effort.longest_turn_of_others


MEASURES: list[Callable[[Peer, Path, Effort], Values]] = [
    measure_first_start,
    measure_later_start,
    measure_sending,
    measure_round_trip,
    measure_round_trip_across_cores,
    measure_receiving,
    measure_client_turn,
    measure_memory,
    measure_new_session_under_load,
    measure_sending_cost,
    measure_receiving_cost,
]

"""What it costs that Coupler's sessions last, and how quickly they are listed and cancelled.

These are Coupler's own promises: no peer keeps sessions.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from agent_process import AgentProcess, PeerError
from figures import (
    CANCEL,
    CANCEL_SLOW,
    KEPT_SHARE,
    ROUND_TRIP_KEPT,
    ROUND_TRIP_UNKEPT,
    SENT_KEPT,
    SENT_UNKEPT,
    SESSION_LIST,
)
from measures import Effort, Values, on_one_core, round_trips
from peers import BARE, COUPLER, HERE, NO_STORE, Peer, environment

PAIRS = 12
SESSIONS = 10_000
CANCELS = 300


def measure_keeping(peer: Peer, home: Path, effort: Effort) -> Values:
    """The same turns with the store and without, taking turns: a disturbance of the machine hits both."""
    if peer.name != COUPLER:
        return
    with (
        AgentProcess(peer.agent, environment(home)) as keeping,
        AgentProcess([*peer.agent, NO_STORE], environment(home)) as forgetting,
    ):
        sessions = {}
        for agent in (keeping, forgetting):
            agent.initialize()
            sessions[agent] = agent.new_session()
            agent.prompt(sessions[agent], 1_000)
        for _ in range(PAIRS):
            kept, unkept = (
                effort.chunks / agent.prompt(sessions[agent], effort.chunks).seconds
                for agent in (keeping, forgetting)
            )
            yield SENT_KEPT, kept
            yield SENT_UNKEPT, unkept
            yield KEPT_SHARE, kept / unkept


def measure_round_trip_of_keeping(peer: Peer, home: Path, effort: Effort) -> Values:
    """Prompts as users have them, with sessions kept; the libraries that keep nothing stand beside it."""
    if peer.name == BARE:
        return
    if peer.name != COUPLER:
        with on_one_core():
            yield from ((ROUND_TRIP_KEPT, median) for median in round_trips(peer, home, effort))
        return
    with (
        on_one_core(),
        AgentProcess(peer.agent, environment(home)) as keeping,
        AgentProcess([*peer.agent, NO_STORE], environment(home)) as forgetting,
    ):
        sessions = {}
        for agent in (keeping, forgetting):
            agent.initialize()
            sessions[agent] = agent.new_session()
            agent.prompt(sessions[agent], 1_000)
        for _ in range(effort.rows):
            for agent, figure in ((keeping, ROUND_TRIP_KEPT), (forgetting, ROUND_TRIP_UNKEPT)):
                trips = [agent.prompt(sessions[agent], 1).seconds for _ in range(effort.trips)]
                yield figure, statistics.median(trips)


def measure_session_list(peer: Peer, home: Path, effort: Effort) -> Values:
    """Each page of a long list, from the first to the last."""
    if peer.name != COUPLER:
        return
    with tempfile.TemporaryDirectory() as crowded_home:
        with AgentProcess(peer.agent, environment(Path(crowded_home))) as agent:
            agent.initialize()
            agent.prompt(agent.new_session(), 1)
            agent.finish()
        asyncio.run(add_sessions(Path(crowded_home) / "coupler.db", SESSIONS - 1))
        with AgentProcess(peer.agent, environment(Path(crowded_home))) as agent:
            agent.initialize()
            yield SESSION_LIST, statistics.median(page_times(agent))


async def add_sessions(path: Path, number: int) -> None:
    """Make sessions like the one that is there."""
    # Imported on use: what else is measured here does not depend on Coupler's insides.
    import msgspec

    from coupler.store.store import Store

    store = Store.open(str(path))
    [model] = (await store.page(None)).records
    for each in range(number):
        record = msgspec.structs.replace(
            model,
            id=f"sess_{each:032x}",
            cwd=f"/projects/{each % 100}",
            title=f"Session {each}",
            updated_at=model.updated_at - 1000 * each,
        )
        await store.create(record)
    store.close()


def page_times(agent: AgentProcess) -> list[float]:
    times, listed = [], 0
    params: dict[str, str] = {}
    while True:
        answer = agent.call("session/list", params)
        times.append(answer.seconds)
        listed += len(answer.result["sessions"])
        if "nextCursor" not in answer.result:
            break
        params = {"cursor": answer.result["nextCursor"]}
    if listed != SESSIONS:
        raise PeerError(f"{listed} sessions were listed, not {SESSIONS}")
    return times


def measure_cancel(peer: Peer, home: Path, effort: Effort) -> Values:
    if peer.name != COUPLER:
        return
    *command, _ = peer.agent
    with AgentProcess([*command, str(HERE / "agents" / "waiting_agent.py")], environment(home)) as agent:
        agent.initialize()
        session = agent.new_session()
        times = sorted(agent.cancel(session) for _ in range(CANCELS))
        yield CANCEL, statistics.median(times)
        yield CANCEL_SLOW, times[int(0.99 * len(times))]


LASTING_MEASURES: list[Callable[[Peer, Path, Effort], Values]] = [
    measure_keeping,
    measure_round_trip_of_keeping,
    measure_session_list,
    measure_cancel,
]

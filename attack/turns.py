"""Turns and runs that are killed or cancelled at random moments."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from pathlib import Path
from queue import Empty
from typing import Any

from exchange import ATTACKED, COUPLER
from labs.kills import MOMENTS, WITNESS, KilledRuns, KilledSessions
from outcome import Effort, Outcome
from raw_client import Frame, RawClient, is_answer_to

KILLS_OF_ONE = 25
"""Kills that the sessions of one store live through; each load tells all turns before it."""
LONGEST_BEFORE_CANCEL = 0.08
"""Seconds; a turn that is cancelled takes about as long when it is not."""
PROMPTS_OF_ONE = 50
"""Prompts of one process, cancelled in several sessions at once."""
SESSIONS = 4


def attack_by_kills(effort: Effort, outcome: Outcome) -> None:
    """Kill serve, the relay and runs in turns; what was acknowledged is found again."""
    number = 0
    while effort.left(outcome):
        chance = effort.chance(f"kills/{number}")
        place = effort.directory(f"kills-{number}")
        kinds = (_kill_runs, _kill_sessions, _kill_relays, _kill_sessions)
        os.environ["COUPLER_HOME"] = str(place / "home")
        try:
            kinds[number % len(kinds)](place, chance, effort, outcome)
        except (AssertionError, Empty) as error:
            what = kinds[number % len(kinds)].__name__.strip("_")
            outcome.fail_by(error, what, f"seed {effort.seed}, kills/{number}; the store is in {place}")
        finally:
            del os.environ["COUPLER_HOME"]
        number += 1


def _kill_sessions(place: Path, chance: random.Random, effort: Effort, outcome: Outcome) -> None:
    _kill_each([*COUPLER, "serve", _witness(place)], place, chance, effort, outcome)


def _kill_relays(place: Path, chance: random.Random, effort: Effort, outcome: Outcome) -> None:
    """The relay has a store of its own, and so has the agent behind it."""
    agent = [*COUPLER, "serve", _witness(place), "--store", str(place / "agent.db")]
    _kill_each([*COUPLER, "serve", "--", *agent], place, chance, effort, outcome, is_relayed=True)


def _kill_each(
    command: list[str],
    place: Path,
    chance: random.Random,
    effort: Effort,
    outcome: Outcome,
    *,
    is_relayed: bool = False,
) -> None:
    killed = KilledSessions(command, place, chance.choice(MOMENTS), chance, is_relayed=is_relayed)
    for _ in range(min(KILLS_OF_ONE, effort.left(outcome))):
        began = time.monotonic()
        killed.kill_one()
        outcome.tries += 1
        outcome.worst("slowest kill and load", time.monotonic() - began, "s")
    killed.end()
    outcome.count("prompts before kills", killed.prompts)


def _kill_runs(place: Path, chance: random.Random, effort: Effort, outcome: Outcome) -> None:
    killed = KilledRuns(place, chance)
    for _ in range(KILLS_OF_ONE):
        if killed.kills >= min(KILLS_OF_ONE, effort.left(outcome)):
            break
        killed.run_one()
    outcome.tries += killed.kills


def _witness(place: Path) -> str:
    file = place / "witness.py"
    file.write_text(WITNESS)
    return str(file)


def attack_by_cancels(effort: Effort, outcome: Outcome) -> None:
    """Cancel turns of an agent and of the relay at random moments, several sessions beside each other."""
    number = 0
    while effort.left(outcome):
        chance = effort.chance(f"cancels/{number}")
        place = effort.directory(f"cancels-{number}")
        agent = [*COUPLER, "serve", ATTACKED]
        relay = [*COUPLER, "serve", "--", sys.executable, "-m", "coupler", "serve", ATTACKED, "--no-store"]
        command = (agent, relay)[number % 2]
        try:
            with RawClient(*command, env={"COUPLER_HOME": str(place / "home")}) as client:
                _cancel_many(client, place, chance, effort, outcome)
                client.close_stdin()
                assert client.wait() == 0, client.stderr.decode()
                assert b"Traceback" not in client.stderr, client.stderr.decode()
        except (AssertionError, Empty) as error:
            what = "relay" if number % 2 else "agent"
            outcome.fail_by(error, what, f"seed {effort.seed}, cancels/{number}")
        number += 1


def _cancel_many(
    client: RawClient, place: Path, chance: random.Random, effort: Effort, outcome: Outcome
) -> None:
    client.initialize()
    sessions = [client.new_session(str(place)) for _ in range(SESSIONS)]
    for _ in range(PROMPTS_OF_ONE):
        if not effort.left(outcome):
            return
        chosen = chance.sample(sessions, chance.randint(1, SESSIONS))
        orders = ("steps 30", "wait", "steps 5", "chunks 20 5000", "sentinel")
        requests = {session: client.prompt_request(session, chance.choice(orders)) for session in chosen}
        began = time.monotonic()
        _prompt_and_cancel(client, requests, chance)
        _check_answers(client, requests)
        outcome.worst("slowest answer", (time.monotonic() - began) * 1000, "ms")
        outcome.tries += len(chosen)
    for session in sessions:
        updates, answer = client.prompt(session, "sentinel after all")
        assert answer["result"]["stopReason"] == "end_turn", answer
        assert "sentinel after all" in json.dumps(updates), updates


def _prompt_and_cancel(client: RawClient, requests: dict[str, Frame], chance: random.Random) -> None:
    """Send prompts, and cancels in one write with them or some time later, once or several times."""
    cancels: list[tuple[float, Frame]] = []
    together: list[Frame] = []
    for session, request in requests.items():
        cancel = {"method": "session/cancel", "params": {"sessionId": session}}
        together.append(request)
        at = chance.choice((0.0, chance.uniform(0, 0.003), chance.uniform(0, LONGEST_BEFORE_CANCEL)))
        if at == 0.0:
            together.append(cancel)
        cancels += [(at, cancel)] * chance.choice((1, 1, 3))
    client.send(*together)
    began = time.monotonic()
    for at, cancel in sorted(cancels, key=lambda pair: pair[0]):
        threading.Event().wait(max(0.0, began + at - time.monotonic()))
        client.send(cancel)


def _check_answers(client: RawClient, requests: dict[str, Frame]) -> None:
    """Each prompt has one answer, nothing of its turn comes after it, and the next prompt works."""
    waiting = {request["id"]: session for session, request in requests.items()}
    over: set[Any] = set()
    while waiting:
        frame = client.read()
        if "method" in frame:
            kind = frame["params"]["update"]["sessionUpdate"]
            is_of_turn = kind in ("agent_message_chunk", "tool_call", "tool_call_update")
            assert not (is_of_turn and frame["params"]["sessionId"] in over), f"after the answer: {frame}"
            continue
        assert frame["id"] in waiting, f"a second answer: {frame}"
        assert frame.get("result", {}).get("stopReason") in ("cancelled", "end_turn"), frame
        over.add(waiting.pop(frame["id"]))
    for session in requests:
        request = client.prompt_request(session, "sentinel next")
        client.send(request)
        *updates, answer = client.read_until(lambda frame, id=request["id"]: is_answer_to(frame, id))
        assert answer["result"]["stopReason"] == "end_turn", answer
        assert "sentinel next" in json.dumps(updates), updates

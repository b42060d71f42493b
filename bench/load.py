"""How long a request of one session waits while 200 others stream to a slow reader."""

import json
import time

from agent_process import ANSWER_MARKS, AgentProcess, prompt_params

TURNS = 200
ENDLESS_CHUNKS = 10_000_000
READER_BYTES_PER_SECOND = 10_000_000
READ_BYTES = 16 * 1024
CREDIT_SECONDS = 0.01


class SlowReader:
    """Reads an agent's output at a limited pace, from the moment it is made."""

    def __init__(self, agent: AgentProcess) -> None:
        self._agent = agent
        self._next_read = time.perf_counter()
        self._partial = b""

    def read_for(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self._read_lines()

    def seconds_until_answer(self, id: int, patience: float) -> float:
        """The seconds until the answer to `id` came; `patience` if it did not come by then."""
        started = time.perf_counter()
        while (waited := time.perf_counter() - started) < patience:
            for line in self._read_lines():
                if any(mark in line for mark in ANSWER_MARKS) and json.loads(line).get("id") == id:
                    return time.perf_counter() - started
        return min(waited, patience)

    def _read_lines(self) -> list[bytes]:
        time.sleep(max(0.0, self._next_read - time.perf_counter()))
        chunk = self._agent.read(READ_BYTES)
        # A little credit makes up for sleeping too long; more would let the reader catch up in a burst.
        earliest = max(self._next_read, time.perf_counter() - CREDIT_SECONDS)
        self._next_read = earliest + len(chunk) / READER_BYTES_PER_SECOND
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return lines


def slowest_new_session(agent: AgentProcess, requests: int, patience: float) -> float:
    """The slowest of several `session/new` requests, in seconds, with the load on."""
    agent.initialize()
    sessions = [agent.new_session() for _ in range(TURNS)]
    for session in sessions:
        agent.send("session/prompt", prompt_params(session, ENDLESS_CHUNKS))
    reader = SlowReader(agent)
    reader.read_for(1.0)
    slowest = 0.0
    for _ in range(requests):
        request = agent.send("session/new", {"cwd": "/", "mcpServers": []})
        slowest = max(slowest, reader.seconds_until_answer(request, patience))
        if slowest >= patience:
            break
        reader.read_for(0.05)
    return slowest

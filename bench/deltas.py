"""How long what an agent says in a step of a workflow takes until an editor has it."""

import json
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path

from agent_process import CHUNK_MARK, AgentProcess, PeerError, is_answer, prompt_params
from figures import DELTA, DELTA_SLOW
from measures import Effort, Values
from peers import COUPLER, HERE, Peer, environment

STAMPING = shlex.join([sys.executable, "-I", "-S", str(HERE / "agents" / "stamping_agent.py")])
WORKFLOW = f"""
inputs: {{pieces: {{rest: true}}}}
steps: [{{id: talk, agent: {json.dumps(STAMPING)}, prompt: "{{{{ inputs.pieces }}}}"}}]
"""


def measure_deltas(peer: Peer, home: Path, effort: Effort) -> Values:
    """`coupler serve` with a workflow whose agent stamps each piece of its text, by the machine's clock."""
    if peer.name != COUPLER:
        return
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "talk.yaml")
        file.write_text(WORKFLOW)
        with AgentProcess([peer.agent[0], "serve", str(file)], environment(home)) as agent:
            agent.initialize()
            session = agent.new_session()
            delays(agent, session, 1)  # the first run loads what runs need
            taken = sorted(delays(agent, session, effort.deltas))
    yield DELTA, statistics.median(taken)
    yield DELTA_SLOW, taken[int(len(taken) * 0.95)]


def delays(agent: AgentProcess, session: str, pieces: int) -> list[float]:
    """Seconds from the moment that is written in each piece to the read that brings it."""
    prompt = agent.send("session/prompt", prompt_params(session, pieces))
    taken: list[float] = []
    rest = b""
    while True:
        rest += agent.read()
        now = time.monotonic()
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if CHUNK_MARK in line and len(taken) < pieces:  # the last message is the workflow's own
                taken += [now - stamp for stamp in stamps_in(line)]
            elif is_answer(line, prompt):
                if len(taken) != pieces:
                    raise PeerError(f"{len(taken)} pieces of text came, not {pieces}: {line.decode()}")
                return taken


def stamps_in(line: bytes) -> list[float]:
    """Several pieces may have come as one."""
    text: str = json.loads(line)["params"]["update"]["content"]["text"]
    try:
        return [float(stamp) for stamp in text.split()]
    except ValueError:
        raise PeerError(f"instead of its agent's text the workflow told {text!r}") from None

"""What a `run` step of a workflow costs beyond the shell that runs it, in a loop of a thousand."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent_process import PeerError
from figures import STEP, STEP_ADDED
from measures import Effort, Values
from peers import COUPLER, Peer, environment

WORKFLOW = """
inputs: {steps: {type: integer, required: true}}
steps: [{id: loop, for_each: range(inputs.steps), steps: [{id: nothing, run: "true"}]}]
"""


def measure_steps(peer: Peer, home: Path, effort: Effort) -> Values:
    """`coupler run` with many steps and with one, so that its start does not count; bare shells beside it."""
    if peer.name != COUPLER:
        return
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "loop.yaml")
        file.write_text(WORKFLOW)
        shells = bare_shells(effort.steps // 10)
        one, many = (run(file, steps, home) for steps in (1, effort.steps))
        shells += bare_shells(effort.steps // 10)
    step = (many - one) / (effort.steps - 1)
    yield STEP, step
    yield STEP_ADDED, step - statistics.fmean(shells)


def run(file: Path, steps: int, home: Path) -> float:
    command = [sys.executable, "-m", "coupler", "run", str(file), f"steps={steps}", "--quiet"]
    began = time.perf_counter()
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True)
    if done.returncode:
        raise PeerError(f"coupler run ended with {done.returncode}: {done.stderr[-500:]}")
    return time.perf_counter() - began


def bare_shells(number: int) -> list[float]:
    """What a step cannot do without: a shell, started by Python and heard to its end."""
    times = []
    for _ in range(number):
        began = time.perf_counter()
        subprocess.run(["sh", "-c", "true"], capture_output=True, check=True)
        times.append(time.perf_counter() - began)
    return times

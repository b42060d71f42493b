"""What a `run` step of a workflow costs beyond the shell that runs it.

python bench/workflow_steps.py

`sh -c true`, started by Python and heard to its end, is what it cannot do without; the rest is Coupler's.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from coupler.process.watch import Watch
from coupler.workflow.commands.command import perform_command
from coupler.workflow.engine.attempt import Attempt
from coupler.workflow.expressions.flow_expressions import FlowExpressions
from coupler.workflow.journal.happenings import Place
from coupler.workflow.language.definition import Position, Run, Workflow

PROMISED = 3.0
"""Milliseconds that performing a command may add to its shell; a whole step may add 10."""

Seconds = list[float]


def main() -> int:
    options = parse_arguments()
    load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{options.steps} commands, milliseconds each; the best of {options.rounds} rounds; load {load}")
    print(f"{'':20} {'least':>8} {'p50':>8} {'mean':>8}")
    bare, performed = in_turns(options.rounds, options.steps, bare_shells, performed_commands)
    print(row("sh -c true", bare))
    print(row("perform_command", performed))
    added = overhead(performed, bare)
    is_kept = added < PROMISED / 1000
    print(f"added {1e3 * added:.2f} ms; under {PROMISED:g} ms: {'yes' if is_kept else 'no'}")
    return 0 if is_kept or not options.check else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3, help="the best of these counts")
    parser.add_argument("--check", action="store_true", help="exit 1 when the promise is not kept")
    return parser.parse_args()


def in_turns(rounds: int, number: int, *measures: Callable[[int], Seconds]) -> list[Seconds]:
    """The best round of each, taken in turns so that a disturbance of the machine hits all alike."""
    taken = [[measure(number) for measure in measures] for _ in range(rounds)]
    return [min(times, key=statistics.fmean) for times in zip(*taken, strict=True)]


def overhead(times: Seconds, bare: Seconds) -> float:
    """Seconds that one of them takes longer, on average: what a loop of a thousand feels."""
    return statistics.fmean(times) - statistics.fmean(bare)


def bare_shells(number: int) -> Seconds:
    return [timed(lambda: subprocess.run(["sh", "-c", "true"], capture_output=True)) for _ in range(number)]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def performed_commands(number: int) -> Seconds:
    """Steps in a row, as an engine performs them, without the engine."""
    return asyncio.run(perform(number))


async def perform(number: int) -> Seconds:
    step = Run(id="nothing", position=Position("", 1, 1), script="true")
    attempt = make_attempt()
    times = []
    with Watch() as watch:
        await perform_command(step, attempt, watch)  # the first one starts the watch
        for _ in range(number):
            began = time.perf_counter()
            await perform_command(step, attempt, watch)
            times.append(time.perf_counter() - began)
    return times


def make_attempt() -> Attempt:
    """An attempt at a step that neither asks, nor tells, nor needs an agent."""
    nobody = cast(Any, None)
    return Attempt(
        place=Place("nothing"),
        workflow=Workflow(name="bench", file="", digest="", steps=()),
        names={},
        expressions=FlowExpressions(),
        cwd=str(Path.cwd()),
        env={},
        memory=nobody,
        front=nobody,
        asking=asyncio.Lock(),
        agents=nobody,
    )


def row(name: str, times: Seconds) -> str:
    figures = (min(times), statistics.median(times), statistics.fmean(times))
    return f"{name:20} " + " ".join(f"{1e3 * figure:8.2f}" for figure in figures)


if __name__ == "__main__":
    sys.exit(main())

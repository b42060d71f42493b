"""Measures a scripted day of the coder on three wires, and of other agents beside it.

The day is `tests/labs/coder_day.py`: one session with 50 prompts and 1,000 model calls, faults of the
provider, kills and images. Whatever should not have happened in it makes the part fail. The other agents have
the same day on OpenAI's wire, as far as they get; an agent that is not installed is left out.
"""

import asyncio
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))

import agents
import install
from figures import (
    DAY_ANSWERED,
    DAY_CALL,
    DAY_CALLS,
    DAY_COMPACTIONS,
    DAY_CPU_GROWTH,
    DAY_FAILURES,
    DAY_FAULTS,
    DAY_KEPT_GROWTH,
    DAY_LEAVE,
    DAY_LOST,
    DAY_PEAK,
    DAY_ROWS,
    DAY_STEP,
    Figure,
)
from labs.coder_day import MODELS, Day, Driven, Toolset, coder, processor_time
from labs.scripted_model import Call
from labs.strict_model import Asked, StrictModel
from results import Results
from table import VERDICTS, align
from targets import DAY_TARGETS

PROGRAM = [str(Path(sys.executable).with_name("coupler"))]

PROMPTS, STEPS, WINDOW = 50, 20, 100_000
"""Prompts of the day, model calls of each, and the tokens that the model can read."""

QUICK_PROMPTS, QUICK_STEPS, QUICK_WINDOW = 36, 7, 20_000

PART = 100
"""Model calls over which the cost of one is averaged."""

MOST_SECONDS = 900.0
"""Seconds after which a day is over."""

AGENTAO_TOOLS = Toolset(
    read=lambda path, first, lines: Call("read_file", {"file_path": path, "offset": first, "limit": lines}),
    edit=lambda path, old, new: Call("replace", {"file_path": path, "old_text": old, "new_text": new}),
    run=lambda line: Call("run_shell_command", {"command": line}),
    search=lambda pattern: Call("search_file_content", {"pattern": pattern, "file_pattern": "big.py"}),
    todos=lambda todos: Call("todo_write", {"todos": todos}),
    of_server="mcp_clerk_{}",
)

VIBE_TOOLS = Toolset(
    read=lambda path, first, lines: Call("read_file", {"path": path, "offset": first - 1, "limit": lines}),
    edit=lambda path, old, new: Call("edit", {"file_path": path, "old_string": old, "new_string": new}),
    run=lambda line: Call("bash", {"command": line}),
    # It has no tool for that.
    search=lambda pattern: Call("bash", {"command": f"grep -n '{pattern}' big.py"}),
    todos=lambda todos: Call(
        "todo", {"action": "write", "todos": [{"id": str(at), **todo} for at, todo in enumerate(todos)]}
    ),
)

OTHERS = {"agentao": AGENTAO_TOOLS, "vibe": VIBE_TOOLS}
"""The agents of `interop` that have the day as well, and their tools."""


class Size(NamedTuple):
    """The size of a day."""

    prompts: int
    steps: int
    window: int


def compare_days(*, quick: bool) -> tuple[str, bool]:
    """Return the table of the days, and whether every limit is kept."""
    size = Size(QUICK_PROMPTS, QUICK_STEPS, QUICK_WINDOW) if quick else Size(PROMPTS, STEPS, WINDOW)
    results = Results()
    told: list[str] = []
    ours = [f"Coupler, {wire}" for wire in MODELS]
    for name, wire in zip(ours, MODELS, strict=True):
        measure_day(results, told, size, name, partial(coder, wire=wire, window=size.window, program=PROGRAM))
    theirs = []
    for name, tools in OTHERS.items():
        agent = next(each for each in agents.AGENTS if each.name == name)
        try:
            place = install.install(agent)
        except install.InstallError as error:
            told.append(f"{agent.title} was left out: {error}")
            continue
        theirs.append(f"{agent.title} {install.version(agent)}")
        measure_day(results, told, size, theirs[-1], partial(another, agent, place, tools, size.window))
    rows = [row(results, figure, ours, theirs) for figure in DAY_ROWS]
    table = align([["", *ours, *theirs, "limit", ""], *rows])
    kept = [target.is_kept(results, name) for target in DAY_TARGETS for name in ours]
    about = (
        f"{size.prompts} prompts of {size.steps} model calls, a window of {size.window:,} tokens; one round."
    )
    return "\n".join([about, "", *table, "", *(f"- {each}" for each in told)]).rstrip() + "\n", all(kept)


def another(agent: agents.Agent, place: Path, tools: Toolset, window: int, home: Path, url: str) -> Driven:
    """Return another agent, with settings of its own."""
    home.mkdir(parents=True, exist_ok=True)
    prepared = agent.prepare(place, home, url)
    env = {"HOME": str(home), "AGENTAO_CONTEXT_TOKENS": str(window), **prepared.env}
    return Driven(agent.name, prepared.command, env, tools, reports_running=agent.name != "agentao")


def measure_day(
    results: Results, told: list[str], size: Size, name: str, prepare: Callable[[Path, str], Driven]
) -> None:
    """Have an agent live through a day of its own."""
    with TemporaryDirectory() as directory, StrictModel(processor_time) as model:
        project = Path(directory, "project")
        project.mkdir()
        day = Day(prepare(Path(directory, "home"), model.url), project, model, size.prompts, size.steps)
        try:
            asyncio.run(asyncio.wait_for(day.run(), MOST_SECONDS))
        except Exception as error:
            # Whatever an agent does to end its day is a result; what it has done until then counts.
            day.problems.append(f"the day ended early: {type(error).__name__}: {error}")
        for figure, value in figures_of(day, model.ledger.asked):
            results.add(name, figure, value)
        if name.startswith("Coupler"):
            told += [f"{name}: {one_line(failure)}" for failure in day.failures]
        else:
            told += [f"{name}: {one_line(problem)}" for problem in day.problems]


def one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def figures_of(day: Day, asked: list[Asked]) -> Iterator[tuple[Figure, float]]:
    yield DAY_CALLS, len(asked)
    yield DAY_ANSWERED, day.answered
    yield DAY_FAULTS, len(day.survived)
    yield DAY_LOST, day.lost
    yield DAY_COMPACTIONS, sum(each.is_summary for each in asked)
    yield DAY_FAILURES, len(day.failures)
    yield DAY_CALL, sum(life.cpu for life in day.lives) / max(len(asked), 1)
    yield DAY_STEP, statistics.fmean(cost for cost, _ in costs(asked))
    yield DAY_PEAK, max(life.peak for life in day.lives)
    yield DAY_LEAVE, day.seconds_to_leave
    yield DAY_CPU_GROWTH, growth_of_costs(costs(asked))
    if day.kept:
        # In the middle: what takes something back, or mends the conversation, gives room back.
        grown = [after - before for before, after in pairwise(day.kept)]
        third = len(grown) // 3
        yield DAY_KEPT_GROWTH, statistics.median(grown[-third:]) / statistics.median(grown[:third])


def costs(asked: list[Asked]) -> list[tuple[float, int]]:
    """Return the processor time from each request to the next, and the bytes of the request."""
    return [
        (after.cpu - before.cpu, before.size)
        for before, after in pairwise(asked)
        if before.process == after.process and not before.is_summary and not after.is_summary
    ]


def growth_of_costs(all_costs: list[tuple[float, int]]) -> float:
    """Compare the last calls with as many of the day's first half whose requests are most like theirs."""
    part = min(PART, len(all_costs) // 4)
    last, early = all_costs[-part:], all_costs[: len(all_costs) // 2]
    size = mean_size(last)
    parts = [early[at : at + part] for at in range(len(early) - part + 1)]
    like = min(parts, key=lambda each: abs(mean_size(each) - size))
    return mean_cost(last) / mean_cost(like)


def mean_size(part: list[tuple[float, int]]) -> float:
    return statistics.fmean(size for _, size in part)


def mean_cost(part: list[tuple[float, int]]) -> float:
    return statistics.fmean(cost for cost, _ in part)


def row(results: Results, figure: Figure, ours: list[str], theirs: list[str]) -> list[str]:
    targets = [target for target in DAY_TARGETS if target.figure is figure]
    values = [results.best(name, figure) for name in (*ours, *theirs)]
    judged = {target.is_kept(results, name) for target in targets for name in ours}
    return [
        figure.name,
        *("–" if value is None else figure.show(value) for value in values),
        ", ".join(target.describe() for target in targets),
        "" if not targets else VERDICTS[False if False in judged else None if None in judged else True],
    ]

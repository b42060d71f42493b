"""The results as one Markdown table, aligned for the terminal."""

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

from figures import ROWS, Figure
from peers import BARE, COUPLER, PYTHON, TYPESCRIPT
from results import Results
from targets import TARGETS, Target

PEERS = (COUPLER, PYTHON, TYPESCRIPT, BARE)
HEADER = ["", *PEERS, f"against {PYTHON}", f"against {TYPESCRIPT}", "target", ""]
VERDICTS = {True: "pass", False: "FAIL", None: "not judged"}


def render(results: Results, rounds: int) -> str:
    rows = [row(results, figure) for figure in ROWS if any_value(results, figure)]
    return "\n".join([describe_machine(rounds), "", *align([HEADER, *rows]), ""])


def row(results: Results, figure: Figure) -> list[str]:
    targets = [target for target in TARGETS if target.figure is figure]
    return [
        figure.name,
        *(show(results, peer, figure) for peer in PEERS),
        show_ratio(results, PYTHON, figure),
        show_ratio(results, TYPESCRIPT, figure),
        ", ".join(target.describe() for target in targets),
        verdict(results, targets),
    ]


def show(results: Results, peer: str, figure: Figure) -> str:
    value = results.best(peer, figure)
    return "–" if value is None else figure.show(value)


def show_ratio(results: Results, other: str, figure: Figure) -> str:
    ratio = results.ratio(COUPLER, other, figure)
    return "–" if ratio is None else f"{ratio:.2f}×"


def verdict(results: Results, targets: list[Target]) -> str:
    if not targets:
        return ""
    kept = {target.is_kept(results) for target in targets}
    return VERDICTS[False if False in kept else None if None in kept else True]


def any_value(results: Results, figure: Figure) -> bool:
    return any(results.best(peer, figure) is not None for peer in PEERS)


def align(rows: list[list[str]]) -> list[str]:
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    return [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
        for cells in [rows[0], rule, *rows[1:]]
    ]


def describe_machine(rounds: int) -> str:
    versions = [
        f"Python {platform.python_version()}",
        f"Coupler {installed('coupler')}",
        f"Python SDK {installed('agent-client-protocol')}",
        f"node {node_version()}",
    ]
    return f"{', '.join(versions)}; {platform.system()} {platform.machine()}; best of {rounds} rounds."


def installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(absent)"


def node_version() -> str:
    if shutil.which("node") is None:
        return "(absent)"
    return subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()

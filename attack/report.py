"""The results of all runs, in `bench/reliability.json`, and the page `bench/RELIABILITY.md` about them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from outcome import Attack, Outcome

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "bench" / "reliability.json"
PAGE = ROOT / "bench" / "RELIABILITY.md"
SHOWN_FAILURE = 300
"""Characters of a failure that are kept; its whole reproduction was printed."""

Row = dict[str, Any]


def machine() -> str:
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"Python {platform.python_version()}, Coupler {version('coupler')}; {system}"


def commit() -> str:
    """The commit that is attacked, with a plus if there is more than that."""
    words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "no commit"


def row(attack: Attack, outcome: Outcome, command: str, seed: int) -> Row:
    return {
        "attack": attack.name,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        "commit": commit(),
        "command": command,
        "seed": seed,
        "machine": machine(),
        "load": round(os.getloadavg()[1], 1),
        "seconds": round(outcome.seconds),
        "tries": outcome.tries,
        "failures": [_without_place(failure)[:SHOWN_FAILURE] for failure in outcome.failures],
        "worst": outcome.shown_figures,
    }


def write(rows: Sequence[Row], attacks: Sequence[Attack]) -> None:
    """Add the results of a run to all others, and tell of them."""
    known: list[Row] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    known += rows
    RUNS.write_text("[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in known) + "\n]\n")
    PAGE.write_text(page(known, attacks))


def page(rows: Sequence[Row], attacks: Sequence[Attack]) -> str:
    latest = {each["attack"]: each for each in rows}
    known = [attack for attack in attacks if attack.name in latest]
    lines = [
        "# Reliability",
        "",
        "Written by `make attack ATTACK_ARGS=--write`, which attacks Coupler from outside.",
        "`python attack --list` names the attacks. Every run adds a line for each of them to",
        "`reliability.json`.",
        "",
        "## The last run of each attack",
        "",
        "| attack | what must hold | tries | failures | worst | load | date | commit | command |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for attack in known:
        last = latest[attack.name]
        tried = f"{last['tries']:,} {attack.unit}"
        lines.append(
            f"| {attack.name} | {attack.promise} | {tried} | {len(last['failures'])} | {last['worst']} |"
            f" {last.get('load', '–')} | {last['date']} | {last['commit']} | `{last['command']}` |"
        )
    if missing := [attack.name for attack in attacks if attack.name not in latest]:
        lines += ["", f"No run is kept yet of: {', '.join(missing)}."]
    lines += ["", "The load is that of the machine in the last five minutes, all its users together."]
    lines += ["", *[f"{each}." for each in sorted({last["machine"] for last in latest.values()})]]
    for attack in known:
        lines += [f"\nFailed, {attack.name}: {_one_line(text)}" for text in latest[attack.name]["failures"]]
    lines += [
        "",
        "## Over all runs",
        "",
        "| attack | runs | tries | failures | hours |",
        "|---|---|---|---|---|",
    ]
    for attack in known:
        runs = [each for each in rows if each["attack"] == attack.name]
        tries, failures = sum(each["tries"] for each in runs), sum(len(each["failures"]) for each in runs)
        hours = sum(each["seconds"] for each in runs) / 3600
        lines.append(f"| {attack.name} | {len(runs)} | {tries:,} | {failures} | {hours:.2f} |")
    return "\n".join([*lines, ""])


def _without_place(failure: str) -> str:
    return failure.replace(f"{tempfile.gettempdir()}/", "")


def _one_line(text: str) -> str:
    return "`" + " ".join(text.replace("`", "'").split()) + "`"

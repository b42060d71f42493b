"""`make attack`: attacks Coupler from outside, and counts what breaks.

Each attack makes a number of tries, and ends when its part of the time is over, unless a number was given.
The same seed makes the same tries. The exit code is 1 if anything has failed.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import boundaries
import endless
import exchange
import floods
import large_inputs
import leaks
import report
import turns
from coupler.redaction.sources import secret_variables
from outcome import Attack, Effort, Outcome

MINUTES = 10.0

ATTACKS = (
    Attack(
        "frames", exchange.attack_frames, "frames", 10_000_000, 8000, "wrong frames cost themselves alone"
    ),
    Attack("kills", turns.attack_by_kills, "kills", 2000, 12, "nothing acknowledged is lost by `kill -9`"),
    Attack(
        "cancels", turns.attack_by_cancels, "cancels", 2000, 60, "one answer a prompt; the next one works"
    ),
    Attack(
        "floods", floods.attack_by_floods, "floods", 100, 4, "another session is answered; memory is bounded"
    ),
    Attack(
        "endless",
        endless.attack_by_endless_sources,
        "sources",
        100,
        2,
        "what never stops sending is bounded; one cancel ends it",
    ),
    Attack("escapes", leaks.attack_by_escapes, "listings", 100, 5, "no terminal sequence is shown"),
    Attack("disguises", boundaries.attack_by_disguises, "commands", 30_000, 400, "no disguise is allowed"),
    Attack("races", boundaries.attack_by_races, "accesses", 5000, 300, "no swapped link is followed"),
    Attack("large inputs", large_inputs.attack_by_size, "inputs", 1000, 8, "each is done with in its time"),
    Attack(
        "secrets",
        leaks.attack_for_secrets,
        "secrets",
        3000,
        150,
        "no secret is shown, stored, logged or recorded",
    ),
)


def main() -> int:
    options = parse_arguments()
    if options.list:
        for attack in ATTACKS:
            print(f"{attack.name:13} {attack.usual:>9,} {attack.unit:9} {attack.promise}")
        return 0
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    chosen = [attack for attack in ATTACKS if not options.only or attack.name in options.only]
    for name in secret_variables(os.environ):
        del os.environ[name]  # of whoever attacks; they are no part of it
    print(f"seed {seed}", flush=True)
    rows = []
    for attack in chosen:
        outcome = run(attack, seed, options, len(chosen))
        rows.append(report.row(attack, outcome, shlex.join(["python", "attack", *sys.argv[1:]]), seed))
    if options.write:
        report.write(rows, ATTACKS)
    return int(any(row["failures"] for row in rows))


def run(attack: Attack, seed: int, options: argparse.Namespace, share: int) -> Outcome:
    """Make one attack, and say what came of it."""
    given = getattr(options, attack.name.replace(" ", "_"))
    most = given or (attack.short if options.short else attack.usual)
    seconds = None if given or options.short else options.minutes * 60 / share
    outcome = Outcome()
    place = Path(tempfile.mkdtemp(prefix="coupler-attack-"))
    effort = Effort(seed, most, place, seconds, options.short)
    try:
        attack.run(effort, outcome)
    finally:
        if not outcome.failures:
            shutil.rmtree(place, ignore_errors=True)
    outcome.seconds = time.monotonic() - effort.began
    print(
        f"{attack.name}: {outcome.tries:,} {attack.unit}, {len(outcome.failures)} failures,"
        f" {outcome.seconds:.0f} s; {outcome.shown_figures}",
        flush=True,
    )
    for failure in outcome.failures:
        print(f"FAILED {attack.name}: {failure}", file=sys.stderr, flush=True)
    return outcome


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say which attacks there are")
    names = [attack.name for attack in ATTACKS]
    parser.add_argument("--only", action="append", choices=names, metavar="ATTACK", help="may be repeated")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"for all of it (default: {MINUTES:g})"
    )
    parser.add_argument("--seed", type=int, help="repeats a run (default: a new one)")
    parser.add_argument(
        "--short", action="store_true", help="a few tries each, as `make test-long` makes them"
    )
    parser.add_argument("--write", action="store_true", help=f"add the results to {report.PAGE.name}")
    for attack in ATTACKS:
        option = f"--{attack.name.replace(' ', '-')}"
        parser.add_argument(
            option, type=int, metavar="N", help=f"so many {attack.unit}, however long it takes"
        )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

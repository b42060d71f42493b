"""`make bench`: Coupler, both official SDKs and a bare program in one run, one table, the promises judged.

Behind it the bridge to LangChain is compared with other such bridges, and a scripted day of the coder with
that of other agents, in tables of their own.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from agent_process import PeerError
from bridge import compare_bridges
from coder_day import compare_days
from decisions import measure_decisions
from deltas import measure_deltas
from lasting import LASTING_MEASURES
from long_turns import measure_long_turns
from measures import MEASURES, QUICK, Effort, warm_up
from peers import Peer, all_peers
from results import Results
from steps import measure_steps
from table import render
from targets import TARGETS

ALL_MEASURES = (
    *MEASURES,
    *LASTING_MEASURES,
    measure_steps,
    measure_deltas,
    measure_decisions,
    measure_long_turns,
)
BRIDGE = "the LangChain bridge"
DAY = "a day of the coder"


def main() -> int:
    options = parse_arguments()
    rounds = 1 if options.quick else options.rounds
    parts = []
    if any(options.only in take.__name__ for take in ALL_MEASURES):
        parts.append(compare_libraries(rounds, options))
    if options.only in BRIDGE:
        parts.append(compare_bridges_if_possible(rounds, options))
    if options.only in DAY:
        say(DAY)
        text, is_kept = compare_days(quick=options.quick)
        parts.append((f"## {DAY[:1].upper()}{DAY[1:]}\n\n{text}", is_kept))
        say("")
    text = "\n".join(part for part, _ in parts)
    print(text)
    if options.write:
        options.write.write_text(f"# Results\n\nMade by `make bench`. Only the ratios travel.\n\n{text}")
    return 1 if options.check and not all(is_kept for _, is_kept in parts) else 0


def compare_libraries(rounds: int, options: argparse.Namespace) -> tuple[str, bool]:
    """The table, and whether every target is kept."""
    with tempfile.TemporaryDirectory() as home:
        results = measure(rounds, QUICK if options.quick else Effort(), Path(home), options.only)
    for failure in results.failures:
        print(failure, file=sys.stderr)
    return render(results, rounds), all(target.is_kept(results) for target in TARGETS)


def compare_bridges_if_possible(rounds: int, options: argparse.Namespace) -> tuple[str, bool]:
    """The same of the bridge to LangChain; the others of its kind have to be installed first."""
    say(f"{rounds} rounds: {BRIDGE}")
    try:
        text, is_kept = compare_bridges(rounds, quick=options.quick)
    except (PeerError, subprocess.CalledProcessError) as error:
        print(f"{BRIDGE} was left out: {error}", file=sys.stderr)
        return "", False
    finally:
        say("")
    return f"## {BRIDGE[:1].upper()}{BRIDGE[1:]}\n\n{text}\n", is_kept


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often everything is measured; the best counts"
    )
    parser.add_argument("--only", default="", metavar="WORD", help="measure only what has this in its name")
    parser.add_argument("--quick", action="store_true", help="one small round, to see that it works")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed or not judged")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the table to FILE")
    return parser.parse_args()


def measure(rounds: int, effort: Effort, home: Path, only: str) -> Results:
    """Measure every peer in every round, in turns, so that a disturbance of the machine hits all alike."""
    results = Results()
    peers = [peer for peer in all_peers() if is_ready(peer, home, results)]
    measures = [take for take in ALL_MEASURES if only in take.__name__]
    for number in range(rounds):
        for take in measures:
            for peer in peers:
                say(f"round {number + 1} of {rounds}: {take.__name__.replace('_', ' ')}: {peer.name}")
                try:
                    for figure, value in take(peer, home, effort):
                        results.add(peer.name, figure, value)
                except PeerError as error:
                    results.failures.append(f"{peer.name}, {take.__name__.replace('_', ' ')}: {error}")
    say("")
    return results


def is_ready(peer: Peer, home: Path, results: Results) -> bool:
    try:
        missing = peer.missing()
        if missing is None:
            warm_up(peer, home)
    except PeerError as error:
        missing = str(error)
    if missing is not None:
        results.failures.append(f"{peer.name} was left out: {missing}")
    return missing is None


def say(progress: str) -> None:
    """Show what is going on, where a person looks on."""
    if sys.stderr.isatty():
        print(f"\r\033[K{progress}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Fail when a package of the engine has less branch coverage than it must have.

Reads the report of `coverage json`, and counts branches alone: lines would hide an untested `else`.
"""

import json
import sys
from pathlib import Path

REQUIRED_PERCENT = 90.0
PACKAGES = ("wire", "schema", "store", "agent", "client", "workflow", "langchain")


def main(report: Path) -> int:
    files = json.loads(report.read_text())["files"]
    failed = False
    for package in PACKAGES:
        percent = branch_coverage(files, package)
        if percent is None:
            continue
        verdict = "ok" if percent >= REQUIRED_PERCENT else f"below {REQUIRED_PERCENT:.0f} %"
        failed |= percent < REQUIRED_PERCENT
        print(f"branch coverage of coupler.{package}: {percent:5.1f} %  {verdict}")
    return 1 if failed else 0


def branch_coverage(files: dict[str, dict], package: str) -> float | None:
    """The covered share of a package's branches in percent; None when there is no such package."""
    summaries = [
        file["summary"] for path, file in files.items() if f"coupler/{package}/" in Path(path).as_posix()
    ]
    if not summaries:
        return None
    branches = sum(summary["num_branches"] for summary in summaries)
    covered = sum(summary["covered_branches"] for summary in summaries)
    return 100.0 * covered / branches if branches else 100.0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""The models that are here or can be fetched, as rows and as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coupler.cli.models.packages import has_engine
from coupler.cli.sessions.wording import one_line
from coupler.coder.model.credentials import ModelError
from coupler.coder.model.local import ENGINE, KNOWN, installed_files, models_directory


def rows() -> list[dict[str, Any]]:
    """One for each model: those that are installed first."""
    here = installed_files()
    names = {file.stem for file in here}
    return [*map(_installed, here), *(_fetchable(name) for name in KNOWN if name not in names)]


def _installed(file: Path) -> dict[str, Any]:
    from coupler.coder.model.local import facts_of

    row: dict[str, Any] = {
        "name": file.stem,
        "state": "installed",
        "model": f"local:{file.stem}",
        "file": str(file),
        "bytes": file.stat().st_size,
    }
    try:
        facts = facts_of(file)
    except ModelError as error:
        return {**row, "state": "broken", "problem": str(error)}
    return {**row, "title": facts.title, "architecture": facts.architecture, "window": facts.window}


def _fetchable(name: str) -> dict[str, Any]:
    model = KNOWN[name]
    return {
        "name": name,
        "state": "not installed",
        "model": f"local:{name}",
        "package": model.requirement,
        "bytes": model.wheel_bytes,
        "about": model.about,
    }


def as_lines(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """For people."""
    width = max((len(row["model"]) for row in found), default=0)
    for row in found:
        size = f"{row['bytes'] / 10**6:,.0f} MB"
        yield one_line_kept(f"{row['model']:<{width}}  {row['state']:<13}  {size:>9}  {_about(row)}")
    if any(row["state"] == "installed" for row in found) and not has_engine():
        yield f"\nThe package {ENGINE} is missing, which runs them: coupler models install --yes"
    yield f"\nFiles are in {models_directory()}"


def _about(row: dict[str, Any]) -> str:
    match row["state"]:
        case "installed":
            window = f"{row['window']:,} tokens" if row["window"] else None
            return ", ".join(one_line(part) for part in (row["title"], row["architecture"], window) if part)
        case "broken":
            return one_line(row["problem"])
    return f"{row['about']} Get it: coupler models install {row['name']}"


def one_line_kept(line: str) -> str:
    """A line of the table, without anything that a terminal would obey; its columns stay."""
    from coupler.cli.sessions.wording import clean

    return clean(line).replace("\n", " ").rstrip()

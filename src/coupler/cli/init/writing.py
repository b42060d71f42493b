"""The files of `coupler init`: made where none are, kept where some are, and trusted as they were made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from coupler.cli.init import texts
from coupler.cli.init.texts import EXAMPLE, Wanted
from coupler.cli.replaced_file import content_of, replace, write_new
from coupler.config.lookup import NAME


class Place(NamedTuple):
    """Where the files go."""

    directory: Path
    is_users: bool
    """Whether they are the user's own, for all projects."""

    @property
    def settings(self) -> Path:
        """The coupler.toml."""
        return self.directory / NAME

    @property
    def workflows(self) -> Path:
        """The directory of workflows."""
        return self.directory / ("workflows" if self.is_users else ".coupler/workflows")


class Outcome(NamedTuple):
    """What became of one file, or of all workflows."""

    path: Path
    state: str
    content: bytes | None = None
    """What was written; None if nothing was."""


def problem_with_place(place: Place) -> str | None:
    """Why nothing can be written there, before anybody is asked; the directory itself may be missing."""
    existing = next(each for each in (place.directory, *place.directory.parents) if os.path.lexists(each))
    if not existing.is_dir():
        return f"{existing} is not a directory"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is read-only"


def write_all(place: Place, wanted: Wanted, *, is_forced: bool) -> list[Outcome]:
    """Write what is missing, and by force the rest. Raises `CannotWriteError`."""
    example = place.workflows / f"{EXAMPLE}.yaml"
    others = [each for each in workflow_files(place) if each != example]
    settings = _written(place.settings, texts.settings(wanted).encode(), is_forced=is_forced)
    if others and not example.exists():
        return [settings, Outcome(place.workflows, f"kept: it has {_listed(others)}")]
    return [settings, _written(example, texts.example(wanted).encode(), is_forced=is_forced)]


def workflow_files(place: Place) -> list[Path]:
    """The workflows that are there."""
    try:
        return sorted(each for each in place.workflows.iterdir() if each.suffix in (".yaml", ".yml"))
    except OSError:
        return []


def trust_all(outcomes: list[Outcome]) -> None:
    """Trust what was written, as it was written: it came from here, and the user has asked for it.

    What was there before came from somebody, and is not trusted by this. Raises `UnusableStoreError`.
    """
    from coupler.cli.kept import user_store

    with user_store(is_made=True) as store:
        assert store is not None
        for outcome in outcomes:
            if outcome.content is not None:
                store.trust.trust(os.path.realpath(outcome.path), outcome.content)


def has_untrusted(place: Place) -> bool:
    """Whether something is left there that the user would have to trust before it is used."""
    from coupler.cli.kept import user_store
    from coupler.config import load
    from coupler.runtime.extras import MissingExtraError
    from coupler.workflow.errors import WorkflowError

    if place.is_users:
        return False
    with user_store() as store:
        trust = None if store is None else store.trust
        if load(str(place.directory), environ=os.environ, trust=trust).untrusted:
            return True
        try:
            from coupler.workflow.language.library import Library, untrusted_of_project

            return bool(untrusted_of_project(Library(str(place.directory)), trust))
        except (WorkflowError, MissingExtraError):
            return False  # told by whoever wants to run them


def _written(path: Path, content: bytes, *, is_forced: bool) -> Outcome:
    before = content_of(path)
    if before is None:
        write_new(path, content)
        return Outcome(path, "written", content)
    if before == content:
        return Outcome(path, "kept: it is as it would be written")
    if not is_forced:
        return Outcome(path, "kept as it is; --force replaces it")
    kept = replace(path, content, before)
    assert kept is not None
    return Outcome(path, f"replaced; what was there is in {kept.name}", content)


def _listed(files: list[Path]) -> str:
    names = [each.stem for each in files]
    return ", ".join(names) if len(names) < 4 else f"{len(names)} workflows"

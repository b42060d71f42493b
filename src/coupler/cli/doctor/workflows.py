"""The workflows that can be run here: whether they are valid, and trusted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coupler.cli.sessions.wording import count, one_line

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.section import Section
    from coupler.config import TrustedFiles
    from coupler.workflow.language.library import Library

MOST_NAMED = 12
MOST_PROBLEMS = 5


def examine(section: Section, circumstances: Circumstances) -> None:
    """All of them, as `coupler workflows validate` does."""
    from coupler.config import ConfigError
    from coupler.runtime.extras import MissingExtraError
    from coupler.workflow.errors import need_packages

    directory = circumstances.directory
    if directory is None:
        section.note("files", "the directory that you are in was deleted, so only your own could be run")
        return
    try:
        need_packages()
        from coupler.workflow.language.library import Library

        _look_at(section, Library(directory), circumstances.trust)
    except MissingExtraError:
        _tell_missing_packages(section, directory)
    except ConfigError as error:
        section.problem("files", error.problems[0], "correct it, or take it away")


def _look_at(section: Section, library: Library, trust: TrustedFiles) -> None:
    from coupler.cli.workflows.check import checked, relative
    from coupler.cli.workflows.table import rows_of

    rows = rows_of(library, trust)
    _, problems = checked(library, ())
    section.facts["workflows"] = [
        {"name": row.name, "origin": row.origin, "state": row.state, "file": row.file} for row in rows
    ]
    if not rows:
        section.ok("files", "there is none yet: `coupler workflows new NAME` begins one")
        return
    errors = [each for each in problems if each.severity == "error"]
    wrong = {each.position.file for each in errors}
    valid = [row.name for row in rows if row.state != "broken" and row.file not in wrong]
    if valid:
        more = "" if len(valid) <= MOST_NAMED else f" and {len(valid) - MOST_NAMED} more"
        section.ok("valid", f"{', '.join(valid[:MOST_NAMED])}{more}")
    for problem in errors[:MOST_PROBLEMS]:
        sentence = relative(problem, library.directory)
        section.problem(
            "invalid", sentence, "correct it; `coupler workflows validate` shows all that is wrong"
        )
    if len(errors) > MOST_PROBLEMS:
        section.note("invalid", f"{count(len(errors) - MOST_PROBLEMS, 'more error')}")
    warnings = len(problems) - len(errors)
    if warnings:
        section.note(
            "warnings",
            f"there {'is' if warnings == 1 else 'are'} {count(warnings, 'warning')}",
            "see them with `coupler workflows validate`",
        )
    untrusted = [row.name for row in rows if row.state == "not trusted"]
    if untrusted:
        section.note(
            "trust",
            f"{', '.join(untrusted[:MOST_NAMED])} cannot be run by name until trusted",
            "read the files, then run `coupler trust`",
        )


def _tell_missing_packages(section: Section, directory: str) -> None:
    """Who has workflows needs the packages; to everybody else it is no news."""
    from coupler.cli.doctor.installation import install_command
    from coupler.config import ConfigError
    from coupler.config.lookup import project_workflows, workflows_directory

    remedy = f"run `{install_command('workflows')}`"
    own = workflows_directory(os.environ)
    try:
        there = project_workflows(directory, os.environ)
    except ConfigError:
        there = None
    if there is not None or (own is not None and os.path.isdir(own)):  # noqa: PTH112
        place = one_line(there.path if there is not None else own or "")
        section.problem(
            "packages",
            f"there are workflows in {place}, and the packages that run them are not installed",
            remedy,
        )
    else:
        section.note("packages", "the packages that run workflows are not installed", remedy)

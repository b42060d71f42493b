"""Whether a workflow can work, before anything of it runs: all that is wrong, at once, and where.

`reading` has refused what is no workflow. Here it is what only the whole can tell: names that mean nothing
where they stand, ways that lead nowhere or have no end, and files, agents and workflows that are not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coupler.runtime.extras import need
from coupler.workflow.errors import Problem
from coupler.workflow.language.definition import Workflow
from coupler.workflow.language.reading import Reading
from coupler.workflow.language.slash_commands import no_command
from coupler.workflow.validation.agents import KnownAgents, check_agents
from coupler.workflow.validation.calls import check_calls
from coupler.workflow.validation.files import check_files
from coupler.workflow.validation.findings import Findings
from coupler.workflow.validation.flow import check_flow
from coupler.workflow.validation.names import NameCheck
from coupler.workflow.validation.texts import check_texts
from coupler.workflow.validation.views import Views


@dataclass(frozen=True)
class Surroundings:
    """What a workflow is checked against."""

    agents: KnownAgents
    called: Mapping[tuple[str, str], Workflow] = field(default_factory=dict)
    """The workflows that were found, by the file that calls them and the name by which it does."""
    root: str | None = None
    """The directory out of which no file of a project may lead."""


def validate(reading: Reading, surroundings: Surroundings) -> list[Problem]:
    """All that is wrong with a workflow that could be read."""
    need("jinja2", extra="workflows", feature="A workflow")
    workflow = reading.workflow
    findings, views = Findings(reading), Views(workflow)
    check_texts(reading, findings, views, NameCheck(workflow, views, surroundings.called, findings.gaps))
    check_flow(workflow, views, findings)
    check_files(workflow, views, findings, surroundings.root)
    check_agents(workflow, views, findings, surroundings.agents)
    check_calls(workflow, views, findings, surroundings.called)
    if reason := no_command(workflow.name):
        findings.warn((reading.root.get("name") or reading.root).position, reason)
    return findings.problems

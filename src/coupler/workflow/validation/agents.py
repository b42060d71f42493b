"""The agents that a workflow names: whether they are known, and whether they can be started here.

What is not installed is only a warning: the same file may be checked where it does not run.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.agent.factory import split
from coupler.config.lookup import ConfigError, shown
from coupler.workflow.language.definition import Agent, Converse, Position, Workflow
from coupler.workflow.validation.fields import profiles_of
from coupler.workflow.validation.findings import Findings, inner_node
from coupler.workflow.validation.views import Views

if TYPE_CHECKING:
    from coupler.providers.catalogue import Entry

_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*)(?::(acp|native))?")
_TARGET = re.compile(r"[^\s:]+:[A-Za-z_][A-Za-z0-9_.]*")


class KnownAgents:
    """What the catalogue and `coupler.toml` have in a directory."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        from coupler.providers.catalogue import entries

        return entries(self._cwd)

    @cached_property
    def _ignored(self) -> frozenset[str]:
        """The agents of a project that is not trusted."""
        from coupler.config.keys import AGENTS
        from coupler.providers.catalogue import configuration

        untrusted = configuration(self._cwd).untrusted
        return frozenset(
            table.name for setting in untrusted if setting.key is AGENTS for table in setting.value
        )

    def problem_with(self, agent: str, workflow: Workflow) -> tuple[str, bool] | None:
        """What is wrong with an agent, and whether it is unknown; None if it can be started."""
        match = _NAME.fullmatch(agent)
        place = split(agent)[0]
        if place.endswith(".py") and not any(map(str.isspace, agent)):
            return self._problem_with_file(place, workflow)
        if match is None:
            return None if _TARGET.fullmatch(agent) else self._problem_with_command(agent)
        try:
            return self._problem_with_name(match[1], match[2], workflow)
        except ConfigError as error:
            return str(error), True

    def _problem_with_name(self, name: str, form: str | None, workflow: Workflow) -> tuple[str, bool] | None:
        from coupler.client.errors import AgentError
        from coupler.providers.catalogue import choose

        entry = self._entries.get(name)
        if entry is None:
            is_command = form is None and shutil.which(name) is not None
            return None if is_command else (self._unknown(name, [*workflow.agents]), True)
        try:
            choose(entry, form)
        except AgentError as error:
            return error.message, False
        return None

    def _problem_with_file(self, place: str, workflow: Workflow) -> tuple[str, bool] | None:
        """Files of Python agents are beside the workflow, or in the working directory."""
        if any(Path(start, place).is_file() for start in (Path(workflow.file).parent, self._cwd)):
            return None
        return f"there is no file {shown(place, 100)} with this agent, beside the workflow or here", True

    def _problem_with_command(self, agent: str) -> tuple[str, bool] | None:
        from coupler.runtime.environment import SpawnError, split_command

        try:
            program = split_command(agent)[0]
        except SpawnError as error:
            return str(error), True
        if program == "coupler" or shutil.which(Path(self._cwd, program) if "/" in program else program):
            return None
        return f"the program {shown(program, 100)} of this agent was not found: install it first", False

    def _unknown(self, name: str, profiles: list[str]) -> str:
        from difflib import get_close_matches

        if name in self._ignored:
            return (
                f"the project's coupler.toml has the agent `{shown(name, 60)}`, and is not trusted yet: read "
                "it, and trust it with `coupler trust`"
            )
        near = get_close_matches(name.lower(), [*profiles, *self._entries], 1)
        hint = f"; did you mean `{near[0]}`?" if near else ":"
        return f"there is no agent `{shown(name, 60)}`{hint} `coupler agents` lists those that are known"


def check_agents(workflow: Workflow, views: Views, findings: Findings, agents: KnownAgents) -> None:
    """Every agent that a step, a profile or the defaults name; what a template names is not known yet."""
    from coupler.workflow.expressions.template import is_plain

    for agent, place in _named_agents(workflow, views, findings):
        problem = agents.problem_with(agent, workflow) if is_plain(agent) else None
        if problem is not None:
            message, is_unknown = problem
            (findings.wrong if is_unknown else findings.warn)(place, message)
    for name in workflow.agents:
        _check_round(name, workflow, findings)


def _named_agents(workflow: Workflow, views: Views, findings: Findings) -> Iterator[tuple[str, Position]]:
    """Those that are no profiles, and where they are named."""
    default = inner_node(findings.root, "defaults", "agent")
    for step, _ in views:
        if isinstance(step, Agent | Converse) and step.agent not in workflow.agents:
            node = findings.node_of(step, "agent" if isinstance(step, Agent) else "converse") or default
            yield step.agent, step.position if node is None else node.position
    for name, profile in workflow.agents.items():
        if profile.agent not in workflow.agents:
            node = inner_node(findings.root, "agents", name, "agent")
            yield profile.agent, profile.position if node is None else node.position


def _check_round(name: str, workflow: Workflow, findings: Findings) -> None:
    """Profiles that lead back to themselves."""
    profiles = profiles_of(name, workflow)
    if workflow.agents[profiles[-1]].agent == name:
        chain = " → ".join([*profiles, name])
        node = inner_node(findings.root, "agents", name, "agent")
        place = workflow.agents[name].position if node is None else node.position
        findings.wrong(place, f"this agent leads back to itself: {chain}: give it another name")

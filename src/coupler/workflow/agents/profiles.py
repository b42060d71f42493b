"""Agents as steps want them: the step's own settings over those of the profiles that its agent stands on.

A profile is a name of the workflow's `agents`, or of `[agents.NAME]` in `coupler.toml`; it may stand on
another one. What is not said by any of them is as the workflow's `defaults` have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from coupler.workflow.errors import StepError
from coupler.workflow.language.definition import (
    Agent,
    Converse,
    Hooks,
    Profile,
    Prompted,
    Server,
    Template,
    Tools,
    Workflow,
)

if TYPE_CHECKING:
    from coupler.config.agent_tables import AgentTable

T = TypeVar("T")
Render = Callable[[Template], str]


class Plain(str):
    """A text of `coupler.toml`, in which braces are braces: only workflows have templates."""

    __slots__ = ()


class Role(NamedTuple):
    """What a step makes of an agent; its templates are not rendered yet."""

    agent: str
    """A name of the catalogue, a command line, or `module:attribute`: no profile of the workflow any more."""
    set_up: Prompted
    env: Mapping[str, Template]


def role_of(
    step: Agent | Converse,
    agent: str,
    workflow: Workflow,
    tables: Iterable[AgentTable] = (),
    render: Render = str,
) -> Role:
    """The role of a step's agent, whose name is rendered; raises `StepError` for profiles in a circle."""
    env: dict[str, Template] = {}
    set_ups = [step.set_up]
    for profile in _profiles(agent, workflow, render):
        set_ups.append(profile.set_up)
        env = {**profile.env, **env}
        agent = render(profile.agent).strip()
    set_ups += _configured(agent, {table.name: table for table in tables})
    # MCP servers of the workflow come after those of its agents, whatever else they are set to.
    of_workflow = Prompted(mcp_servers=workflow.mcp_servers)
    return Role(agent, joined([*set_ups, workflow.defaults.set_up, of_workflow]), env)


def hooks_around(agent: str, workflow: Workflow, render: Render) -> Hooks | None:
    """The hooks of the nearest profile that has some."""
    return _first(profile.hooks for profile in _profiles(agent, workflow, render))


def _profiles(agent: str, workflow: Workflow, render: Render) -> Iterator[Profile]:
    """The profile of this name, the one that it stands on, and so on."""
    names: list[str] = []
    while (profile := workflow.agents.get(agent)) is not None:
        if agent in names:
            raise _in_a_circle([*names, agent])
        names.append(agent)
        yield profile
        agent = render(profile.agent).strip()


def joined(set_ups: Iterable[Prompted]) -> Prompted:
    """Several settings as one, the strongest first. Rules, files and servers add up; a denial stays one."""
    strongest = [*set_ups]
    weakest = strongest[::-1]
    asking = next((each for each in strongest if each.prompt is not None or each.prompt_file), Prompted())
    return Prompted(
        prompt=asking.prompt,
        prompt_file=asking.prompt_file,
        system=_first(each.system for each in strongest),
        model=_first(each.model for each in strongest),
        mode=_first(each.mode for each in strongest),
        options={name: value for each in weakest for name, value in each.options.items()},
        tools=_tools([each.tools for each in weakest if each.tools is not None]),
        files=_first(each.files for each in strongest),
        mcp_servers=_servers(server for each in strongest for server in each.mcp_servers),
        intercept=_first(each.intercept for each in strongest),
        context=tuple(dict.fromkeys(name for each in weakest for name in each.context)),
        skills=tuple(dict.fromkeys(name for each in weakest for name in each.skills)),
        output=_first(each.output for each in strongest),
        repairs=_first(each.repairs for each in strongest),
        continues=strongest[0].continues,
        budget=_first(each.budget for each in strongest),
    )


def _configured(agent: str, tables: Mapping[str, AgentTable]) -> Iterator[Prompted]:
    """What `coupler.toml` has for a name and for those that it stands on."""
    names: list[str] = []
    name: str | None = agent.partition(":")[0]
    while name is not None and (table := tables.get(name)) is not None:
        if name in names:
            raise _in_a_circle([*names, name])
        names.append(name)
        yield Prompted(
            system=_plain(table.system),
            model=_plain(table.model),
            mode=_plain(table.mode),
            options={name: _plain(value) for name, value in table.options.items()},
            tools=Tools(table.allow, table.deny) if table.allow or table.deny else None,
            context=table.context,
            skills=table.skills,
        )
        name = None if table.agent is None else table.agent.partition(":")[0]


def _plain(value: T) -> T | Plain:
    return Plain(value) if isinstance(value, str) else value


def _in_a_circle(names: Iterable[str]) -> StepError:
    chain = " → ".join(names)
    return StepError("not_found", f"the agent in the end stands on itself: {chain}: see `agent` of these")


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _tools(given: list[Tools]) -> Tools | None:
    if not given:
        return None
    allow = dict.fromkeys(rule for each in given for rule in each.allow)
    return Tools(tuple(allow), tuple(dict.fromkeys(rule for each in given for rule in each.deny)))


def _servers(servers: Iterable[Server]) -> tuple[Server, ...]:
    by_name: dict[str, Server] = {}
    for server in servers:
        by_name.setdefault(server.name, server)
    return tuple(by_name.values())

"""Sets up the agent of a step: which one it is, its settings, its prompt, and its permissions.

All of it is settled before anything is started, so that a mistake costs no process.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coupler.client.errors import AgentError
from coupler.client.remote import OpeningOptions
from coupler.config.lookup import ConfigError
from coupler.mcp.servers import merge_servers
from coupler.mcp.tools import printable
from coupler.providers.catalogue import configuration, is_coder
from coupler.providers.catalogue import merged_entries as joined_with_known
from coupler.providers.command_line import READ_ONLY
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import EnvVariable, HttpHeader, McpServer, McpServerHttp, McpServerSse, McpServerStdio
from coupler.workflow.agents.agent_events import StepBudget, step_error
from coupler.workflow.agents.agent_start import (
    AgentRequest,
    AgentStart,
    LiteralText,
    NativeSettings,
    RenderedPrompt,
    StepAgent,
    merge_settings,
    render_prompt,
    render_setting,
    resolve_start,
    resolve_step_agent,
)
from coupler.workflow.agents.agents import EarlierSession, SessionRequest
from coupler.workflow.agents.permission import ToolRules
from coupler.workflow.engine.attempt import StepResults
from coupler.workflow.errors import StepError
from coupler.workflow.journal.run_events import Noted
from coupler.workflow.language.model import (
    Agent,
    AgentSettings,
    Converse,
    Json,
    McpServerEntry,
    Workflow,
)
from coupler.workflow.steps.agents import agent_steps

if TYPE_CHECKING:
    from coupler.config import Config
    from coupler.workflow.engine.attempt import Attempt


class AgentSetup(NamedTuple):
    """A step's agent, ready to be asked."""

    order: SessionRequest
    rendered: RenderedPrompt
    set_up: AgentSettings
    rules: ToolRules
    budget: StepBudget


async def set_up_agent(step: Agent | Converse, attempt: Attempt, *, is_stored: bool = False) -> AgentSetup:
    """Set up a step's agent; raises `StepError`. `is_stored`: another process may need its session."""
    config = await _configuration(attempt.cwd)
    step = _with_what_goes_on(step, attempt.workflow)
    tables = config.agents
    if tables:
        # A profile of the coder is what that is started with: it sets itself up.
        known = joined_with_known(config)
        tables = tuple(table for table in tables if not is_coder(known[table.name]))
    resolved = resolve_step_agent(
        step, attempt.text(step.agent).strip(), attempt.workflow, tables, attempt.text
    )
    rendered = render_prompt(resolved.set_up, attempt)
    earlier = earlier_session(step, attempt)
    is_kept = earlier is not None or attempt.agents.is_continued(step, attempt.workflow)
    start = await _start(resolved, rendered, attempt, is_stored=is_stored or is_kept)
    rules = ToolRules.of(resolved.set_up.tools, step.gate, config)
    _refuse_what_cannot_hold(resolved.set_up, rules, start)
    _refuse_another_agent(step, start, earlier)
    order = SessionRequest(
        start=start,
        options=_options(resolved.set_up, start, rendered, attempt),
        servers=_servers(resolved.set_up, attempt, config),
        is_intercepted=bool(resolved.set_up.intercept),
        earlier=earlier,
        is_kept=is_kept,
    )
    return AgentSetup(order, rendered, resolved.set_up, rules, _budget(resolved.set_up, attempt))


def earlier_session(step: Agent | Converse, attempt: Attempt) -> EarlierSession | None:
    """Return the session that a step goes on with, of the nearest step of that name."""
    name = step.set_up.continues
    if name is None:
        return None
    steps = attempt.names["steps"]
    assert isinstance(steps, StepResults)
    result = steps.result_of(name)
    if result is None:
        raise StepError("not_found", f"`continue: {name}`: that step has not run yet")
    if result.session_id is None or result.agent is None:
        why = "was marked as done" if result.marked_done else f"is {result.status}"
        raise StepError("not_found", f"`continue: {name}`: that step has no session, it {why}")
    return EarlierSession(result.session_id, result.agent)


async def _configuration(cwd: str) -> Config:
    try:
        return await in_thread(lambda: configuration(cwd))
    except ConfigError as error:
        raise StepError("not_found", str(error)) from None


def _with_what_goes_on(step: Agent | Converse, workflow: Workflow) -> Agent | Converse:
    """Return the step with its settings over those of the session that it continues."""
    names: list[str] = []
    set_up, name = step.set_up, step.set_up.continues
    while name is not None and name not in names and (before := _step_before(name, step, workflow)):
        names.append(name)
        set_up, name = _over(set_up, before.set_up), before.set_up.continues
    return msgspec.structs.replace(step, set_up=set_up)


def _step_before(name: str, step: Agent | Converse, workflow: Workflow) -> Agent | Converse | None:
    found = [each for each in agent_steps(workflow) if each.id == name and each is not step]
    nearer = [each for each in found if each.position.line <= step.position.line]
    return (nearer or found)[-1] if found else None


def _over(set_up: AgentSettings, before: AgentSettings) -> AgentSettings:
    inherited = msgspec.structs.replace(
        before, prompt=None, prompt_file=None, output=None, context=(), budget=None
    )
    together = merge_settings([set_up, inherited])
    return msgspec.structs.replace(together, prompt=set_up.prompt, prompt_file=set_up.prompt_file)


async def _start(
    resolved: StepAgent, rendered: RenderedPrompt, attempt: Attempt, *, is_stored: bool
) -> AgentStart:
    set_up = resolved.set_up
    wanted = AgentRequest(
        agent=resolved.agent,
        cwd=attempt.cwd,
        env=_environment(resolved, attempt),
        files=set_up.files,
        native=NativeSettings(
            None if set_up.model is None else render_setting(set_up.model, attempt),
            rendered.system,
            tuple(sorted(_values(set_up, attempt).items())),
        ),
        directory=str(Path(attempt.workflow.file).parent),
        store=attempt.agents.store if is_stored else None,
    )
    try:
        return await in_thread(lambda: resolve_start(wanted))
    except AgentError as error:
        raise step_error(error, resolved.agent) from None


def _environment(resolved: StepAgent, attempt: Attempt) -> dict[str, str]:
    """The variables of the step, over those of its agent, over the workflow's defaults."""
    usual = {name: attempt.text(value) for name, value in attempt.workflow.defaults.env.items()}
    own = {name: value for name, value in attempt.env.items() if usual.get(name) != value}
    return {**attempt.env, **{name: attempt.text(value) for name, value in resolved.env.items()}, **own}


def _values(set_up: AgentSettings, attempt: Attempt) -> dict[str, str | int | float | bool]:
    """The options of the agent, rendered."""
    return {
        name: _simple(name, str(value) if isinstance(value, LiteralText) else attempt.value(value))
        for name, value in set_up.options.items()
    }


def _simple(name: str, value: Json) -> str | int | float | bool:
    if not isinstance(value, str | int | float | bool):
        raise StepError("template", f"the option `{name}` has to be a text, a number, true or false")
    return value


def _refuse_what_cannot_hold(set_up: AgentSettings, rules: ToolRules, start: AgentStart) -> None:
    if start.asks:
        return
    asks_nobody = f"{start.agent} asks nobody before it uses a tool, so"
    instead = f"use its ACP form, {start.name}:acp"
    if rules.has_own:
        raise StepError(
            "provider",
            f"{asks_nobody} rules for its tools cannot hold: say what it may do by its `mode`, or {instead}",
        )
    if set_up.files is not None:
        raise StepError(
            "provider",
            f"{asks_nobody} `files` cannot keep it from any: say what it may do by its `mode`, or {instead}",
        )
    if not rules.could_hold_without_asking(set_up.mode):
        raise StepError(
            "provider",
            f"{asks_nobody} what `coupler.toml` denies or wants to be asked cannot hold: {instead}, or "
            f"`mode: {READ_ONLY}` where that is about changes and commands alone",
        )


def _refuse_another_agent(step: Agent | Converse, start: AgentStart, earlier: EarlierSession | None) -> None:
    before = None if earlier is None else AgentStart(earlier.agent, "").name
    if before is not None and before != start.name:
        raise StepError(
            "not_found",
            f"`continue: {step.set_up.continues}` goes on with a session of {before}, and this step's agent "
            f"is {start.name}: name the same one",
        )


def _options(
    set_up: AgentSettings, start: AgentStart, rendered: RenderedPrompt, attempt: Attempt
) -> OpeningOptions:
    options = OpeningOptions(cwd=attempt.cwd)
    if rendered.schema is not None:
        options["output"] = rendered.schema
    if set_up.mode is not None:
        options["mode"] = render_setting(set_up.mode, attempt)
    if start.native is not None:
        return options  # it was made with the others
    if set_up.model is not None and "--model" not in start.words:
        options["model"] = render_setting(set_up.model, attempt)
    if set_up.options:
        options["options"] = {
            name: value if isinstance(value, bool) else str(value)
            for name, value in _values(set_up, attempt).items()
        }
    return options


def _budget(set_up: AgentSettings, attempt: Attempt) -> StepBudget:
    spending = attempt.agents.spending
    budget = StepBudget(set_up.budget, attempt.budget or spending.budget)
    if (before := spending.of(attempt.place)) is not None:
        budget.spent_tokens, budget.spent_cost = before.total, before.cost or 0.0
        budget.is_estimated = before.is_estimated
    return budget


def _servers(set_up: AgentSettings, attempt: Attempt, config: Config) -> tuple[McpServer, ...]:
    """The servers of step, agent and workflow, over those of `coupler.toml`; the editor's over all."""
    configured = config.mcp
    of_workflow = merge_servers(configured, [_server(server, attempt) for server in set_up.mcp_servers])
    servers = merge_servers(of_workflow.values(), attempt.agents.mcp_servers)
    _tell_replaced([name for name in of_workflow if servers[name] != of_workflow[name]], attempt)
    return tuple(servers.values())


def _tell_replaced(names: Iterable[str], attempt: Attempt) -> None:
    """Report once in a run that the editor's server is used instead of the workflow's."""
    told = attempt.agents.replaced_servers
    for name in names:
        if name not in told:
            told.add(name)
            attempt.emit(
                Noted(text=f"the editor's MCP server `{printable(name)}` is used, and not the workflow's own")
            )


def _server(server: McpServerEntry, attempt: Attempt) -> McpServer:
    if server.url is None:
        program, *arguments = (attempt.text(word) for word in server.command)
        env = [EnvVariable(name, attempt.text(value)) for name, value in server.env.items()]
        return McpServerStdio(server.name, _program(program, attempt), arguments, env)
    headers = [HttpHeader(name, attempt.text(value)) for name, value in server.headers.items()]
    url = attempt.text(server.url)
    if not url.startswith(("https://", "http://")):
        raise StepError(
            "template", f"the `url` of the MCP server {server.name} must begin with https:// or http://"
        )
    return (
        McpServerSse(server.name, url, headers)
        if server.type == "sse"
        else McpServerHttp(server.name, url, headers)
    )


def _program(program: str, attempt: Attempt) -> str:
    """Return a program's name as it is, and a relative path from the workflow's directory."""
    path = Path(program).expanduser()
    if len(path.parts) < 2 or path.is_absolute():
        return str(path)
    return str(Path(attempt.workflow.file).parent / path)

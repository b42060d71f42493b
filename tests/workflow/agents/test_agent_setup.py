"""Settings of agents: which of several holds, and what adds up."""

from __future__ import annotations

import pytest

from coupler.config.agent_tables import AgentTable
from coupler.config.files import Origin
from coupler.workflow.agents.agent_start import resolve_step_agent
from coupler.workflow.errors import StepError
from coupler.workflow.language.model import Agent, ToolRuleTexts
from coupler.workflow.language.reader import read_text

FILE = """
mcp_servers: {a: {command: workflow}, w: {command: workflow}}
defaults: {model: default, options: {effort: low, speed: slow}, mcp_servers: {d: {command: default}}}
agents:
  base:
    {agent: toml, model: base, system: base, context: [base.md], env: {A: base, B: base},
     mcp_servers: {a: {command: base}}}
  top: {agent: base, system: top, tools: {deny: ["execute(*)"]}, env: {A: top}, output: {type: object}}
steps:
  - id: x
    agent: top
    prompt: go
    options: {effort: high}
    context: [own.md]
    tools: {allow: ["execute(git *)"]}
    mcp_servers: {s: {command: step}}
"""
TABLE = AgentTable("toml", Origin("user"), system="toml", mode="plan", deny=("edit(**)",), agent="claude")


def test_the_step_comes_before_its_profiles_and_these_before_the_defaults() -> None:
    workflow = read_text(FILE, "/project/x.yaml")
    step = workflow.steps[0]
    assert isinstance(step, Agent)

    role = resolve_step_agent(step, "top", workflow, [TABLE])

    assert role.agent == "toml"
    assert role.env == {"A": "top", "B": "base"}
    set_up = role.set_up
    assert (set_up.system, set_up.model, set_up.mode) == ("top", "base", "plan")
    assert set_up.options == {"effort": "high", "speed": "slow"}
    assert set_up.context == ("base.md", "own.md")
    assert set_up.output == {"type": "object"}
    assert set_up.tools == ToolRuleTexts(("execute(git *)",), ("edit(**)", "execute(*)"))
    servers = {server.name: server.command[0] for server in set_up.mcp_servers}
    assert servers == {"s": "step", "a": "base", "d": "default", "w": "workflow"}


def test_tables_that_stand_on_each_other_are_an_error_with_the_chain() -> None:
    workflow = read_text("steps: [{id: x, agent: one, prompt: go}]", "/project/x.yaml")
    step = workflow.steps[0]
    assert isinstance(step, Agent)
    tables = [
        AgentTable("one", Origin("user"), agent="two"),
        AgentTable("two", Origin("user"), agent="one:acp"),
    ]

    with pytest.raises(StepError, match="one → two → one"):
        resolve_step_agent(step, "one", workflow, tables)

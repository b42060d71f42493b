"""The files that a project begins with, in words that explain themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

EXAMPLE = "overview"
"""The name of the workflow."""


class Wanted(NamedTuple):
    """What the files are to say."""

    agent: str | None
    """Who works in the example."""
    model: str | None
    """What the coder is set to; None leaves it as it is."""
    current_model: str | None
    """What it is set to elsewhere."""
    agents: Sequence[str]
    """Those that are installed."""
    keys: Sequence[str]
    is_users: bool


_OF_PROJECT = """\
# Coupler's settings for this project. They hold for every agent that works here through Coupler: in an
# editor, a terminal or a workflow. `coupler init --user` writes a file of your own, for all projects.
#
# A project could have been made by anybody. So [permissions] of this file can only make things stricter, and
# [coder], [agents] and [mcp] count once you have trusted it: run `coupler trust` after you have changed them.
"""

_OF_USER = """\
# Your own settings of Coupler, for all projects and agents. A project can have a coupler.toml besides; that
# one can only make the [permissions] stricter.
"""

_PERMISSIONS_OF_PROJECT = """\

[permissions]
# What agents may never do, and what they must ask for even if your own file allows it.
deny = ["read(**/.env)"]
ask = ["execute(git push *)"]
"""

_PERMISSIONS_OF_USER = """\

[permissions]
# What agents may do without asking, what they must ask for nevertheless, and what they may never do.
# allow = ["execute(git status *)", "execute(git diff *)", "execute(make test)"]
ask = ["execute(git push *)"]
deny = ["read(**/.env)"]
"""

_REST = """\

# An agent of your own making: a name for another one, with instructions and rules for its tools. Commands and
# workflows then use it as any other: coupler chat reviewer, `agent: reviewer`.
#
# [agents.reviewer]
# agent = {agent}
# system = "You review changes, and change nothing."
# tools = {{ deny = ["edit(**)", "execute(*)"] }}

# A program that gives agents tools, over the Model Context Protocol.
#
# [mcp.time]
# command = "uvx"
# args = ["mcp-server-time"]

# Variables whose values are never shown. Those that are called like secrets need not be named.
#
# [secrets]
# names = ["DEPLOY_LOGIN"]
"""

_EXAMPLE = """\
# A workflow: what a project is, in a few lines.
#
#   coupler run {name}              runs it
#   coupler run {name} agent=NAME   runs it with another agent: `coupler agents` lists them
#   coupler workflows show {name}   tells what it does, and `graph` draws it
#
# In an editor that is served by `coupler serve`, it is the command /{name}.
{trust}name: {name}
description: Say what this project is, from its files and its last changes

inputs:
  agent: {{default: {agent}, description: Who says it; nothing for the facts alone}}

steps:
  # Beside each other. What a step has found is used by its id: steps.files, steps.changes.
  - id: look
    parallel:
      - id: files
        run: |
          {{ git ls-files --cached --others --exclude-standard 2>/dev/null || find . -maxdepth 2 -type f; }} |
            head -n 200
        output: lines                # stdout as a list: steps.files.output
      - id: changes
        run: git log --oneline -n 20 2>/dev/null || echo "There are none."

  - id: summary
    if: inputs.agent                 # left out if no agent is named
    agent: "{{{{ inputs.agent }}}}"
    prompt: |
      Say in five sentences at most what this project is, and where a newcomer should begin to read.
      Read what you need; change nothing.

      Its files:
      {{{{ steps.files.output | join("\\n") }}}}

      Its last changes:
      {{{{ steps.changes.stdout }}}}
    tools: {{deny: ["edit(**)", "execute(*)"]}}
    timeout: 5m

# What comes out. A pair of braces that is the whole text keeps its type: this is a number.
outputs:
  files: "{{{{ steps.files.output | length }}}}"
  summary: "{{{{ steps.summary.text | default('', true) }}}}"
"""


def settings(wanted: Wanted) -> str:
    """The text of a coupler.toml."""
    head = _OF_USER if wanted.is_users else _OF_PROJECT
    permissions = _PERMISSIONS_OF_USER if wanted.is_users else _PERMISSIONS_OF_PROJECT
    agent = json.dumps(next(iter(wanted.agents), wanted.agent) or "claude")
    found = f"\n# Agents that are installed here: {', '.join(wanted.agents)}.\n" if wanted.agents else ""
    return f"{head}{permissions}{_coder(wanted)}{found}{_REST.format(agent=agent)}"


def _coder(wanted: Wanted) -> str:
    """What the coder works with, if that is to be set here; else how it would be."""
    keys = f" These variables with keys are set: {', '.join(wanted.keys)}." if wanted.keys else ""
    about = f"\n# The model of Coupler's own coding agent, as provider:name.{keys}\n"
    if wanted.model is not None:
        return f"{about}[coder]\nmodel = {json.dumps(wanted.model)}\n"
    if wanted.current_model is not None:
        about = f"\n# Coupler's own coding agent works with {wanted.current_model}. Another one for here:\n"
    else:
        about += "# `coupler login coder` sets it for all projects, and stores the key.\n"
    example = wanted.current_model or "ollama:qwen3-coder"
    return f"{about}#\n# [coder]\n# model = {json.dumps(example)}\n"


def example(wanted: Wanted) -> str:
    """The text of the example workflow."""
    trust = (
        "" if wanted.is_users else "# It is trusted as it was written: after a change, run `coupler trust`.\n"
    )
    return _EXAMPLE.format(name=EXAMPLE, agent=json.dumps(wanted.agent or ""), trust=trust)

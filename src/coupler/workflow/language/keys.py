"""The keys of the workflow language: the one place to add to, with the `keys_…` modules beside it.

Reading, the JSON Schema and the manual follow from these tables. A key is declared when something uses it;
until then it is unknown, and an error wherever it is written.
"""

from __future__ import annotations

from coupler.workflow.language.keys_agents import (
    AGENT_NAME,
    BUDGET,
    BUDGET_KEY,
    FILES_KEY,
    INTERCEPT_KEY,
    MODEL_KEY,
    OPTIONS_KEY,
    SERVERS,
    SERVERS_KEY,
    SET_UP_KEYS,
    SYSTEM_KEY,
    TOOLS_KEY,
)
from coupler.workflow.language.keys_flow import (
    CWD_KEY,
    DEFAULT_ON_ERROR,
    ENV_KEY,
    RETRY_KEY,
    SHELL_KEY,
    TIMEOUT_KEY,
)
from coupler.workflow.language.keys_inputs import INPUTS
from coupler.workflow.language.keys_shared import (
    COUNT,
    FREE_NAME_PATTERN,
    FREE_NAME_WORDS,
    NAME_PATTERN,
    NAME_WORDS,
    PLAIN,
)
from coupler.workflow.language.keys_steps import STEP_TABLES
from coupler.workflow.language.scalars import Text
from coupler.workflow.language.shapes import Anything, ListOf, MappingOf, Steps
from coupler.workflow.language.table import Key, Table

HOOKS = Table(
    "hooks",
    "`hooks`",
    (
        Key("start", Steps(), "Before the first step.", "[{run: date}]"),
        Key("end", Steps(), "After the last, however it ended.", "[{run: rm -rf tmp}]"),
        Key("error", Steps(), "When the workflow has failed.", '[{run: "notify {{ run.error.message }}"}]'),
        Key("cancel", Steps(), "When it was cancelled.", "[{run: docker compose down}]"),
    ),
    sentence="Steps beside the workflow.",
)
_HOOKS = Key(
    "hooks",
    HOOKS,
    "Steps beside the workflow: when it starts, ends, fails or is cancelled.",
    "{end: [{run: rm -rf tmp}]}",
)
PROFILE = Table(
    "profile",
    "an agent",
    (
        Key(
            "agent",
            AGENT_NAME,
            "A name of the catalogue, a command line, `module:attribute`, or another profile.",
            "claude",
            is_required=True,
        ),
        *SET_UP_KEYS,
        ENV_KEY,
        Key("hooks", HOOKS, "Steps around each step that uses the agent.", "{start: [{run: git stash}]}"),
    ),
    sentence="An agent with a name and settings of its own, for `agent` and `converse`.",
)
DEFAULTS = Table(
    "defaults",
    "`defaults`",
    (
        Key("agent", AGENT_NAME, "The agent of steps with a prompt and no `agent`.", "claude"),
        SHELL_KEY,
        TIMEOUT_KEY,
        RETRY_KEY,
        Key("on_error", DEFAULT_ON_ERROR, "As in a step, without `goto`.", "continue", "`fail`"),
        ENV_KEY,
        CWD_KEY,
        MODEL_KEY,
        SYSTEM_KEY,
        OPTIONS_KEY,
        TOOLS_KEY,
        FILES_KEY,
        SERVERS_KEY,
        INTERCEPT_KEY,
        BUDGET_KEY,
    ),
    sentence="What steps have that do not say it themselves.",
)
WORKFLOW = Table(
    "workflow",
    "a workflow",
    (
        Key(
            "name",
            Text("a name", FREE_NAME_PATTERN, wrong_words=f"must be {FREE_NAME_WORDS}"),
            "What it is called: in lists, and as a slash command.",
            "review",
            "the file's name",
        ),
        Key("description", PLAIN, "What it does, in a sentence.", "Review a change"),
        Key(
            "inputs",
            INPUTS,
            "Values that whoever starts it gives.",
            "{target: {type: string, required: true}}",
        ),
        Key(
            "secrets",
            ListOf(
                Text(
                    "a variable's name",
                    NAME_PATTERN,
                    wrong_words="must have the names of variables, never their values",
                ),
                "a list of variable names",
            ),
            "Environment variables that it uses as `secrets.NAME`, and that are masked wherever they show.",
            "[GITHUB_TOKEN]",
        ),
        Key(
            "agents",
            MappingOf(PROFILE, "a mapping of agents by name", FREE_NAME_PATTERN, FREE_NAME_WORDS),
            "Agents with names of their own.",
            "{reviewer: {agent: claude, model: opus}}",
        ),
        Key(
            "mcp_servers",
            SERVERS,
            "MCP servers whose tools all agents get.",
            "{tickets: {command: tickets-mcp}}",
        ),
        Key(
            "defaults",
            DEFAULTS,
            "What steps have that do not say it themselves.",
            "{agent: claude, timeout: 10m}",
        ),
        Key("budget", BUDGET, "What the whole run may use up at most.", "{cost: 5, time: 1h}"),
        Key(
            "max_steps",
            COUNT,
            "How many steps a run may take, those of called workflows included.",
            "500",
            "10000",
        ),
        Key("steps", Steps(), "What it does, from top to bottom.", "[{run: make}]", is_required=True),
        Key(
            "outputs",
            MappingOf(Anything(kind="template"), "a mapping of values by name", NAME_PATTERN, NAME_WORDS),
            "What comes out of it; texts are templates, and one whole `{{ }}` keeps its type.",
            '{findings: "{{ steps.review.output }}"}',
        ),
        _HOOKS,
    ),
    sentence="A whole file.",
    elsewhere={key.name: "a step, in `steps`" for table in STEP_TABLES.values() for key in table.keys},
)

"""The keys of `coupler.toml`: the one place to add to.

A key is declared when something reads it. Until then it is unknown, and an error wherever it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from coupler.config.agent_tables import AgentTable, AgentTables
from coupler.config.kind import (
    Address,
    AgentNames,
    Choice,
    Count,
    FilePath,
    ModelName,
    ModelNames,
    Texts,
    VariableNames,
)
from coupler.config.origin import Entry
from coupler.config.schema import Key, Schema
from coupler.config.server_tables import ServerTables

if TYPE_CHECKING:
    from coupler.schema.v1 import McpServer

Entries = tuple[Entry, ...]

CoderMode = Literal["interactive", "accept-edits", "read-only", "planning", "agentic"]
"""The modes of the coder, by their ids."""

SMALLEST_WINDOW, LARGEST_WINDOW = 4_000, 100_000_000
"""Tokens that a model takes in: with less than that its instructions do not fit."""

ALLOW: Key[Entries] = Key(
    "permissions.allow",
    Texts("a list of rules"),
    (),
    "user",
    "What agents may do without asking.",
)
ASK: Key[Entries] = Key(
    "permissions.ask",
    Texts("a list of rules"),
    (),
    "project",
    "What they must ask for, even if another rule allows it.",
)
DENY: Key[Entries] = Key(
    "permissions.deny",
    Texts("a list of rules"),
    (),
    "project",
    "What they may never do, whatever else allows it.",
)
AGENTS: Key[tuple[AgentTable, ...]] = Key(
    "agents",
    AgentTables(),
    (),
    "trusted project",
    "Agents by name: how each is started, and how the steps of workflows set it up, in place of the "
    "catalogue's or besides.",
    default_words="those of the catalogue",
)
MCP: Key[tuple[McpServer, ...]] = Key(
    "mcp",
    ServerTables(),
    (),
    "trusted project",
    "MCP servers by name, whose tools agents can use.",
    default_words="none",
)
CODER_MODEL: Key[str | None] = Key(
    "coder.model",
    ModelName(),
    None,
    "trusted project",
    "The model that the coder works with.",
    default_words="what `coupler login coder` stored",
    variable="COUPLER_MODEL",
)
CODER_BASE_URL: Key[str | None] = Key(
    "coder.base_url",
    Address(),
    None,
    "trusted project",
    "The server that has the model, if it is not the provider's own.",
    default_words="the provider's",
    variable="COUPLER_BASE_URL",
)
CODER_CONTEXT_WINDOW: Key[int | None] = Key(
    "coder.context_window",
    Count(SMALLEST_WINDOW, LARGEST_WINDOW, "tokens"),
    None,
    "trusted project",
    "How much the model can take in at once.",
    default_words="what is known of the model",
)
CODER_MODELS: Key[Entries] = Key(
    "coder.models",
    ModelNames("a list of models"),
    (),
    "trusted project",
    "Models that can be chosen in the editor, besides the one that is set.",
)
CODER_MODE: Key[CoderMode] = Key(
    "coder.mode",
    Choice(get_args(CoderMode)),
    "interactive",
    "user",
    "The mode that the coder's sessions begin in.",
)
CODER_SANDBOX: Key[Literal["off", "auto", "on"]] = Key(
    "coder.sandbox",
    Choice(("off", "auto", "on")),
    "off",
    "user",
    "Whether the coder's commands run in a sandbox: never, where the system has one, or only in one.",
)
CODER_PROFILES: Key[Entries] = Key(
    "coder.profiles",
    AgentNames("a list of names of agents"),
    (),
    "trusted project",
    "Agents that stand on `coder` and can be chosen in the editor, as modes.",
)
SECRET_NAMES: Key[Entries] = Key(
    "secrets.names",
    VariableNames("a list of variable names"),
    (),
    "project",
    "Environment variables whose values are never shown, whatever they are called.",
)
STORE: Key[str | None] = Key(
    "sessions.store",
    FilePath(),
    None,
    "user",
    "The file that keeps sessions, remembered choices and trust.",
    default_words="`coupler.db` in the data directory",
    variable="COUPLER_STORE",
)
SYNCHRONOUS: Key[Literal["normal", "full"]] = Key(
    "sessions.synchronous",
    Choice(("normal", "full")),
    "normal",
    "user",
    "How durable a write is: `normal` survives the death of the process, `full` also a power cut.",
    variable="COUPLER_SYNCHRONOUS",
)

_CODER = (
    *(CODER_MODEL, CODER_BASE_URL, CODER_CONTEXT_WINDOW, CODER_MODELS),
    *(CODER_MODE, CODER_SANDBOX, CODER_PROFILES),
)

SCHEMA = Schema((ALLOW, ASK, DENY, AGENTS, MCP, *_CODER, SECRET_NAMES, STORE, SYNCHRONOUS))

"""The keys of `coupler.toml`: the one place to add to.

A key is declared when something reads it. Until then it is unknown, and an error wherever it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from coupler.config.agent_tables import AgentTable, AgentTables
from coupler.config.kind import Choice, FilePath, Texts, VariableNames
from coupler.config.origin import Entry
from coupler.config.schema import Key, Schema
from coupler.config.server_tables import ServerTables

if TYPE_CHECKING:
    from coupler.schema.v1 import McpServer

Entries = tuple[Entry, ...]

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

SCHEMA = Schema((ALLOW, ASK, DENY, AGENTS, MCP, SECRET_NAMES, STORE, SYNCHRONOUS))

"""The keys of `coupler.toml`, and the validation of a file against them.

A key is declared when something reads it. Until then it is unknown, and an error wherever it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from coupler.config.agent_tables import (
    EFFORT,
    MAX_OUTPUT_TOKENS,
    MOST_MODEL_CALLS,
    TEMPERATURE,
    AgentTable,
    AgentTables,
    ServerTables,
)
from coupler.config.files import ConfigFile, KeyPath, Layer, ListItem, Origin
from coupler.config.lookup import MOST_PROBLEMS, ConfigError, printable_key
from coupler.config.value_kinds import (
    AddressKind,
    AgentNamesKind,
    ChoiceKind,
    ConfigKey,
    ConfigSchema,
    ConfigSetting,
    CountKind,
    KeepRule,
    KeepRuleKind,
    ModelNameKind,
    ModelNamesKind,
    PathKind,
    SwitchKind,
    TextsKind,
    ValueSource,
    VariableNameKind,
    VariableNamesKind,
    WrongValueError,
    type_words,
)
from coupler.fields.words import suggestion

if TYPE_CHECKING:
    from coupler.schema.v1 import McpServer

Entries = tuple[ListItem, ...]

CoderMode = Literal["interactive", "accept-edits", "read-only", "planning", "agentic"]
"""The modes of the coder, by their ids."""

SMALLEST_WINDOW, LARGEST_WINDOW = 4_000, 100_000_000
"""Tokens that a model takes in: with less than that its instructions do not fit."""

LONGEST_RETRY = 3600
"""Seconds for which a model is asked again at most."""

LONGEST_MCP_WAIT = 600
"""Seconds that a model call waits for MCP servers at most."""

ALLOW: ConfigKey[Entries] = ConfigKey(
    "permissions.allow",
    TextsKind("a list of rules"),
    (),
    "user",
    "What agents may do without asking.",
)
ASK: ConfigKey[Entries] = ConfigKey(
    "permissions.ask",
    TextsKind("a list of rules"),
    (),
    "project",
    "What they must ask for, even if another rule allows it.",
)
DENY: ConfigKey[Entries] = ConfigKey(
    "permissions.deny",
    TextsKind("a list of rules"),
    (),
    "project",
    "What they may never do, whatever else allows it.",
)
AGENTS: ConfigKey[tuple[AgentTable, ...]] = ConfigKey(
    "agents",
    AgentTables(),
    (),
    "trusted project",
    "Agents by name: how each is started, and how its sessions are set up, in place of the catalogue's or "
    "besides.",
    default_words="those of the catalogue",
)
MCP: ConfigKey[tuple[McpServer, ...]] = ConfigKey(
    "mcp",
    ServerTables(),
    (),
    "trusted project",
    "MCP servers by name, whose tools agents can use.",
    default_words="none",
)
CODER_MODEL: ConfigKey[str | None] = ConfigKey(
    "coder.model",
    ModelNameKind(),
    None,
    "trusted project",
    "The model that the coder works with.",
    default_words="what `coupler login coder` stored",
    variable="COUPLER_MODEL",
)
CODER_BASE_URL: ConfigKey[str | None] = ConfigKey(
    "coder.base_url",
    AddressKind(),
    None,
    "trusted project",
    "The server that has the model, if it is not the provider's own.",
    default_words="the provider's",
    variable="COUPLER_BASE_URL",
)
CODER_CONTEXT_WINDOW: ConfigKey[int | None] = ConfigKey(
    "coder.context_window",
    CountKind(SMALLEST_WINDOW, LARGEST_WINDOW, "tokens"),
    None,
    "trusted project",
    "How much the model can take in at once.",
    default_words="what is known of the model",
)
CODER_MODELS: ConfigKey[Entries] = ConfigKey(
    "coder.models",
    ModelNamesKind("a list of models"),
    (),
    "trusted project",
    "Models that can be chosen in the editor, besides the one that is set.",
)
CODER_EFFORT: ConfigKey[str | None] = ConfigKey(
    "coder.effort",
    EFFORT,
    None,
    "trusted project",
    "How much the model thinks; it can be changed in the editor.",
    default_words="what the model does by itself",
)
CODER_TEMPERATURE: ConfigKey[float | None] = ConfigKey(
    "coder.temperature",
    TEMPERATURE,
    None,
    "trusted project",
    "The temperature of the model.",
    default_words="the model's",
)
CODER_MAX_OUTPUT_TOKENS: ConfigKey[int | None] = ConfigKey(
    "coder.max_output_tokens",
    MAX_OUTPUT_TOKENS,
    None,
    "trusted project",
    "How long one answer of the model may be, with what it thinks.",
    default_words="the model's",
)
CODER_MAX_MODEL_CALLS: ConfigKey[int] = ConfigKey(
    "coder.max_model_calls",
    CountKind(1, MOST_MODEL_CALLS, "model calls"),
    300,
    "trusted project",
    "How often one prompt asks the model at most; then the turn ends, and says so.",
)
CODER_RETRY_SECONDS: ConfigKey[int] = ConfigKey(
    "coder.retry_seconds",
    CountKind(0, LONGEST_RETRY, "seconds"),
    60,
    "trusted project",
    "How long a model is asked again whose provider is busy, fails or cannot be reached; 0 for not at all.",
)
CODER_MCP_WAIT_SECONDS: ConfigKey[int] = ConfigKey(
    "coder.mcp_wait_seconds",
    CountKind(0, LONGEST_MCP_WAIT, "seconds"),
    1,
    "trusted project",
    "How long after their start the model is not asked without the tools of MCP servers; later they join.",
)
CODER_MODE: ConfigKey[CoderMode] = ConfigKey(
    "coder.mode",
    ChoiceKind(get_args(CoderMode)),
    "interactive",
    "user",
    "The mode that the coder's sessions begin in.",
)
CODER_SANDBOX: ConfigKey[Literal["off", "auto", "on"]] = ConfigKey(
    "coder.sandbox",
    ChoiceKind(("off", "auto", "on")),
    "off",
    "user",
    "Whether the coder's commands run in a sandbox: never, where the system has one, or only in one.",
)
CODER_MEMORY: ConfigKey[bool] = ConfigKey(
    "coder.memory",
    SwitchKind(),
    True,
    "trusted project",
    "Whether the coder reads the memory of a project, and can write into it.",
)
CODER_ENVIRONMENT: ConfigKey[Entries] = ConfigKey(
    "coder.environment",
    VariableNamesKind("a list of variable names"),
    (),
    "user",
    "Environment variables that hold secrets and that the coder's commands get all the same.",
)
CODER_PROFILES: ConfigKey[Entries] = ConfigKey(
    "coder.profiles",
    AgentNamesKind("a list of names of agents"),
    (),
    "trusted project",
    "Agents that stand on `coder` and can be chosen in the editor, as modes.",
)
CODER_SEARCH_PROVIDER: ConfigKey[Literal["searxng", "brave", "tavily", "model"] | None] = ConfigKey(
    "coder.search.provider",
    ChoiceKind(("searxng", "brave", "tavily", "model")),
    None,
    "trusted project",
    "The search engine of the coder's tool `web_search`; `model` is the search of the model's own provider.",
    default_words="none, and then there is no such tool",
)
CODER_SEARCH_BASE_URL: ConfigKey[str | None] = ConfigKey(
    "coder.search.base_url",
    AddressKind(),
    None,
    "trusted project",
    "The server of the search engine; SearXNG needs one.",
    default_words="the provider's",
)
CODER_SEARCH_KEY_VARIABLE: ConfigKey[str | None] = ConfigKey(
    "coder.search.key_variable",
    VariableNameKind(),
    None,
    "user",
    "The environment variable that holds the key of the search engine.",
    default_words="`BRAVE_API_KEY` or `TAVILY_API_KEY`",
)
SECRET_NAMES: ConfigKey[Entries] = ConfigKey(
    "secrets.names",
    VariableNamesKind("a list of variable names"),
    (),
    "project",
    "Environment variables whose values are never shown, whatever they are called.",
)
STORE: ConfigKey[str | None] = ConfigKey(
    "sessions.store",
    PathKind(),
    None,
    "user",
    "The file that keeps sessions, remembered choices and trust.",
    default_words="`coupler.db` in the data directory",
    variable="COUPLER_STORE",
)
SYNCHRONOUS: ConfigKey[Literal["normal", "full"]] = ConfigKey(
    "sessions.synchronous",
    ChoiceKind(("normal", "full")),
    "normal",
    "user",
    "How durable a write is: `normal` survives the death of the process, `full` also a power cut.",
    variable="COUPLER_SYNCHRONOUS",
)

KEEP_SESSIONS: ConfigKey[KeepRule | None] = ConfigKey(
    "store.keep_sessions",
    KeepRuleKind(),
    None,
    "user",
    "How long and how much of the sessions is kept: what goes beyond is deleted for good, the oldest first.",
    default_words="all of them",
)
KEEP_RUNS: ConfigKey[KeepRule | None] = ConfigKey(
    "store.keep_runs",
    KeepRuleKind(),
    None,
    "user",
    "The same for runs of workflows; those that are parked are always kept.",
    default_words="all of them",
)

_CODER = (
    *(CODER_MODEL, CODER_BASE_URL, CODER_CONTEXT_WINDOW, CODER_MODELS),
    *(CODER_EFFORT, CODER_TEMPERATURE, CODER_MAX_OUTPUT_TOKENS),
    *(CODER_MAX_MODEL_CALLS, CODER_RETRY_SECONDS, CODER_MCP_WAIT_SECONDS),
    *(CODER_MODE, CODER_SANDBOX, CODER_MEMORY, CODER_ENVIRONMENT, CODER_PROFILES),
    *(CODER_SEARCH_PROVIDER, CODER_SEARCH_BASE_URL, CODER_SEARCH_KEY_VARIABLE),
)

_STORE = (STORE, SYNCHRONOUS, KEEP_SESSIONS, KEEP_RUNS)

SCHEMA = ConfigSchema((ALLOW, ASK, DENY, AGENTS, MCP, *_CODER, SECRET_NAMES, *_STORE))


def read_settings(
    file: ConfigFile, layer: Layer, schema: ConfigSchema, home: str | None
) -> tuple[ConfigSetting, ...]:
    """Check a file against the schema and return what it sets; raises ConfigError with all that is wrong."""
    reading = _Reading(file, layer, schema, home)
    settings = (*reading.table(file.values, ()),)
    if reading.problems:
        raise ConfigError("invalid", reading.problems)
    return settings


class _Reading:
    """Reads the tables of a file, and collects problems instead of ending at the first."""

    def __init__(self, file: ConfigFile, layer: Layer, schema: ConfigSchema, home: str | None) -> None:
        self.problems: list[str] = []
        self._file = file
        self._layer: Layer = layer
        self._schema = schema
        self._home = home

    def table(self, table: Mapping[str, Any], path: KeyPath) -> Iterator[ConfigSetting]:
        """Yield the settings of a table and of those in it."""
        for name, value in table.items():
            here = (*path, name)
            full_name = ".".join(map(str, here))
            # A quoted name with a dot in it is one name: it must not pass for a table and its key.
            key = None if "." in name else self._schema.find(full_name)
            if key is not None:
                yield from self._setting(key, value, here)
            elif "." in name or not self._schema.is_section(full_name):
                self._complain_of_unknown(name, here)
            elif isinstance(value, dict):
                yield from self.table(value, here)
            else:
                self._complain(here, f"must be a table, not {type_words(value)}")

    def _setting(self, key: ConfigKey[Any], value: object, path: KeyPath) -> Iterator[ConfigSetting]:
        items = [self._origin((*path, i)) for i in range(len(value))] if isinstance(value, list) else ()
        source = ValueSource(self._origin(path), items, self._home)
        try:
            yield ConfigSetting(key, key.kind.read(value, source), source.origin)
        except WrongValueError as error:
            self._complain((*path, *error.below), str(error))

    def _complain(self, path: KeyPath, problem: str) -> None:
        item = f"item {path[-1] + 1} of " if isinstance(path[-1], int) else ""
        self.problems.append(f"{item}`{printable_key(path)}` in {self._origin(path)} {problem}")

    def _complain_of_unknown(self, name: str, path: KeyPath) -> None:
        if len(self.problems) >= MOST_PROBLEMS:
            # Only counted: a file may have a hundred thousand of them, and comparing words takes its time.
            self.problems.append(f"unknown key `{printable_key(path)}`")
            return
        section = ".".join(map(str, path[:-1]))
        valid = self._schema.words_below(section)
        if not section:
            # Who forgets the section's heading still means one of its keys.
            valid += [key.name for key in self._schema.keys]
        near = suggestion(name, valid, self._schema.words_below(section))
        self.problems.append(f"unknown key `{printable_key(path)}` in {self._origin(path)}; {near}")

    def _origin(self, path: KeyPath) -> Origin:
        position = self._file.positions.find(path)
        return Origin(self._layer, self._file.path, None if position is None else position.line)

"""The keys of `coupler.toml`, and the validation of a file against them.

A section is a struct, and a key is a field of it, declared once: its checks, its place in the order of
precedence and its line in the manual follow from that. A key is declared when something reads it. Until then
it is unknown, and an error wherever it is written.
"""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from msgspec import Struct, structs

from coupler.config.agent_tables import (
    AGENTS,
    EFFORT,
    MAX_OUTPUT_TOKENS,
    MODEL_CALLS,
    SERVERS,
    TEMPERATURE,
    AgentTable,
)
from coupler.config.files import ConfigFile, KeyPath, Layer, ListItem, Origin
from coupler.config.lookup import MOST_PROBLEMS, ConfigError, printable_key
from coupler.config.shapes import (
    ADDRESS,
    MODEL,
    VARIABLE,
    File,
    Keep,
    KeepRule,
    Setting,
    SettingNotes,
    agent_problem,
    entries,
    model_problem,
    one_of,
    variable_problem,
)
from coupler.fields.shapes import WRONG, Boolean, Number
from coupler.fields.tables import marks_of
from coupler.runtime.formatting import suggestion

if TYPE_CHECKING:
    from coupler.schema.v1 import McpServer
else:
    McpServer = Any  # a configuration without servers needs no types of the protocol

Entries = tuple[ListItem, ...]

CoderMode = Literal["interactive", "accept-edits", "read-only", "planning", "agentic"]
"""The modes of the coder, by their ids."""

SMALLEST_WINDOW, LARGEST_WINDOW = 4_000, 100_000_000
"""Tokens that a model takes in: with less than that its instructions do not fit."""

LONGEST_RETRY = 3600
"""Seconds for which a model is asked again at most."""

LONGEST_MCP_WAIT = 600
"""Seconds that a model call waits for MCP servers at most."""

_trusted = partial(Setting, setter="trusted project")
_any_project = partial(Setting, setter="project")
_RULES = entries("a list of rules")
_VARIABLES = entries("a list of variable names", variable_problem)


class Permissions(Struct, frozen=True):
    """Rules about what agents may do."""

    allow: Annotated[Entries, Setting("What agents may do without asking.", shape=_RULES)] = ()
    ask: Annotated[
        Entries,
        Setting("What they must ask for, even if another rule allows it.", shape=_RULES, setter="project"),
    ] = ()
    deny: Annotated[
        Entries, Setting("What they may never do, whatever else allows it.", shape=_RULES, setter="project")
    ] = ()


class Search(Struct, frozen=True):
    """The web search of the coder."""

    provider: Annotated[
        Literal["searxng", "brave", "tavily", "model"] | None,
        _trusted(
            "The search engine of the coder's tool `web_search`; `model` is the search of the model's own "
            "provider.",
            default="none, and then there is no such tool",
            shape=one_of("searxng", "brave", "tavily", "model"),
        ),
    ] = None
    base_url: Annotated[
        str | None,
        _trusted(
            "The server of the search engine; SearXNG needs one.", default="the provider's", shape=ADDRESS
        ),
    ] = None
    key_variable: Annotated[
        str | None,
        Setting(
            "The environment variable that holds the key of the search engine.",
            default="`BRAVE_API_KEY` or `TAVILY_API_KEY`",
            shape=VARIABLE,
        ),
    ] = None


class Coder(Struct, frozen=True):
    """Coupler's own coding agent."""

    model: Annotated[
        str | None,
        _trusted(
            "The model that the coder works with.",
            default="what `coupler login coder` stored",
            shape=MODEL,
            variable="COUPLER_MODEL",
        ),
    ] = None
    base_url: Annotated[
        str | None,
        _trusted(
            "The server that has the model, if it is not the provider's own.",
            default="the provider's",
            shape=ADDRESS,
            variable="COUPLER_BASE_URL",
        ),
    ] = None
    context_window: Annotated[
        int | None,
        _trusted(
            "How much the model can take in at once.",
            default="what is known of the model",
            shape=Number(SMALLEST_WINDOW, LARGEST_WINDOW, is_whole=True, unit="tokens"),
        ),
    ] = None
    models: Annotated[
        Entries,
        _trusted(
            "Models that can be chosen in the editor, besides the one that is set.",
            shape=entries("a list of models", model_problem),
        ),
    ] = ()
    effort: Annotated[
        str | None,
        _trusted(
            "How much the model thinks; it can be changed in the editor.",
            default="what the model does by itself",
            shape=EFFORT,
        ),
    ] = None
    temperature: Annotated[
        float | None, _trusted("The temperature of the model.", default="the model's", shape=TEMPERATURE)
    ] = None
    max_output_tokens: Annotated[
        int | None,
        _trusted(
            "How long one answer of the model may be, with what it thinks.",
            default="the model's",
            shape=MAX_OUTPUT_TOKENS,
        ),
    ] = None
    max_model_calls: Annotated[
        int,
        _trusted(
            "How often one prompt asks the model at most; then the turn ends, and says so.", shape=MODEL_CALLS
        ),
    ] = 300
    retry_seconds: Annotated[
        int,
        _trusted(
            "How long a model is asked again whose provider is busy, fails or cannot be reached; 0 for not "
            "at all.",
            shape=Number(0, LONGEST_RETRY, is_whole=True, unit="seconds"),
        ),
    ] = 60
    mcp_wait_seconds: Annotated[
        int,
        _trusted(
            "How long after their start the model is not asked without the tools of MCP servers; later they "
            "join.",
            shape=Number(0, LONGEST_MCP_WAIT, is_whole=True, unit="seconds"),
        ),
    ] = 1
    mode: Annotated[
        CoderMode,
        Setting(
            "The mode that the coder's sessions begin in.",
            shape=one_of("interactive", "accept-edits", "read-only", "planning", "agentic"),
        ),
    ] = "interactive"
    sandbox: Annotated[
        Literal["off", "auto", "on"],
        Setting(
            "Whether the coder's commands run in a sandbox: never, where the system has one, or only in one.",
            shape=one_of("off", "auto", "on"),
        ),
    ] = "off"
    memory: Annotated[
        bool,
        _trusted("Whether the coder reads the memory of a project, and can write into it.", shape=Boolean()),
    ] = True
    environment: Annotated[
        Entries,
        Setting(
            "Environment variables that hold secrets and that the coder's commands get all the same.",
            shape=_VARIABLES,
        ),
    ] = ()
    profiles: Annotated[
        Entries,
        _trusted(
            "Agents based on `coder` that can be chosen in the editor, as modes.",
            shape=entries("a list of names of agents", agent_problem),
        ),
    ] = ()
    search: Search = Search()


class Secrets(Struct, frozen=True):
    """Secrets of the environment."""

    names: Annotated[
        Entries,
        _any_project(
            "Environment variables whose values are never shown, whatever they are called.", shape=_VARIABLES
        ),
    ] = ()


class Sessions(Struct, frozen=True):
    """The store of sessions."""

    store: Annotated[
        str | None,
        Setting(
            "The file that keeps sessions, remembered choices and trust.",
            default="`coupler.db` in the data directory",
            shape=File(),
            variable="COUPLER_STORE",
        ),
    ] = None
    synchronous: Annotated[
        Literal["normal", "full"],
        Setting(
            "How durable a write is: `normal` survives the death of the process, `full` also a power cut.",
            shape=one_of("normal", "full"),
            variable="COUPLER_SYNCHRONOUS",
        ),
    ] = "normal"


class Store(Struct, frozen=True):
    """How long and how much the store keeps."""

    keep_sessions: Annotated[
        KeepRule | None,
        Setting(
            "How long and how much of the sessions is kept: what goes beyond is deleted for good, the oldest "
            "first.",
            default="all of them",
            shape=Keep(),
        ),
    ] = None
    keep_runs: Annotated[
        KeepRule | None,
        Setting(
            "The same for runs of workflows; those that are parked are always kept.",
            default="all of them",
            shape=Keep(),
        ),
    ] = None


class Settings(Struct, frozen=True, kw_only=True, eq=False):
    """All that `coupler.toml` can set, in the order of the manual."""

    permissions: Permissions = Permissions()
    agents: Annotated[
        tuple[AgentTable, ...],
        _trusted(
            "Agents by name: how each is started, and how its sessions are set up, in place of the "
            "catalogue's or besides.",
            default="those of the catalogue",
            shape=AGENTS,
        ),
    ] = ()
    mcp: Annotated[
        tuple[McpServer, ...],
        _trusted("MCP servers by name, whose tools agents can use.", default="none", shape=SERVERS),
    ] = ()
    coder: Coder = Coder()
    secrets: Secrets = Secrets()
    sessions: Sessions = Sessions()
    store: Store = Store()


class ConfigSetting(NamedTuple):
    """A key with a value that somebody gave it."""

    key: Setting
    value: Any
    origin: Origin


class ConfigSchema:
    """The keys of all sections of a struct."""

    def __init__(self, struct: type[Struct]) -> None:
        self.keys = (*_settings_in(struct, ()),)
        self._keys = {key.name: key for key in self.keys}
        self._sections = {".".join(key.path[:end]) for key in self.keys for end in range(1, len(key.path))}

    def find(self, name: str) -> Setting | None:
        """The key with this full name."""
        return self._keys.get(name)

    def is_section(self, name: str) -> bool:
        """Tell whether there are keys below this name."""
        return name in self._sections

    def words_below(self, section: str) -> list[str]:
        """The names that may be written directly in a section; "" is the whole file."""
        start = f"{section}." if section else ""
        names = [key.name[len(start) :] for key in self.keys if key.name.startswith(start)]
        return [*dict.fromkeys(name.partition(".")[0] for name in names)]


schema_of = cache(ConfigSchema)
"""Returns the keys of a struct with sections, made once."""


def _settings_in(struct: type[Struct], path: tuple[str, ...]) -> Iterator[Setting]:
    for field in structs.fields(struct):
        here = (*path, field.name)
        key = next((mark for mark in marks_of(field.type) if isinstance(mark, Setting)), None)
        if key is not None:
            yield structs.replace(key, name=".".join(here), path=here, unset=field.default)
        elif isinstance(field.default, Struct):
            yield from _settings_in(type(field.default), here)


def read_settings(
    file: ConfigFile, layer: Layer, schema: ConfigSchema, home: str | None
) -> tuple[ConfigSetting, ...]:
    """Check a file against the schema and return what it sets; raises ConfigError with all that is wrong."""
    reading = _Reading(file, layer, schema, home)
    settings = (*reading.table(file.values, ()),)
    if reading.problems:
        raise ConfigError("invalid", reading.problems)
    return settings


def read_setting(key: Setting, value: object, origin: Origin, home: str | None) -> ConfigSetting:
    """Read a value that is in no file; raises ConfigError."""
    notes = SettingNotes(lambda path: origin, home)
    read = key.shape.read(notes.node(value, key.path), key.name, notes)
    if notes.faults:
        raise ConfigError("invalid", [f"`{key.name}` from {origin}{fault.message}" for fault in notes.faults])
    return ConfigSetting(key, read, origin)


class _Reading:
    """Reads the tables of a file, and collects problems instead of ending at the first."""

    def __init__(self, file: ConfigFile, layer: Layer, schema: ConfigSchema, home: str | None) -> None:
        self.problems: list[str] = []
        self._file = file
        self._layer: Layer = layer
        self._schema = schema
        self._notes = SettingNotes(self._origin, home)

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
                words = self._notes.node(value, here).words
                self._complain(here, f" must be a table, not {words}")

    def _setting(self, key: Setting, value: object, path: KeyPath) -> Iterator[ConfigSetting]:
        read = key.shape.read(self._notes.node(value, path), str(path[-1]), self._notes)
        for fault in self._notes.faults:
            self._complain(*fault)
        self._notes.faults.clear()
        if read is not WRONG:
            yield ConfigSetting(key, read, self._origin(path))

    def _complain(self, path: KeyPath, problem: str) -> None:
        item = f"item {path[-1] + 1} of " if isinstance(path[-1], int) else ""
        self.problems.append(f"{item}`{printable_key(path)}` in {self._origin(path)}{problem}")

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

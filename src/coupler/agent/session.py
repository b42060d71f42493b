"""Runs one session: its directories, agent, settings and project, and the one turn at a time."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
from msgspec import UNSET, UnsetType

from coupler.agent.agent import (
    OFF,
    ON,
    Agent,
    Choice,
    Command,
    Mode,
    Option,
    OptionValue,
    Select,
    Toggle,
    accepted_blocks,
    declared_commands,
    declared_modes,
    declared_options,
)
from coupler.agent.auth import Logins
from coupler.agent.content import plain_text, whole_text
from coupler.agent.editor import Editor
from coupler.agent.errors import CONFIG_WRONG, agent_failed, session_busy
from coupler.agent.files import KnownFiles
from coupler.agent.output import Outlet, SessionRedactor
from coupler.agent.turn import Prompting, Turn
from coupler.events import Commands, Info, Options
from coupler.events import Mode as ModeChange
from coupler.events.records import TurnEnd, TurnsHidden
from coupler.events.v1_codec import EmittedEvent
from coupler.schema import v1
from coupler.schema.base import Unknown
from coupler.schema.v1 import ContentBlock, McpServer
from coupler.wire.messages import INVALID_PARAMS, RpcError
from coupler.wire.peer import Peer, Request

if TYPE_CHECKING:
    from coupler.agent.mcp_servers import SessionMcp
    from coupler.agent.permission import SessionPermissions
    from coupler.config import Config
    from coupler.mcp.servers import SessionServers
    from coupler.permission.offers import ChoiceStore
    from coupler.store.sessions import SessionRecord

log = logging.getLogger("coupler.agent")

COMMANDS_AGAIN = 0.2
"""Seconds after which the commands are sent once more: one popular editor drops them if they come early."""

LONGEST_TITLE = 80
"""Characters of a title that is made of the first prompt."""

MODE = "mode"
"""The id of the config option that stands for the modes."""

BOOLEAN_OPTIONS = "session.configOptions.boolean"
"""The capability of clients that support boolean options."""

MOST_NAMED = 20
"""Ids or values that an error lists, at most."""

OptionChange = v1.SetSessionConfigBooleanRequest | v1.SetSessionConfigSelectRequest

_BYTES = b"b"
_JSON = b"j"


class SettingError(ValueError):
    """There is no such mode, option or value. The message lists those there are; nothing was changed."""


class StateError(TypeError):
    """The agent's state cannot be encoded for the store."""


class SessionParams(NamedTuple):
    """The directories and MCP servers that a client names when it opens a session, and its `_meta`."""

    cwd: str
    additional_directories: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    meta: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()
    """Names of what was left out because it could not be read; the next turn tells of it."""

    def is_same_place(self, other: SessionParams) -> bool:
        """Return whether both name the same directories and servers; every request has its own `_meta`."""
        return self._replace(meta=None, problems=()) == other._replace(meta=None, problems=())


class Session:
    """One ACP session. Its state has one owner: this object, on the event loop."""

    def __init__(self, id: str, place: SessionParams, editor: Editor, peer: Peer) -> None:
        self.id = id
        self.place = place
        self.warnings = [*place.problems]
        """Sentences that the next turn begins with."""
        self.editor = editor
        self.secrets = SessionRedactor(place.mcp_servers)
        """Redacts the session's secrets; see `add_secret`."""
        self.env: dict[str, str] = SessionEnvironment(os.environ, self.secrets.notice)
        """The environment of what the session runs; a change concerns no other session."""
        self.withheld: frozenset[str] = frozenset()
        """The variables that nothing the session runs gets to see; see `withhold`."""
        self._passed_to_commands: frozenset[str] | None = None
        self.state: Any = None
        """The agent's own memory of the session, bytes or what JSON can hold: saved with every turn."""
        self.opening_meta: dict[str, Any] | None = None
        """The `_meta` of the answer that opens the session, for clients that know more than the protocol."""
        self.outlet = Outlet(id, editor, peer, self.secrets)
        """Sends and journals everything that happens here."""
        self.known_files = KnownFiles()
        """Digests of the files that the session has read, so that it does not overwrite changes of others."""
        self.readable_places: set[str] = set()
        """Directories outside of its own that its tools may read and search without asking, and no more."""
        self.in_order = asyncio.Lock()
        """Held by work that must not overlap; a turn begins when it is free."""
        self._peer = peer
        self._project: Project | None = None
        self._servers: SessionServers | None = None
        self._agent: Agent
        self._settings = SessionSettings((), (), booleans=editor.offers(BOOLEAN_OPTIONS))
        self._commands: tuple[Command, ...] = ()
        self._commands_again: asyncio.TimerHandle | None = None
        self._is_known = False
        self._title: str | None = None
        self._known_title: str | None = None
        self._prompting: Prompting | None = None
        self._awaiting_idle: list[asyncio.Future[None]] = []

    @property
    def cwd(self) -> str:
        """The directory that the session works in; that of the process does not matter."""
        return self.place.cwd

    @property
    def roots(self) -> tuple[str, ...]:
        """The directories that its tools may touch: `cwd` first, then those that the client added."""
        return (self.place.cwd, *self.place.additional_directories)

    @property
    def mcp_servers(self) -> tuple[McpServer, ...]:
        """The MCP servers that the client wants to be used."""
        return self.place.mcp_servers

    @property
    def mcp(self) -> SessionMcp:
        """All MCP servers, the client's and those that are configured; `turn.mcp` can use their tools."""
        # Imported on use, here and below: most agents use none.
        from coupler.agent.mcp_servers import SessionMcp

        return SessionMcp(self.servers)

    @property
    def servers(self) -> SessionServers:
        """The connections to the MCP servers; nothing is started before it is used."""
        if self._servers is None:
            from coupler.mcp.servers import ServerEnvironment, SessionServers, merge_servers

            entries = merge_servers(self.project.mcp_servers, self.place.mcp_servers)
            self._servers = SessionServers(entries, ServerEnvironment(self.cwd, self.env), asks=True)
        return self._servers

    @property
    def project(self) -> Project:
        """The configuration, rules and MCP servers of the project that the session is in."""
        if self._project is None:
            self._project = Project.of(self.cwd, self.env, None)
        return self._project

    @property
    def title(self) -> str | None:
        """The session's title; `set_title` changes it."""
        return self._title

    @property
    def agent(self) -> Agent:
        """The agent that answers the prompts."""
        return self._agent

    @property
    def settings(self) -> SessionSettings:
        """The modes and options with their values."""
        return self._settings

    @property
    def mode(self) -> str | None:
        """The id of the mode that the session is in."""
        return self._settings.mode

    @property
    def options(self) -> Mapping[str, str | bool]:
        """The value of each option."""
        return MappingProxyType(dict(self._settings.values))

    @property
    def commands(self) -> tuple[Command, ...]:
        """The slash commands."""
        return self._commands

    @property
    def is_known(self) -> bool:
        """True if the client has been told of the session, and has not closed it."""
        return self._is_known

    @property
    def is_busy(self) -> bool:
        """True if a turn runs."""
        return self._prompting is not None

    def belong_to(self, project: Project) -> None:
        """Set the project, and redact the secrets that its configuration names."""
        self._project = project
        self.secrets.add_names(project.secret_names, self.env)
        self.secrets.notice_servers(project.mcp_servers)

    def give_to(self, agent: Agent, logins: Logins) -> None:
        """Set the agent that answers the prompts, and the logins that they need."""
        self._agent = agent
        self._logins = logins
        self._accepted = accepted_blocks(agent)
        # A factory may have declared others before: what the agent leaves open stays.
        self._settings.declare(agent.modes or None, agent.options or None)
        if agent.commands:
            self._commands = declared_commands(agent.commands)

    async def move_to(self, place: SessionParams) -> None:
        """Switch to the directories and MCP servers that the client names now."""
        if (
            self.outlet.journal is not None
            and place.additional_directories != self.place.additional_directories
        ):
            self.outlet.journal.keep_roots(place.additional_directories)
            await self.outlet.journal.until_stored()
        is_another, self.place = not place.is_same_place(self.place), place
        self.warnings += place.problems
        self.secrets.notice_servers(place.mcp_servers)
        if is_another and self._servers is not None:
            from coupler.mcp.servers import merge_servers

            await self._servers.replace(merge_servers(self.project.mcp_servers, place.mcp_servers))
        if is_another:
            await call_hook(self._agent.moved, self)

    def add_directories(self, directories: Iterable[str]) -> None:
        """Let the session's tools touch these directories, too, until the client opens it with others."""
        new = tuple(each for each in directories if each not in self.roots)
        if not new:
            return
        self.place = self.place._replace(additional_directories=(*self.place.additional_directories, *new))
        if self.outlet.journal is not None:
            self.outlet.journal.keep_roots(self.place.additional_directories)

    async def use_servers(self, names: Iterable[str] | None) -> None:
        """Of the configured MCP servers use only these, or all of them; the client's own are used anyway."""
        self.project.used_servers = None if names is None else frozenset(names)
        if self._servers is not None:
            from coupler.mcp.servers import merge_servers

            await self._servers.replace(merge_servers(self.project.mcp_servers, self.place.mcp_servers))

    def go_on_from(self, record: SessionRecord) -> None:
        """Restore what was saved of the session; modes and options may still be unknown."""
        self._title = self._known_title = record.title
        self._settings.restore(_parsed(record.settings))
        self.state = unpack_state(record.state)

    def set_mode(self, id: str) -> None:
        """Switch the mode; the client is told."""
        if self._settings.set_mode(id):
            self.tell_settings(mode_changed=True)

    def set_option(self, id: str, value: str | bool) -> None:
        """Change an option's value; the client is told."""
        if self._settings.set(id, value):
            self.tell_settings(mode_changed=False)

    def declare(
        self, *, modes: Sequence[Mode] | None = None, options: Sequence[Option] | None = None
    ) -> None:
        """Offer other modes or options from now on; values that are still offered stay."""
        mode = self.mode
        self._settings.declare(modes, options)
        self.tell_settings(mode_changed=self.mode != mode)

    def set_commands(self, commands: Sequence[Command]) -> None:
        """Offer other slash commands from now on; the client is told."""
        before = self._offered_commands()
        self._commands = declared_commands(commands)
        if self._offered_commands() != before:
            self._send_commands()

    def add_secret(self, name: str, value: str) -> None:
        """Redact this value from now on: its name is shown in its place."""
        self.secrets.add({plain_text(name, "a secret's name"): plain_text(value, "a secret")})

    def withhold(self, names: Iterable[str]) -> None:
        """Keep these variables of the process from what the session runs: its `env` does not have them."""
        self.withheld |= frozenset(names)
        for name in self.withheld:
            self.env.pop(name, None)

    def withhold_secrets_from_commands(self, but: Iterable[str] = ()) -> None:
        """Keep variables that hold secrets from commands, except these; agents and servers get theirs."""
        self._passed_to_commands = frozenset(but)

    @property
    def kept_from_commands(self) -> tuple[str, ...]:
        """The variables of its `env` that its commands do not get; what it has set itself they do get."""
        passed = self._passed_to_commands
        if passed is None:
            return ()
        from coupler.redaction.sources import secret_variables

        inherited = {name: value for name, value in self.env.items() if os.environ.get(name) == value}
        named = () if self._project is None else self._project.secret_names
        return tuple(name for name in secret_variables(inherited, named) if name not in passed)

    @property
    def command_env(self) -> dict[str, str]:
        """The environment of its commands: `env` without what is kept from them."""
        kept = self.kept_from_commands
        return {name: value for name, value in self.env.items() if name not in kept}

    def set_title(self, title: str | None) -> None:
        """Name the session, for lists and tabs; None clears the name."""
        whole = whole_text(title, "a session's title") if title is not None else None
        self._title = self.secrets.mask(whole) if whole is not None else None
        if self.outlet.journal is not None:
            self.outlet.journal.keep(Info(self._title))
        self._tell_title()

    def tell_settings(self, *, mode_changed: bool) -> None:
        """Journal the mode and options, and send them to the client, the mode also as a mode update."""
        if self.outlet.journal is not None:
            self.outlet.journal.keep_settings(self._settings.saved())
        if mode_changed and self.mode is not None:
            self._tell(ModeChange(self.mode))
        options = self._settings.as_options()
        if options is not UNSET:
            self._tell(Options(options))

    def become_known(self, *, again: bool = True) -> None:
        """Send the title, if it is news, and the commands, because the client knows the session now.

        `again` sends the commands once more after a moment, or when the next turn begins if that is earlier.
        """
        self._is_known = True
        self._stop_repeating()
        self._tell_title()
        if self._commands:
            self._send_commands()
            if again:
                loop = asyncio.get_running_loop()
                self._commands_again = loop.call_later(COMMANDS_AGAIN, self._repeat_commands)

    def admit(self, request: Request, blocks: tuple[ContentBlock, ...], meta: Mapping[str, Any]) -> None:
        """Start the turn of a prompt, before the next message is read."""
        if self._prompting is not None:
            raise session_busy(self.id)
        self._refuse_unaccepted(blocks)
        request.lane = self.id
        if self._commands_again is not None:
            # Later they could come after the turn's answer, where nothing is expected but news.
            self._repeat_commands()
        self.secrets.look_again()
        self.outlet.begin_turn()
        turn = Turn(self, blocks, meta)
        if self.outlet.journal is not None:
            redactor = self.secrets.prompt_redactor(self._agent.hidden_in(self, blocks))
            self.outlet.journal.begin_turn(
                self.outlet.new_message_id(), request.params, redactor.covered_blocks
            )
            if self.title is None or not self._agent.can_be_title(self, self.title):
                self._title_after(redactor.mask(turn.text))
        self._prompting = Prompting(request, turn, self._agent, self._turn_ended)
        self._prompting.start(self._peer)

    async def until_ready(self) -> None:
        """Wait until a turn may begin: earlier work is done, and the store takes what is written."""
        if self.in_order.locked():
            async with self.in_order:
                pass
        journal = self.outlet.journal
        if journal is not None and (self._agent.keeps_prompts or journal.is_delayed):
            await journal.until_prompt_stored()

    async def until_logged_in(self) -> None:
        """Raise the error to answer with if the user is not logged in any more."""
        await self._logins.require()

    @property
    def is_logged_in(self) -> bool:
        """True if it is known without a check that the user is logged in."""
        return self._logins.is_known_satisfied

    async def until_stored(self) -> None:
        """Wait until everything that happened so far is durable."""
        if self.outlet.journal is not None:
            await self.outlet.journal.until_stored()

    @property
    def turn_number(self) -> int | None:
        """The number of the turn that runs or has ended last; None if the session is not journaled."""
        return None if self.outlet.journal is None else self.outlet.journal.turn

    def change_hidden_turns(self, *, hidden: Iterable[int] = (), shown: Iterable[int] = ()) -> None:
        """Leave turns out when the session is replayed, or have them replayed again."""
        if self.outlet.journal is not None:
            self.outlet.journal.change_hidden(TurnsHidden(tuple(hidden), tuple(shown)))

    def end_turn(self, end: TurnEnd, done: Callable[[RpcError | None], None]) -> None:
        """Make the turn's end durable, then call `done`: nothing that was answered may be lost."""
        self.outlet.end_message()
        if self.outlet.journal is not None:
            self.outlet.journal.end_turn(self.secrets.covered_end(end), self.state, done)
        else:
            done(None)

    def cancel(self, grace: float | None = None) -> None:
        """End the running turn, if there is one; the answer is `cancelled`."""
        if self._prompting is not None:
            self._prompting.cancel(grace)

    async def until_idle(self) -> None:
        """Wait until no turn runs; its answer is on its way then."""
        while self._prompting is not None:
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaiting_idle.append(idle)
            await idle

    def stop_updates(self) -> None:
        """Send the client no more updates of settings and commands, because the session is being closed."""
        self._is_known = False
        self._stop_repeating()

    def keep_state(self) -> None:
        """Journal the agent's state as it is now; raises StateError if it cannot be encoded."""
        if self.outlet.journal is not None:
            self.outlet.journal.keep_state(self.state)

    async def end_servers(self) -> None:
        """End the MCP servers that were started for the session."""
        if self._servers is not None:
            await self._servers.close()

    def end(self) -> None:
        """Stop journaling, and close the project: another connection may take the session."""
        self.outlet.stop_keeping()
        if self._project is not None:
            self._project.close()

    def _title_after(self, text: str) -> None:
        """Name the session by a prompt, unless it has a name that is no worse."""
        if self.title is not None and not self._agent.can_be_title(self, text):
            return
        first_line = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if first_line:
            cut = len(first_line) > LONGEST_TITLE
            self.set_title(f"{first_line[: LONGEST_TITLE - 1].rstrip()}…" if cut else first_line)

    def _send_commands(self) -> None:
        self._tell(self._offered_commands())

    def _offered_commands(self) -> Commands:
        return Commands(tuple(command.as_available() for command in self._commands))

    def _repeat_commands(self) -> None:
        self._stop_repeating()
        self._send_commands()

    def _stop_repeating(self) -> None:
        if self._commands_again is not None:
            self._commands_again.cancel()
            self._commands_again = None

    def _tell_title(self) -> None:
        if self._is_known and self._title != self._known_title:
            self._known_title = self._title
            self.outlet.show(Info(self._title))

    def _tell(self, event: EmittedEvent) -> None:
        """Send a change, unless the client does not know the session yet: then it is part of the answer."""
        if self._is_known:
            self.outlet.show(event)

    def _turn_ended(self) -> None:
        self._prompting = None
        for idle in self._awaiting_idle:
            if not idle.done():
                idle.set_result(None)
        self._awaiting_idle.clear()

    def _refuse_unaccepted(self, blocks: tuple[ContentBlock, ...]) -> None:
        for index, block in enumerate(blocks):
            kind = "unknown" if isinstance(block, Unknown) else str(block.__struct_config__.tag)
            if kind not in self._accepted:
                path, accepted = f"prompt[{index}]", ", ".join(sorted(self._accepted))
                message = f"{path}: this agent takes no {kind} blocks, only {accepted}"
                raise RpcError.because(INVALID_PARAMS, message, path=path)


def _parsed(settings: str) -> object:
    try:
        return msgspec.json.decode(settings)
    except msgspec.DecodeError:
        return None


class SessionSettings:
    """The modes and config options of one session, and their values, each of them one that is offered.

    The mode is an option too: where there are modes, a select with the id "mode" is made of them, and both
    are the same value. Nothing is sent from here; whoever changes a setting tells the client.
    """

    def __init__(self, modes: Iterable[Mode], options: Iterable[Option], *, booleans: bool) -> None:
        """Begin without modes and options; `booleans` is True if the client supports `BOOLEAN_OPTIONS`."""
        self._booleans = booleans
        self._modes: tuple[Mode, ...] = ()
        self._options: dict[str, Option] = {}
        self._values: dict[str, OptionValue] = {}
        # What was saved but is not offered: agents may declare what they offer after they were restored.
        self._awaited: dict[str, OptionValue] = {}
        self.declare(modes, options)

    @property
    def mode(self) -> str | None:
        """The id of the current mode, None if there are no modes."""
        return str(self._values[MODE]) if self._modes else None

    @property
    def values(self) -> Mapping[str, OptionValue]:
        """The current value of every option by its id, without the mode."""
        return {option.id: self._values[option.id] for option in self._own_options()}

    def __getitem__(self, option_id: str) -> OptionValue:
        try:
            return self._values[option_id]
        except KeyError:
            raise KeyError(self._no_option(option_id)) from None

    def declare(self, modes: Iterable[Mode] | None = None, options: Iterable[Option] | None = None) -> None:
        """Have other modes or options from now on; None leaves them as they are.

        Current values are kept where they are still offered, the others become the default.
        """
        new_modes = self._modes if modes is None else declared_modes(modes)
        new_options = self._own_options() if options is None else declared_options(options)
        offered = (*_made_of(new_modes, new_options), *new_options)
        self._modes = new_modes
        self._options = {option.id: option for option in offered}
        self._values = {option.id: self._still_offered(option) for option in offered}
        self._take_awaited()

    def set_mode(self, id: str) -> bool:
        """Change the mode; returns whether it is another one now."""
        if not self._modes:
            raise SettingError(f"there is no mode {id!r:.100}: the agent has no modes")
        if not self._options[MODE].offers(id):
            there_are = _listed(mode.id for mode in self._modes)
            raise SettingError(f"there is no mode {id!r:.100}; there are {there_are}")
        return self._change(MODE, id)

    def set(self, option_id: str, value: OptionValue) -> bool:
        """Change an option, as the agent's own code sees it; returns whether it has another value now."""
        option = self._option(option_id)
        if self._modes and option.id == MODE:
            raise SettingError("the mode is no option of the agent's own: change it with set_mode")
        _refuse_unoffered(option, value)
        return self._change(option.id, value)

    def set_by_client(self, config_id: str, value: OptionValue) -> bool:
        """Change an option, as the client sees it; returns whether it has another value now."""
        option = self._option(config_id)
        shown = self._as_shown(option)
        _refuse_unoffered(shown, value)
        return self._change(option.id, value == ON if shown is not option else value)

    def as_modes(self) -> v1.SessionModeState | UnsetType:
        """The modes as session/new, load and resume tell them; UNSET if there are none."""
        if not self._modes:
            return UNSET
        return v1.SessionModeState(str(self._values[MODE]), tuple(mode.as_mode() for mode in self._modes))

    def as_options(self) -> tuple[v1.SessionConfigOption, ...] | UnsetType:
        """All options with their values, the mode first; UNSET if there are none."""
        return tuple(self._as_option(option) for option in self._options.values()) or UNSET

    def saved(self) -> dict[str, Any]:
        """The current values, for a file."""
        return {"mode": self.mode, "options": dict(self.values)}

    def restore(self, saved: object) -> None:
        """Take over saved values. What is not offered stays at its default; what cannot be read is ignored.

        A value that is offered by a later `declare` is taken over then, unless something else was set before.
        """
        self._awaited.update(_values_saved_in(saved))
        self._take_awaited()

    def _own_options(self) -> tuple[Option, ...]:
        """The options that the agent declared itself."""
        options = tuple(self._options.values())
        return options[1:] if self._modes else options

    def _still_offered(self, option: Option) -> OptionValue:
        value = self._values.get(option.id)
        return value if value is not None and option.offers(value) else option.default

    def _option(self, option_id: str) -> Option:
        try:
            return self._options[option_id]
        except (KeyError, TypeError):
            raise SettingError(self._no_option(option_id)) from None

    def _no_option(self, option_id: object) -> str:
        return f"there is no option {option_id!r:.100}; there are {_listed(self._options)}"

    def _change(self, option_id: str, value: OptionValue) -> bool:
        self._awaited.pop(option_id, None)
        if self._values[option_id] == value:
            return False
        # A subclass of str is welcome, but the encoder knows none.
        self._values[option_id] = str.__str__(value) if isinstance(value, str) else value
        return True

    def _take_awaited(self) -> None:
        for option_id, value in [*self._awaited.items()]:
            option = self._options.get(option_id)
            if option is not None and option.offers(value):
                self._change(option_id, value)

    def _as_shown(self, option: Option) -> Option:
        """The option in the form that this client knows."""
        return option.as_select() if isinstance(option, Toggle) and not self._booleans else option

    def _as_option(self, option: Option) -> v1.SessionConfigOption:
        shown, value = self._as_shown(option), self._values[option.id]
        if shown is not option:
            value = ON if value else OFF
        return shown.as_option(value)


def _made_of(modes: tuple[Mode, ...], options: tuple[Option, ...]) -> tuple[Option, ...]:
    if not modes:
        return ()
    if any(option.id == MODE for option in options):
        raise ValueError(
            f"the option {MODE!r} is made of the agent's modes: take yours out, or give it another id"
        )
    choices = [Choice(mode.id, mode.name, mode.description) for mode in modes]
    return (Select(MODE, choices, name="Mode", category=MODE),)


def _values_saved_in(saved: object) -> dict[str, OptionValue]:
    if not isinstance(saved, dict):
        return {}
    options, mode = saved.get("options"), saved.get("mode")
    values = {**options} if isinstance(options, dict) else {}
    if mode is not None:
        values[MODE] = mode
    return {
        option_id: value
        for option_id, value in values.items()
        if isinstance(option_id, str) and isinstance(value, OptionValue)
    }


def _refuse_unoffered(option: Option, value: object) -> None:
    if option.offers(value):
        return
    if isinstance(option, Toggle):
        raise SettingError(f"the option {option.id!r} is a boolean, true or false, not {value!r:.100}")
    raise SettingError(
        f"the option {option.id!r} has no value {value!r:.100}; it has {_listed(option.values)}"
    )


def _listed(ids: Iterable[str]) -> str:
    names = [*ids]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more if names else "none"


async def change_mode(session: Session, params: v1.SetSessionModeRequest) -> v1.SetSessionModeResponse:
    """Handle `session/set_mode`, also while a turn runs. A change that the agent refuses is taken back."""
    await _change(session, "modeId", MODE, lambda: session.settings.set_mode(params.mode_id))
    return v1.SetSessionModeResponse()


async def change_option(session: Session, params: OptionChange) -> v1.SetSessionConfigOptionResponse:
    """Handle `session/set_config_option`; one option may change others, so all are in the answer."""
    option, value = params.config_id, params.value
    await _change(session, "value", option, lambda: session.settings.set_by_client(option, value))
    options = session.settings.as_options()
    return v1.SetSessionConfigOptionResponse(options if isinstance(options, tuple) else ())


async def _change(session: Session, field: str, option: str, change: Callable[[], bool]) -> None:
    """Check a change, tell the agent, keep it and tell the client, one change after the other."""
    async with session.in_order:
        before = session.settings.saved()
        try:
            is_changed = change()
        except SettingError as error:
            raise RpcError.because(INVALID_PARAMS, str(error), path=field) from None
        if not is_changed:
            return
        is_mode = option == MODE and session.mode is not None
        try:
            if is_mode:
                await call_hook(session.agent.mode_changed, session)
            else:
                await call_hook(session.agent.option_changed, session, option)
        except BaseException as error:
            # Only this one: the agent may have changed others meanwhile.
            session.settings.restore(
                {"mode": before["mode"]} if is_mode else {"options": {option: before["options"][option]}}
            )
            raise error if isinstance(error, asyncio.CancelledError) else agent_failed(error) from None
        session.tell_settings(mode_changed=is_mode)
        session.keep_state()
        await session.until_stored()


class Project:
    """The configuration of a session's directory, with its permissions and MCP servers."""

    def __init__(self, config: Config, directory: str, choices: ChoiceStore | None) -> None:
        self.config = config
        self.directory = directory
        """The directory of its configuration file, else of its repository, else the session's own."""
        self._choices = choices
        self._permissions: SessionPermissions | None = None
        self.used_servers: frozenset[str] | None = None
        """The names of the configured MCP servers that are used; None for all of them."""

    @classmethod
    def of(cls, cwd: str, environ: Mapping[str, str], choices: ChoiceStore | None) -> Project:
        """Load the project that a directory is in. Wrong files raise an error: they may forbid something."""
        # Imported on use, here and below: an agent's first answer needs none of it.
        from coupler.config.lookup import project_directory

        config = configuration_of(cwd, environ)
        for note in config.notes:
            log.warning("%s", note)
        project = cls(config, project_directory(cwd, environ), choices)
        if project.has_rules:
            project.permissions()
        return project

    @property
    def has_rules(self) -> bool:
        """True if the configuration has permission rules."""
        rules = self.config.permissions
        return bool(rules.allow or rules.ask or rules.deny)

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The environment variables that the configuration declares secret."""
        return tuple(entry.text for entry in self.config.secrets.names)

    @property
    def mcp_servers(self) -> tuple[McpServer, ...]:
        """The MCP servers that the user has set, and the project if it is trusted."""
        from coupler.mcp.servers import server_name

        servers, used = self.config.mcp, self.used_servers
        return servers if used is None else tuple(each for each in servers if server_name(each) in used)

    def permissions(self) -> SessionPermissions:
        """Return what decides about tool calls; made for the first request, or to check the rules."""
        if self._permissions is None:
            from coupler.agent.permission import SessionPermissions

            try:
                self._permissions = SessionPermissions(self.config, self.directory, self._choices)
            except ValueError as error:
                raise RpcError.because(CONFIG_WRONG, str(error)) from None
        return self._permissions

    def close(self) -> None:
        """Drop the permission choices of the session, because it is closed."""
        if self._permissions is not None:
            self._permissions.close()


def configuration_of(cwd: str | None, environ: Mapping[str, str]) -> Config:
    """Load the configuration that holds in a directory; without one, the user's alone."""
    from coupler.config import ConfigError, load

    try:
        return load(cwd, environ=environ, trust=StoredTrust())
    except ConfigError as error:
        raise RpcError.because(CONFIG_WRONG, str(error)) from None


class StoredTrust:
    """Looks up in the user's store which projects are trusted. What cannot be read is not trusted.

    `coupler trust` writes there, whichever file keeps the sessions of this agent, or none.
    """

    def is_trusted(self, path: str, content: bytes) -> bool:
        """Return whether the file at this real path was trusted with exactly this content."""
        # Imported on use: most projects set nothing that needs trust.
        from coupler.config import load
        from coupler.runtime.directories import NoHomeError, store_file
        from coupler.store.choices import Trust
        from coupler.store.database import Database
        from coupler.store.errors import StoreError

        try:
            file = load(None, environ=os.environ).sessions.store or store_file()
            if not os.path.exists(file):
                return False
            database = Database(file)
        except (StoreError, NoHomeError) as error:
            log.warning("%s is not trusted, because the user's store cannot be read: %s", path, error)
            return False
        try:
            return Trust(database).is_trusted(path, content)
        except StoreError as error:
            log.warning("%s is not trusted, because the user's store cannot be read: %s", path, error)
            return False
        finally:
            database.close()


async def call_hook(hook: Callable[..., Any], *arguments: Any) -> None:
    """Call one of an agent's own functions for its session, plain or async."""
    result = hook(*arguments)
    if inspect.isawaitable(result):
        await result


class SessionEnvironment(dict[str, str]):
    """The environment of a session's commands. `noticed` gets variables set later: they may be secret."""

    def __init__(self, variables: Mapping[str, str], noticed: Callable[[Mapping[str, str]], None]) -> None:
        super().__init__(variables)
        self._noticed = noticed

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name, value)
        self._noticed({name: value})

    def setdefault(self, name: str, default: str = "") -> str:
        """The variable's value, which is set if there is none."""
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, *variables: Any, **more: str) -> None:
        """Set several variables."""
        changes: dict[str, str] = dict(*variables, **more)
        super().update(changes)
        self._noticed(changes)

    def __ior__(self, variables: Any) -> Self:  # type: ignore[override,misc]
        self.update(variables)
        return self


def pack_state(state: Any) -> bytes | None:
    """Encode an agent's state for the store: bytes as they are, everything else as JSON; None stays None."""
    if state is None:
        return None
    if isinstance(state, bytes | bytearray | memoryview):
        return _BYTES + bytes(state)
    try:
        return _JSON + msgspec.json.encode(state)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"session.state is saved with the turn, so it must be bytes or what JSON can hold: {error}"
        raise StateError(message) from None


def unpack_state(packed: bytes | None) -> Any:
    """Decode an agent's state, as far as JSON remembers types."""
    if not packed:
        return None
    if packed[:1] == _BYTES:
        return packed[1:]
    return msgspec.json.decode(packed[1:])

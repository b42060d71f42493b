"""A session: its directories, its agent, its settings and tool calls, and the one turn that may run in it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from coupler.agent.agent import Agent, accepted_blocks
from coupler.agent.command import Command, declared_commands
from coupler.agent.editor import Editor
from coupler.agent.errors import session_busy
from coupler.agent.hooks import call_hook
from coupler.agent.known_files import KnownFiles
from coupler.agent.login import Logins
from coupler.agent.mode import Mode
from coupler.agent.option import Option
from coupler.agent.outlet import Outlet
from coupler.agent.project import Project
from coupler.agent.prompting import Prompting
from coupler.agent.session_environment import SessionEnvironment
from coupler.agent.settings import BOOLEANS, Settings
from coupler.agent.state import unpack
from coupler.agent.text import plain_text, whole_text
from coupler.agent.turn import Turn
from coupler.agent.veil import Veil
from coupler.events import Commands, Info, Options
from coupler.events import Mode as ModeChange
from coupler.events.records import End
from coupler.events.v1_codec import Emitted
from coupler.schema.base import Unknown
from coupler.schema.v1 import ContentBlock, McpServer
from coupler.wire.messages import INVALID_PARAMS, RpcError
from coupler.wire.peer import Peer, Request

if TYPE_CHECKING:
    from coupler.agent.mcp import SessionMcp
    from coupler.mcp.servers import Servers
    from coupler.store.sessions import SessionRecord

log = logging.getLogger("coupler.agent")

COMMANDS_AGAIN = 0.2
"""Seconds after which the commands are sent once more: one popular editor drops them if they come early."""

LONGEST_TITLE = 80
"""Characters of a title that is made of the first prompt."""


class Place(NamedTuple):
    """Where a session works, and with which servers, as its client said."""

    cwd: str
    additional_directories: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()


class Session:
    """One conversation. Its state has one owner: this object, on the event loop."""

    def __init__(self, id: str, place: Place, editor: Editor, peer: Peer) -> None:
        self.id = id
        self.place = place
        self.editor = editor
        self.secrets = Veil(place.mcp_servers)
        """What nobody is shown; see `add_secret`."""
        self.env: dict[str, str] = SessionEnvironment(os.environ, self.secrets.notice)
        """The environment of what the session runs; a change concerns no other session."""
        self.withheld: frozenset[str] = frozenset()
        """The variables that nothing the session runs gets to see; see `withhold`."""
        self.state: Any = None
        """The agent's own memory of the session, bytes or what JSON can hold: saved with every turn."""
        self.outlet = Outlet(id, editor, peer, self.secrets)
        """The way out for everything that happens here."""
        self.known_files = KnownFiles()
        """What the session has seen in files, so that it overwrites nothing else."""
        self.readable_places: set[str] = set()
        """Directories outside of its own that its tools may read and search without asking, and no more."""
        self.in_order = asyncio.Lock()
        """Held by work that has to happen one after the other; a turn begins when it is free."""
        self._peer = peer
        self._project: Project | None = None
        self._servers: Servers | None = None
        self._agent: Agent
        self._settings = Settings((), (), booleans=editor.offers(BOOLEANS))
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
        from coupler.agent.mcp import SessionMcp

        return SessionMcp(self.servers)

    @property
    def servers(self) -> Servers:
        """The connections to the MCP servers; nothing is started before it is used."""
        if self._servers is None:
            from coupler.mcp.servers import Servers, Surroundings, merged

            entries = merged(self.project.mcp_servers, self.place.mcp_servers)
            self._servers = Servers(entries, Surroundings(self.cwd, self.env), asks=True)
        return self._servers

    @property
    def project(self) -> Project:
        """What is set for the session's directory."""
        if self._project is None:
            self._project = Project.of(self.cwd, self.env, None)
        return self._project

    @property
    def title(self) -> str | None:
        """What the session is called; `set_title` changes it."""
        return self._title

    @property
    def agent(self) -> Agent:
        """Who answers the prompts."""
        return self._agent

    @property
    def settings(self) -> Settings:
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
        """Whether the client has heard of the session, and has not left it."""
        return self._is_known

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs."""
        return self._prompting is not None

    def belong_to(self, project: Project) -> None:
        """The session is in this project."""
        self._project = project
        self.secrets.add_names(project.secret_names, self.env)
        self.secrets.notice_servers(project.mcp_servers)

    def give_to(self, agent: Agent, logins: Logins) -> None:
        """From now on this agent answers the prompts, of users who are logged in."""
        self._agent = agent
        self._logins = logins
        self._accepted = accepted_blocks(agent)
        # A factory may have declared others before: what the agent leaves open stays.
        self._settings.declare(agent.modes or None, agent.options or None)
        if agent.commands:
            self._commands = declared_commands(agent.commands)

    async def move_to(self, place: Place) -> None:
        """Work in the directories and with the servers that the client names now."""
        if (
            self.outlet.chronicle is not None
            and place.additional_directories != self.place.additional_directories
        ):
            self.outlet.chronicle.keep_roots(place.additional_directories)
            await self.outlet.chronicle.until_stored()
        is_another, self.place = place != self.place, place
        self.secrets.notice_servers(place.mcp_servers)
        if is_another and self._servers is not None:
            from coupler.mcp.servers import merged

            await self._servers.replace(merged(self.project.mcp_servers, place.mcp_servers))
        if is_another:
            await call_hook(self._agent.moved, self)

    async def use_servers(self, names: Iterable[str] | None) -> None:
        """Of the configured MCP servers use only these, or all of them; the client's own are used anyway."""
        self.project.used_servers = None if names is None else frozenset(names)
        if self._servers is not None:
            from coupler.mcp.servers import merged

            await self._servers.replace(merged(self.project.mcp_servers, self.place.mcp_servers))

    def go_on_from(self, record: SessionRecord) -> None:
        """Take up what was saved of the session; modes and options may still be unknown."""
        self._title = self._known_title = record.title
        self._settings.restore(_parsed(record.settings))
        self.state = unpack(record.state)

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
        """Offer other slash commands from now on."""
        self._commands = declared_commands(commands)
        self._send_commands()

    def add_secret(self, name: str, value: str) -> None:
        """Show nobody this value from now on, but the name in its place."""
        self.secrets.add({plain_text(name, "a secret's name"): plain_text(value, "a secret")})

    def withhold(self, names: Iterable[str]) -> None:
        """Keep these variables of the process from what the session runs: its `env` does not have them."""
        self.withheld |= frozenset(names)
        for name in self.withheld:
            self.env.pop(name, None)

    def set_title(self, title: str | None) -> None:
        """Name the session, for lists and tabs; None clears the name."""
        whole = whole_text(title, "a session's title") if title is not None else None
        self._title = self.secrets.mask(whole) if whole is not None else None
        if self.outlet.chronicle is not None:
            self.outlet.chronicle.keep(Info(self._title))
        self._tell(Info(self._title))

    def tell_settings(self, *, mode_changed: bool) -> None:
        """Tell the client, in both ways there are to say it, and keep it."""
        if self.outlet.chronicle is not None:
            self.outlet.chronicle.keep_settings(self._settings.saved())
        if mode_changed and self.mode is not None:
            self._tell(ModeChange(self.mode))
        options = self._settings.as_options()
        if options is not UNSET:
            self._tell(Options(options))

    def become_known(self) -> None:
        """The client has heard of the session: tell it the commands, now and once more a little later."""
        self._is_known = True
        if self.title != self._known_title:
            self.outlet.show(Info(self.title))
        if self._commands:
            self._send_commands()
            loop = asyncio.get_running_loop()
            self._commands_again = loop.call_later(COMMANDS_AGAIN, self._send_commands)

    def admit(self, request: Request, blocks: tuple[ContentBlock, ...], meta: Mapping[str, Any]) -> None:
        """Make the prompt a running turn, before the next message is read."""
        if self._prompting is not None:
            raise session_busy(self.id)
        self._refuse_unaccepted(blocks)
        request.lane = self.id
        self.secrets.look_again()
        turn = Turn(self, blocks, meta)
        if self.outlet.chronicle is not None:
            veil = self.secrets.prompt_veil(self._agent.hidden_in(self, blocks))
            self.outlet.chronicle.begin_turn(
                self.outlet.new_message_id(), request.params, veil.covered_blocks
            )
            if self.title is None:
                self._title_after(veil.mask(turn.text))
        self._prompting = Prompting(request, turn, self._agent, self._turn_ended)
        self._prompting.start(self._peer)

    async def until_ready(self) -> None:
        """Wait until a turn may begin: nothing that came before it still runs, and it can be kept."""
        if self.in_order.locked():
            async with self.in_order:
                pass
        if self.outlet.chronicle is not None:
            await self.outlet.chronicle.until_turn_may_run()

    async def until_logged_in(self) -> None:
        """Raise what is to be answered if the user is not logged in any more."""
        await self._logins.require()

    @property
    def is_logged_in(self) -> bool:
        """Whether that is known without asking."""
        return self._logins.is_known_satisfied

    async def until_stored(self) -> None:
        """Wait until everything that happened so far is durable."""
        if self.outlet.chronicle is not None:
            await self.outlet.chronicle.until_stored()

    def end_turn(self, end: End, done: Callable[[RpcError | None], None]) -> None:
        """Make the turn's end durable, then call `done`: nothing that was answered may be lost."""
        self.outlet.end_message()
        if self.outlet.chronicle is not None:
            self.outlet.chronicle.end_turn(self.secrets.covered_end(end), self.state, done)
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

    def fall_silent(self) -> None:
        """The session is being left: the client hears no more of it."""
        self._is_known = False
        if self._commands_again is not None:
            self._commands_again.cancel()

    def keep_state(self) -> None:
        """Keep the agent's own memory as it is now; raises StateError if that cannot be done."""
        if self.outlet.chronicle is not None:
            self.outlet.chronicle.keep_state(self.state)

    async def end_servers(self) -> None:
        """End the MCP servers that were started for the session."""
        if self._servers is not None:
            await self._servers.close()

    def end(self) -> None:
        """The session is somebody else's from now on."""
        self.outlet.stop_keeping()
        if self._project is not None:
            self._project.close()

    def _title_after(self, text: str) -> None:
        first_line = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if first_line:
            cut = len(first_line) > LONGEST_TITLE
            self.set_title(f"{first_line[: LONGEST_TITLE - 1].rstrip()}…" if cut else first_line)

    def _send_commands(self) -> None:
        self._tell(Commands(tuple(command.as_available() for command in self._commands)))

    def _tell(self, event: Emitted) -> None:
        """Tell the client what has changed; before it knows the session, that is part of the answer."""
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

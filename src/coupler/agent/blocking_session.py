"""Sessions for plain functions: the same words as `Session`, from a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coupler.runtime.threads import OnLoop, WorkerLoop
from coupler.schema.v1 import McpServer

if TYPE_CHECKING:
    from coupler.agent.command import Command
    from coupler.agent.editor import Editor
    from coupler.agent.mode import Mode
    from coupler.agent.option import Option
    from coupler.agent.session import Session


class BlockingSession(OnLoop):
    """`Session` for a plain function."""

    def __init__(self, session: Session, loop: WorkerLoop) -> None:
        super().__init__(loop)
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def cwd(self) -> str:
        return self._session.cwd

    @property
    def roots(self) -> tuple[str, ...]:
        return self._session.roots

    @property
    def env(self) -> dict[str, str]:
        return self._session.env

    @property
    def mcp_servers(self) -> tuple[McpServer, ...]:
        return self._session.mcp_servers

    @property
    def editor(self) -> Editor:
        return self._session.editor

    @property
    def title(self) -> str | None:
        return self._session.title

    @property
    def mode(self) -> str | None:
        return self._session.mode

    @property
    def options(self) -> Mapping[str, str | bool]:
        return self._session.options

    @property
    def commands(self) -> tuple[Command, ...]:
        return self._session.commands

    @property
    def state(self) -> Any:
        return self._session.state

    @state.setter
    def state(self, state: Any) -> None:
        self._session.state = state

    def set_mode(self, id: str) -> None:
        self._wait(_now(self._session.set_mode, id))

    def set_option(self, id: str, value: str | bool) -> None:
        self._wait(_now(self._session.set_option, id, value))

    def set_title(self, title: str | None) -> None:
        self._wait(_now(self._session.set_title, title))

    def add_secret(self, name: str, value: str) -> None:
        self._wait(_now(self._session.add_secret, name, value))

    def set_commands(self, commands: Sequence[Command]) -> None:
        self._wait(_now(self._session.set_commands, commands))

    def declare(
        self, *, modes: Sequence[Mode] | None = None, options: Sequence[Option] | None = None
    ) -> None:
        self._wait(_now(self._session.declare, modes=modes, options=options))


async def _now(function: Callable[..., None], *arguments: Any, **keywords: Any) -> None:
    """On the loop: a thread must not touch what the loop owns."""
    function(*arguments, **keywords)

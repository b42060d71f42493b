"""What the user and the project have set for one session, looked up from the session's own directory."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from coupler.agent.errors import CONFIG_WRONG
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.agent.permitting import Permitting
    from coupler.config import Config
    from coupler.permission.engine import ChoiceStore
    from coupler.schema.v1 import McpServer

log = logging.getLogger("coupler.agent")


class Project:
    """The configuration of a session's directory, and what is decided by it."""

    def __init__(self, config: Config, directory: str, choices: ChoiceStore | None) -> None:
        self.config = config
        self.directory = directory
        """Where its file is, else its repository, else the session's own directory."""
        self._choices = choices
        self._permitting: Permitting | None = None
        self.used_servers: frozenset[str] | None = None
        """The names of the configured MCP servers that are used; None for all of them."""

    @classmethod
    def of(cls, cwd: str, environ: Mapping[str, str], choices: ChoiceStore | None) -> Project:
        """The project that a directory is in. Files that are wrong refuse it: they may forbid something."""
        # Imported on use, here and below: an agent's first answer needs none of it.
        from coupler.config.lookup import project_directory

        config = configuration_of(cwd, environ)
        for note in config.notes:
            log.warning("%s", note)
        project = cls(config, project_directory(cwd, environ), choices)
        if project.has_rules:
            project.permitting()
        return project

    @property
    def has_rules(self) -> bool:
        """Whether anybody wrote rules."""
        from coupler.config import keys

        return any(self.config[key] for key in (keys.ALLOW, keys.ASK, keys.DENY))

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The environment variables that somebody called secret."""
        from coupler.config import keys

        return tuple(entry.text for entry in self.config[keys.SECRET_NAMES])

    @property
    def mcp_servers(self) -> tuple[McpServer, ...]:
        """The MCP servers that the user has set, and the project if it is trusted."""
        from coupler.config import keys
        from coupler.mcp.servers import server_name

        servers, used = self.config[keys.MCP], self.used_servers
        return servers if used is None else tuple(each for each in servers if server_name(each) in used)

    def permitting(self) -> Permitting:
        """Who decides about tool calls; made when the first one asks, or there are rules to be checked."""
        if self._permitting is None:
            from coupler.agent.permitting import Permitting

            try:
                self._permitting = Permitting(self.config, self.directory, self._choices)
            except ValueError as error:
                raise RpcError.because(CONFIG_WRONG, str(error)) from None
        return self._permitting

    def close(self) -> None:
        """The session is left."""
        if self._permitting is not None:
            self._permitting.close()


def configuration_of(cwd: str | None, environ: Mapping[str, str]) -> Config:
    """The configuration that holds in a directory; without one, the user's alone."""
    from coupler.agent.kept_trust import KeptTrust
    from coupler.config import ConfigError, load

    try:
        return load(cwd, environ=environ, trust=KeptTrust())
    except ConfigError as error:
        raise RpcError.because(CONFIG_WRONG, str(error)) from None

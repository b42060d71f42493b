"""The agent that `coupler serve` serves without a target: each project's workflows, and the coder.

Imports next to nothing, because an editor waits for the first answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, structs

from coupler.__about__ import __version__
from coupler.agent.agent import Agent
from coupler.agent.auth import Logins
from coupler.agent.capabilities import TERMINAL_COMMAND, initialize_response
from coupler.agent.errors import AGENT_FAILED, AuthRequiredError
from coupler.agent.factory import AgentFactory
from coupler.runtime.directories import working_directory
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    AgentAuthCapabilities,
    AuthMethod,
    AuthMethodAgent,
    AuthMethodTerminal,
    InitializeResponse,
    LogoutCapabilities,
)
from coupler.wire.messages import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.startup.serve_options import ServeOptions

IDENTITY = "coder"
"""Identity of the sessions in the store, in the editor as in a terminal."""

LOGIN_METHOD = "coder-login"
"""The id of the authentication method, of whichever type a client gets it."""

LOGIN_OPTION = "--login"
"""The argument behind which `coupler serve` logs in, in a terminal, and serves nothing."""

_LOGIN_COMMAND = ("-m", "coupler", "login", IDENTITY)


class CoderCapabilities(Agent):
    """The coder's capabilities, which are advertised before there is a session."""

    accepts = ("image", "resource")


class Coder:
    """The coder in one of its profiles, with the workflows of its sessions' projects or without."""

    def __init__(
        self,
        profile: str = IDENTITY,
        *,
        model: str | None = None,
        has_workflows: bool = True,
        has_commands: bool = True,
    ) -> None:
        self._profile = profile
        self._model = model
        self._has_workflows = has_workflows
        self._has_commands = has_commands

    def make_factory(self, options: ServeOptions) -> AgentFactory:
        """Make the factory of the sessions' agents."""
        is_profile = self._profile != IDENTITY
        told = options._replace(
            name=options.name or "coupler",
            title=options.title or options.name or (f"Coupler {self._profile}" if is_profile else "Coupler"),
            version=options.version or __version__,
        )

        async def agent_for(session: Session) -> Agent:
            from coupler.coder.agent import CoderAgent

            return CoderAgent(
                session,
                self._profile,
                self._model,
                options,
                has_workflows=self._has_workflows,
                has_commands=self._has_commands,
            )

        async def forget(session_id: str, state: Any) -> None:
            from coupler.coder.tools.outputs import delete_outputs

            await in_thread(lambda: delete_outputs(session_id))

        logins = CoderLogins(self._profile, self._model)
        identity = f"{IDENTITY}:{self._profile}" if is_profile else IDENTITY
        return AgentFactory(
            _with_login(initialize_response(CoderCapabilities, told), logins.state()),
            agent_for,
            identity=identity,
            store=options.store,
            forget=forget,
            logins=logins,
        )


class LoginState(NamedTuple):
    """Tells whether the model can be asked, in the directory that the process was started in."""

    problem: str | None
    """Words for what is missing, and what to do about it; None if the user is logged in."""
    is_stored: bool = False
    """True if what `coupler login coder` has stored is needed, so that one can log out."""


class CoderLogins(Logins):
    """Answers `authenticate` and `logout`. Sessions need no login: a prompt asks for one that needs it."""

    def __init__(self, profile: str, model: str | None) -> None:
        super().__init__(())
        self._profile = profile
        self._model = model

    def state(self) -> LoginState:
        """Look whether there is a model, and its key; what is wrong in the settings is a problem, too."""
        from coupler.agent.session import configuration_of
        from coupler.coder.model.choice import chosen_model, depends_on_login, login_problem
        from coupler.coder.model.credentials import ModelError
        from coupler.coder.profiles import ProfileError, profile_of

        try:
            config = configuration_of(working_directory(), os.environ)
            profile = profile_of(self._profile, config)
            problem = login_problem(config, chosen_model(config, profile, self._model))
            return LoginState(problem, problem is None and depends_on_login(config, profile, self._model))
        except (ModelError, ProfileError) as error:
            return LoginState(str(error))
        except RpcError as error:
            return LoginState(error.message)

    async def authenticate(
        self, method_id: str, meta: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """Look again whether there is a model; raises the error that says what is missing."""
        if method_id != LOGIN_METHOD:
            message = f"there is no login {method_id!r:.100}; there is {LOGIN_METHOD}"
            raise RpcError.because(INVALID_PARAMS, message, path="methodId")
        state = await in_thread(self.state)
        if state.problem is None:
            return None
        from coupler.coder.model.choice import how_to_set_up

        raise AuthRequiredError(state.problem, {"kind": "setup", "explanation": how_to_set_up()})

    async def log_out(self, meta: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        """Delete what `coupler login coder` has stored."""
        from coupler.coder.model.credentials import remove_credentials

        try:
            await in_thread(remove_credentials)
        except OSError as error:
            raise RpcError.because(AGENT_FAILED, f"logging out failed: {error}") from None
        return None


def _with_login(introduction: InitializeResponse, state: LoginState) -> InitializeResponse:
    """Return the answer to `initialize` with the login if it is needed, and the logout if there is one."""
    can_log_out = AgentAuthCapabilities(logout=LogoutCapabilities() if state.is_stored else UNSET)
    return structs.replace(
        introduction,
        auth_methods=() if state.problem is None else _login_methods(),
        agent_capabilities=structs.replace(introduction.agent_capabilities, auth=can_log_out),
    )


def _login_methods() -> tuple[AuthMethod, ...]:
    """Return one login in two types: for clients that have terminals for it, and for all others."""
    name = "Log in to a model"
    command = {"label": name, "command": sys.executable, "args": [*_LOGIN_COMMAND], "env": {}}
    return (
        AuthMethodTerminal(
            LOGIN_METHOD, name, "Asks for a model and its key, in a terminal.", [LOGIN_OPTION]
        ),
        AuthMethodAgent(
            LOGIN_METHOD,
            name,
            "Run `coupler login coder` in a terminal, or set COUPLER_MODEL, then choose this to go on.",
            meta={TERMINAL_COMMAND: command},
        ),
    )

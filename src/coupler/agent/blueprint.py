"""What is served: how it introduces itself, and how each session gets its agent."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from coupler.agent.agent import Agent, FunctionAgent, is_turn_function
from coupler.agent.introduction import distribution_version, identity, identity_of, introduce
from coupler.agent.login import Login, Logins
from coupler.agent.serve_options import NO_OPTIONS, ServeOptions
from coupler.schema.v1 import InitializeResponse

if TYPE_CHECKING:
    from coupler.agent.session import Session

WHAT_CAN_BE_SERVED = (
    "serve takes a function with one parameter named `turn`, an Agent subclass or instance, "
    "or a string such as 'app.py:agent'"
)


class Blueprint:
    """A target that was looked at: served to every session in the way its form asks for."""

    def __init__(
        self,
        introduction: InitializeResponse,
        agent_for: Callable[[Session], Awaitable[Agent]],
        *,
        identity: str,
        store: str | None,
        logins: Sequence[Login] = (),
    ) -> None:
        self.introduction = introduction
        self.agent_for = agent_for
        self.identity = identity
        """What this agent's sessions are found by, whatever it is called this time."""
        self.store = store
        """What was said of the file that keeps its sessions: None for the user's, NO_STORE for none."""
        self.logins = Logins(logins)

    @classmethod
    def of(cls, target: Any, options: ServeOptions = NO_OPTIONS) -> Blueprint:
        """The blueprint of a turn function, an `Agent` subclass or an `Agent` instance."""
        is_class = isinstance(target, type) and issubclass(target, Agent)
        described: Agent | type[Agent] = target if is_class else as_agent(target)

        async def agent_for(session: Session) -> Agent:
            return described() if isinstance(described, type) else described

        return cls(
            introduce(described, options),
            agent_for,
            identity=identity_of(described),
            store=options.store,
            logins=described.logins,
        )

    @classmethod
    def of_factory(cls, factory: Callable[[Session], Any], options: ServeOptions = NO_OPTIONS) -> Blueprint:
        """The blueprint of a function, plain or async, that gets each session and returns its agent."""
        own_name = getattr(factory, "__name__", type(factory).__name__)
        if own_name == "<lambda>":
            own_name = "agent"
        module = factory.__module__ or ""
        version = options.version or distribution_version(module)
        introduction = introduce(Agent, options._replace(name=options.name or own_name, version=version))

        async def agent_for(session: Session) -> Agent:
            made = factory(session)
            return as_agent(await made if inspect.isawaitable(made) else made)

        return cls(introduction, agent_for, identity=identity(module, own_name), store=options.store)


def as_agent(target: Any) -> Agent:
    """The target as an agent, or an error that says what can be served."""
    if isinstance(target, Agent):
        return target
    if isinstance(target, type) and issubclass(target, Agent):
        return target()
    if is_turn_function(target):
        return FunctionAgent(target)
    raise TypeError(f"{WHAT_CAN_BE_SERVED}; this is {target!r}")
